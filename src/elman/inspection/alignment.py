"""Which source tokens each output token looked at, as a picture, as a page or as numbers.

The picture follows Bahdanau, Cho and Bengio (2015), figure 3: the source along the top, the output down
the side, one cell a weight. Every row is a softmax, so all pictures share one scale, white 0 and ink 1.
"""

from __future__ import annotations

import json
import math
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, findSystemFonts, fontManager
from matplotlib.ft2font import FaceFlags, FT2Font, StyleFlags
from matplotlib.textpath import text_to_path

from elman.errors import ArgumentError, FileError, ShapeError
from elman.inspection.figures import FAINT, INK
from elman.text.files import write_text

FORMAT = 1  # of the JSON file
ENDINGS = (".html", ".json", ".pdf", ".png", ".svg")
MOST = 8  # alignments in one picture; more are for a page, which scrolls
LONGEST = 20  # characters of a label; of longer tokens the beginning is shown

# All lengths of a picture are in points, 72 to the inch.
MARGIN, GAP, CAPTION, FOOTER = 14.0, 4.0, 13.0, 30.0
NARROWEST = 150.0  # a panel, so that its title has room
TYPE = 10.0  # of titles; labels may be smaller, never below SMALL
SMALL = 7.0
ACROSS, DOWN = "source →", "← output"  # the second is written upwards
DOTS = 200  # an inch
DOTS_IN_ALL, DOTS_A_SIDE = 60e6, 60_000  # a canvas of 240 MB; larger pictures get fewer dots an inch

FIRST_FONT = "DejaVu Sans"  # comes with matplotlib
GRID, GUIDE = "#e6e6e6", "#bdbdbd"
GUIDED = 5  # tokens from one darker line to the next
SHADES = LinearSegmentedColormap.from_list("ink", ["white", INK])
SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}  # categories of what leaves no ink
SYMBOLS = "symbols"
CODES = "U+0123456789ABCDEF"  # stands for what no font has
SHAPING = {"\u200c", "\u200d", *map(chr, range(0xFE00, 0xFE10))}  # change how their neighbours look


