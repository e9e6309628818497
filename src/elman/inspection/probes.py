"""A probe asks what a language model remembers: a right word against a wrong one, by their distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar

from matplotlib.figure import Figure

from elman.corpora.base import ProbeItem
from elman.errors import ArgumentError
from elman.inspection.figures import curve_figure
from elman.text.vocabulary import Vocabulary

WIDTH = 5  # distances that share a row of the table
FEWEST = 30  # questions in the last row; fewer join the row above
CHANCE = 0.5

# The tokens of a text and its end marker, with log P(token | those before).
Scored = Sequence[tuple[str, float]]
Score = Callable[[Sequence[str]], Sequence[Scored]]


@dataclass(frozen=True)
class Tally:
    """A tally has so many right answers to so many questions; of several trainings the mean.

    >>> print(Tally(90, 100))
    90.0 ± 3.1 %
    >>> print(Tally.over([Tally(90, 100), Tally(80, 100), Tally(85, 100)]))
    85.0 ± 5.0 %
    """

    right: float  # a tie is half an answer
    items: int
    spread: float | None = None  # the standard deviation of the accuracy over several trainings

    @classmethod
    def over(cls, tallies: Sequence[Tally]) -> Tally:
        """Return the mean and the spread of two trainings or more that answered the same questions."""
        spread = stdev(tally.accuracy for tally in tallies)
        return cls(fmean(tally.right for tally in tallies), tallies[0].items, spread)

    @property
    def accuracy(self) -> float:
        return self.right / self.items

    @property
    def error(self) -> float:
        """The spread over trainings; of one, the standard error over its questions.

        With one right and one wrong answer added: from 100 % in a few it is not 0.
        """
        if self.spread is not None:
            return self.spread
        share = (self.right + 1) / (self.items + 2)
        return math.sqrt(share * (1 - share) / (self.items + 2))

    def __str__(self) -> str:
        return f"{100 * self.accuracy:.1f} ± {100 * self.error:.1f} %"

    def to_json(self) -> dict[str, float]:
        return {"items": self.items, "accuracy": self.accuracy, "error": self.error}


class Distances(NamedTuple):
    """A range of distances, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}–{self.last}"


Key = TypeVar("Key", int, str, Distances)


@dataclass(frozen=True)
class ProbeResult:
    """The answers of one model, or of several trainings of it, sorted in two ways."""

    all: Tally
    by_distance: dict[Distances, Tally]
    by_attractors: dict[int, Tally]

    @classmethod
    def over(cls, results: Sequence[ProbeResult]) -> ProbeResult:
        """Return the mean and the spread of trainings that differ in their seed; of one, what it answered."""
        first, *others = results
        if not others:
            return first
        return cls(
            Tally.over([result.all for result in results]),
            {key: Tally.over([one.by_distance[key] for one in results]) for key in first.by_distance},
            {key: Tally.over([one.by_attractors[key] for one in results]) for key in first.by_attractors},
        )

    def to_json(self) -> dict[str, float | list[dict[str, float]]]:
        places = [{"from": p.first, "to": p.last, **one.to_json()} for p, one in self.by_distance.items()]
        counts = [{"attractors": count, **one.to_json()} for count, one in self.by_attractors.items()]
        return {**self.all.to_json(), "by_distance": places, "by_attractors": counts}


def measure(score: Score, items: Sequence[ProbeItem]) -> ProbeResult:
    """Measure how often the right word is the more probable one after the prefix.

    Args:
        score: gives each text its tokens with their log-probabilities, as ``elman.load(run).score`` does.
        items: the questions, as a corpus with a probe asks them.

    >>> item = ProbeItem("the flights", right="were", wrong="was", distance=0, attractors=0)
    >>> def longer(texts):
    ...     return [[(word, float(len(word))) for word in [*text.split(), "</s>"]] for text in texts]
    >>> print(measure(longer, [item]).all.accuracy)
    1.0
    """
    if not items:
        raise ArgumentError("items is empty; a probe needs at least one question")
    answers = [0.5 if gain == 0 else float(gain > 0) for gain in preferences(score, items)]
    by_distance = _tallies(_ranges([item.distance for item in items]), answers)
    by_attractors = _tallies([item.attractors for item in items], answers)
    return ProbeResult(Tally(sum(answers), len(answers)), by_distance, by_attractors)


