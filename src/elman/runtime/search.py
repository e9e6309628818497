"""The search of a model that writes, in numpy: greedy, beam and drawing, with the rules of ``decoding.*``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.int64]
State = dict[str, NDArray[Any]]  # by name, rows on axis 0
Look = tuple[Floats, State, "Floats | None"]  # log-probabilities (N, V), the state after, attention (N, S)
StepFunction = Callable[[Integers, State, Integers], Look]  # of tokens, state, and the example of each row
STOPPED = ("end", "stop", "length")


@dataclass(frozen=True)
class Rules:
    """What a search keeps to; tokens are numbers."""

    strategy: str
    end: int
    max_length: int
    stop: Sequence[int] = ()
    banned: Sequence[int] = ()
    prefix: Sequence[int] = ()
    min_length: int = 0
    no_repeat: int = 0
    n_best: int = 1
    beam: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence; tokens have no end marker. looked (T, S): where attention looked at each step."""

    tokens: list[int]
    log_probability: float
    stopped: str
    score: float
    looked: Floats | None = None


@dataclass
class Live:
    """The sequences that are still growing, and the row that each was at every step."""

    examples: Integers
    tokens: Integers
    rows: Integers
    log_probability: NDArray[np.float64]
    coverage: Floats | None = None

    def at(self, places: Any) -> Live:
        covered = None if self.coverage is None else self.coverage[places]
        own = self.examples[places], self.tokens[places], self.rows[places], self.log_probability[places]
        return Live(*own, covered)

    @property
    def length(self) -> int:
        return int(self.tokens.shape[1])


