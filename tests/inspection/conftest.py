"""Fonts for the tests of pictures: the ones that every machine has, and tiny ones made for a test."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.font_manager import fontManager

from elman.inspection import lettering


@pytest.fixture(autouse=True)
def _only_dejavu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fonts that come with matplotlib; and notices are said anew in every test."""
    monkeypatch.setattr(lettering, "findSystemFonts", list)
    monkeypatch.setattr(fontManager, "ttflist", [*fontManager.ttflist])
    lettering._say_once.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """Installs fonts, by their family the characters that they have, and a file that is damaged."""

    def install(fonts: dict[str, str]) -> None:
        folder = tmp_path / "fonts"
        folder.mkdir()
        (folder / "broken.ttf").write_bytes(b"no font")
        for family, characters in fonts.items():
            tiny_font(folder / f"{family}.ttf", family, characters)
        monkeypatch.setattr(lettering, "findSystemFonts", lambda: sorted(map(str, folder.iterdir())))

    return install


def tiny_font(path: Path, family: str, characters: str) -> None:
    """A font in which these characters are boxes."""
    names = [".notdef", *(f"glyph{i}" for i in range(len(characters)))]
    pen = TTGlyphPen(None)
    pen.moveTo((100, 0))
    for corner in ((100, 700), (600, 700), (600, 0)):
        pen.lineTo(corner)
    pen.closePath()
    box = pen.glyph()
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap(dict(zip(map(ord, characters), names[1:], strict=True)))
    builder.setupGlyf(dict.fromkeys(names, box))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (700, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
