"""The largest value of every unit."""

import torch
from torch import Tensor

from elman.models.poolings.base import Pooling


class Max(Pooling):
    """``max_i h_i``, unit by unit."""

    def pool(self, outputs: Tensor, real: Tensor) -> Tensor:
        return outputs.masked_fill(~real[..., None], -torch.inf).max(1).values
