"""The output after the last step."""

from typing import Any

from torch import Tensor

from elman.models.poolings.base import Pooling
from elman.recurrence.contract import Unrolled
from elman.tensors.checks import check_tensor


class Last(Pooling):
    """``h_n``; of two directions both final outputs side by side."""

    def forward(self, unrolled: Unrolled, lengths: Any = None) -> Tensor:
        return check_tensor("last", unrolled.last, ("B", self.width))
