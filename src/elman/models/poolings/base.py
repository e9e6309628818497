"""The contract of a pooling: one vector for a sequence, from what the network put out along it."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from elman.recurrence.contract import Unrolled
from elman.tensors.checks import check_lengths, check_size, check_tensor
from elman.tensors.rows import length_mask


class Pooling(nn.Module):
    """(B, T, width) → (B, output_size), a rule over the real steps h_1 … h_n; padding counts nowhere.

    A class writes ``pool``; one that makes vectors of another width sets ``output_size``. Options are
    keywords of its constructor.

    >>> from elman.models.poolings.mean import Mean
    >>> outputs = torch.tensor([[[1.0, 4.0], [3.0, 0.0], [9.0, 9.0]]])
    >>> Mean(2)(Unrolled(outputs, outputs[:, 1], ()), torch.tensor([2]))
    tensor([[2., 2.]])
    """

    padding: ClassVar[float] = 0.0  # what ``pool`` finds at padding

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = self.output_size = check_size("width", width)

    def pool(self, outputs: Tensor, real: Tensor) -> Tensor:
        """(B, output_size) for outputs (B, T, width), ``padding`` at padding; real (B, T) tells the steps."""
        raise NotImplementedError(f"{type(self).__name__} writes no pool")

    def forward(self, unrolled: Unrolled, lengths: Any = None) -> Tensor:
        """Pool what a network returned; lengths (B,) as it got them, None: all steps are real."""
        outputs = check_tensor("outputs", unrolled.outputs, ("B", "T", self.width))
        B, T, _ = outputs.shape
        real = outputs.new_ones(B, T, dtype=torch.bool)
        if lengths is None or (B == 1 and _is_whole(lengths, T)):  # which may be very long
            return self.pool(outputs, real)
        real = length_mask(check_lengths(lengths, B, T, outputs.device), T)
        return self.pool(outputs.masked_fill(~real[..., None], self.padding), real)


def _is_whole(length: Any, T: int) -> bool:
    """Whether the only row has no padding; a GPU is not asked, since it would be waited for."""
    length = torch.as_tensor(length)
    return length.is_cpu and int(length) == T
