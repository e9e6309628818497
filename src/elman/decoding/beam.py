"""Beam search: the most probable sequences, a few of them kept at every step."""

import torch
from torch import Tensor

from elman.decoding.base import Choice, SearchState, Strategy
from elman.decoding.candidates import best_candidates, best_candidates_apart
from elman.decoding.rows import apart
from elman.errors import ArgumentError
from elman.tensors.checks import check_number, check_size
from elman.tensors.rows import Groups
from elman.tensors.transfer import fetched


class Beam(Strategy):
    """Of all continuations of an example's sequences the ``beam`` most probable are kept.

    Those that end are finished and leave, so the beam shrinks, and an example is done after ``beam``
    finished sequences. Among these it is decided by (Wu et al. 2016)

        score = log p / length^length_penalty + coverage_penalty · Σ_j log min(Σ_i α_ij, 1)

    with the end marker counted in the length, and the attention α_ij of step i to the source position j.
    An example is also done when no live sequence can come before its n_best finished ones any more: log p
    only falls, so ``log p / max_length^length_penalty`` is the most that a sequence can reach. This does
    not change the result (Huang et al. 2017). Equals are taken in the order of rows, then of tokens.

    Memory: the state of ``examples × beam`` rows, and their log probabilities.

    >>> strategy = Beam(beam=4, length_penalty=0.6)
    """

    across_devices = True

    def __init__(self, *, beam: int = 5, length_penalty: float = 1.0, coverage_penalty: float = 0.0) -> None:
        """
        Args:
            beam: sequences that are kept of an example; it may be larger than the vocabulary.
            length_penalty: 0: none, and short sequences win; 1: the mean log probability of a token.
            coverage_penalty: how much source positions cost that were never looked at; it needs a step
                function that shows ``{"attention": (N, S), "source_length": (N,)}``.
        """
        self.beam = check_size("beam", beam)
        self.length_penalty = check_number("length_penalty", length_penalty)
        self.coverage_penalty = check_number("coverage_penalty", coverage_penalty)
        for name in ("length_penalty", "coverage_penalty"):
            if not 0 <= getattr(self, name) < torch.inf:
                raise ArgumentError(f"{name} is {getattr(self, name)!r}; it must be 0 or more")

    def check(self, n_best: int) -> None:
        if n_best > self.beam:
            raise ArgumentError(f"n_best is {n_best}, more than beam, which is {self.beam}; raise beam")

    def width(self, n_best: int) -> int:
        return self.beam

    def choose(self, log_probs: Tensor, live: SearchState, generator: torch.Generator | None) -> Choice:
        groups, values = Groups.of(live.examples), None
        if apart(log_probs, live.examples):
            found, values = best_candidates_apart(log_probs, live.log_probability, groups, self.beam)
        else:
            found = best_candidates(log_probs, live.log_probability, groups, self.beam)
        room = self.beam - live.finished.number[found.examples]  # (U,)
        within = torch.arange(found.values.shape[1], device=room.device) < room[:, None]
        kept = within & (found.values != -torch.inf)
        rows = found.rows[kept]
        own = None if values is None else values[kept]
        return Choice(found.tokens[kept], rows, self._coverage(live, rows), own)

    def score(self, live: SearchState) -> Tensor:
        score = live.log_probability / self._divisor(live.length)
        coverage: Tensor | None = live.carry
        if coverage is None:
            return score
        least = torch.finfo(coverage.dtype).tiny  # a weight may have been too small for its type
        return score + self.coverage_penalty * coverage.clamp(least, 1).log().sum(1)

    def hopeful(self, live: SearchState) -> Tensor | None:
        groups = Groups.of(live.examples)
        most = groups.spread(live.log_probability).amax(1) / self._divisor(live.max_length)  # (U,)
        worst = live.finished.best[groups.examples, -1]  # of the n_best; −∞ while there are fewer
        return (most > worst)[groups.group]

    def _divisor(self, length: int) -> float:
        try:
            return float(length**self.length_penalty)
        except OverflowError:
            raise ArgumentError(
                f"length_penalty is {self.length_penalty:g}; {length} tokens to that power are beyond the "
                "largest number: lower it, 1 is the mean of a token"
            ) from None

    def _coverage(self, live: SearchState, rows: Tensor) -> Tensor | None:
        """(M, S) the attention that each position got so far; 1 more where there is none to get."""
        if not self.coverage_penalty:
            return None
        if not isinstance(live.shown, dict) or not {"attention", "source_length"} <= live.shown.keys():
            given = f"coverage_penalty is {self.coverage_penalty}"
            raise ArgumentError(f"{given}, but the model shows no attention; set it to 0")
        attention: Tensor = live.shown["attention"]
        lengths: Tensor = live.shown["source_length"]
        if apart(attention, live.examples):
            attention, lengths = fetched(attention, lengths)
        S = attention.shape[1]
        if live.carry is None:
            so_far = (torch.arange(S, device=lengths.device) >= lengths[:, None]).to(attention)
        else:
            so_far = live.carry[:, :S]  # S may shrink with the batch
        covered: Tensor = so_far + attention
        return covered[rows]
