"""Sampling: the next token is drawn, from the whole distribution or from its head."""

import torch
from torch import Tensor

from elman.decoding.base import Choice, SearchState, Strategy
from elman.decoding.draws import Urn, check_temperature, make_generator, tempered
from elman.errors import ArgumentError
from elman.tensors.checks import check_number, check_size


class Sample(Strategy):
    """``w_t ~ softmax(log p / temperature)``, cut to the ``top_k`` most probable tokens, and of these to
    the fewest that together have the probability ``top_p`` (nucleus; Holtzman et al. 2020).

    Several sequences of an example are drawn independently; they may be equal. A seed gives the same draws
    on every device: they come from one generator on the CPU, which goes on from step to step and from
    call to call. What a row gets depends on the batch that it stands in.

    >>> strategy = Sample(temperature=0.8, top_k=40, seed=1)
    """

    across_devices = True

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
        self.temperature = check_temperature(temperature)
        self.top_k = None if top_k is None else check_size("top_k", top_k)
        self.top_p = None if top_p is None else check_number("top_p", top_p)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p is {top_p!r}; it must be a probability above 0, at most 1")
        self.generator = make_generator(seed)

    def choose(self, log_probs: Tensor, live: SearchState, generator: torch.Generator | None) -> Choice:
        N, _ = log_probs.shape
        times = 1 if live.length else live.n_best  # an example branches at its first step
        tokens = Urn(self.distribution(log_probs)).draw(times, generator or self.generator)
        tokens = tokens.to(live.examples.device)
        rows = torch.arange(N, device=tokens.device).repeat_interleave(times)
        return Choice(tokens.flatten(), rows)

    def distribution(self, log_probs: Tensor) -> Tensor:
        """(N, V) probabilities from which a token is drawn; zero for what was cut off."""
        p = tempered(log_probs, self.temperature)
        if self.top_k is not None and self.top_k < p.shape[1]:
            least = p.topk(self.top_k, 1).values[:, -1:]
            p.masked_fill_(p < least, 0.0)
        p.div_(p.sum(1, keepdim=True))
        if self.top_p is not None and self.top_p < 1:
            falling, order = p.sort(stable=True, dim=1, descending=True)
            beyond = falling.cumsum(1).sub_(falling) >= self.top_p  # what comes before is enough already
            p.masked_fill_(torch.zeros_like(beyond).scatter_(1, order, beyond), 0.0)
            p.div_(p.sum(1, keepdim=True))
        return p
