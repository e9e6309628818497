"""Whether figures of the same seeds differ: paired t intervals, which hold for all pairs together."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, stdev
from typing import NamedTuple

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean, and where it lies at a level of confidence."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def t_inside(t: float, freedom: int) -> float:
    """P(|T| < t) of Student's distribution, by its finite sums for whole degrees of freedom.

    >>> round(t_inside(2.776445, 4), 6), round(t_inside(3.182446, 3), 6)
    (0.95, 0.95)
    """
    angle = math.atan2(t, math.sqrt(freedom))
    square, term, total = math.cos(angle) ** 2, 1.0, 0.0
    first = 1 if freedom % 2 else 0
    for k in range(first, freedom - 1, 2):
        total += term
        term *= square * (k + 1) / (k + 2)
    if freedom % 2:
        return 2 / math.pi * (angle + math.sin(angle) * math.cos(angle) * total)
    return math.sin(angle) * total


def t_quantile(level: float, freedom: int) -> float:
    """The t that so much of the distribution lies inside of.

    >>> [round(t_quantile(0.95, freedom), 3) for freedom in (1, 2, 4, 9, 30)]
    [12.706, 4.303, 2.776, 2.262, 2.042]
    """
    low, high = 0.0, 1.0
    while t_inside(high, freedom) < level:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_inside(middle, freedom) < level else (low, middle)
    return high


def interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Of the mean; one value says nothing of its spread, so that its interval is the whole line."""
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf)
    reach = t_quantile(level, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - reach, mean + reach)


def differences(
    figures: Mapping[str, Sequence[float]], level: float = LEVEL
) -> dict[tuple[str, str], Interval]:
    """By pair of names, the first's figures less the second's, seed by seed.

    All intervals hold together at the level (Bonferroni): the more pairs are looked at, the wider they are.
    """
    pairs = [*combinations(figures, 2)]
    each = 1 - (1 - level) / max(1, len(pairs))
    return {
        (one, other): interval([a - b for a, b in zip(figures[one], figures[other], strict=True)], each)
        for one, other in pairs
    }