class FontNotice(UserWarning):
    """Characters that no installed font has are shown by their code points."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """The attention of one prediction: ``weights[i, j]`` is what output i gave to source j.

    >>> found = Alignment(["das", "Haus"], ["the", "house", "</s>"], np.array([[1, 0], [0, 1], [0.5, 0.5]]))
    >>> found.weights.shape
    (3, 2)
    """

    source: list[str]
    output: list[str]
    weights: np.ndarray[Any, Any]  # (T, S)
    title: str = ""

    def __post_init__(self) -> None:
        T, S = len(self.output), len(self.source)
        if np.shape(self.weights) != (T, S):
            raise ShapeError(
                f"weights has shape {np.shape(self.weights)}; {T} output tokens and {S} source tokens "
                f"need ({T}, {S}): a row for every output token"
            )
        sums = np.sum(self.weights, axis=1, dtype=float)
        wrong = np.flatnonzero(~(np.abs(sums - 1) < 0.01) | (np.asarray(self.weights) < 0).any(axis=1))
        if len(wrong):
            raise ArgumentError(
                f"weights: row {wrong[0]} has the sum {sums[wrong[0]]:.4g} and the smallest value "
                f"{np.min(self.weights[wrong[0]], initial=0):.4g}; a row must sum to 1 with nothing below 0"
            )


def write_alignments(path: Path, alignments: Sequence[Alignment]) -> None:
    """Write a picture (.png, .svg, .pdf), a page (.html) or the numbers (.json), by the ending of ``path``.

    A picture shows the first eight alignments; a page and the numbers hold all of them. The file is
    written whole or not at all.

    >>> found = Alignment(["das", "Haus"], ["the", "house"], np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> write_alignments(Path("house.png"), [found])  # doctest: +SKIP
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ArgumentError(f"path is '{path}'; its ending must be one of {', '.join(ENDINGS)}")
    if not alignments:
        raise ArgumentError("alignments is empty; it must hold at least one")
    try:
        if ending == ".json":
            write_text(path, _numbers(alignments))
        elif ending == ".html":
            write_text(path, _page(alignments))
        else:
            temporary = path.with_name(f".{path.name}.tmp")
            alignment_figure(alignments).savefig(temporary, format=ending[1:])
            temporary.replace(path)
    except OSError as problem:
        said = problem.strerror or str(problem)
        raise FileError(
            f"cannot be written: {said}", path=path, remedy="check the folder and its rights"
        ) from problem


# --- numbers


def _numbers(alignments: Sequence[Alignment]) -> str:
    rows = [
        {
            "title": one.title,
            "source": one.source,
            "output": one.output,
            "weights": [[round(float(weight), 6) for weight in row] for row in one.weights],
        }
        for one in alignments
    ]
    text = json.dumps({"format": FORMAT, "alignments": rows}, ensure_ascii=False)
    # Half of a surrogate pair is no UTF-8; as \udXXX it is JSON.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"


# --- labels


def visible(text: str, *, space: str = SIGNS[" "]) -> str:
    """The text with nothing invisible in it: signs for white space, code points for other characters
    without ink, and a dotted circle under a mark that has no letter.

    >>> visible(" "), visible("\\u200b"), visible("\\u093f"), visible("co\\u00adop")
    ('␣', 'U+200B', '◌ि', 'co U+00AD op')
    """
    signs = SIGNS | {" ": space}
    shown = "".join(signs.get(c) or (_code(c) if _is_hidden(c, text) else c) for c in text)
    shown = " ".join(shown.split())
    return f"◌{shown}" if unicodedata.category(shown[:1] or " ")[0] == "M" else shown


def _is_hidden(character: str, text: str) -> bool:
    """Whether it leaves no ink; in a word, a joiner does its work on the letters beside it."""
    if character in SHAPING:
        return len(text) == 1
    return unicodedata.category(character) in HIDDEN


def _code(character: str) -> str:
    return f" U+{ord(character):04X} "


def _stands(label: str) -> bool:
    """Whether it is a sign or a lone mark, which nobody reads lying on its side."""
    return len(label) <= 2 and not label[:1].isalnum()


def _shortened(label: str) -> str:
    return label if len(label) <= LONGEST else f"{label[: LONGEST - 1].rstrip()}…"


# --- fonts


@dataclass(frozen=True)
class Font:
    """An installed font, and which of the characters asked for it has."""

    family: str
    path: str
    characters: frozenset[str]


@dataclass(frozen=True)
class Lettering:
    """The fewest installed fonts that together have the characters of some texts.

    Matplotlib shapes words and turns right-to-left ones; it needs the letters of a word in one font.
    """

    fonts: list[Font]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Lettering:
        needed = {*CODES, *(c for text in texts for c in text)} - SHAPING
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
        _make_known(fonts)
        return cls(fonts)

    def drawable(self, text: str) -> str:
        """The text, with code points in place of characters that no font has."""
        known = SHAPING.union(*(font.characters for font in self.fonts))
        return " ".join("".join(c if c in known else _code(c) for c in text).split())

    def properties(self, text: str, size: float) -> FontProperties:
        """All fonts, first the one that has most of this text."""
        order = sorted(self.fonts, key=lambda font: -sum(c in font.characters for c in text))
        return FontProperties(family=[font.family for font in order], size=size)

    def width(self, text: str, size: float) -> float:
        """In points."""
        properties = self.properties(text, size)
        return float(text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0])


def _installed(needed: set[str]) -> list[Font]:
    """The upright fonts of this machine that have any of the characters, plain designs first."""
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
    return Font(
        font.family_name, path, frozenset(c for c in needed if usable and font.get_char_index(ord(c)))
    )


def _make_known(fonts: Sequence[Font]) -> None:
    """Tell matplotlib, which keeps its list of fonts on the disk, of those installed since."""
    known = {entry.fname for entry in fontManager.ttflist}
    for font in fonts:
        if font.path not in known:
            fontManager.addfont(font.path)


def _about(missing: set[str]) -> str:
    """Which scripts lack a font, and what to do about it."""
    scripts = sorted(set(map(_script, missing)))
    letters = "fonts-noto-core and fonts-noto-cjk"
    packages = [letters] * (scripts != [SYMBOLS]) + ["fonts-symbola for symbols"] * (SYMBOLS in scripts)
    return (
        f"no installed font has some of the characters ({', '.join(scripts)}): the picture shows code points "
        f"instead; install fonts that have them, such as the packages {', and '.join(packages)}"
    )


