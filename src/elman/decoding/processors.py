"""Rules on top of every strategy: which tokens may come next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from elman.errors import ArgumentError
from elman.tensors.checks import check_size

if TYPE_CHECKING:
    from elman.decoding.base import SearchState


@dataclass(frozen=True)
class Frame:
    """What is fixed while decoding: B examples, V tokens, those that end a sequence, and the length."""

    B: int
    V: int
    end: int
    stop: frozenset[int]
    max_length: int

    def check_tokens(self, name: str, tokens: Iterable[int]) -> None:
        for token in tokens:
            if not 0 <= token < self.V:
                raise ArgumentError(f"{name} has token {token}; the model knows 0 to {self.V - 1}")


class Processor:
    """A rule: −∞ for what may not come; all other values stay. ``name`` is its name in messages."""

    name: ClassVar[str] = "a processor"

    def check(self, frame: Frame) -> None:
        """Raise if the rule cannot be kept; called once, when the size of the vocabulary is known."""

    def process(self, log_probs: Tensor, live: SearchState) -> Tensor:
        """The log probabilities (N, V) that the rule leaves; what was given is not changed."""
        raise NotImplementedError(f"{type(self).__name__} has to define process()")


class NoRepeat(Processor):
    """No n tokens in a row occur twice in what is produced; the end marker may always come."""

    name = "no_repeat"

    def __init__(self, n: int) -> None:
        self.n = check_size("no_repeat", n)

    def process(self, log_probs: Tensor, live: SearchState) -> Tensor:
        n, length = self.n, live.length
        if length < n:
            return log_probs
        earlier = live.tokens.unfold(1, n, 1)  # (N, length - n + 1, n)
        last = live.tokens[:, None, length - n + 1 :]  # (N, 1, n - 1)
        rows, places = (earlier[..., :-1] == last).all(-1).nonzero(as_tuple=True)
        if not len(rows):
            return log_probs
        left = log_probs.clone()
        left[rows, earlier[rows, places, -1]] = -torch.inf
        return left


class Prefix(Processor):
    """What is produced begins so: one list of tokens for every example."""

    name = "prefix"

    def __init__(self, prefixes: Sequence[Sequence[int]]) -> None:
        self.prefixes = [list(prefix) for prefix in prefixes]
        longest = max(map(len, self.prefixes), default=0)
        padded = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in self.prefixes]
        self.table = torch.tensor(padded, dtype=torch.long).view(len(padded), longest)

    def check(self, frame: Frame) -> None:
        if len(self.prefixes) != frame.B:
            raise ArgumentError(f"{len(self.prefixes)} prefixes for {frame.B} examples; give one for each")
        for example, prefix in enumerate(self.prefixes):
            name = f"the prefix of example {example}"
            frame.check_tokens(name, prefix)
            if len(prefix) > frame.max_length:
                long = f"{len(prefix)} tokens, more than max_length, which is {frame.max_length}"
                raise ArgumentError(f"{name} has {long}; shorten it or raise max_length")
            endings = sorted({frame.end, *frame.stop}.intersection(prefix))
            if endings:
                ended = f"token {endings[0]}, which ends a sequence"
                raise ArgumentError(f"{name} has {ended}; take it out of the prefix or out of stop")

    def process(self, log_probs: Tensor, live: SearchState) -> Tensor:
        if live.length >= self.table.shape[1]:
            return log_probs
        wanted = self.table[:, live.length].to(log_probs.device)[live.examples]  # (N,)
        rows = (wanted >= 0).nonzero().squeeze(1)
        if not len(rows):
            return log_probs
        left = log_probs.index_fill(0, rows, -torch.inf)
        left[rows, wanted[rows]] = log_probs[rows, wanted[rows]]
        return left


@contextmanager
def hidden(log_probs: Tensor, columns: Tensor) -> Iterator[Tensor]:
    """The same (N, V) with −∞ in some columns of every row, for as long as the block lasts.

    A copy of all would cost more than the search: the tensor itself is changed and changed back, unless its
    memory cannot be written to row by row.
    """
    if not len(columns):
        yield log_probs
    elif log_probs.is_contiguous() and not log_probs.is_inference():
        own = log_probs.index_select(1, columns)
        try:
            yield log_probs.index_fill_(1, columns, -torch.inf)
        finally:
            log_probs.index_copy_(1, columns, own)
    else:
        yield log_probs.index_fill(1, columns, -torch.inf)
