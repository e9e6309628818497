"""This module shows tokens and titles as people can see them, whatever characters they hold."""

import unicodedata

LONGEST = 20  # characters of a label; of longer tokens the beginning is shown
SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}  # categories of what leaves no ink
SHAPING = {"\u200c", "\u200d", *map(chr, range(0xFE00, 0xFE10))}  # change how their neighbours look


def visible(text: str, *, space: str = SIGNS[" "]) -> str:
    """Return the text with nothing invisible in it: signs for white space, code points for other characters
    without ink, and a dotted circle under a mark that has no letter.

    >>> visible(" "), visible("\\u200b"), visible("\\u093f"), visible("co\\u00adop")
    ('␣', 'U+200B', '◌ि', 'co U+00AD op')
    """
    signs = SIGNS | {" ": space}
    shown = "".join(signs.get(c) or (code_point(c) if _is_hidden(c, text) else c) for c in text)
    shown = " ".join(shown.split())
    return f"◌{shown}" if unicodedata.category(shown[:1] or " ")[0] == "M" else shown


def _is_hidden(character: str, text: str) -> bool:
    """Tell whether a character leaves no ink; in a word, a joiner does its work on the letters beside it."""
    if character in SHAPING:
        return len(text) == 1
    return unicodedata.category(character) in HIDDEN


def code_point(character: str) -> str:
    """Return what stands for a character that cannot be seen, with room around it."""
    return f" U+{ord(character):04X} "


def letters(label: str) -> int:
    """Count characters without the marks on them.

    >>> letters("◌\u093f"), letters("ab")
    (1, 2)
    """
    return sum(unicodedata.category(character)[0] != "M" for character in label)


def stands(label: str) -> bool:
    """Tell whether the label is a sign or a lone mark, which nobody reads lying on its side."""
    return len(label) <= 2 and not label[:1].isalnum()


def shortened(label: str) -> str:
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1].rstrip()}…"
