"""Figures for a slide or a page; every function returns a ``Figure``, which the caller saves.

>>> from elman.inspection.gradients import compare
>>> figure = gradient_figure(compare(("elman", "lstm"), 4, 8, T=20, B=3))
>>> figure.savefig("gradients.png")  # doctest: +SKIP
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from elman.errors import ArgumentError
from elman.inspection.lettering import Lettering, can_draw
from elman.inspection.reach import LOST, GradientReach, growth

Curve = NDArray[np.float64]
INK, FAINT = "#1a1a1a", "#8c8c8c"
DEPTH = 1e-6  # how far below what it was at step t a gradient is drawn
HIGHEST = 1e200  # what is larger leaves through the top: ticks need numbers beyond


class Style(NamedTuple):
    """How one network is drawn: dark to light, solid to dotted, so that grey print tells networks apart."""

    colour: str
    dashes: str | tuple[int, tuple[float, ...]]  # as matplotlib has it
    width: float


# Colours of Okabe and Ito, which colour-blind people tell apart, ordered by lightness.
STYLES = (
    Style("#0072B2", "solid", 4.5),
    Style("#D55E00", (0, (5, 1.6)), 4.0),
    Style("#000000", (0, (1.2, 1.3)), 4.0),
    Style("#009E73", (0, (7, 1.5, 1.5, 1.5)), 4.0),
    Style("#CC79A7", (0, (3, 1, 1, 1, 1, 1)), 4.0),
    Style("#56B4E9", (0, (10, 3)), 4.0),
)
OWN = {"Elman": 0, "LSTM": 1, "GRU": 2}
LABEL_WIDTH = 0.12  # of the axes


def gradient_figure(
    results: Mapping[str, GradientReach],
    *,
    norm: str = "spectral",
    title: str | None = None,
    furthest: int | None = None,
) -> Figure:
    """Draw the norm of the gradient against the distance it has travelled, one line for each network.

    The line is the median over the rows of the batch, the band its middle 80 %. Norms are drawn down
    to a millionth of what they are at step t; a line that falls further leaves through the bottom,
    and one beyond 1e200 through the top.

    Args:
        results: by label, what ``measure_gradients`` or ``compare`` found.
        norm: ``"spectral"`` or ``"frobenius"`` of ∂y_t/∂s_k, or ``"loss"`` for ∂J_t/∂s_k.
        title: None: the finding, from the numbers.
        furthest: the largest distance drawn; None: as far as the lines are inside the picture.
    """
    _check_labels("results", results)
    curves = {label: result.curve(norm).cpu().numpy() for label, result in results.items()}
    bottom, top = _log_range(curves)
    if title is None:
        title = describe(results, norm).replace("$", r"\$")  # a label is no mathematics
    lettering = Lettering.of(map(str, [title, *results]))
    figure, axes = _slide(title, lettering)
    if furthest is None:
        furthest = max(_last_inside(curve, bottom) for curve in curves.values())
    span = max(furthest, 1)
    axes.set(yscale="log", ylim=(bottom, top), xlim=(0, span))
    if norm != "loss":
        axes.axhline(1, color=FAINT, linewidth=1.5, zorder=1)
    ends, styles = {}, _styles(curves)
    for label, curve in curves.items():
        shown = np.where(curve > 0, np.minimum(curve, HIGHEST * 1e6), bottom * 1e-3)[: span + 1]
        n = np.arange(len(shown), dtype=float)
        _draw_band(axes, results[label].by_distance(norm).cpu().numpy()[:, : span + 1], bottom, styles[label])
        _draw_line(axes, n, shown, styles[label], label)
        ends[label] = _end_of(n, shown, bottom)
    _label_ends(axes, ends, styles, lettering)
    size = f"size of the gradient  ‖∂{'J' if norm == 'loss' else 'y'}$_t$/∂s$_k$‖"
    axes.set(xlabel="steps back in time,  t − k", ylabel=size)
    axes.yaxis.set_major_locator(LogLocator(numticks=9))
    axes.yaxis.set_major_formatter(FuncFormatter(_plain_number))
    axes.yaxis.set_minor_locator(NullLocator())
    return figure


def curve_figure(
    distances: Sequence[float],
    accuracies: Mapping[str, Sequence[float]],
    *,
    chance: float | None = None,
    title: str = "How far back does each network remember?",
    x_label: str = "how many steps back",
    y_label: str = "accuracy",
) -> Figure:
    """Draw accuracy against distance, one labelled line for each network.

    Args:
        distances: how many steps back, increasing.
        accuracies: by label, one share from 0 to 1 for every distance, drawn in per cent; NaN: a gap.
        chance: the share that guessing gets, marked by a line.

    >>> figure = curve_figure([1, 10, 50], {"Elman": [1, 0.6, 0.12], "LSTM": [1, 1, 0.98]}, chance=0.1)
    """
    _check_labels("accuracies", accuracies)
    x = np.asarray(distances, dtype=float)
    if x.ndim != 1 or not len(x) or not (np.diff(x) > 0).all():
        raise ArgumentError(f"distances is {list(distances)!r}; it must hold increasing numbers")
    curves = {label: _check_shares(label, shares, len(x)) for label, shares in accuracies.items()}
    if chance is not None:
        _check_shares("chance", [chance], 1)
    lettering = Lettering.of(map(str, [title, x_label, y_label, *accuracies]))
    figure, axes = _slide(title, lettering)
    margin = 0.02 * (x[-1] - x[0]) or 0.5
    axes.set(xlim=(x[0] - margin, x[-1] + margin), ylim=(-2, 104))
    if chance is not None:
        axes.axhline(100 * chance, color=FAINT, linewidth=1.5, zorder=1)
        below = chance > 0.2  # lines come down to chance from above; under a low one there is no room
        guessing, shift = f"guessing: {100 * chance:.3g} %", (8, -6 if below else 6)
        note = axes.annotate(guessing, (0, 100 * chance), shift, ("axes fraction", "data"), "offset points")
        note.set(va="top" if below else "bottom", fontsize=18, color="#595959")
    ends, styles = {}, _styles(curves)
    for label, shares in curves.items():
        _draw_line(axes, x, 100 * shares, styles[label], label, marker="o")
        known = np.isfinite(shares)
        ends[label] = (float(x[known][-1]), 100 * float(shares[known][-1]))
    _label_ends(axes, ends, styles, lettering)
    for name in (axes.set_xlabel(x_label), axes.set_ylabel(y_label)):
        _letter(name, lettering)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} %"))
    return figure


def describe(results: Mapping[str, GradientReach], norm: str = "spectral") -> str:
    """Say in a title how far each gradient reaches, the shortest first.

    >>> from elman.inspection.gradients import compare
    >>> describe(compare(("lstm", "elman"), 8, 32, T=60, B=4))  # doctest: +SKIP
    '1 % of the gradient is left after 15 steps (Elman) and 27 (LSTM)'
    """
    exploded = {label: one.peak(norm) for label, one in results.items() if one.verdict(norm) == "explodes"}
    if exploded:
        grown = [f"{label} {growth(factor)} within {n} steps" for label, (factor, n) in exploded.items()]
        return f"The gradient explodes: {_listed(grown)}"
    reaches = [(result.steps_until(LOST, norm), label) for label, result in results.items()]
    fallen = sorted((n, label) for n, label in reaches if n is not None)
    standing = [label for n, label in reaches if n is None]
    if not fallen or len(results) > 4:
        return "How far back does the gradient reach?"
    (n, label), *others = fallen
    parts = [f"{n} {'step' if n == 1 else 'steps'} ({label})", *(f"{n} ({label})" for n, label in others)]
    if standing:
        span = max(len(results[label].curve(norm)) for label in standing) - 1
        parts.append(f"more than {span} ({_listed(standing)})")
    return f"{100 * LOST:g} % of the gradient is left after {_listed(parts)}"


def _slide(title: str, lettering: Lettering) -> tuple[Figure, Axes]:
    """Make an empty 16:9 figure of 1600×900 dots, with type that the last row can read."""
    figure = Figure(figsize=(16, 9), dpi=100, facecolor="white")
    axes = figure.add_axes((0.105, 0.125, 0.765, 0.735))
    heading = figure.text(0.03, 0.925, title, fontsize=30, color=INK, va="center", weight="bold")
    _letter(heading, lettering)
    _shrink(heading, 0.94 * figure.bbox.width)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=INK, linewidth=1.5)
    axes.tick_params(labelsize=20, width=1.5, length=7, colors=INK)
    axes.tick_params(which="minor", length=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set(fontsize=24, color=INK)
        axis.labelpad = 10
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=(1, 2, 5, 10)))
    axes.grid(axis="y", color="#e6e6e6", linewidth=1)
    axes.set_axisbelow(True)
    return figure, axes


def _letter(text: Text, lettering: Lettering) -> None:
    """Take other fonts where matplotlib's own lack characters of the text; few of them have a bold face."""
    if can_draw(text.get_fontproperties(), text.get_text()):
        return
    shown = "\n".join(map(lettering.drawable, text.get_text().split("\n")))
    text.set(text=shown, fontproperties=lettering.properties(shown, float(text.get_fontsize())))


