"""What a search tries of a setting: numbers from one to another, or some values."""

from collections.abc import Mapping
from dataclasses import dataclass

WIDTHS = 8  # whole numbers of several times this are tried in steps of it


Value = bool | int | float | str  # of a setting that is searched


@dataclass(frozen=True)
class Numbers:
    """All from the lower to the upper end; ``log``: as many between 1 and 2 as between 10 and 20."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def neat(self, value: float) -> float:
        """A number near by as people would say it, within the range: 0.00234, and 136 units, not 137."""
        if self.whole:
            size = WIDTHS if value >= 4 * WIDTHS else 1
            return min(max(round(value / size) * size, self.low), self.high)
        return min(max(float(f"{value:.3g}"), self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Values:
    """One of these."""

    values: tuple[Value, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.values))


Range = Numbers | Values


@dataclass(frozen=True)
class Around:
    """From the default's so manieth part to so many times the default."""

    factor: float

    def of(self, value: object) -> Range | None:
        """The range around a default; None where it is no number to multiply."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            return None
        if isinstance(value, int):
            low, high = max(1, round(value / self.factor)), round(value * self.factor)
            return Numbers(low, high, log=True) if value >= self.factor else None
        return Numbers(float(f"{value / self.factor:.3g}"), float(f"{value * self.factor:.3g}"), log=True)


@dataclass(frozen=True)
class Near:
    """So much less or more than the default, of a share that is 0 at least."""

    distance: float
    most: float = 0.8

    def of(self, value: object) -> Range | None:
        if not isinstance(value, (int, float)):
            return None
        low, high = max(0.0, value - self.distance), max(value, min(self.most, value + self.distance))
        return Numbers(round(low, 3), round(high, 3))


@dataclass(frozen=True)
class Among:
    """One of these values, or the default."""

    values: tuple[Value, ...]

    def of(self, value: object) -> Range | None:
        plain = isinstance(value, Value) and value not in self.values
        return Values((*self.values, value) if plain else self.values)  # type: ignore[arg-type]


Search = Mapping[str, Around | Near | Among]  # what is searched around the defaults, by setting
