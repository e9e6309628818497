"""The search that makes sequences, token by token; strategies only choose the next ones.

The model is a **step function**, ``log_probs (N, V), state, shown = step(tokens (N,), state)``: log
probabilities of the next token, the state after these tokens, and whatever an observer would like to
see of the step (attention weights, say, or None). State and ``shown`` are opaque: nested tuples, lists
and dicts of tensors with the rows on axis 0. All that is ever done to them is to index that axis.

What the search knows of its rows lies with the host, whatever device the model is on: it is a few numbers
a row, and on a device each look at them would be a kernel or a wait. Of the distributions only what is
chosen comes over.

The rows of one example always stand side by side, and examples in rising order. At most
``examples × sequences that the strategy keeps`` rows live at a time (× beam for beam search), which bounds
the memory besides the few numbers a token that are noted; what is finished leaves the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import torch
from torch import Tensor

from elman.decoding.processors import Frame, Processor, hidden
from elman.decoding.results import AT_END, AT_LENGTH, AT_STOP, GOES_ON, Finished, Records, SearchResult
from elman.decoding.rows import Nested, apart, select
from elman.errors import ArgumentError
from elman.tensors.checks import check_size, check_tensor
from elman.tensors.nested import map_tensors
from elman.tensors.transfer import moved

Step = Callable[[Tensor, Nested], tuple[Tensor, Nested, Nested]]


@dataclass(frozen=True)
class SearchState:
    """The N sequences that are still growing, all of the same length.

    examples: (N,) which example each belongs to, rising; of one example there may be several.
    tokens: (N, length) of each so far.
    rows: (N, length) the row of the batch that each was at every step.
    log_probability: (N,) of each so far, in float64.
    finished: what is complete already, by example.
    max_length: the most tokens that a sequence can have, the end marker counted.
    carry: what the strategy's last choice noted about each.
    shown: what the step function shows of the step that is being taken.
    """

    examples: Tensor
    tokens: Tensor
    rows: Tensor
    log_probability: Tensor
    finished: Finished
    max_length: int
    carry: Nested = None
    shown: Nested = None

    @property
    def length(self) -> int:
        return self.tokens.shape[1]

    @property
    def n_best(self) -> int:
        """How many sequences of each example are wanted."""
        return self.finished.best.shape[1]

    def at(self, index: Tensor) -> SearchState:
        """Some of the sequences."""
        return replace(
            self,
            examples=self.examples[index],
            tokens=self.tokens[index],
            rows=self.rows[index],
            log_probability=self.log_probability[index],
            carry=select(self.carry, index),
            shown=None,
        )

    def to(self, device: torch.device) -> SearchState:
        """The same with all its tensors there."""
        if self.examples.device == device:
            return self

        def there(tensor: Tensor) -> Tensor:
            return moved(tensor, device)

        return replace(
            self,
            examples=there(self.examples),
            tokens=there(self.tokens),
            rows=there(self.rows),
            log_probability=there(self.log_probability),
            finished=map_tensors(there, self.finished),
            carry=map_tensors(there, self.carry),
        )

    def continued(self, choice: Choice, log_probs: Tensor) -> SearchState:
        """The sequences with the tokens chosen for them, whose log probabilities are (M,)."""
        tokens, rows, carry, _ = choice
        return replace(
            self,
            examples=self.examples[rows],
            tokens=torch.cat([self.tokens[rows], tokens[:, None]], 1),
            rows=torch.cat([self.rows[rows], rows[:, None]], 1),
            log_probability=self.log_probability[rows] + log_probs.double(),
            carry=carry,
            shown=None,
        )


class Choice(NamedTuple):
    """tokens (M,): what comes next. rows (M,): the live sequence that each of them continues.

    carry: what the strategy wants to know again about each of the M; it comes back as ``SearchState.carry``.
    log_probs (M,): of the tokens, as they were given to the strategy; None: it did not need them.

    >>> Choice(torch.tensor([7, 4]), torch.tensor([0, 0])).carry is None  # the first sequence goes on twice
    True
    """

    tokens: Tensor
    rows: Tensor
    carry: Any = None
    log_probs: Tensor | None = None

    def to(self, device: torch.device) -> Choice:
        """The same with all its tensors there."""
        return map_tensors(lambda tensor: tensor.to(device), self)


class Strategy:
    """How the next tokens are chosen: a file of this folder defines one, its options are its constructor's.

    A live sequence may be continued once, several times (a beam that branches) or not at all (then it
    is dropped); an example has to end with at least one finished sequence.

    >>> class First(Strategy):
    ...     def choose(self, log_probs, live, generator):
    ...         return Choice(log_probs.argmax(1), torch.arange(len(log_probs)))
    >>> First().width(n_best=3)
    3
    """

    across_devices: ClassVar[bool] = False
    """Whether ``choose`` takes distributions on a device beside sequences with the host, and chooses there.

    Otherwise it sees all of them on the device, and what it chose is brought to the host.
    """

    def __new__(cls, *_: Any, **options: Any) -> Self:
        if cls.choose is Strategy.choose:
            raise ArgumentError(f"{cls.__name__} has to define choose(self, log_probs, live, generator)")
        return super().__new__(cls)

    def check(self, n_best: int) -> None:
        """Raise if the strategy cannot find so many sequences of an example."""

    def width(self, n_best: int) -> int:
        """How many sequences of an example live at a time, at most."""
        return n_best

    def choose(self, log_probs: Tensor, live: SearchState, generator: torch.Generator | None) -> Choice:
        """
        Args:
            log_probs: (N, V) of the next token of every live sequence; −∞ where a token is not allowed.
            live: the sequences.
            generator: the source of all randomness, where the caller gave one.
        """
        raise NotImplementedError

    def score(self, live: SearchState) -> Tensor:
        """(N,) how good sequences are that just finished; hypotheses are ordered by it."""
        return live.log_probability

    def rank(self, live: SearchState) -> Tensor:
        """(N,) what decides which finished sequences are given back where there are more than n_best."""
        return self.score(live)

    def hopeful(self, live: SearchState) -> Tensor | None:
        """(N,) which of the sequences are worth going on with; None: all."""
        return None


@torch.no_grad()
def decode(
    step: Step,
    first_tokens: Tensor,
    state: Nested,
    strategy: Strategy,
    *,
    end: int,
    max_length: int,
    min_length: int = 0,
    stop: Iterable[int] = (),
    banned: Iterable[int] = (),
    processors: Sequence[Processor] = (),
    n_best: int = 1,
    trace: int | None = None,
    keep_shown: bool = True,
    generator: torch.Generator | None = None,
) -> list[SearchResult]:
    """What the strategy finds for every example.

    Args:
        first_tokens: (B,) what the first step reads: a start marker, or the last token of a prompt
            whose earlier tokens the state has read.
        end: the end marker.
        max_length: the most tokens to produce.
        min_length: as many tokens come before the end marker or a stop token.
        stop: tokens that finish a sequence and stay in it.
        banned: tokens that are never produced.
        processors: more rules about what may come, applied in this order.
        n_best: hypotheses of each example, at most; the strategy may find fewer.
        trace: keep the whole search and, of each step, so many of the most probable tokens.
        keep_shown: False: hypotheses do not carry what the step function showed.
        generator: for strategies that draw.

    >>> from elman.decoding.greedy import Greedy
    >>> def count_up(tokens, state):
    ...     log_probs = torch.full((len(tokens), 10), -9.0)
    ...     log_probs[range(len(tokens)), tokens + 1] = -0.1
    ...     return log_probs, state, None
    >>> found = decode(count_up, torch.tensor([2, 5]), None, Greedy(), end=8, max_length=4)
    >>> [one.best.tokens for one in found]
    [[3, 4, 5, 6], [6, 7]]
    """
    (B,) = check_tensor("first_tokens", first_tokens, ("N",)).shape
    most, least = check_size("max_length", max_length), check_size("min_length", min_length, least=0)
    if least > most:
        raise ArgumentError(f"min_length is {least}, more than max_length, which is {most}")
    stops, never = (frozenset(map(int, tokens)) for tokens in (stop, banned))
    search = Search(strategy, int(end), stops, never, processors, least, most)
    strategy.check(check_size("n_best", n_best))
    if trace is not None:
        check_size("trace", trace, least=0)
    device = first_tokens.device
    records = Records(B, n_best, keep_shown=keep_shown, trace=trace)
    nothing = torch.zeros(B, 0, dtype=torch.long)
    zero = torch.zeros(B, dtype=torch.float64)
    live = SearchState(torch.arange(B), nothing, nothing, zero, records.finished, search.max_length)
    tokens = first_tokens
    while True:
        log_probs, state, shown = step(tokens, state)
        N = len(check_tensor("log_probs", log_probs, (len(tokens), "V")))
        live = replace(live, shown=shown)
        records.note_step(live, log_probs)
        live = live.continued(*search.choose(log_probs, live, generator))
        codes = search.codes(live)
        records.note_tree(live, codes)
        live = _going(live, codes, records, strategy)
        if not len(live.examples):
            return records.found()
        tokens, rows = moved(live.tokens[:, -1], device), live.rows[:, -1]
        if not torch.equal(rows, torch.arange(N)):
            state = select(state, moved(rows, device))


def _going(live: SearchState, codes: Tensor, records: Records, strategy: Strategy) -> SearchState:
    """The sequences that go on; those that do not are noted."""
    over = codes != GOES_ON
    if over.any():
        done = over.nonzero().squeeze(1)
        finished = records.finish(live.at(done), codes[done], strategy)
        live = replace(live.at((~over).nonzero().squeeze(1)), finished=finished)
    hopeful = strategy.hopeful(live) if len(live.examples) else None
    if hopeful is None or hopeful.all():
        return live
    going = hopeful.nonzero().squeeze(1)
    records.keep(going)
    return live.at(going)


def _values(log_probs: Tensor, choice: Choice) -> Tensor:
    """(M,) the values of what was chosen, where the choice is."""
    rows, tokens = (moved(index, log_probs.device) for index in (choice.rows, choice.tokens))
    return log_probs[rows, tokens].to(choice.rows.device)


@dataclass(frozen=True)
class Search:
    """What holds for all steps: the rules, the strategy, and which tokens end a sequence."""

    strategy: Strategy
    end: int
    stop: frozenset[int]
    banned: frozenset[int]
    processors: Sequence[Processor]
    min_length: int
    max_length: int
    columns: dict[Sequence[int], Tensor] = field(default_factory=dict)

    def choose(
        self, log_probs: Tensor, live: SearchState, generator: torch.Generator | None
    ) -> tuple[Choice, Tensor]:
        """The strategy's choice among what the rules allow, checked, and what the model gives each of it."""
        if not live.length:
            self._check(len(live.examples), log_probs.shape[1])
        with hidden(log_probs, self._columns(live.length, log_probs.device)) as allowed:
            if self.processors:
                there = live.to(log_probs.device)
                for rule in self.processors:
                    allowed = rule.process(allowed, there)
            choice = self._chosen(allowed, live, generator)
            values = choice.log_probs if choice.log_probs is not None else _values(allowed, choice)
        wrong = ~(values > -torch.inf)  # NaN, too
        examples = live.examples[choice.rows]
        if (examples[1:] < examples[:-1]).any():
            name = type(self.strategy).__name__
            raise ArgumentError(f"{name} mixed the examples; rows have to be chosen in their order")
        lost = live.finished.number.index_fill(0, examples, 1) == 0  # neither finished nor going on
        if lost.any():
            rows = (live.examples == lost.nonzero()[0]).nonzero().squeeze(1)
            self._explain(rows, log_probs, live, "dropped all sequences, unfinished,")
        if wrong.any():
            self._explain(choice.rows[wrong][:1], log_probs, live, "chose a token that may not come")
        return choice, _values(log_probs, choice) if self.processors else values

    def _chosen(self, allowed: Tensor, live: SearchState, generator: torch.Generator | None) -> Choice:
        """The choice where ``live`` is, wherever the distributions lie."""
        if self.strategy.across_devices or not apart(allowed, live.examples):
            return self.strategy.choose(allowed, live, generator)
        there = live.to(allowed.device)
        return self.strategy.choose(allowed, there, generator).to(live.examples.device)

    def codes(self, live: SearchState) -> Tensor:
        """(N,) whether each sequence goes on, or what stopped it."""
        tokens = live.tokens[:, -1]
        codes = torch.full_like(tokens, AT_LENGTH if live.length == self.max_length else GOES_ON)
        for token in self.stop:
            codes[tokens == token] = AT_STOP
        codes[tokens == self.end] = AT_END
        return codes

    def _columns(self, length: int, device: torch.device) -> Tensor:
        """What may not follow so many tokens, on the device: made once for all steps."""
        tokens = tuple(self._forbidden(length))
        if tokens not in self.columns:
            self.columns[tokens] = torch.tensor(tokens, dtype=torch.long, device=device)
        return self.columns[tokens]

    def _forbidden(self, length: int) -> list[int]:
        """What may not follow so many tokens."""
        endings = {self.end, *self.stop} if length < self.min_length else set()
        return sorted(self.banned | endings)

    def _check(self, B: int, V: int) -> None:
        frame = Frame(B, V, self.end, self.stop, self.max_length)
        for name, tokens in (("end", {self.end}), ("stop", self.stop), ("banned", self.banned)):
            frame.check_tokens(name, sorted(tokens))
        for rule in self.processors:
            rule.check(frame)

    def _explain(self, rows: Tensor, log_probs: Tensor, live: SearchState, fault: str) -> NoReturn:
        """Why these rows of an example did not go on: the model, the rules, or a fault of the strategy."""
        example, V = int(live.examples[rows[0]]), log_probs.shape[1]
        live, rows = live.to(log_probs.device), rows.to(log_probs.device)
        if log_probs[rows].isnan().any():
            found = f"log probabilities of example {example} are NaN after {live.length} tokens"
            raise ArgumentError(f"{found}; the model's weights or its inputs are damaged")
        culprits = ["banned"] if self.banned else []
        culprits += ["min_length"] if live.length < self.min_length else []
        with hidden(log_probs, self._columns(live.length, log_probs.device)) as left:
            for rule in self.processors:
                before, left = left, rule.process(left, live)
                culprits += [rule.name] if (left[rows] != before[rows]).any() else []
            something = (left[rows] > -torch.inf).any()
        if something:
            raise ArgumentError(f"{type(self.strategy).__name__} {fault} of example {example}")
        raise ArgumentError(
            f"no token may come after {live.length} tokens of example {example}: all {V} are forbidden by "
            f"{' and '.join(culprits) or 'the model'}; lift a rule or lower max_length"
        )
