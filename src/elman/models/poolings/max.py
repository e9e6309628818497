"""The largest value of every unit."""

import torch
from torch import Tensor

from elman.models.poolings.base import Pooling


class Max(Pooling):
    """``max_i h_i``, unit by unit."""

    padding = -torch.inf

    def pool(self, outputs: Tensor, real: Tensor) -> Tensor:
        return outputs.max(1).values
