"""A learning rate that rises at the beginning."""

from elman.training.schedules.base import Schedule


class Warmup(Schedule):
    """``η min(1, u / w)`` with ``w = warmup · U``"""

    def __init__(self, *, warmup: float = 0.05) -> None:
        self.warmup = warmup

    def share(self, update: int, total: int) -> float:
        rise = round(self.warmup * total)
        return update / rise if update <= rise else 1.0
