"""Diverse sampling: several sequences of an example, drawn without replacement, so that they all differ."""

from typing import NamedTuple

import torch
from torch import Tensor

from elman.decoding.base import Choice, SearchState, Strategy
from elman.decoding.candidates import top_places
from elman.decoding.draws import Urn, check_temperature, make_generator, tempered, uniform
from elman.tensors.rows import Groups


class Perturbed(NamedTuple):
    """log_p: (N,) of the distribution that is drawn from. gumbel: (N,) the same plus Gumbel noise."""

    log_p: Tensor
    gumbel: Tensor


class Diverse(Strategy):
    """``n_best`` sequences drawn one after the other, each from what the others left (stochastic beam
    search; Kool et al. 2019).

    The greatest k of ``log p(y) + Gumbel noise`` over all sequences y are k draws without replacement. The
    noise of a beginning is the greatest among all its continuations, so noise can be drawn from the
    beginning on, and k beginnings are enough at every step. Given G of a beginning, the noise of its
    continuations, greatest first, comes with the tokens w_1, w_2, … drawn without replacement:

        G_1 = G,    G_i = φ_i - log(exp(φ_i - G_{i-1}) + E_i),    φ_i = log p(beginning, not w_1 … w_{i-1})

    with E_i drawn from the exponential distribution. The score is the log probability of the model.

    >>> strategy = Diverse(temperature=0.8, seed=1)
    """

    def __init__(self, *, temperature: float = 1.0, seed: int | None = None) -> None:
        """
        Args:
            temperature: below 1 the probable becomes more so, above 1 less.
            seed: None: another one every time. Draws are as those of sampling.
        """
        self.temperature = check_temperature(temperature)
        self.generator = make_generator(seed)

    def choose(self, log_probs: Tensor, live: SearchState, generator: torch.Generator | None) -> Choice:
        start = torch.zeros_like(live.log_probability)
        parents = live.carry if live.carry is not None else Perturbed(start, start)
        tokens, drawn = self._children(log_probs, parents, live.n_best, generator or self.generator)
        groups, k = Groups.of(live.examples), live.n_best
        gumbel = groups.spread(drawn.gumbel).flatten(1)  # (U, K · k)
        places = top_places(gumbel, k)
        values = gumbel.gather(1, places)
        others = torch.cat([values, live.finished.best[groups.examples]], 1)
        better = (others[:, None, :] > values[..., None]).sum(-1)  # (U, k)
        kept = (better < k) & (values != -torch.inf)
        rows, columns = (groups.first[:, None] + places // k)[kept], (places % k)[kept]
        return Choice(tokens[rows, columns], rows, Perturbed(*(part[rows, columns] for part in drawn)))

    def rank(self, live: SearchState) -> Tensor:
        gumbel: Tensor = live.carry.gumbel
        return gumbel

    def _children(
        self, log_probs: Tensor, parents: Perturbed, k: int, generator: torch.Generator
    ) -> tuple[Tensor, Perturbed]:
        """Of every row the k continuations of greatest noise: (N, k) tokens, and what they got."""
        urn = Urn(tempered(log_probs, self.temperature))
        N, all_of_it = len(log_probs), urn.total
        noise = -torch.log1p(-uniform((N, k), generator, log_probs.device))  # exponential
        tokens, log_p, gumbel = [], [], []
        last = parents.gumbel
        for i in range(k):
            phi = parents.log_p + (urn.total / all_of_it).log()
            if i:
                last = phi - ((phi - last).exp() + noise[:, i]).log()
                last = last.masked_fill(phi == -torch.inf, -torch.inf)
            token = urn.draw(1, generator).squeeze(1)
            tokens.append(token)
            log_p.append(parents.log_p + (urn.remove(token) / all_of_it).log())
            gumbel.append(last)
        return torch.stack(tokens, 1), Perturbed(torch.stack(log_p, 1), torch.stack(gumbel, 1))
