"""Bilinear: one matrix between the two (row A2)."""

from torch import Tensor, nn

from elman.attention.base import Attention
from elman.tensors.products import apply_layer


class Bilinear(Attention):
    """``score = (h^enc)ᵀ W_a h^dec``, one ``W_a`` for all steps."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self.matrix = nn.Linear(key_size, query_size, bias=False)

    def keys(self, states: Tensor) -> Tensor:
        return apply_layer(self.matrix, states)

    def score(self, query: Tensor, keys: Tensor, previous: Tensor | None) -> Tensor:
        return query @ keys.mT