@dataclass
class Search:
    """One search over a batch of B examples."""

    rules: Rules
    B: int
    random: np.random.Generator
    lengths: Integers | None = None  # of the sources, where attention has to cover them
    found: list[list[tuple[Hypothesis, Integers]]] = field(default_factory=list)
    looks: list[Floats | None] = field(default_factory=list)

    def run(self, step: StepFunction, first: Integers, state: State) -> list[list[Hypothesis]]:
        """Of each example its hypotheses, best first."""
        rules = self.rules
        self.found = [[] for _ in range(self.B)]
        nothing = np.zeros((self.B, 0), np.int64)
        live = Live(np.arange(self.B), nothing, nothing, np.zeros(self.B))
        tokens = first
        while len(live.examples):
            log_probs, state, attention = step(tokens, state, live.examples)
            self.looks.append(attention)
            allowed = self._allowed(log_probs, live)
            chosen, rows = self._choose(allowed, live)
            coverage = self._covered(live, attention)
            live = Live(
                live.examples[rows],
                np.concatenate([live.tokens[rows], chosen[:, None]], 1),
                np.concatenate([live.rows[rows], rows[:, None]], 1),
                live.log_probability[rows] + log_probs[rows, chosen].astype(np.float64),
                None if coverage is None else coverage[rows],
            )
            going = self._going(live)
            live = live.at(going)
            tokens, rows = live.tokens[:, -1], live.rows[:, -1]
            state = {name: value[rows] for name, value in state.items()}
        return [self._best(own) for own in self.found[: self.B]] if rules.n_best else []

    def _allowed(self, log_probs: Floats, live: Live) -> Floats:
        """−∞ for what may not come."""
        rules, left = self.rules, log_probs.copy()
        endings = {rules.end, *rules.stop} if live.length < rules.min_length else set()
        left[:, sorted({*rules.banned, *endings})] = -np.inf
        n = rules.no_repeat
        if n and live.length >= n:
            windows = np.lib.stride_tricks.sliding_window_view(live.tokens, n, 1)  # (N, ·, n)
            last = live.tokens[:, None, live.length - n + 1 :]
            rows, places = (windows[..., :-1] == last).all(-1).nonzero()
            left[rows, windows[rows, places, -1]] = -np.inf
        if live.length < len(rules.prefix):
            wanted = rules.prefix[live.length]
            only = left[:, wanted].copy()
            left[:] = -np.inf
            left[:, wanted] = only
        return left

    def _choose(self, allowed: Floats, live: Live) -> tuple[Integers, Integers]:
        """The next tokens, and the rows that they continue."""
        rules, N = self.rules, len(allowed)
        if rules.strategy == "greedy":
            return allowed.argmax(1), np.arange(N)
        if rules.strategy == "sample":
            times = 1 if live.length else rules.n_best  # an example branches at its first step
            rows = np.repeat(np.arange(N), times)
            sums = self.distribution(allowed).astype(np.float64).cumsum(1)[rows]
            drawn = self.random.random(len(rows)) * sums[:, -1]
            return (sums <= drawn[:, None]).sum(1).clip(max=sums.shape[1] - 1), rows
        k = min(rules.beam, allowed.shape[1])
        best = np.argpartition(-allowed, k - 1, 1)[:, :k] if k < allowed.shape[1] else None
        best = (
            np.broadcast_to(np.arange(allowed.shape[1]), allowed.shape) if best is None else np.sort(best, 1)
        )
        values = live.log_probability[:, None] + np.take_along_axis(allowed, best, 1)
        starts = np.flatnonzero(np.diff(live.examples, prepend=-1))
        tokens: list[int] = []
        rows_kept: list[int] = []
        for start, end in zip(starts, [*starts[1:], N], strict=True):
            own = values[start:end].ravel()
            room = rules.beam - len(self.found[live.examples[start]])
            order = np.argsort(-own, kind="stable")[:room]
            order = order[own[order] != -np.inf]
            tokens += best[start:end].ravel()[order].tolist()
            rows_kept += (start + order // best.shape[1]).tolist()
        return np.array(tokens, np.int64), np.array(rows_kept, np.int64)

    def distribution(self, allowed: Floats) -> Floats:
        """(N, V) the probabilities that are drawn from."""
        rules = self.rules
        scaled = allowed / rules.temperature
        p = np.exp(scaled - scaled.max(1, keepdims=True))
        if rules.top_k is not None and rules.top_k < p.shape[1]:
            least = np.partition(p, -rules.top_k, 1)[:, -rules.top_k, None]
            p = np.where(p < least, 0.0, p)
        p = p / p.sum(1, keepdims=True)
        if rules.top_p is not None and rules.top_p < 1:
            order = np.argsort(-p, 1, kind="stable")
            falling = np.take_along_axis(p, order, 1)
            kept = np.where(falling.cumsum(1) - falling >= rules.top_p, 0.0, falling)
            np.put_along_axis(p, order, kept, 1)
            p = p / p.sum(1, keepdims=True)
        found: Floats = p
        return found

    def _covered(self, live: Live, attention: Floats | None) -> Floats | None:
        """(N, S) the attention that each position got so far; 1 more where there is none to get."""
        if not self.rules.coverage_penalty or attention is None or self.lengths is None:
            return None
        so_far = live.coverage
        if so_far is None:
            beyond = np.arange(attention.shape[1]) >= self.lengths[live.examples][:, None]
            so_far = beyond.astype(attention.dtype)
        found: Floats = so_far + attention
        return found

    def _going(self, live: Live) -> Integers:
        """The sequences that go on; those that are complete are kept."""
        rules, last = self.rules, live.tokens[:, -1]
        codes = np.full(len(last), 2 if live.length == rules.max_length else -1)
        codes[np.isin(last, list(rules.stop))] = 1
        codes[last == rules.end] = 0
        scores = self._scores(live)
        for place in np.flatnonzero(codes >= 0):
            tokens = live.tokens[place].tolist()
            kept = tokens[:-1] if codes[place] == 0 else tokens
            value, score = float(live.log_probability[place]), float(scores[place])
            made = Hypothesis(kept, value, STOPPED[codes[place]], score)
            self.found[live.examples[place]].append((made, live.rows[place]))
        hopeful = codes < 0
        if rules.strategy == "beam":
            for example in np.unique(live.examples[hopeful]):
                own = (live.examples == example) & hopeful
                most = live.log_probability[own].max() / rules.max_length**rules.length_penalty
                ranks = sorted((one.score for one, _ in self.found[example]), reverse=True)
                if len(ranks) >= rules.n_best and most <= ranks[rules.n_best - 1]:
                    hopeful[own] = False
        return np.flatnonzero(hopeful)

    def _scores(self, live: Live) -> NDArray[np.float64]:
        rules = self.rules
        if rules.strategy != "beam":
            return live.log_probability
        scores: NDArray[np.float64] = live.log_probability / live.length**rules.length_penalty
        if live.coverage is not None:
            least = np.finfo(live.coverage.dtype).tiny
            scores = scores + rules.coverage_penalty * np.log(live.coverage.clip(least, 1)).sum(1)
        return scores

    def _best(self, own: list[tuple[Hypothesis, Integers]]) -> list[Hypothesis]:
        ordered = sorted(own, key=lambda one: -one[0].score)[: self.rules.n_best]
        return [self._with_looks(one, rows) for one, rows in ordered]

    def _with_looks(self, one: Hypothesis, rows: Integers) -> Hypothesis:
        if not self.looks or self.looks[0] is None:
            return one
        looked = [look[row] for look, row in zip(self.looks, rows, strict=False) if look is not None]
        return Hypothesis(one.tokens, one.log_probability, one.stopped, one.score, np.stack(looked))


def rules_of(said: Mapping[str, Any], longest: int) -> Rules:
    """The rules as an export says them; ``longest``: tokens at most where it leaves that open."""
    return Rules(**{**said, "max_length": said["max_length"] or longest})
