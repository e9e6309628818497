"""The contract of a schedule: which share of the learning rate an update takes."""

import math
from collections.abc import Mapping
from typing import Any

from elman.tensors.checks import check_size


class Schedule:
    """The learning rate of update ``u`` of ``U``, both counted from 1, as a share of the learning rate ``η``.

    A class writes ``share``; its options are keywords of its constructor. One that remembers something of the
    validations writes ``note``, ``state_dict`` and ``load_state_dict``; its state fits into JSON.

    >>> from elman.training.schedules.cosine import Cosine
    >>> schedule = Cosine(warmup=0.5, final_rate=0.0)
    >>> [round(schedule.rate(2.0, update, 8), 3) for update in range(1, 9)]
    [0.5, 1.0, 1.5, 2.0, 1.707, 1.0, 0.293, 0.0]
    """

    def share(self, update: int, total: int) -> float:
        raise NotImplementedError(f"{type(self).__name__} writes no share")

    def rate(self, learning_rate: float, update: int, total: int) -> float:
        """The learning rate of this update; beyond ``total`` that of the last."""
        check_size("update", update)
        check_size("total", total)
        return learning_rate * self.share(min(update, total), total)

    def note(self, loss: float) -> bool:
        """After a validation: is the rate changed because of its loss?"""
        return False

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where ``state_dict`` was taken."""


def half_cosine(start: float, end: float, progress: float) -> float:
    """``c(a, b, p) = b + (a − b) (1 + cos πp) / 2``, from a to b."""
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2
