"""Learning curves: values over updates, thinned, on axes with round ticks, as charts in SVG."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from elman.presentation.events import Event
from elman.presentation.wording import number

POINTS = 200  # of a curve, at most; more are averaged, and the band behind the curve shows their range
WIDTH, HEIGHT = 560, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 26, 26, 34  # the value under the pointer stands in the upper margin


class Point(NamedTuple):
    """One place of a curve; ``low`` and ``high`` bound the values that it stands for."""

    x: int
    y: float
    low: float
    high: float


class Series(NamedTuple):
    name: str
    style: str  # a class of the style sheet
    points: list[Point]


def curve(events: Sequence[Event], key: str, *, positive: bool = False) -> list[Point]:
    """The finite values of ``key`` over updates, thinned to ``POINTS`` by averaging neighbours."""
    values = [(event["update"], event.get(key)) for event in events]
    real = [(x, float(y)) for x, y in values if isinstance(y, (int, float)) and math.isfinite(y)]
    real = [(x, y) for x, y in real if y > 0 or not positive]
    size = max(1, math.ceil(len(real) / POINTS))
    parts = (real[i : i + size] for i in range(0, len(real), size))
    return [Point(part[-1][0], fmean(y for _, y in part), *_range(y for _, y in part)) for part in parts]


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``, about ``count`` of them.

    >>> linear_ticks(0, 7840), linear_ticks(0.0, 0.5)
    ([0.0, 2000.0, 4000.0, 6000.0], [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    """
    rough = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.8)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers of a logarithmic axis: 1, 2, 5 of each decade, or decades only, or every few of them.

    >>> log_ticks(0.3, 30), log_ticks(0.001, 1000)
    ([0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [float(f"{digit}e{ten}") for ten in decades for digit in (1, 2, 5)]
    inside = [value for value in inside if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    if len(inside) < 3:
        return linear_ticks(low, high)
    if len(inside) > 7:
        inside = [value for value in inside if f"{value:e}".startswith("1.")]
    return inside[:: math.ceil(len(inside) / 7)]


def tick_label(value: float) -> str:
    """
    >>> tick_label(2000.0), tick_label(0.25), tick_label(0.00001), tick_label(0.0)
    ('2,000', '0.25', '1e-5', '0')
    """
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return f"{value:,.6f}".rstrip("0").rstrip(".")
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


class Axis(NamedTuple):
    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], start: float, stop: float, *, log: bool) -> Axis:
        """An axis with a little air around the values; a single value stands in the middle."""
        low, high = _range(values)
        if log:
            air = (high / low) ** 0.06 if high > low * 1.01 else 1.5
            return cls(low / air, high * air, start, stop, log)
        air = (high - low) * 0.06 if high - low > 1e-9 * abs(high) else abs(high) * 0.1 or 1.0
        return cls(0.0 if 0 <= low < air else low - air, high + air, start, stop)

    def place(self, value: float) -> float:
        scale: Callable[[float], float] = math.log if self.log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return round(self.start + share * (self.stop - self.start), 1)

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high) if self.log else linear_ticks(self.low, self.high)


def chart(title: str, series: Sequence[Series], *, log: bool = False, best: Point | None = None) -> str:
    """A figure with axes, curves, and at every update the values under the pointer; "" without points."""
    series = [one for one in series if one.points]
    points = [point for one in series for point in one.points] + ([best] if best and series else [])
    if not points:
        return ""
    across = Axis(0, max(max(point.x for point in points), 1), LEFT, WIDTH - RIGHT)
    bounds = [bound for point in points for bound in (point.low, point.high)]
    up = Axis.around(bounds, HEIGHT - BOTTOM, TOP, log=log)
    keys = [(one.name, one.style) for one in series if len(series) > 1] + ([("best", "best")] if best else [])
    legend = "".join(f'<span class="key {style}">{escape(name)}</span>' for name, style in keys)
    drawing = [*_grid(across, up)]
    for one in series:
        drawing += _curve(one, across, up)
    if best:
        drawing.append(_dot(best, across, up, "best", 5))
    drawing += _readings(series, across, up)
    scale = " <small>log scale</small>" if log else ""
    label = escape(f"{title} over {points[-1].x:,} updates")
    return (
        f"<figure><figcaption><b>{escape(title)}</b>{scale}{legend}</figcaption>"
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">\n'
        + "\n".join(drawing)
        + "\n</svg></div></figure>\n"
    )


def _grid(across: Axis, up: Axis) -> Iterator[str]:
    bottom = up.start
    for tick in up.ticks():
        y = up.place(tick)
        yield f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{tick_label(tick)}</text>'
    yield f'<path class="axis" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>'
    for tick in filter(float.is_integer, across.ticks()):
        x, label = across.place(tick), tick_label(tick)
        yield f'<path class="axis" d="M{x} {bottom}v4"/>'
        yield f'<text class="tick" x="{x}" y="{bottom + 17}" text-anchor="middle">{label}</text>'
    yield f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">updates</text>'


def _curve(series: Series, across: Axis, up: Axis) -> Iterator[str]:
    places = [(across.place(point.x), point) for point in series.points]
    if any(point.high > point.low for point in series.points):
        edge = [f"{x} {up.place(point.high)}" for x, point in places]
        back = [f"{x} {up.place(point.low)}" for x, point in reversed(places)]
        yield f'<path class="band {series.style}" d="M{"L".join(edge + back)}Z"/>'
    if len(places) > 1:
        line = "L".join(f"{x} {up.place(point.y)}" for x, point in places)
        yield f'<path class="curve {series.style}" d="M{line}"/>'
    if len(places) <= 40:
        for point in series.points:
            yield _dot(point, across, up, series.style, 2.5)


def _dot(point: Point, across: Axis, up: Axis, style: str, radius: float) -> str:
    return f'<circle class="dot {style}" cx="{across.place(point.x)}" cy="{up.place(point.y)}" r="{radius}"/>'


def _readings(series: Sequence[Series], across: Axis, up: Axis) -> Iterator[str]:
    """Invisible strips, one an update that has a point; the style sheet shows the strip under the pointer."""
    updates = sorted({point.x for one in series for point in one.points})
    places = [across.place(x) for x in updates]
    edges = [LEFT, *((a + b) / 2 for a, b in pairwise(places)), WIDTH - RIGHT]
    for update, x, (left, right) in zip(updates, places, pairwise(edges), strict=True):
        words, dots = [f"update {update:,}"], ""
        for one in series:
            before = bisect_right(one.points, update, key=lambda point: point.x) - 1
            if before >= 0:
                words.append(f"{one.name} {number(one.points[before].y)}")
                dots += _dot(one.points[before], across, up, one.style, 3.5)
        yield (
            f'<g class="at"><rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" '
            f'height="{HEIGHT - TOP - BOTTOM}"/><path d="M{x} {TOP}V{HEIGHT - BOTTOM}"/>{dots}'
            f'<text x="{WIDTH - RIGHT}" y="15" text-anchor="end">{escape(" · ".join(words))}</text></g>'
        )


def _range(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    return min(known), max(known)
