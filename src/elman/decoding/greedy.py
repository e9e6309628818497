"""Greedy decoding: always the most probable next token."""

import torch
from torch import Tensor

from elman.decoding.base import Choice, SearchState, Strategy
from elman.decoding.candidates import best_tokens
from elman.decoding.rows import apart
from elman.errors import ArgumentError
from elman.tensors.transfer import fetched


class Greedy(Strategy):
    """``w_t = argmax_w p(w | w_{<t})``; of equals the first."""

    across_devices = True

    def check(self, n_best: int) -> None:
        if n_best > 1:
            raise ArgumentError(f"n_best is {n_best}; greedy finds one sequence: use beam, sample or diverse")

    def choose(self, log_probs: Tensor, live: SearchState, generator: torch.Generator | None) -> Choice:
        tokens = best_tokens(log_probs)
        rows = torch.arange(len(tokens), device=live.examples.device)
        if not apart(log_probs, live.examples):
            return Choice(tokens, rows)
        tokens, values = fetched(tokens, log_probs.gather(1, tokens[:, None]).squeeze(1))
        return Choice(tokens, rows, log_probs=values)
