"""Where training stands, and what it yields: updates and validations."""

import math
from dataclasses import dataclass
from typing import Any

from elman.tasks.base import Measures
from elman.tasks.watched import WatchedExample
from elman.training.numbers import UpdateNumbers


@dataclass(frozen=True)
class Position:
    """Where training stands; all of it fits into JSON, and floats come back bit for bit."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # of the epoch
    validated: int = 0  # update of the last validation
    best: float | None = None  # of the chosen metric
    best_rank: tuple[float, float] | None = None
    best_update: int = 0
    calibration: dict[str, Any] | None = None  # of the best weights, where probabilities of labels have one
    waited: int = 0  # validations without improvement
    log_loss: float = 0.0  # sums since the last line of the log
    log_count: int = 0
    log_tokens: int = 0
    log_norm: float = 0.0
    log_updates: int = 0
    objective: float = 0.0  # summed over the pass so far
    last_objective: float | None = None
    calm: int = 0  # passes in a row that hardly changed the objective
    turned: int | None = None  # update from which on the rest of the schedule is taken faster
    ending: int | None = None  # and the one that is the last therefore
    finished: str | None = None

    def scheduled(self, update: int, total: int) -> int:
        """The place of an update in a schedule of so many: its number, or further on where time runs faster.

        >>> slow, fast = Position(), Position(turned=400, ending=500)
        >>> [slow.scheduled(450, 1000), *(fast.scheduled(update, 1000) for update in (400, 450, 500))]
        [450, 400, 700, 1000]
        """
        if self.turned is None or self.ending is None or update <= self.turned:
            return update
        return self.turned + round(
            (update - self.turned) * (total - self.turned) / (self.ending - self.turned)
        )

    def outcome(self) -> dict[str, Any]:
        """What is told besides the log: how probabilities were calibrated, if they were."""
        return {} if self.calibration is None else {"calibration": self.calibration}


@dataclass(frozen=True)
class Update:
    """One update: its numbers, which a GPU may still be computing, the rate, and where the time went."""

    numbers: UpdateNumbers
    rate: float
    data_seconds: float
    seconds: float

    @property
    def loss(self) -> float:
        """The mean over its batches."""
        return self.numbers.total / self.numbers.count

    @property
    def gradient_norm(self) -> float:
        return finite(self.numbers.norm)


@dataclass(frozen=True)
class Validation:
    """Measures on the validation data, and whether they are the best so far."""

    measures: Measures
    samples: list[str]
    watched: list[WatchedExample]
    improved: bool
    seconds: float


def finite(value: float) -> float:
    """The value, or zero where it is not finite: of the norm of a step that the scaler skipped."""
    return value if math.isfinite(value) else 0.0
