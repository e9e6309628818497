"""One cycle: a learning rate that rises and falls along half cosines (Smith, 2018)."""

from elman.training.schedules.base import Schedule, half_cosine

START = 1 / 25  # share of the learning rate at which one cycle begins


class OneCycle(Schedule):
    """``η c(1/25, 1, u / w)`` up to ``w = warmup · U``, then ``η c(1, e, (u − w) / (U − w))``."""

    def __init__(self, *, warmup: float = 0.05, final_rate: float = 0.01) -> None:
        self.warmup, self.final_rate = warmup, final_rate

    def share(self, update: int, total: int) -> float:
        rise = round(self.warmup * total)
        if update <= rise:
            return half_cosine(START, 1.0, update / rise)
        return half_cosine(1.0, self.final_rate, (update - rise) / (total - rise))
