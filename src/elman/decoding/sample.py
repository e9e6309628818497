"""Sampling: the next token is drawn, from the whole distribution or from its head."""

from __future__ import annotations

import torch
from torch import Tensor

from elman.decoding.base import Choice, Live, Strategy
from elman.errors import ArgumentError
from elman.tensors.checks import check_number, check_size


class Sample(Strategy):
    """``w_t ~ softmax(log p / temperature)``, cut to the ``top_k`` most probable tokens, and of these to
    the fewest that together have the probability ``top_p`` (nucleus; Holtzman et al. 2020).

    A seed gives the same draws on every device: they come from one generator on the CPU, which goes on
    from call to call.

    >>> strategy = Sample(temperature=0.8, top_k=40, seed=1)
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> None:
        """
        Args:
            temperature: below 1 the probable becomes more so, above 1 less.
            top_k: None: no such cut. Tokens as probable as the last of them stay too.
            top_p: None: no such cut. One token always stays.
            seed: None: another one every time.
        """
        self.temperature = check_number("temperature", temperature)
        if not 0 < self.temperature < torch.inf:
            raise ArgumentError(f"temperature is {temperature!r}; it must be above 0 (greedy is the limit)")
        self.top_k = None if top_k is None else check_size("top_k", top_k)
        self.top_p = None if top_p is None else check_number("top_p", top_p)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p is {top_p!r}; it must be a probability above 0, at most 1")
        self.generator = torch.Generator()
        if seed is None:
            self.generator.seed()
        else:
            self.generator.manual_seed(check_size("seed", seed, least=0))

    def choose(self, log_probs: Tensor, live: Live, generator: torch.Generator | None) -> Choice:
        N, _ = log_probs.shape
        p = self.distribution(log_probs)
        source = generator or self.generator
        draws = torch.rand(N, 1, dtype=p.dtype, generator=source, device=source.device).to(p.device)
        below = p.cumsum(1)
        tokens = torch.searchsorted(below, draws * below[:, -1:], right=True)  # the first sum above the draw
        return Choice(tokens.squeeze(1), torch.arange(N, device=p.device))

    def distribution(self, log_probs: Tensor) -> Tensor:
        """(N, V) probabilities in float64 from which a token is drawn; zero for what was cut off."""
        scores = log_probs.double() / self.temperature
        if self.top_k is not None and self.top_k < scores.shape[1]:
            least = scores.topk(self.top_k, 1).values[:, -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        p = scores.softmax(1)
        if self.top_p is not None:
            falling, order = p.sort(stable=True, dim=1, descending=True)
            beyond = falling.cumsum(1) - falling >= self.top_p  # what comes before is enough already
            p = p.masked_fill(torch.zeros_like(beyond).scatter(1, order, beyond), 0.0)
        return p / p.sum(1, keepdim=True)
