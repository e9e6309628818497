"""Which scripts a text is written in."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

SCRIPTS = """
    LATIN GREEK CYRILLIC ARMENIAN HEBREW ARABIC SYRIAC THAANA NKO DEVANAGARI BENGALI GURMUKHI GUJARATI ORIYA
    TAMIL TELUGU KANNADA MALAYALAM SINHALA THAI LAO TIBETAN MYANMAR GEORGIAN HANGUL ETHIOPIC CHEROKEE KHMER
    MONGOLIAN CJK HIRAGANA KATAKANA BOPOMOFO YI TIFINAGH JAVANESE COPTIC GOTHIC
"""
NAMES = {name: name.capitalize() for name in SCRIPTS.split()} | {"CJK": "Han"}
UNSPACED = frozenset({"Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"})

# Letters of scripts that put no space between words, as a class of a regular expression has them.
UNSPACED_LETTERS = (
    "\u0e01-\u0e4e\u0e81-\u0ece\u0f40-\u0fbc\u1000-\u109f\u1780-\u17d3\u3005-\u3007\u3041-\u30ff\u3400-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003fffd"
)
RUN = re.compile(f"[{UNSPACED_LETTERS}]{{8,}}")  # so many of them that they are hardly one word
ALIKE = re.compile("[A-Za-z].*[\u0370-\u03ff\u0400-\u04ff]|[\u0370-\u03ff\u0400-\u04ff].*[A-Za-z]")


def script_of(character: str) -> str | None:
    """The script of a letter; None for what belongs to all of them.

    >>> script_of("a"), script_of("年"), script_of("ー"), script_of("7"), script_of("µ")
    ('Latin', 'Han', 'Katakana', None, None)
    """
    if unicodedata.category(character)[0] != "L":
        return None
    words = unicodedata.name(character, "").replace("-", " ").split()
    return next((NAMES[word] for word in words if word in NAMES), None)


def scripts_of(characters: Mapping[str, int]) -> Counter[str]:
    """Letters by their script, the most frequent first.

    >>> scripts_of(Counter("ab, я")).most_common()
    [('Latin', 2), ('Cyrillic', 1)]
    """
    found = Counter[str]()
    for character, count in characters.items():
        script = script_of(character)
        if script is not None:
            found[script] += count
    return Counter(dict(found.most_common()))


def is_mixed(word: str) -> bool:
    """Has a word Latin letters beside Greek or Cyrillic ones, which look alike?

    >>> is_mixed("pаypal"), is_mixed("paypal")
    (True, False)
    """
    return not word.isascii() and ALIKE.search(word) is not None and "-" not in word
