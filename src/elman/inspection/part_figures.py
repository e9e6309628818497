"""Pictures of the parts of an inspection, for a slide or a page; several inspections stand side by side."""

from __future__ import annotations

import string
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy.typing import NDArray

from elman.errors import ArgumentError
from elman.inspection.figures import FAINT, INK, STYLES
from elman.inspection.labels import letters, shortened, visible
from elman.inspection.lettering import Lettering
from elman.inspection.neighbours import Point
from elman.inspection.unrolled import UnrolledNetwork

if TYPE_CHECKING:
    from elman.inspection.inspection import Inspection

Array = NDArray[np.float64]
Draw = Callable[[Axes], None]
Panel = tuple[str, Draw, float, float]  # a title, what draws it, its width and its height in inches
BLUE, ORANGE = STYLES[0].colour, STYLES[1].colour
ONE_WAY = LinearSegmentedColormap.from_list("one way", ["white", BLUE])
BOTH_WAYS = LinearSegmentedColormap.from_list("both ways", [ORANGE, "white", BLUE])
LABELS = 60  # along an axis; of more, every second, third, … is written
STEPS = 14  # of an unrolled network in a row, at most
TITLE = 0.45  # inches above a panel
MARGIN = 0.5
DOTS = 130


class Painter:
    """Draws panels with letters of any script."""

    def __init__(self, inspections: Sequence[Inspection]) -> None:
        texts = [text for one in inspections for text in one.texts()]
        self.lettering = Lettering.of(map(visible, [*texts, f"…→←‖∂×■σ′−{string.printable}"]))

    def label(self, text: str) -> str:
        return shortened(self.lettering.drawable(visible(text)))

    def write(self, axes: Axes, x: float, y: float, text: str, size: float = 9, **options: str) -> None:
        shown = self.label(text)
        font = self.lettering.properties(shown, size)
        axes.text(x, y, shown, fontproperties=font, parse_math=False).set(**options)

    def heat(
        self,
        values: Array,
        rows: Sequence[str],
        columns: Sequence[str],
        *,
        signed: bool,
        most: float | None = None,
    ) -> Draw:
        """A picture of numbers with tokens along its edges."""

        def draw(axes: Axes) -> None:
            largest = most or float(np.nanmax(np.abs(values), initial=1e-12))
            axes.imshow(
                values,
                aspect="auto",
                interpolation="nearest",
                cmap=BOTH_WAYS if signed else ONE_WAY,
                vmin=-largest if signed else 0,
                vmax=largest,
            )
            self.ticks(axes, columns, rows)

        return draw

    def ticks(self, axes: Axes, columns: Sequence[str], rows: Sequence[str] | None = None) -> None:
        for axis, labels, turned in ((axes.xaxis, columns, True), (axes.yaxis, rows, False)):
            if labels is None:
                continue
            every = max(1, -(-len(labels) // LABELS))
            axis.set_ticks(range(0, len(labels), every))
            shown = [self.label(label) for label in labels[::every]]
            axis.set_ticklabels(shown, parse_math=False)
            for tick in axis.get_ticklabels():
                tick.set(fontproperties=self.lettering.properties(tick.get_text(), 8))
                if turned and letters(tick.get_text()) > 1:
                    tick.set_rotation(90)
        axes.tick_params(length=2, colors=INK)
        axes.spines[:].set_color(FAINT)

    # ---- parts -----------------------------------------------------------------------------------

    def unrolled(self, one: Inspection) -> list[list[Panel]]:
        rows = []
        for network in one.unrolled or ():
            height = 1.6 + 0.5 * max(1, len(network.widths)) * network.directions
            height -= 0 if _answers(network) else 0.4
            count = len(network.steps)
            across = -(-count // -(-count // STEPS))  # in rows that are alike
            for first in range(0, count, across):
                start = f", starting from {network.start}" if network.cell else ""
                title = (
                    f"{network.name}: {network.cell or 'not recurrent'}{', continued' if first else start}"
                )
                rows.append([(title, self._steps(network, first, across), 0.95 * across + 0.3, height)])
        return rows

    def _steps(self, network: UnrolledNetwork, first: int, across: int) -> Draw:
        levels = max(1, len(network.widths)) * network.directions
        steps = network.steps[first : first + across]

        def draw(axes: Axes) -> None:
            top = levels + (0.3 if _answers(network) else -0.4)
            axes.set(xlim=(-0.6, max(across, 2) - 0.4), ylim=(-1.1, top))
            axes.axis("off")
            arrow = {"arrowstyle": "-|>", "color": FAINT, "shrinkA": 0, "shrinkB": 0}
            for x, step in enumerate(steps):
                for level in range(levels):
                    layer, direction = divmod(level, network.directions)
                    largest = (
                        max(other.sizes[layer][direction] for other in network.steps) if step.sizes else 0
                    )
                    share = step.sizes[layer][direction] / largest if largest else 0
                    face = ONE_WAY(0.08 + 0.5 * share)
                    axes.add_patch(_box(x, level, face))
                    axes.text(
                        x, level, network.cell or "layer", ha="center", va="center", fontsize=8, color=INK
                    )
                    if level and not direction:
                        axes.annotate("", (x, level - 0.26), (x, level - 0.74), arrowprops=arrow)
                    if x and network.cell and not direction:
                        axes.annotate("", (x - 0.36, level), (x - 0.64, level), arrowprops=arrow)
                    if x and network.cell and direction:
                        axes.annotate("", (x - 0.64, level), (x - 0.36, level), arrowprops=arrow)
                axes.annotate("", (x, -0.26), (x, -0.55), arrowprops=arrow)
                own = ORANGE if step.origin == "own" else INK
                self.write(axes, x, -0.72, step.token, ha="center", va="center", color=own)
                note = f"{step.origin}, t = {step.t}"
                axes.text(x, -1.0, note, ha="center", va="center", fontsize=6, color=FAINT)
                out = step.output if step.output is not None else step.own
                if out is not None:
                    chance = step.probability if step.probability is not None else step.top[0][1]
                    axes.annotate("", (x, levels - 0.45), (x, levels - 0.72), arrowprops=arrow)
                    self.write(axes, x, levels - 0.28, out, ha="center", va="center", color=INK)
                    axes.text(x, levels + 0.0, f"{100 * chance:.3g} %", ha="center", fontsize=7, color=FAINT)

        return draw

    def gates(self, one: Inspection) -> list[list[Panel]]:
        found = one.gates or []
        rows = []
        for place in dict.fromkeys(strip.place for strip in found):
            panels = []
            for strip in (strip for strip in found if strip.place == place):
                values = strip.values.T[strip.order]
                units = [str(unit + 1) for unit in strip.order]
                most = max(1.0, float(np.abs(values).max(initial=0))) if strip.signed else 1.0
                draw = self.heat(values, units, strip.tokens, signed=strip.signed, most=most)
                title = f"{strip.name} of {place}: {_scale(most, signed=strip.signed)}"
                panels.append((title, draw, _across(strip.tokens), 3.4))
            rows.append(panels)
        return rows

    def gradients(self, one: Inspection) -> list[list[Panel]]:
        rows = []
        for flow in one.gradients or ():
            known = np.where(flow.matrix > 0, flow.matrix, np.nan)
            depth = np.log10(known / np.nanmax(known, initial=1e-300)) if np.isfinite(known).any() else known
            shades = np.clip(depth / 6 + 1, 0, 1)

            def curve(axes: Axes, values: Array = flow.curve) -> None:
                axes.semilogy(np.arange(len(values)), np.where(values > 0, values, np.nan), color=BLUE)
                axes.set_xlabel("steps back; the median of ‖∂J/∂s‖", fontsize=8)
                axes.tick_params(which="both", labelsize=7)
                axes.grid(color="#e6e6e6")

            matrix = self.heat(shades, flow.outputs, flow.tokens, signed=False, most=1.0)
            height = min(6.0, 1.5 + 0.14 * len(flow.outputs))
            rows.append(
                [
                    (f"{flow.place}: ‖∂J_t/∂s_k‖, six powers of ten", matrix, _across(flow.tokens), height),
                    (flow.sentence.partition(": ")[2], curve, 4.6, height),
                ]
            )
        return rows

    def attention(self, one: Inspection) -> list[list[Panel]]:
        found = one.attention
        if found is None:
            return []
        draw = self.heat(found.weights, found.outputs, found.source, signed=False, most=1.0)
        return [
            [
                (
                    "attention weights: 0 to 1",
                    draw,
                    _across(found.source),
                    min(7.0, 1.2 + 0.2 * len(found.outputs)),
                )
            ]
        ]

    def beam(self, one: Inspection) -> list[list[Panel]]:
        found = one.beam
        if found is None or not found.nodes:
            return []
        by_step: dict[int, list[int]] = {}
        for node in found.nodes:
            by_step.setdefault(node.step, []).append(node.number)
        most = max(map(len, by_step.values()))
        places = {
            number: (i + 0.5) * most / len(own) for own in by_step.values() for i, number in enumerate(own)
        }

        def draw(axes: Axes) -> None:
            axes.set(xlim=(-0.2, len(by_step) + 1.0), ylim=(most, 0))
            axes.axis("off")
            for node in found.nodes:
                y, before = (
                    places[node.number],
                    places.get(-1 if node.parent is None else node.parent, most / 2),
                )
                start = node.step - 1 + (0.62 if node.parent is not None else 0)
                bold = node.fate == "chosen"
                line = "dotted" if node.fate == "pruned" else "solid"
                axes.plot(
                    [start, node.step - 0.05],
                    [before, y],
                    linestyle=line,
                    color=BLUE if bold else FAINT,
                    lw=2 if bold else 0.8,
                )
                mark = {"pruned": "×", "finished": "■"}.get(node.fate, "")
                self.write(axes, node.step, y, node.token + mark, va="center", color=INK if bold else FAINT)
                axes.text(
                    node.step, y + 0.36, f"{node.log_probability:.2f}", fontsize=6, color=FAINT, va="center"
                )

        return [[(found.strategy, draw, 1.1 * (len(by_step) + 1), 0.6 + 0.34 * most)]]

    def influence(self, one: Inspection) -> list[list[Panel]]:
        found = one.influence
        if found is None:
            return []

        def bars(axes: Axes) -> None:
            values = found.attributions
            axes.bar(range(len(values)), values, color=[BLUE if value > 0 else ORANGE for value in values])
            axes.axhline(0, color=FAINT, lw=0.8)
            self.ticks(axes, found.tokens)
            axes.tick_params(axis="y", labelsize=8)

        width, largest = _across(found.tokens), float(np.abs(found.occlusion).max(initial=0))
        draw = self.heat(found.occlusion, found.outputs, found.tokens, signed=True)
        return [
            [(f"integrated gradients, {found.of}", bars, width, 2.2)],
            [
                (
                    f"what is lost without a token, in nats: {_scale(largest, signed=True)}",
                    draw,
                    width,
                    min(6.0, 1.2 + 0.2 * len(found.outputs)),
                )
            ],
        ]

    def neighbours(self, one: Inspection) -> list[list[Panel]]:
        found = one.neighbours
        if found is None:
            return []
        maps = (("words", found.words), ("states of the top layer", found.states))
        return [[(name, self._map(points), 5.5, 4.5) for name, points in maps if points]]

    def _map(self, points: Sequence[Point]) -> Draw:
        def draw(axes: Axes) -> None:
            for point in points:
                axes.plot(
                    point.x, point.y, "o", ms=4 if point.here else 2, color=BLUE if point.here else FAINT
                )
                shown, size = self.label(point.label), 8 if point.here else 6
                font = self.lettering.properties(shown, size)
                axes.annotate(
                    shown,
                    (point.x, point.y),
                    (4, -2),
                    textcoords="offset points",
                    fontproperties=font,
                    color=INK if point.here else FAINT,
                ).set_parse_math(False)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color(FAINT)

        return draw

    def example(self, one: Inspection) -> list[list[Panel]]:
        found = one.example
        if found is None:
            return []

        def draw(axes: Axes) -> None:
            for unit, style in enumerate(STYLES[:3]):
                values = [g[unit] for g, _, _ in found.learning]
                axes.plot(
                    values,
                    color=style.colour,
                    linestyle=style.dashes,
                    label=f"g{unit + 1} → {found.gate[unit]}",
                )
            axes.set(xlabel="update", ylabel="g = σ(a)", ylim=(-0.02, 1.02))
            axes.legend(frameon=False)

        x, s, written = map(tuple, (found.input, found.memory, found.written))
        title = f"a soft gate learns to write {written} from x = {x} and s = {s}"
        return [[(title, draw, 7.0, 3.6)]]


def part_figure(part: str, inspections: Sequence[Inspection]) -> Figure:
    """The picture of a part, of each inspection in a column of its own."""
    painter = Painter(inspections)
    columns: list[list[list[Panel]]] = [getattr(painter, part)(one) for one in inspections]
    if not any(columns):
        raise ArgumentError(f"{part} has no meaning for {inspections[0].task} here: there is nothing to draw")
    widths = [max((sum(p[2] + MARGIN for p in row) for row in rows), default=1.0) for rows in columns]
    heights = [sum(max(p[3] for p in row) + TITLE + MARGIN for row in rows if row) for rows in columns]
    width, height = sum(widths) + MARGIN, max(heights) + MARGIN
    figure = Figure(figsize=(width, height), dpi=min(DOTS, 30_000 / max(width, height)), facecolor="white")
    left = 0.0
    for rows, wide in zip(columns, widths, strict=True):
        top = height - 0.2
        for row in (row for row in rows if row):
            x, high = left, max(p[3] for p in row)
            for title, draw, own, tall in row:
                room = (own + MARGIN) / width
                inner = 0.72 if own < 3 else 0.6
                axes = figure.add_axes(
                    (
                        (x + inner) / width,
                        (top - TITLE - tall + 0.5) / height,
                        max(0.3, own + MARGIN - inner - 0.15) / width,
                        (tall - 0.5) / height,
                    )
                )
                draw(axes)
                shown = painter.lettering.drawable(visible(title, space=" "))
                most = max(20, int(room * width * 11))
                shown = textwrap.fill(shown, most, max_lines=2, placeholder=" …")
                figure.text(
                    (x + 0.15) / width,
                    (top - 0.1) / height,
                    shown,
                    va="top",
                    parse_math=False,
                    fontproperties=painter.lettering.properties(shown, 9),
                    color=INK,
                )
                x += own + MARGIN
            top -= high + TITLE + MARGIN
        left += wide
    return figure


def _answers(network: UnrolledNetwork) -> bool:
    return any(step.output is not None or step.own is not None for step in network.steps)


def _scale(most: float, *, signed: bool) -> str:
    """From which value to which the colours go."""
    return f"−{most:.3g} to {most:.3g}" if signed else f"0 to {most:.3g}"


def _across(tokens: Sequence[str]) -> float:
    return min(16.0, 1.4 + 0.2 * len(tokens))


def _box(x: float, y: float, face: object) -> FancyBboxPatch:
    return FancyBboxPatch(
        (x - 0.34, y - 0.2), 0.68, 0.4, boxstyle="round,pad=0.02", facecolor=face, edgecolor=FAINT
    )
