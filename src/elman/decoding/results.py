"""What decoding gives back, and the books that it keeps on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.decoding.rows import Nested, select
from elman.tensors.nested import map_tensors
from elman.tensors.rows import Groups
from elman.tensors.transfer import fetched, moved

if TYPE_CHECKING:
    from elman.decoding.base import SearchState, Strategy

Stopped = Literal["end", "stop", "length"]
STOPPED: tuple[Stopped | None, ...] = (None, "end", "stop", "length")  # by code
GOES_ON, AT_END, AT_STOP, AT_LENGTH = range(4)


@dataclass(frozen=True)
class Trace:
    """A hypothesis step by step, the end marker included where it came; of the model's own distribution.

    log_probabilities: of the token that came.
    entropies: of all that could have come, in nats.
    top: the most probable (token, log probability), best first.
    """

    log_probabilities: list[float]
    entropies: list[float]
    top: list[list[tuple[int, float]]]


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence.

    tokens: what was produced, without the start and the end marker; a stop token is the last of them.
    log_probability: natural logarithm, summed over the tokens and the end marker if it came, of the
        model's own distribution: no temperature, no banned token and no minimal length changes it.
    stopped: by the end marker, by a stop token, or by the greatest length.
    score: what it is ordered by beside others of the same example; the greatest is the best.
    shown: the step function's third result, this row's part of it, for every token and for the end
        marker if it came; None where the step function gives none or nobody wants it.
    trace: only where it was asked for.
    """

    tokens: list[int]
    log_probability: float
    stopped: Stopped
    score: float
    shown: list[Any] | None = None
    trace: Trace | None = None


class Node(NamedTuple):
    """A sequence that was once kept: its last token, and the node (by its number) that it continues.

    step: of the token, from 1. log_probability: with the token. stopped: None where it could go on.
    """

    number: int
    parent: int | None
    token: int
    log_probability: float
    step: int
    stopped: Stopped | None


@dataclass(frozen=True)
class SearchResult:
    """What was found for one example: hypotheses, best first, and, if asked for, all that was ever kept."""

    hypotheses: list[Hypothesis]
    tree: list[Node] | None = None

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]


class Finished(NamedTuple):
    """number: (B,) finished sequences of each example. best: (B, n_best) their greatest ranks, falling."""

    number: Tensor
    best: Tensor


class Done(NamedTuple):
    """Sequences that finished at the same step, what stopped them, and how good they are."""

    state: SearchState
    codes: Tensor
    scores: Tensor
    ranks: Tensor


