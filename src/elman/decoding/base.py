"""The walk that makes sequences, token by token; strategies only choose the next ones.

The model is a **step function**, ``log_probs (N, V), state, trace = step(tokens (N,), state)``: log
probabilities of the next token, the state after these tokens, and whatever an observer would like to
keep of the step (attention weights, say, or None). The state is opaque: nested tuples, lists and dicts
of tensors with the rows on axis 0. All that is ever done to it is to index that axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from elman.errors import ArgumentError, ShapeError
from elman.tensors.checks import check_size, check_tensor

Step = Callable[[Tensor, Any], tuple[Tensor, Any, Any]]


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence.

    tokens: what was produced, without the start and the end marker; a stop token is the last of them.
    log_probability: natural logarithm, summed over the tokens and the end marker if it came, of the
        model's own distribution: no temperature, no banned token and no minimal length changes it.
    stopped: by the end marker, by a stop token, or by the greatest length.
    trace: the step function's third result, this row's part of it, for every token and for the end
        marker if it came; None where the step function gives none.
    """

    tokens: list[int]
    log_probability: float
    stopped: Literal["end", "stop", "length"]
    trace: list[Any] | None = None


class Path(NamedTuple):
    """A growing sequence: its last token and the path before it, so that branches share their beginning."""

    token: int
    trace: Any
    before: Path | None

    def unwound(self) -> list[Path]:
        """All its parts, the first token's first."""
        parts, path = [self], self.before
        while path is not None:
            parts.append(path)
            path = path.before
        return parts[::-1]


@dataclass(frozen=True)
class Live:
    """The N sequences that are still growing.

    examples: (N,) which example each belongs to; of one example there may be several, side by side.
    log_probability: (N,) of each so far, in float64.
    paths: the tokens of each so far; None before the first.
    finished: by example, the hypotheses that are already complete.
    """

    examples: Tensor
    log_probability: Tensor
    paths: Sequence[Path | None]
    finished: Sequence[Sequence[Hypothesis]]


class Choice(NamedTuple):
    """tokens (M,): what comes next. rows (M,): the live sequence that each of them continues."""

    tokens: Tensor
    rows: Tensor