def _shrink(text: Text, room: float) -> None:
    width = text.get_window_extent().width
    if width > room:
        text.set_fontsize(float(text.get_fontsize()) * room / width)


def _styles(labels: Iterable[str]) -> dict[str, Style]:
    """Choose a style for each label; the well-known networks look the same in every figure."""
    order = sorted(labels, key=lambda label: OWN.get(label, len(OWN)))
    free = cycle(i for i in range(len(STYLES)) if i not in {OWN.get(label) for label in order})
    return {label: STYLES[OWN[label] if label in OWN else next(free)] for label in order}


def _draw_line(axes: Axes, x: Curve, y: Curve, style: Style, label: str, marker: str = "") -> None:
    [line] = axes.plot(x, y, label=label, color=style.colour, linestyle=style.dashes, linewidth=style.width)
    line.set(marker=marker, markersize=11, markeredgecolor="white", zorder=3, clip_on=not marker)


def _draw_band(axes: Axes, values: Curve, bottom: float, style: Style) -> None:
    """Draw the middle 80 % of the rows, where there are rows enough to speak of one."""
    enough = (np.isfinite(values).sum(0) >= 3).nonzero()[0]
    if not len(enough):
        return
    logs = np.log(np.where(values > 0, values, bottom * 1e-3)[:, enough])
    logs[~np.isfinite(logs)] = np.nan
    low, high = np.exp(np.nanquantile(logs, (0.1, 0.9), axis=0))
    axes.fill_between(enough, low, high, color=style.colour, alpha=0.16, linewidth=0, zorder=2)


