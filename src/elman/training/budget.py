"""The arithmetic of time: how long a training takes, and how many updates fit into so many minutes."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from elman.config import Config, has_key, lookup

AIM = 0.95  # share of the minutes that a training is planned to take
REPORT = 1.0  # seconds for its last lines, report and card
VALIDATING = 0.15  # share of the time that validations may take, if one of them does not take more
VALIDATIONS = 20  # at most
LONGER = 3  # times the usual updates are enough, however many minutes there are
SHORT = 0.25  # share of the usual updates below which a narrower network is tried
FASTER = 0.65  # share of the seconds of an update that half the width may take, or it is not worth it
NARROWEST = {"model.hidden": 96, "model.embedding": 32}  # widths that may be halved, and how far


@dataclass(frozen=True)
class Speed:
    """How fast a training is: seconds of an update and of a validation, with the checkpoints that they cost.

    start: seconds of what is done once: the network is built, and updates are recorded. total, every: the
    updates of the whole training, and those between two validations.

    >>> Speed(update=0.1, validation=2.0, start=1.0, total=1200, every=500).seconds
    127.0
    """

    update: float
    validation: float
    start: float
    total: int
    every: int

    @property
    def validations(self) -> int:
        """The last one comes at the end, wherever that is."""
        return -(-self.total // self.every)

    @property
    def seconds(self) -> float:
        """Of the whole training."""
        return self.start + self.total * self.update + self.validations * self.validation


def planned(speed: Speed, left: float, most: int, every: int | None = None) -> Speed:
    """As many updates as take the seconds that are left, ``most`` of them at most, and when to validate.

    Validations take a share of the time, if ``every`` does not say how many updates lie between two.

    >>> speed = Speed(update=0.1, validation=2.0, start=1.0, total=5000, every=300)
    >>> found = planned(speed, left=101.0, most=15000)
    >>> found.total, found.every, found.validations, found.seconds
    (860, 123, 7, 101.0)
    """
    left = max(0.0, left - speed.start)
    if every is None:
        count = max(1, min(VALIDATIONS, int(VALIDATING * left / max(speed.validation, 1e-9))))
        updates = _bounded((left - count * speed.validation) / max(speed.update, 1e-9), most)
        return replace(speed, total=updates, every=-(-updates // count))
    both = max(speed.update, 1e-9) + speed.validation / every
    return replace(speed, total=_bounded((left - speed.validation) / both, most), every=every)


def _bounded(updates: float, most: int) -> int:
    return max(1, min(math.floor(updates + 1e-6), most))


def narrower(config: Config, chosen: Collection[str]) -> dict[str, int]:
    """Half of the widths that were chosen for the data, as far as they are not small; the user's stay."""
    widths = {key: lookup(config, key) for key in NARROWEST if key in chosen and has_key(type(config), key)}
    return {
        key: width // 2
        for key, width in widths.items()
        if isinstance(width, int) and width // 2 >= NARROWEST[key]
    }


def spread(sizes: Sequence[int], count: int) -> list[int]:
    """The places of so many sizes, at most; any first few of them are as large as all, in the mean.

    >>> spread([10, 50, 30, 20, 40], 3)
    [2, 3, 4]
    """
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return [order[int(_halved(number) * len(order))] for number in range(1, min(count, len(order)) + 1)]


def _halved(number: int) -> float:
    """1/2, 1/4, 3/4, 1/8, 5/8 and so on: the binary digits of a number, the last first, behind a point."""
    return float(int(f"{number:b}"[::-1], 2) / 2 ** number.bit_length())


def mean_seconds(passed: float, measured: Sequence[int], sizes: Sequence[int]) -> float:
    """Seconds of an update among all, where so many passed for those that were measured.

    >>> mean_seconds(6.0, [10, 20], [10, 20, 30, 40])
    5.0
    """
    return passed / len(measured) * fmean(sizes) / fmean(measured)