def _script(character: str) -> str:
    """The script as the character's name begins with it.

    >>> _script("ก"), _script("年"), _script("☃")
    ('Thai', 'CJK', 'symbols')
    """
    if unicodedata.category(character)[0] not in "LMN":
        return SYMBOLS
    name = unicodedata.name(character, "unnamed").partition(" ")[0]
    return name if name == "CJK" else name.capitalize()


@cache
def _say_once(message: str) -> None:
    warnings.warn(message, FontNotice, stacklevel=4)  # at the caller of alignment_figure


# --- picture


@dataclass(frozen=True)
class Panel:
    """One alignment with its labels, and its measures in points."""

    weights: np.ndarray[Any, Any]
    source: list[str]
    output: list[str]
    title: str  # of one or two lines
    size: float  # of the type of labels
    cell: float
    upright: bool  # the labels of the source fit side by side
    left: float  # the room beside the cells for labels and caption
    ceiling: float  # the room above the cells for labels alone
    above: float  # and with caption and title
    width: float  # with the labels

    @classmethod
    def of(cls, alignment: Alignment, lettering: Lettering, cell: float) -> Panel:
        source, output = (
            [_shortened(lettering.drawable(visible(token))) for token in tokens]
            for tokens in (alignment.source, alignment.output)
        )
        size = min(max(0.45 * cell, SMALL), TYPE)
        across = max((lettering.width(label, size) for label in {*source}), default=0.0)
        down = max((lettering.width(label, size) for label in {*output}), default=0.0)
        upright = across < cell - 2
        left = CAPTION + down + GAP
        width = max(left + cell * len(source), NARROWEST)
        title = _wrapped(lettering.drawable(visible(alignment.title, space=" ")), width, lettering)
        ceiling = GAP + (1.4 * size if upright else across)
        above = ceiling + CAPTION + (1.4 * TYPE * len(title.split("\n")) if title else 0)
        return cls(alignment.weights, source, output, title, size, cell, upright, left, ceiling, above, width)

    @property
    def height(self) -> float:
        return self.above + self.cell * max(len(self.output), 1)


def alignment_figure(alignments: Sequence[Alignment]) -> Figure:
    """The first eight alignments as panels of one picture, with the scale below them.

    >>> found = Alignment(["das", "Haus"], ["the", "house"], np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> figure = alignment_figure([found])
    """
    shown = alignments[:MOST]
    tokens = [token for one in shown for token in (*one.source, *one.output)]
    titles = [visible(one.title, space=" ") for one in shown]
    lettering = Lettering.of([*map(visible, tokens), *titles, ACROSS, DOWN, "…"])
    longest = max(len(side) for one in shown for side in (one.source, one.output))
    cell = min(max(600 / max(longest, 1), 13.0), 28.0)
    panels = [Panel.of(one, lettering, cell) for one in shown]
    places, width, height = _arranged(panels)
    height += FOOTER
    dots = min(DOTS, 72 * math.sqrt(DOTS_IN_ALL / (width * height)), 72 * DOTS_A_SIDE / max(width, height))
    figure = Figure(figsize=(width / 72, height / 72), dpi=dots, facecolor="white")
    for panel, (x, y) in zip(panels, places, strict=True):
        _draw(figure, panel, x, height - y, lettering)
    note = f" · the first {MOST} of {len(alignments):,} alignments" if len(alignments) > MOST else ""
    _draw_scale(figure, lettering, note)
    return figure


def _arranged(panels: Sequence[Panel]) -> tuple[list[tuple[float, float]], float, float]:
    """The places of the panels, from the top left, and the size of the picture nearest to a page's shape."""

    def arranged(columns: int) -> tuple[list[tuple[float, float]], float, float]:
        rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
        widths = [max(panel.width for panel in panels[i::columns]) + MARGIN for i in range(columns)]
        heights = [max(panel.height for panel in row) + MARGIN for row in rows]
        places = [
            (MARGIN + sum(widths[:j]), MARGIN + sum(heights[:i]))
            for i, row in enumerate(rows)
            for j in range(len(row))
        ]
        return places, MARGIN + sum(widths), MARGIN + sum(heights)

    sizes = [arranged(columns) for columns in range(1, len(panels) + 1)]
    return min(sizes, key=lambda size: abs(math.log(size[1] / size[2] / 1.4)))


