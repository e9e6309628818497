"""The numbers of an update, brought from the device in one transfer and read when somebody needs them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from elman.tasks.base import Loss


class Figures:
    """What one update came to: the losses and objectives of its batches and the norm of its gradient.

    They are asked for at once and waited for at the first reading only: a GPU that has the next update
    to work on meanwhile never stands still for them.

    >>> figures = Figures(1, [Loss(torch.tensor(6.0), 3, 1, 3)], [torch.tensor(2.0)], torch.tensor(0.5))
    >>> figures.total, figures.count, figures.objective, figures.norm
    (6.0, 3, 2.0, 0.5)
    """

    def __init__(
        self, update: int, losses: Sequence[Loss], objectives: Sequence[Tensor], norm: Tensor
    ) -> None:
        self.update = update
        self.losses = len(losses)
        self.count = sum(loss.count for loss in losses)
        scalars = [*objectives, *(loss.total for loss in losses), norm]
        self.numbers = torch.stack([scalar.detach() for scalar in scalars])
        self._here = self.numbers.to("cpu", non_blocking=self.numbers.is_cuda)  # into pinned memory
        self._arrived: torch.cuda.Event | None = None
        if self.numbers.is_cuda:
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(self.numbers.device))

    @property
    def objective(self) -> float:
        """What was differentiated, over all batches."""
        return sum(self._values[: self.losses])

    @property
    def total(self) -> float:
        """The losses of all batches, summed."""
        return sum(self._values[self.losses : -1])

    @property
    def norm(self) -> float:
        """Of the gradient, before it is clipped."""
        return self._values[-1]

    def broken(self) -> Tensor:
        """On the device: 1 where a number is not finite, else 0."""
        return (~self.numbers.isfinite().all()).float()

    @cached_property
    def _values(self) -> list[float]:
        if self._arrived is not None:
            self._arrived.synchronize()
        values: list[float] = self._here.tolist()
        return values
