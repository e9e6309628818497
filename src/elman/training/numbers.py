"""The numbers of an update, brought from the device in one transfer and read when somebody needs them."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from elman.tasks.base import Loss


class UpdateNumbers:
    """What one update came to: the losses and objectives of its batches and the norm of its gradient.

    They are asked for at once and waited for at the first reading only: a GPU that has the next update
    to work on meanwhile never stands still for them.

    >>> numbers = UpdateNumbers(1, [Loss(torch.tensor(6.0), 3, 1, 3)], [torch.tensor(2.0)], torch.tensor(0.5))
    >>> numbers.total, numbers.count, numbers.objective, numbers.norm
    (6.0, 3, 2.0, 0.5)
    """

    def __init__(
        self, update: int, losses: Sequence[Loss], objectives: Sequence[Tensor], norm: Tensor
    ) -> None:
        self.update = update
        self.losses = len(losses)
        self.count = sum(loss.count for loss in losses)
        scalars = [*objectives, *(loss.total for loss in losses), norm]
        self.stacked = torch.stack([scalar.detach() for scalar in scalars])
        self._here = self.stacked.to("cpu", non_blocking=self.stacked.is_cuda)  # into pinned memory
        self._arrived: torch.cuda.Event | None = None
        if self.stacked.is_cuda:
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(self.stacked.device))

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
        return (~self.stacked.isfinite().all()).float()

    @cached_property
    def _values(self) -> list[float]:
        if self._arrived is not None:
            self._arrived.synchronize()
        values: list[float] = self._here.tolist()
        return values
