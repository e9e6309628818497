"""Location-aware: it sees where it looked last, so that it can move on (Chorowski et al. 2015)."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from elman.attention.additive import Additive
from elman.tensors.checks import check_size


class Location(Additive):
    """``score = v · tanh(W_q h^dec + W_k h^enc + U (F ∗ α_{t-1}) + b)``, with filters F."""

    sequential: ClassVar[bool] = True

    def __init__(
        self, query_size: int, key_size: int, *, width: int | None = None, filters: int = 8, reach: int = 5
    ) -> None:
        """
        Args:
            width: of the network; None: as wide as the query.
            filters: how many are laid over the last weights.
            reach: positions that a filter sees to either side.
        """
        super().__init__(query_size, key_size, width=width)
        filters, reach = check_size("filters", filters), check_size("reach", reach, least=0)
        self.filters = nn.Conv1d(1, filters, 2 * reach + 1, padding=reach, bias=False)
        self.of_filters = nn.Linear(filters, len(self.v), bias=False)

    def bias(self, keys: Tensor, previous: Tensor | None) -> Tensor:
        if previous is None:
            return keys
        seen = self.filters(previous[:, None])  # (B, filters, S)
        return keys + F.linear(seen.mT, self.of_filters.weight)
