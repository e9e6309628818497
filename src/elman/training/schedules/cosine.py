"""A learning rate that rises, and falls along half a cosine."""

from elman.training.schedules.base import Schedule, half_cosine


class Cosine(Schedule):
    """``η u / w`` up to ``w = warmup · U``, then ``η c(1, e, (u − w) / (U − w))`` with e the final share."""

    def __init__(self, *, warmup: float = 0.05, final_rate: float = 0.01) -> None:
        self.warmup, self.final_rate = warmup, final_rate

    def share(self, update: int, total: int) -> float:
        rise = round(self.warmup * total)
        if update <= rise:
            return update / rise
        return half_cosine(1.0, self.final_rate, (update - rise) / (total - rise))