def _draw(figure: Figure, panel: Panel, x: float, top: float, lettering: Lettering) -> None:
    """The panel with its upper left corner at these points from the picture's lower left."""
    cell, size = panel.cell, panel.size
    columns = cell * np.arange(max(len(panel.source), 1) + 1)  # their edges
    rows = cell * np.arange(max(len(panel.output), 1) + 1)
    axes = _axes(figure, x + panel.left, top - panel.height, columns[-1], rows[-1])
    axes.set(xlim=(0, columns[-1]), ylim=(rows[-1], 0))  # points, too, downwards
    if panel.weights.size:
        axes.pcolormesh(
            columns, rows, panel.weights, cmap=SHADES, vmin=0, vmax=1, edgecolors=GRID, linewidth=0.4
        )
        axes.vlines(columns[GUIDED:-1:GUIDED], 0, rows[-1], color=GUIDE, linewidth=0.5)
        axes.hlines(rows[GUIDED:-1:GUIDED], 0, columns[-1], color=GUIDE, linewidth=0.5)
    pen = Pen(axes, lettering)
    for label, edge in zip(panel.source, columns, strict=False):
        if panel.upright or _stands(label):
            pen.write(label, edge + cell / 2, -GAP - 0.2 * size, size, across="center")
        else:
            pen.write(label, edge + cell / 2, -GAP, size, across="center", up="bottom", turned=True)
    for label, edge in zip(panel.output, rows, strict=False):
        pen.write(label, -GAP, edge + cell / 2, size, across="right", up="center_baseline")
    pen.write(ACROSS, 0, -panel.ceiling - GAP / 2, SMALL, colour=FAINT, up="bottom")
    edge = 0.65 * CAPTION - panel.left
    pen.write(DOWN, edge, 0, SMALL, colour=FAINT, across="right", up="top", turned=True)
    pen.write(panel.title, -panel.left, -panel.above, TYPE, up="top")


@dataclass(frozen=True)
class Pen:
    """Writes on axes with the fonts that the text needs, and no mathematics between dollar signs."""

    axes: Axes
    lettering: Lettering

    def write(
        self,
        text: str,
        x: float,
        y: float,
        size: float,
        *,
        across: str = "left",
        up: str = "baseline",
        turned: bool = False,
        colour: str = INK,
    ) -> None:
        self.axes.text(
            x,
            y,
            text,
            ha=across,
            va=up,
            rotation=90 if turned else 0,
            color=colour,
            fontproperties=self.lettering.properties(text, size),
            parse_math=False,
        )


def _draw_scale(figure: Figure, lettering: Lettering, note: str) -> None:
    axes = _axes(figure, MARGIN, MARGIN, 72, 6)
    axes.imshow(np.linspace(0, 1, 73)[None], cmap=SHADES, aspect="auto", extent=(0, 72, 0, 6))
    pen = Pen(axes, lettering)
    pen.write("0", 0, 8, SMALL, colour=FAINT)
    pen.write("1", 72, 8, SMALL, across="right", colour=FAINT)
    pen.write(f"attention weight{note}", 78, 0, SMALL, colour=FAINT)


