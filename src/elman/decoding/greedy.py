"""Greedy decoding: always the most probable next token."""

import torch
from torch import Tensor

from elman.decoding.base import Choice, SearchState, Strategy
from elman.decoding.candidates import best_tokens
from elman.errors import ArgumentError


class Greedy(Strategy):
    """``w_t = argmax_w p(w | w_{<t})``; of equals the first."""

    def check(self, n_best: int) -> None:
        if n_best > 1:
            raise ArgumentError(f"n_best is {n_best}; greedy finds one sequence: use beam, sample or diverse")

    def choose(self, log_probs: Tensor, live: SearchState, generator: torch.Generator | None) -> Choice:
        return Choice(best_tokens(log_probs), torch.arange(len(log_probs), device=log_probs.device))
