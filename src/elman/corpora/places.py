"""Names of countries, languages, months, days and currencies, and the language each name belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from elman.corpora.base import Corpus, split_of
from elman.errors import ArgumentError

if TYPE_CHECKING:
    from babel import Locale

LANGUAGES = {
    "ar": "Arabic",
    "cs": "Czech",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "hu": "Hungarian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "pl": "Polish",
    "pt": "Portuguese",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "zh": "Chinese",
}


class Places(Corpus):
    """About 20,000 names in 22 languages and 10 scripts, from the CLDR data that Babel carries.

    A name that two of the languages share is left out, so that every question has one answer. The
    seed decides the order; the names depend on the release of Babel.
    """

    task = "classify"
    summary = "names of countries, languages, months, days and currencies → one of 22 languages (needs Babel)"
    settings: ClassVar[dict[str, Any]] = {"text.unit": "character"}

    def generate(self, split: str, random: Random) -> Iterator[dict[str, Any]]:
        pairs = [(text, label) for text, label in _names() if split_of(text) == split]
        random.shuffle(pairs)
        for text, label in pairs:
            yield {"text": text, "label": label}


def _names() -> list[tuple[str, str]]:
    """(name, language), in a fixed order, without the names that several languages share."""
    try:
        from babel import Locale
    except ImportError as error:
        raise ArgumentError("corpus 'places' needs Babel; pip install elman[demo]") from error
    pairs = [
        (name, label)
        for code, label in LANGUAGES.items()
        for name in sorted(_names_in(Locale.parse(code)))
        if any(character.isalpha() for character in name)
    ]
    count = Counter(name for name, _ in pairs)
    return [(name, label) for name, label in pairs if count[name] == 1]


def _names_in(locale: Locale) -> set[str]:
    names = {*locale.territories.values(), *locale.languages.values(), *locale.currencies.values()}
    for table in (locale.months, locale.days):
        names.update(table["format"]["wide"].values(), table["stand-alone"]["wide"].values())
    return names
