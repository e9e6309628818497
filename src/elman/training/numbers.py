"""The numbers of an update, brought from the device in one transfer and read when somebody needs them."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor


def stacked(objectives: Sequence[Tensor], totals: Sequence[Tensor], norm: Tensor) -> Tensor:
    """The objectives and losses of all batches and the norm of the gradient, in one tensor where they are."""
    return torch.stack([scalar.detach() for scalar in (*objectives, *totals, norm)])


def broken(stacked: Tensor) -> Tensor:
    """On the device: 1 where a number is not finite, else 0."""
    return (~stacked.isfinite().all()).float()


class UpdateNumbers:
    """What one update came to: the losses and objectives of its batches and the norm of its gradient.

    They are asked for at once and waited for at the first reading only: a GPU that has the next update
    to work on meanwhile never stands still for them.

    >>> numbers = UpdateNumbers(1, stacked([torch.tensor(2.0)], [torch.tensor(6.0)], torch.tensor(0.5)), 3)
    >>> numbers.total, numbers.count, numbers.objective, numbers.norm
    (6.0, 3, 2.0, 0.5)
    """

    def __init__(self, update: int, stacked: Tensor, count: int) -> None:
        """
        Args:
            stacked: the numbers on the device, as ``stacked`` puts them together.
            count: of losses in all batches.
        """
        self.update, self.stacked, self.count = update, stacked, count
        self.losses = (len(stacked) - 1) // 2
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

    @cached_property
    def _values(self) -> list[float]:
        if self._arrived is not None:
            self._arrived.synchronize()
        values: list[float] = self._here.tolist()
        return values
