"""The average and the largest value of every unit, side by side."""

import torch
from torch import Tensor

from elman.models.poolings.base import Pooling


class MeanMax(Pooling):
    """``[(h_1 + … + h_n) / n; max_i h_i]``: what is usual in a text, and what stands out."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.output_size = 2 * width

    def pool(self, outputs: Tensor, real: Tensor) -> Tensor:
        mean = outputs.sum(1) / real.sum(1, keepdim=True)
        return torch.cat([mean, outputs.masked_fill(~real[..., None], -torch.inf).amax(1)], -1)
