"""The picture of a data set: how long its texts are, and how many there are of each label."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from elman.errors import ArgumentError
from elman.inspection.labels import shortened, visible
from elman.inspection.lettering import Lettering

INK, BLUE, ORANGE = "#1a1a1a", "#0072B2", "#D55E00"
BARS = 30  # labels that have a bar
BINS = 40
SIZE = 13  # of letters


def data_figure(
    lengths: Mapping[str, Mapping[int, int]],
    units: Mapping[str, str],
    labels: Mapping[str, int],
    *,
    noun: str = "labels",
) -> Figure:
    """Draw a histogram of lengths for each kind of text, and beside them a bar for each label.

    Args:
        lengths: by the role of a text, how many have how many tokens.
        units: by the same roles, what was counted, as words.
        labels: how often each occurs; empty: there is no second panel.
        noun: what the labels are called.

    >>> figure = data_figure({"text": {3: 5, 8: 2}}, {"text": "words"}, {"good": 4, "bad": 3})
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['Length of the texts', 'Labels: 2']
    """
    if not lengths or not all(sum(sizes.values()) for sizes in lengths.values()):
        raise ArgumentError("lengths is empty; it must have the lengths of some texts")
    panels = len(lengths) + bool(labels)
    figure = Figure(figsize=(6.8 * panels, 5.6), dpi=120, layout="constrained", facecolor="white")
    axes = np.atleast_1d(figure.subplots(1, panels))
    for place, (role, sizes) in enumerate(lengths.items()):
        _histogram(axes[place], sizes, role, units[role])
    if labels:
        _bars(axes[-1], labels, noun)
    return figure


def _histogram(axes: Axes, sizes: Mapping[int, int], role: str, unit: str) -> None:
    """Lengths up to the 99th percentile, or all where they lie close together; what is longer is told."""
    values, counts = np.array(sorted(sizes.items()), dtype=np.int64).T
    reached = counts.cumsum()
    total = int(reached[-1])
    median, last = (int(values[reached.searchsorted(part * total)]) for part in (0.5, 0.99))
    first = int(values[0])
    if int(values[-1]) - first < BINS:
        last = int(values[-1])
    width = max(1, -(-(last - first + 1) // BINS))
    edges = np.arange(first, last + width + 1, width) - 0.5
    shown = values <= edges[-1]
    axes.hist(
        values[shown],
        edges.tolist(),
        weights=counts[shown],
        color=BLUE,
        rwidth=0.94 if len(edges) < 80 else 1,
    )
    axes.axvline(median, color=ORANGE, linewidth=2)
    top = axes.get_ylim()[1] * 1.12
    axes.set(ylim=(0, top), xlim=(edges[0], edges[-1]))
    right = median > (first + last) / 2
    axes.annotate(
        f"median {median:,}",
        (median, top),
        (-6 if right else 6, -6),
        textcoords="offset points",
        ha="right" if right else "left",
        va="top",
        fontsize=SIZE,
        color=ORANGE,
    )
    beyond = int(counts[~shown].sum())
    more = f"; {beyond:,} longer ones, up to {int(values[-1]):,}, are not shown" if beyond else ""
    _plain(axes, f"Length of the {role}s", f"{unit}{more}", "examples")


def _bars(axes: Axes, labels: Mapping[str, int], noun: str) -> None:
    """A bar a label, the most frequent first."""
    ranked = sorted(labels.items(), key=lambda one: -one[1])
    rest = ranked[BARS:]
    names = [shortened(visible(name, space=" ")) for name, _ in ranked[:BARS]]
    counts = [count for _, count in ranked[:BARS]]
    lettering = Lettering.of(names)
    places = np.arange(len(names))
    axes.barh(places, counts, color=BLUE, height=0.8)
    axes.set(ylim=(max(len(names), 6) - 0.4, -0.6), yticks=places)
    small = SIZE if len(names) <= 14 else SIZE - 3
    for tick, name in zip(
        axes.set_yticklabels([shortened(lettering.drawable(one)) for one in names]), names, strict=True
    ):
        tick.set(fontproperties=lettering.properties(name, small), parse_math=False)
    most = max(counts)
    for place, count in zip(places, counts, strict=True):
        inside = count > 0.85 * most
        axes.annotate(
            f"{count:,}",
            (count, place),
            (-5 if inside else 5, 0),
            textcoords="offset points",
            ha="right" if inside else "left",
            va="center",
            fontsize=small - 1,
            color="white" if inside else INK,
        )
    more = f"; {len(rest):,} rarer ones are not shown" if rest else ""
    _plain(axes, f"{noun[:1].upper() + noun[1:]}: {len(labels):,}", f"how often each occurs{more}", "")
    axes.tick_params(axis="y", length=0)


def _plain(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    axes.set_title(title, loc="left", fontsize=SIZE + 3, color=INK, weight="bold")
    axes.set_xlabel(x_label, fontsize=SIZE, color=INK)
    axes.set_ylabel(y_label, fontsize=SIZE, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", labelsize=SIZE - 1)
    if y_label:
        axes.tick_params(axis="y", labelsize=SIZE - 1)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