def preferences(score: Score, items: Sequence[ProbeItem]) -> list[float]:
    """Return ``log P(right | prefix) − log P(wrong | prefix)`` of every item.

    By the chain rule this is the difference of the whole texts; tokens that both begin with cancel. The
    end marker does not count: in either text more words may follow.
    """
    texts = [f"{item.prefix} {word}" for item in items for word in (item.right, item.wrong)]
    scored = score(texts)
    return [_gain(right, wrong) for right, wrong in zip(scored[::2], scored[1::2], strict=True)]


def readable(
    items: Sequence[ProbeItem], split: Callable[[str], Sequence[str]], vocabulary: Vocabulary
) -> tuple[list[ProbeItem], set[str]]:
    """Return the items of which a model knows every token, and the tokens that it does not know."""
    texts = [split(f"{item.prefix} {item.right} {item.wrong}") for item in items]
    missing = {token for text in texts for token in text if token not in vocabulary}
    return [item for item, text in zip(items, texts, strict=True) if missing.isdisjoint(text)], missing


def table(results: Mapping[str, ProbeResult]) -> str:
    """Make a table: a column for each model, rows for ranges of distances, then for numbers of attractors.

    >>> def longer(texts):
    ...     return [[(word, float(len(word))) for word in [*text.split(), "</s>"]] for text in texts]
    >>> print(table({"longer": measure(longer, [ProbeItem("the flights", "were", "was", 0, 0)] * 98)}))
      words between   questions         longer
      0–4                    98  100.0 ± 1.0 %
      all                    98  100.0 ± 1.0 %
    """
    first = next(iter(results.values()))
    rows = _rows("words between", {label: result.by_distance for label, result in results.items()})
    rows += _rows("", {label: {"all": result.all} for label, result in results.items()})[1:]
    if len(first.by_attractors) > 1:
        rows += ["", *_rows("attractors", {label: result.by_attractors for label, result in results.items()})]
    return "\n".join(rows)


def probe_figure(results: Mapping[str, ProbeResult], *, title: str) -> Figure:
    """Draw accuracy by distance, one line for each model, with errors or with the spread over trainings."""
    places = list(next(iter(results.values())).by_distance)
    x = [(place.first + place.last) / 2 for place in places]
    curves = {label: [result.by_distance[p].accuracy for p in places] for label, result in results.items()}
    figure = curve_figure(
        x, curves, chance=CHANCE, title=title, x_label="words between", y_label="right word preferred"
    )
    [axes] = figure.axes
    colours = {line.get_label(): line.get_color() for line in axes.get_lines()}
    for label, result in results.items():
        errors = [100 * result.by_distance[p].error for p in places]
        y = [100 * share for share in curves[label]]
        axes.errorbar(x, y, errors, fmt="none", ecolor=colours[label], elinewidth=2.5, capsize=6, zorder=2)
    return figure


def _gain(right: Scored, wrong: Scored) -> float:
    shared = sum(1 for _ in takewhile(lambda pair: pair[0][0] == pair[1][0], zip(right, wrong, strict=False)))
    return sum(value for _, value in right[shared:-1]) - sum(value for _, value in wrong[shared:-1])


def _ranges(distances: Sequence[int]) -> list[Distances]:
    """Find the range that each distance falls into; the last one is wide enough to hold a few."""
    most = max(distances) // WIDTH
    last = most
    while last > min(distances) // WIDTH and sum(d // WIDTH >= last for d in distances) < FEWEST:
        last -= 1
    firsts = [min(distance // WIDTH, last) for distance in distances]
    return [Distances(f * WIDTH, (f if f < last else most) * WIDTH + WIDTH - 1) for f in firsts]


def _tallies(keys: Sequence[Key], answers: Sequence[float]) -> dict[Key, Tally]:
    groups: dict[Key, list[float]] = {key: [] for key in sorted(set(keys))}
    for key, answer in zip(keys, answers, strict=True):
        groups[key].append(answer)
    return {key: Tally(sum(group), len(group)) for key, group in groups.items()}


def _rows(heading: str, columns: Mapping[str, Mapping[Key, Tally]]) -> list[str]:
    wide = {label: max(13, len(label)) for label in columns}
    rows = [f"  {heading:<13}{'questions':>12}" + "".join(f"  {label:>{wide[label]}}" for label in columns)]
    for key, tally in next(iter(columns.values())).items():
        shares = "".join(f"  {column[key]!s:>{wide[label]}}" for label, column in columns.items())
        rows.append(f"  {key!s:<13}{tally.items:>12,}{shares}")
    return rows