def _label_ends(
    axes: Axes, ends: Mapping[str, tuple[float, float]], styles: Mapping[str, Style], lettering: Lettering
) -> None:
    """Write each label beside the end of its line, apart where two would touch.

    Of lines that leave through the bottom side by side, the leftmost is named on its left.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    points = {label: to_axes.transform(end) for label, end in ends.items()}
    leaving = sorted((float(x), label) for label, (x, y) in points.items() if y < 1e-6 and x < 1)
    crowded = len(leaving) > 1 and leaving[1][0] - leaving[0][0] < LABEL_WIDTH < leaving[0][0]
    gap, named = 34 / axes.bbox.height, list[tuple[float, float]]()
    for label, (x, y) in sorted(points.items(), key=lambda item: float(item[1][1])):
        left = crowded and label == leaving[0][1]
        y = min(max(float(y), 0.03), 0.98)
        if not left:
            y = max([y, *(below + gap for near, below in named if abs(near - x) < LABEL_WIDTH)])
            named.append((x, y))
        beside = (-40 if left else 14, 0)
        name = axes.annotate(label, (float(x), y), beside, "axes fraction", "offset points", parse_math=False)
        name.set(fontsize=24, weight="bold", color=styles[label].colour)
        name.set(ha="right" if left else "left", va="center", annotation_clip=False)
        _letter(name, lettering)
        _shrink(name, axes.figure.bbox.width - name.get_window_extent().x0 - 24)


def _end_of(x: Curve, y: Curve, bottom: float) -> tuple[float, float]:
    """Find where the line ends, or where it leaves through the bottom."""
    last = _last_inside(y, bottom)
    if last + 1 >= len(y):
        return float(x[last]), float(y[last])
    share = math.log(y[last] / bottom) / math.log(y[last] / y[last + 1])
    return float(x[last]) + share * float(x[last + 1] - x[last]), bottom


def _last_inside(curve: Curve, bottom: float) -> int:
    inside = (np.isfinite(curve) & (curve >= bottom)).nonzero()[0]
    return int(inside[-1]) if len(inside) else 0


def _log_range(curves: Mapping[str, Curve]) -> tuple[float, float]:
    """Find the powers of ten around all that is shown; what explodes does not push out where it came from."""
    values = np.concatenate(list(curves.values()))
    values = values[np.isfinite(values) & (values > 0)]
    if not len(values):
        raise ArgumentError("there is no gradient to draw: all norms are zero or not finite")
    top, least = min(float(values.max()), HIGHEST), float(values.min())
    starts = [float(curve[0]) for curve in curves.values() if 0 < curve[0] < math.inf]
    deepest = max(starts, default=top) * DEPTH
    power = math.log10(deepest) + 1e-9 if least < deepest else math.log10(least) - 1e-9  # above the axis
    return 10.0 ** math.floor(power), max(10.0 ** math.ceil(math.log10(top)), 1.0) * 2


def _plain_number(value: float, _: object) -> str:
    """Write 1, 0.1 and 0.01 as people do, and smaller and larger numbers as powers of ten."""
    power = round(math.log10(value))
    return f"{value:g}" if -3 <= power <= 3 else f"$10^{{{power}}}$"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _check_labels(name: str, curves: Mapping[str, GradientReach] | Mapping[str, Sequence[float]]) -> None:
    if not isinstance(curves, Mapping) or not curves:
        raise ArgumentError(f"{name} is {curves!r}; it must name at least one network, as in {{'LSTM': …}}")


def _check_shares(name: str, shares: Sequence[float], count: int) -> Curve:
    values = np.asarray(shares, dtype=float)
    known = values[np.isfinite(values)]
    if values.shape != (count,) or not len(known) or known.min() < 0 or known.max() > 1:
        raise ArgumentError(f"{name}: {shares!r} is not {count} shares from 0 to 1; divide per cents by 100")
    return values
