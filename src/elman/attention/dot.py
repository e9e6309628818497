"""Dot product: no weights of its own (row A1)."""

from torch import Tensor, nn

from elman.attention.base import Attention


class Dot(Attention):
    """``score = h^dec · h^enc``; where the widths differ, the query goes through one learned matrix."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        same = query_size == key_size
        self.projection = None if same else nn.Linear(query_size, key_size, bias=False)

    def score(self, query: Tensor, keys: Tensor, previous: Tensor | None) -> Tensor:
        if self.projection is not None:
            query = self.projection(query)
        return query @ keys.mT

    def describe(self) -> str:
        learned = "" if self.projection is None else "; the widths differ, so a learned matrix is between"
        return super().describe() + learned
