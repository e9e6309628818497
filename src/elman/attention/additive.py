"""Additive: a small network looks at both (row A3; Bahdanau et al. 2015)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elman.attention.base import Attention
from elman.tensors.checks import check_size


class Additive(Attention):
    """``score = v · tanh(W_q h^dec + W_k h^enc + b)``."""

    def __init__(self, query_size: int, key_size: int, *, width: int | None = None) -> None:
        """
        Args:
            width: of the network; None: as wide as the query.
        """
        super().__init__(query_size, key_size)
        width = query_size if width is None else check_size("width", width)
        self.of_query = nn.Linear(query_size, width, bias=False)
        self.of_keys = nn.Linear(key_size, width)
        self.v = nn.Parameter(torch.randn(width) * width**-0.5)

    def keys(self, states: Tensor) -> Tensor:
        keys: Tensor = self.of_keys(states)
        return keys

    def score(self, query: Tensor, keys: Tensor, previous: Tensor | None) -> Tensor:
        joined = self.of_query(query)[:, :, None] + self.bias(keys, previous)[:, None]  # (B, T, S, ·)
        return torch.tanh(joined) @ self.v

    def bias(self, keys: Tensor, previous: Tensor | None) -> Tensor:
        """What stands beside the query inside tanh: (B, S, ·)."""
        return keys
