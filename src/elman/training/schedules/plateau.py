"""A learning rate that is cut where the loss stops falling."""

import math
from collections.abc import Mapping
from typing import Any

from elman.training.schedules.base import Schedule


class Plateau(Schedule):
    """``η dᵏ``: k counts how often more than ``plateau`` validations in a row brought no lower loss."""

    def __init__(self, *, decay: float = 0.5, plateau: int = 0) -> None:
        self.decay, self.plateau = decay, plateau
        self.cuts = 0
        self.waited = 0
        self.best: float | None = None

    def share(self, update: int, total: int) -> float:
        return float(self.decay**self.cuts)

    def note(self, loss: float) -> bool:
        if loss < (math.inf if self.best is None else self.best):
            self.best, self.waited = loss, 0
            return False
        self.waited += 1
        if self.waited <= self.plateau:
            return False
        self.cuts, self.waited = self.cuts + 1, 0
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"cuts": self.cuts, "waited": self.waited, "best": self.best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.cuts, self.waited, self.best = state["cuts"], state["waited"], state["best"]
