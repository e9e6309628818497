"""Additive: a small network looks at both (row A3; Bahdanau et al. 2015)."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from elman.attention.base import Attention
from elman.tensors.checks import check_size
from elman.tensors.products import apply_layer

LARGE = 1 << 26  # numbers inside tanh that are in memory at a time; more are computed again backward


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
        return apply_layer(self.of_keys, states)

    def score(self, query: Tensor, keys: Tensor, previous: Tensor | None) -> Tensor:
        steps = max(1, LARGE // keys.numel())  # at once
        if steps >= query.shape[1]:
            return self.plain_score(query, keys, previous)
        q, k = self.of_query(query), self.bias(keys, previous)
        again = partial(checkpoint, self._scores, use_reentrant=False, preserve_rng_state=False)
        parts = [again(part, k) for part in q.split(steps, 1)]
        return torch.cat(parts, 1)

    def plain_score(self, query: Tensor, keys: Tensor, previous: Tensor | None) -> Tensor:
        return self._scores(self.of_query(query), self.bias(keys, previous))

    def _scores(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.tanh(q[:, :, None] + k[:, None]) @ self.v  # of (B, T, S, ·)

    def bias(self, keys: Tensor, previous: Tensor | None) -> Tensor:
        """What stands beside the query inside tanh: (B, S, ·)."""
        return keys
