"""The average of all outputs."""

from torch import Tensor

from elman.models.poolings.base import Pooling


class Mean(Pooling):
    """``(h_1 + … + h_n) / n``"""

    def pool(self, outputs: Tensor, real: Tensor) -> Tensor:
        return outputs.sum(1) / real.sum(1, keepdim=True)
