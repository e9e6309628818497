"""Greedy decoding: always the most probable next token."""

from __future__ import annotations

import torch
from torch import Tensor

from elman.decoding.base import Choice, Live, Strategy


class Greedy(Strategy):
    """``w_t = argmax_w p(w | w_{<t})``; of equals the first."""

    def choose(self, log_probs: Tensor, live: Live, generator: torch.Generator | None) -> Choice:
        return Choice(log_probs.argmax(1), torch.arange(len(log_probs), device=log_probs.device))
