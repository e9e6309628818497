"""This module finds fonts for any script: the installed ones that have the characters of a figure's texts."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from matplotlib.font_manager import FontProperties, findfont, findSystemFonts, fontManager, get_font
from matplotlib.ft2font import FaceFlags, FT2Font, StyleFlags
from matplotlib.textpath import text_to_path

from elman.errors import FontNotice
from elman.inspection.labels import SHAPING, code_point

FIRST_FONT = "DejaVu Sans"  # comes with matplotlib
SYMBOLS = "symbols"
CODES = "U+0123456789ABCDEF"  # stands for what no font has
GLYPHLESS = SHAPING | {"\n"}  # matplotlib asks no font for these


class Font(NamedTuple):
    """An installed font, with those of the characters asked for that it has."""

    family: str
    path: str
    characters: frozenset[str]


class Lettering(NamedTuple):
    """The fewest installed fonts that together have the characters of some texts.

    Matplotlib shapes words and turns right-to-left ones; it needs the letters of a word in one font.
    """

    fonts: list[Font]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lettering:
        needed = {*CODES, *(c for text in texts for c in text)} - GLYPHLESS
        fonts = [_opened(findfont(FIRST_FONT), needed)]
        missing = needed - fonts[0].characters
        installed = _installed(needed) if missing else []
        while missing:
            best = max(installed, key=lambda font: len(font.characters & missing), default=fonts[0])
            if not best.characters & missing:
                _say_once(_about(missing))
                break
            fonts.append(best)
            missing -= best.characters
        known = {entry.fname for entry in fontManager.ttflist}  # kept on the disk: some were installed since
        for font in fonts:
            if font.path not in known:
                fontManager.addfont(font.path)
        return cls(fonts)

    def drawable(self, text: str) -> str:
        """Return the text with code points in place of characters that no font has."""
        known = SHAPING.union(*(font.characters for font in self.fonts))
        return " ".join("".join(c if c in known else code_point(c) for c in text).split())

    def properties(self, text: str, size: float) -> FontProperties:
        """Name all fonts, first the one that has most of this text."""
        order = sorted(self.fonts, key=lambda font: -sum(c in font.characters for c in text))
        return FontProperties(family=[font.family for font in order], size=size)

    def width(self, text: str, size: float) -> float:
        properties = self.properties(text, size)
        return float(text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0])


def can_draw(properties: FontProperties, text: str) -> bool:
    """Tell whether the fonts that matplotlib takes for the properties have all of the text."""
    fonts = []
    for family in properties.get_family():
        one = properties.copy()
        one.set_family(family)
        fonts.append(get_font(findfont(one)))
    return all(any(font.get_char_index(ord(c)) for font in fonts) for c in {*text} - GLYPHLESS)


def _installed(needed: set[str]) -> list[Font]:
    """List the upright fonts of this machine that have any of the characters, plain designs first."""
    fonts = []
    for path in findSystemFonts():
        try:
            font = _opened(path, needed)
        except (OSError, RuntimeError):  # a damaged file
            continue
        if font.characters:
            fonts.append(font)
    return sorted(fonts, key=lambda font: ("Sans" not in font.family, len(font.family), font.path))


def _opened(path: str, needed: set[str]) -> Font:
    font = FT2Font(path)
    usable = FaceFlags.SCALABLE in font.face_flags and font.style_flags == StyleFlags.NORMAL
    has = frozenset(c for c in needed if usable and font.get_char_index(ord(c)))
    return Font(font.family_name, path, has)


def _about(missing: set[str]) -> str:
    scripts = sorted(set(map(_script, missing)))
    letters = "fonts-noto-core and fonts-noto-cjk"
    packages = [letters] * (scripts != [SYMBOLS]) + ["fonts-symbola for symbols"] * (SYMBOLS in scripts)
    return (
        f"no installed font has some of the characters ({', '.join(scripts)}): the picture shows code points "
        f"instead; install fonts that have them, such as the packages {', and '.join(packages)}"
    )


def _script(character: str) -> str:
    """Return the script, as the character's name begins with it.

    >>> _script("ก"), _script("年"), _script("☃")
    ('Thai', 'CJK', 'symbols')
    """
    if unicodedata.category(character)[0] not in "LMN":
        return SYMBOLS
    name = unicodedata.name(character, "unnamed").partition(" ")[0]
    return name if name == "CJK" else name.capitalize()


@cache
def _say_once(message: str) -> None:
    warnings.warn(message, FontNotice, stacklevel=4)  # at the caller of the function that returns a figure