def _axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """A frame without ticks, placed in points."""
    across, up = 72 * figure.get_size_inches()
    axes = figure.add_axes((x / across, y / up, width / across, height / up), xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set(color=FAINT, linewidth=0.6)
    return axes


def _wrapped(title: str, room: float, lettering: Lettering) -> str:
    """The title on one line or two."""
    letter = lettering.width(title, TYPE) / max(len(title), 1)
    return "\n".join(textwrap.wrap(title, int(0.95 * room / max(letter, 1)), max_lines=2, placeholder=" …"))


# --- page


STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --card: #fff; --ink: 29 33 41; --faint: #6b7280;
  --line: #e4e2dc; --lit: 47 111 222; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #14161a; --card: #1c1f25;
  --ink: 231 230 227; --faint: #9aa1ad; --line: #30343c; --lit: 122 167 255; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: rgb(var(--ink)); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1500px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; line-height: 1.2; letter-spacing: -.02em; margin: 0 0 4px; }
p { color: var(--faint); margin: 0 0 24px; }
figure { margin: 0 0 20px; padding: 14px 16px 16px; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; width: fit-content; min-width: min(100%, 260px); max-width: 100%;
  break-inside: avoid; }
figcaption { font-weight: 600; margin-bottom: 10px; overflow-wrap: anywhere; }
.box { overflow: auto; max-height: 85vh; }
table { border-collapse: separate; border-spacing: 0; }
th { font-weight: 400; background: var(--card); white-space: nowrap; }
thead th { position: sticky; top: 0; z-index: 1; vertical-align: bottom; padding: 0 0 5px; }
tbody th { position: sticky; left: 0; z-index: 1; text-align: right; padding: 0 8px 0 0; }
thead th:first-child { left: 0; z-index: 2; color: var(--faint); font-size: 11px; text-align: right;
  padding: 0 8px 5px 0; }
.turned span { writing-mode: vertical-rl; display: inline-block; line-height: 1.2; }
td { width: 36px; min-width: 36px; height: 28px; padding: 0; text-align: center; font-size: 11px;
  font-variant-numeric: tabular-nums; background: rgb(var(--ink) / var(--w, 0)); color: rgb(var(--ink));
  border: solid var(--line); border-width: 0 1px 1px 0; }
td.dark { color: var(--card); }
tbody tr:first-child td { border-top-width: 1px; } td:nth-child(2) { border-left-width: 1px; }
.dense { font-size: 12px; line-height: 1.2; }
.dense td { width: 19px; min-width: 19px; height: 19px; font-size: 0; }
tbody tr:hover td, td.lit { box-shadow: inset 0 0 0 99px rgb(var(--lit) / .16); }
tbody tr:hover th, th.lit { color: rgb(var(--lit)); font-weight: 600; }
td:hover { outline: 2px solid rgb(var(--lit)); outline-offset: -1px; }
@media print { :root { --paper: #fff; } .box { max-height: none; overflow: visible; }
  td { print-color-adjust: exact; -webkit-print-color-adjust: exact; } th { position: static !important; } }
"""

# Only the column under the pointer needs it: rows are the style sheet's.
SCRIPT = """
document.addEventListener("pointerover", ({ target }) => {
  document.querySelectorAll(".lit").forEach(cell => cell.classList.remove("lit"));
  const under = target.closest("td");
  if (under) for (const row of under.closest("table").rows) row.cells[under.cellIndex].classList.add("lit");
});
"""


def _page(alignments: Sequence[Alignment]) -> str:
    tables = "\n".join(_table(one, number) for number, one in enumerate(alignments, 1))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Alignments</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>Alignments</h1>
<p>Columns are source tokens, rows are output tokens; a cell shows how much of its attention an output
token gave to a source token. Every row sums to 1.</p>
{tables}
</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _table(alignment: Alignment, number: int) -> str:
    source, output = [*map(visible, alignment.source)], [*map(visible, alignment.output)]
    title = visible(alignment.title, space=" ") or f"Alignment {number}"
    dense = len(source) > 24
    turned = max(map(len, source), default=0) > (1 if dense else 3)
    heads = "".join(_head(label, "col", turned=turned and not _stands(label)) for label in source)
    rows = "\n".join(
        f"<tr>{_head(label, 'row')}{''.join(map(_cell, weights))}</tr>"
        for label, weights in zip(output, alignment.weights, strict=True)
    )
    kind = ' class="dense"' if dense else ""
    return f"""<figure>
<figcaption id="title-{number}" dir="auto" lang="">{escape(title)}</figcaption>
<div class="box" tabindex="0" role="group" aria-labelledby="title-{number}">
<table{kind} lang="" aria-labelledby="title-{number}">
<thead><tr><th scope="col" lang="en">output ╲ source</th>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
</figure>"""


def _head(label: str, scope: str, *, turned: bool = False) -> str:
    short, kind = _shortened(label), ' class="turned"' if turned else ""
    whole = "" if short == label else f' title="{escape(label)}"'
    return f'<th scope="{scope}"{kind}{whole}><span dir="auto">{escape(short)}</span></th>'


def _cell(weight: float) -> str:
    """The shade, the number, and more of its digits under the pointer; next to nothing stays empty."""
    if weight < 0.005:
        return f'<td title="{weight:.3f}"></td>'
    dark = ' class="dark"' if weight > 0.5 else ""
    return f'<td{dark} style="--w:{weight:.2f}" title="{weight:.3f}">{weight:.2f}</td>'