class Records:
    """Tensors of every step, and lists only for the hypotheses that are given back in the end."""

    def __init__(self, B: int, n_best: int, *, keep_shown: bool, trace: int | None) -> None:
        self.keep_shown, self.top = keep_shown, trace
        self.finished = Finished(
            torch.zeros(B, dtype=torch.long),
            torch.full((B, n_best), -torch.inf, dtype=torch.float64),
        )
        self.done: list[Done] = []
        self.shown: list[Nested] = []
        self.seen: list[tuple[Tensor, ...]] = []
        self.trees: list[list[Node]] = [[] for _ in range(B)]
        self.nodes: list[int | None] = [None] * B  # of the live rows

    def note_step(self, live: SearchState, log_probs: Tensor) -> None:
        """What the step showed, and what a trace says of its distribution."""
        if self.keep_shown:
            self.shown.append(live.shown)
        if self.top is not None:
            entropy = torch.special.entr(log_probs.exp()).sum(1)
            top = log_probs.topk(min(self.top, log_probs.shape[1]), 1)
            self.seen.append((live.log_probability, *fetched(entropy, top.indices, top.values)))

    def note_tree(self, live: SearchState, codes: Tensor) -> None:
        """The sequences just continued as nodes."""
        if self.top is None:
            return
        going: list[int | None] = []
        columns = (live.examples, live.rows[:, -1], live.tokens[:, -1], live.log_probability, codes)
        for example, row, token, value, code in zip(*(column.tolist() for column in columns), strict=True):
            tree = self.trees[example]
            tree.append(Node(len(tree), self.nodes[row], token, value, live.length, STOPPED[code]))
            if code == GOES_ON:
                going.append(tree[-1].number)
        self.nodes = going

    def keep(self, rows: Tensor) -> None:
        """Only these of the live rows go on."""
        if self.top is not None:
            self.nodes = [self.nodes[row] for row in rows.tolist()]

    def finish(self, live: SearchState, codes: Tensor, strategy: Strategy) -> Finished:
        """Take sequences that are complete; how many there are now, and how good."""
        ranks = strategy.rank(live)
        self.done.append(Done(live, codes, strategy.score(live), ranks))
        groups = Groups.of(live.examples)
        number, best = (part.clone() for part in self.finished)
        number += torch.bincount(live.examples, minlength=len(number))
        own = torch.cat([best[groups.examples], groups.spread(ranks.double())], 1)
        best[groups.examples] = own.topk(best.shape[1], 1).values
        self.finished = Finished(number, best)
        return self.finished

    def found(self) -> list[SearchResult]:
        """Of every example the n_best of greatest rank, in the order of their scores."""
        B, n_best = self.finished.best.shape
        places = [(step, place) for step, done in enumerate(self.done) for place in range(len(done.codes))]
        columns = zip(*((done.state.examples, done.scores, done.ranks) for done in self.done), strict=True)
        examples, scores, ranks = (torch.cat(column).numpy() for column in columns)
        order = np.lexsort((-ranks, examples))  # stable: of equals the one that finished first
        starts = np.searchsorted(examples[order], np.arange(B))
        chosen = order[np.arange(len(order)) - starts[examples[order]] < n_best]
        chosen = chosen[np.lexsort((-scores[chosen], examples[chosen]))]
        hypotheses: list[list[Hypothesis]] = [[] for _ in range(B)]
        given_back = [(self.done[step], place) for step, place in (places[i] for i in chosen.tolist())]
        rows = [_listed(done.state.rows, place) for done, place in given_back]
        all_shown = self._shown(rows)
        for number, (done, place), own, shown in zip(
            chosen.tolist(), given_back, rows, all_shown, strict=True
        ):
            hypotheses[examples[number]].append(self._hypothesis(done, place, own, shown))
        trees = self.trees if self.top is not None else [None] * B
        return [SearchResult(own, tree) for own, tree in zip(hypotheses, trees, strict=True)]

    def _hypothesis(self, done: Done, place: int, rows: list[int], shown: list[Nested] | None) -> Hypothesis:
        tokens, stopped = _listed(done.state.tokens, place), STOPPED[int(done.codes[place])]
        assert stopped is not None
        total, score = float(done.state.log_probability[place]), float(done.scores[place])
        kept = tokens[:-1] if stopped == "end" else tokens
        return Hypothesis(kept, total, stopped, score, shown, self._trace(rows, total))

    def _shown(self, rows: list[list[int]]) -> list[list[Nested] | None]:
        """What was shown to each of the sequences that are given back, which had these rows at every step.

        A step's rows are taken together, and come to the host together.
        """
        if not self.shown or self.shown[0] is None:
            return [None] * len(rows)
        found: list[list[Nested]] = [[] for _ in rows]
        for step, shown in enumerate(self.shown):
            there = [number for number, own in enumerate(rows) if step < len(own)]
            together = _fetch_rows(shown, [rows[number][step] for number in there])
            for place, number in enumerate(there):
                found[number].append(select(together, place))
        return [*found]

    def _trace(self, rows: list[int], total: float) -> Trace | None:
        if self.top is None:
            return None
        steps = [select(seen, row) for seen, row in zip(self.seen, rows, strict=False)]
        sums = [*(float(so_far) for so_far, *_ in steps), total]
        return Trace(
            np.diff(sums).tolist(),
            [float(entropy) for _, entropy, _, _ in steps],
            [list(zip(tokens.tolist(), values.tolist(), strict=True)) for *_, tokens, values in steps],
        )


def _fetch_rows(nested: Nested, rows: list[int]) -> Nested:
    """A copy of some rows of nested tensors, in the host's memory."""
    index = torch.tensor(rows, dtype=torch.long)

    def fetch(part: Tensor) -> Tensor:
        return part[moved(index, part.device)].cpu()

    return map_tensors(fetch, nested)


def _listed(numbers: Tensor, row: int) -> list[int]:
    """A row of whole numbers; numpy makes a list in a tenth of the time."""
    listed: list[int] = numbers.numpy()[row].tolist()
    return listed