class Strategy:
    """How the next tokens are chosen: a file of this folder defines one, its options are its constructor's.

    A live sequence may be continued once, several times (a beam that branches) or not at all (then it
    is dropped); an example has to end with at least one finished sequence.
    """

    def choose(self, log_probs: Tensor, live: Live, generator: torch.Generator | None) -> Choice:
        """
        Args:
            log_probs: (N, V) of the next token of every live sequence; −∞ where a token is not allowed.
            live: the sequences.
            generator: the source of all randomness, where the caller gave one.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define choose()")

    def rank(self, hypothesis: Hypothesis) -> float:
        """How good a hypothesis is beside others of the same example; the greatest is the answer."""
        return hypothesis.log_probability


@torch.no_grad()
def decode(
    step: Step,
    first_tokens: Tensor,
    state: Any,
    strategy: Strategy,
    *,
    end: int,
    max_length: int,
    min_length: int = 0,
    stop: Iterable[int] = (),
    banned: Iterable[int] = (),
    generator: torch.Generator | None = None,
) -> list[Hypothesis]:
    """The best sequence of every example, as the strategy finds it; what is finished leaves the batch.

    Args:
        first_tokens: (N,) what the first step reads: a start marker, or the last token of a prompt
            whose earlier tokens the state has read.
        end: the end marker.
        max_length: the most tokens to produce, not counting the end marker.
        min_length: as many tokens come before the end marker or a stop token.
        stop: tokens that finish a sequence and stay in it.
        banned: tokens that are never produced.
        generator: for strategies that draw.

    >>> from elman.decoding.greedy import Greedy
    >>> def count_up(tokens, state):
    ...     log_probs = torch.full((len(tokens), 10), -9.0)
    ...     log_probs[range(len(tokens)), tokens + 1] = -0.1
    ...     return log_probs, state, None
    >>> found = decode(count_up, torch.tensor([2, 5]), None, Greedy(), end=8, max_length=4)
    >>> [hypothesis.tokens for hypothesis in found]
    [[3, 4, 5, 6], [6, 7]]
    """
    (N,) = check_tensor("first_tokens", first_tokens, ("N",)).shape
    rules = _Rules(end, frozenset(map(int, stop)), frozenset(map(int, banned)), min_length, max_length)
    tokens, device = first_tokens, first_tokens.device
    finished: list[list[Hypothesis]] = [[] for _ in range(N)]
    start = torch.zeros(N, dtype=torch.float64, device=device)
    live = Live(torch.arange(N, device=device), start, [None] * N, finished)
    for length in range(1, max_length + 1):
        log_probs, state, trace = step(tokens, state)
        check_tensor("log_probs", log_probs, (len(tokens), "V"))
        choice = strategy.choose(rules.allow(log_probs, length), live, generator)
        live = _extended(live, choice, log_probs, trace)
        going = []
        for place, example in enumerate(live.examples.tolist()):
            stopped = rules.stopped(live.paths[place], length)
            if stopped is None:
                going.append(place)
            else:
                finished[example].append(_hypothesis(live, place, stopped))
        if not going:
            break
        places = torch.tensor(going, device=device)
        live = _kept(live, places)
        tokens, rows = choice.tokens[places], choice.rows[places]
        if rows.tolist() != list(range(len(log_probs))):
            state = select(state, rows)
    return [_best(strategy, found, example) for example, found in enumerate(finished)]


def select(state: Any, index: Tensor | int) -> Any:
    """The rows at ``index`` of every tensor of a nested state; with a number, that row without its axis.

    >>> select({"h": torch.tensor([[1.0], [2.0]]), "layers": (torch.tensor([3, 4]),)}, torch.tensor([1, 1]))
    {'h': tensor([[2.],
            [2.]]), 'layers': (tensor([4, 4]),)}
    """
    if state is None:
        return None
    if isinstance(state, Tensor) and state.dim():
        return state[index]
    if isinstance(state, dict):
        return {name: select(part, index) for name, part in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(select(part, index) for part in state))
    if isinstance(state, (tuple, list)):
        parts = [select(part, index) for part in state]
        return parts if isinstance(state, list) else tuple(parts)
    raise ShapeError(
        f"a state holds {state!r}; it must be made of tensors with the rows on axis 0, None, "
        "and tuples, lists and dicts of them"
    )


class _Rules:
    """Which tokens may come, and which of them end a sequence."""

    def __init__(
        self, end: int, stop: frozenset[int], banned: frozenset[int], min_length: int, max_length: int
    ) -> None:
        self.end, self.stop, self.banned = end, stop, banned
        self.max_length = check_size("max_length", max_length)
        self.min_length = check_size("min_length", min_length, least=0)
        if min_length > max_length:
            raise ArgumentError(f"min_length is {min_length}, more than max_length, which is {max_length}")

    def allow(self, log_probs: Tensor, length: int) -> Tensor:
        """The log probabilities, −∞ for what may not be the token of this number, counted from 1."""
        forbidden = self.banned | self.stop | {self.end} if length <= self.min_length else self.banned
        if length == 1:
            self._check(log_probs.shape[1], forbidden)
        if not forbidden:
            return log_probs
        return log_probs.index_fill(1, torch.tensor(sorted(forbidden), device=log_probs.device), -torch.inf)

    def stopped(self, path: Path | None, length: int) -> Literal["end", "stop", "length"] | None:
        assert path is not None
        if path.token == self.end:
            return "end"
        if path.token in self.stop:
            return "stop"
        return "length" if length == self.max_length else None

    def _check(self, V: int, forbidden: frozenset[int]) -> None:
        for name, ids in (("end", {self.end}), ("stop", self.stop), ("banned", self.banned)):
            wrong = [token for token in ids if not 0 <= token < V]
            if wrong:
                raise ArgumentError(f"{name} has token {min(wrong)}; the model knows 0 to {V - 1}")
        if len(forbidden) == V:
            raise ArgumentError(f"no token may come: banned, stop and end are all {V}; ban fewer")


def _extended(live: Live, choice: Choice, log_probs: Tensor, trace: Any) -> Live:
    """The sequences with the tokens chosen for them."""
    tokens, rows = choice
    return Live(
        live.examples[rows],
        live.log_probability[rows] + log_probs[rows, tokens].double(),
        [
            Path(token, None if trace is None else select(trace, row), live.paths[row])
            for token, row in zip(tokens.tolist(), rows.tolist(), strict=True)
        ],
        live.finished,
    )


def _kept(live: Live, places: Tensor) -> Live:
    return replace(
        live,
        examples=live.examples[places],
        log_probability=live.log_probability[places],
        paths=[live.paths[place] for place in places.tolist()],
    )


def _hypothesis(live: Live, place: int, stopped: Literal["end", "stop", "length"]) -> Hypothesis:
    last = live.paths[place]
    assert last is not None
    parts = last.unwound()
    tokens = [part.token for part in parts]
    return Hypothesis(
        tokens[:-1] if stopped == "end" else tokens,
        float(live.log_probability[place]),
        stopped,
        None if last.trace is None else [part.trace for part in parts],
    )


def _best(strategy: Strategy, found: Sequence[Hypothesis], example: int) -> Hypothesis:
    if not found:
        raise ArgumentError(
            f"{type(strategy).__name__} dropped all sequences of example {example} unfinished"
        )
    return max(found, key=strategy.rank)
