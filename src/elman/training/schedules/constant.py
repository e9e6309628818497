"""One learning rate for all updates."""

from elman.training.schedules.base import Schedule


class Constant(Schedule):
    """``η``"""

    def share(self, update: int, total: int) -> float:
        return 1.0
