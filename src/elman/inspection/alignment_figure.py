"""This module draws alignments as a figure, after figure 3 of Bahdanau, Cho and Bengio (2015).

The source runs along the top, the output down the side, one cell a weight. Every row is a softmax, so all
pictures share one scale, white 0 and ink 1.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

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


class Panel(NamedTuple):
    """A panel is one alignment with its labels and its sizes in points."""

    weights: NDArray[np.floating]
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
    """Draw the first eight alignments as panels of one figure, with the colour scale below them.

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
    """Place the panels from the top left, and choose the size of the figure nearest to a page's shape."""

    def arranged(columns: int) -> tuple[list[tuple[float, float]], float, float]:
        rows = [panels[i : i + columns] for i in range(0, len(panels), columns)]
        widths = [max(panel.width for panel in panels[i::columns]) + MARGIN for i in range(columns)]
        heights = [max(panel.height for panel in row) + MARGIN for row in rows]
        x, y = ([*accumulate(sizes, initial=MARGIN)] for sizes in (widths, heights))
        places = [(x[k % columns], y[k // columns]) for k in range(len(panels))]
        return places, x[-1], y[-1]

    sizes = [arranged(columns) for columns in range(1, len(panels) + 1)]
    return min(sizes, key=lambda size: abs(math.log(size[1] / size[2] / 1.4)))


def _draw(figure: Figure, panel: Panel, x: float, top: float, lettering: Lettering) -> None:
    """Draw the panel with its upper left corner at these points from the figure's lower left."""
    cell, size = panel.cell, panel.size
    columns = cell * np.arange(max(len(panel.source), 1) + 1)  # their edges
    rows = cell * np.arange(max(len(panel.output), 1) + 1)
    axes = _axes(figure, x + panel.left, top - panel.height, columns[-1], rows[-1])
    axes.set(xlim=(0, columns[-1]), ylim=(rows[-1], 0))  # points, too, downwards
    if panel.weights.size:
        shades = axes.pcolormesh(columns, rows, panel.weights, cmap=SHADES, vmin=0, vmax=1)
        shades.set(edgecolors=GRID, linewidth=0.4)
        axes.vlines(columns[GUIDED:-1:GUIDED], 0, rows[-1], color=GUIDE, linewidth=0.5)
        axes.hlines(rows[GUIDED:-1:GUIDED], 0, columns[-1], color=GUIDE, linewidth=0.5)
    write = partial(_write, axes, lettering)
    for label, edge in zip(panel.source, columns, strict=False):
        if panel.upright or stands(label):
            write(label, edge + cell / 2, -GAP - 0.2 * size, size).set(ha="center")
        else:
            write(label, edge + cell / 2, -GAP, size).set(ha="center", va="bottom", rotation=90)
    for label, edge in zip(panel.output, rows, strict=False):
        write(label, -GAP, edge + cell / 2, size).set(ha="right", va="center_baseline")
    write(ACROSS, 0, -panel.ceiling - GAP / 2, SMALL, FAINT).set(va="bottom")
    write(DOWN, 0.65 * CAPTION - panel.left, 0, SMALL, FAINT).set(ha="right", va="top", rotation=90)
    write(panel.title, -panel.left, -panel.above, TYPE).set(va="top")


def _write(
    axes: Axes, lettering: Lettering, text: str, x: float, y: float, size: float, colour: str = INK
) -> Text:
    """Write with the fonts that the text needs; dollar signs begin no mathematics."""
    font = lettering.properties(text, size)
    return axes.text(x, y, text, color=colour, fontproperties=font, parse_math=False)


def _draw_scale(figure: Figure, lettering: Lettering, note: str) -> None:
    axes = _axes(figure, MARGIN, MARGIN, 72, 6)
    axes.imshow(np.linspace(0, 1, 73)[None], cmap=SHADES, aspect="auto", extent=(0, 72, 0, 6))
    _write(axes, lettering, "0", 0, 8, SMALL, FAINT)
    _write(axes, lettering, "1", 72, 8, SMALL, FAINT).set(ha="right")
    _write(axes, lettering, f"attention weight{note}", 78, 0, SMALL, FAINT)


def _axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Add axes without ticks, placed in points."""
    across, up = 72 * figure.get_size_inches()
    axes = figure.add_axes((x / across, y / up, width / across, height / up), xticks=[], yticks=[])
    axes.spines[:].set(color=FAINT, linewidth=0.6)
    return axes


def _wrapped(title: str, room: float, lettering: Lettering) -> str:
    letter = lettering.width(title, TYPE) / max(len(title), 1)
    return "\n".join(textwrap.wrap(title, int(0.95 * room / max(letter, 1)), max_lines=2, placeholder=" …"))
