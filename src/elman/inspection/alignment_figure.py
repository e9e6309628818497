"""Alignments as a picture, after Bahdanau, Cho and Bengio (2015), figure 3.

The source runs along the top, the output down the side, one cell a weight. Every row is a softmax, so all
pictures share one scale, white 0 and ink 1.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from elman.inspection.alignment import Alignment
from elman.inspection.figures import FAINT, INK
from elman.inspection.labels import shortened, stands, visible
from elman.inspection.lettering import Lettering

MOST = 8  # alignments in one picture; more are for a page, which scrolls

# All lengths of a picture are in points, 72 to the inch.
MARGIN, GAP, CAPTION, FOOTER = 14.0, 4.0, 13.0, 30.0
NARROWEST = 150.0  # a panel, so that its title has room
TYPE = 10.0  # of titles; labels may be smaller, never below SMALL
SMALL = 7.0
ACROSS, DOWN = "source →", "← output"  # the second is written upwards
DOTS = 200  # an inch
DOTS_IN_ALL, DOTS_A_SIDE = 60e6, 60_000  # a canvas of 240 MB; larger pictures get fewer dots an inch

GRID, GUIDE = "#e6e6e6", "#bdbdbd"
GUIDED = 5  # tokens from one darker line to the next
SHADES = LinearSegmentedColormap.from_list("ink", ["white", INK])


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
            [shortened(lettering.drawable(visible(token))) for token in tokens]
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
        if panel.upright or stands(label):
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
