"""Whole sequences against references: exact matches and error rates."""

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from elman.errors import ArgumentError
from elman.metrics.classification import JSON

BUCKETS = 6  # of source lengths


def edit_distance(found: Sequence[Hashable], gold: Sequence[Hashable]) -> int:
    """The fewest tokens to insert, delete or replace that turn ``found`` into ``gold`` (Levenshtein).

    The table of distances is filled column by column. A column is two integers with a bit a row: where
    the distance is one more than in the row above, and where it is one less (Myers 1999, "A fast
    bit-vector algorithm for approximate string matching based on dynamic programming", in the form
    of Hyyrö 2001).

    >>> edit_distance("kitten", "sitting"), edit_distance(["a", "rose"], [])
    (3, 2)
    """
    rows, columns = (found, gold) if len(found) > len(gold) else (gold, found)
    places: dict[Hashable, int] = {}  # the rows where a token stands
    for row, token in enumerate(rows):
        places[token] = places.get(token, 0) | 1 << row
    every = (1 << len(rows)) - 1
    more_down, less_down = every, 0
    for token in columns:
        equal = places.get(token, 0)
        same_diagonally = ((equal & more_down) + more_down ^ more_down) | equal | less_down
        more_right = (less_down | ~(same_diagonally | more_down)) << 1 | 1
        less_right = (more_down & same_diagonally) << 1
        more_down = (less_right | ~(same_diagonally | more_right)) & every
        less_down = more_right & same_diagonally & every
    return len(columns) + more_down.bit_count() - less_down.bit_count()


class Outcome(NamedTuple):
    """One output beside the reference that is nearest to it."""

    edits: int
    output_length: int
    reference_length: int
    source_length: int | None


@dataclass(frozen=True)
class LengthBucket:
    """The outputs whose sources have ``shortest`` to ``longest`` tokens."""

    shortest: int
    longest: int
    count: int
    exact_match: float
    error_rate: float


class SequenceScores:
    """How near outputs come to their references, each counted against the nearest of its own.

    A sequence is a list of tokens, or a text, which is a sequence of characters: by what is given, the
    error rate is that of words, phonemes or characters. The nearest reference is the one with the
    smallest edit distance, and the longest of several such. All shares are fractions.

    Nothing is special about empty sequences: an empty output lacks every token of its shortest
    reference, all of an output is too much beside an empty reference, and two empty ones match. Where
    the references have no token at all, rates and ratios are per one token instead of per none.

    >>> scores = SequenceScores()
    >>> scores.add("T AH M EY T OW".split(), ["T AH M AA T OW".split(), "T AH M EY T OW".split()])
    >>> scores.add("K AE".split(), ["K AE T S".split()])
    >>> scores.exact_match, scores.error_rate, scores.edit_distance, scores.length_ratio
    (0.5, 0.2, 1.0, 0.8)
    """

    def __init__(self, outcomes: Sequence[Outcome] = ()) -> None:
        self.outcomes = list(outcomes)

    def add(
        self,
        output: Sequence[Hashable],
        references: Sequence[Sequence[Hashable]],
        *,
        source_length: int | None = None,
    ) -> None:
        """Count one output; ``source_length`` is what ``by_length`` sorts by."""
        if isinstance(references, str) or not references:
            raise ArgumentError(f"references is {references!r}; it must be a list of at least one reference")
        for reference in references:
            if isinstance(reference, str) != isinstance(output, str):
                found = f"output is {output!r} and a reference {reference!r}"
                raise ArgumentError(f"{found}; both must be texts, or both tokens")
        distances = [(edit_distance(output, reference), -len(reference)) for reference in references]
        edits, length = min(distances)
        self.outcomes.append(Outcome(edits, len(output), -length, source_length))

    @property
    def count(self) -> int:
        return len(self.outcomes)

    @property
    def exact_match(self) -> float:
        """The share of outputs that equal a reference; 0 of nothing."""
        return sum(one.edits == 0 for one in self.outcomes) / max(1, self.count)

    @property
    def sequence_error_rate(self) -> float:
        """The share of outputs that equal no reference; 0 of nothing."""
        return sum(one.edits > 0 for one in self.outcomes) / max(1, self.count)

    @property
    def error_rate(self) -> float:
        """Edits per token of the nearest references, over all outputs; it can exceed 1."""
        return sum(one.edits for one in self.outcomes) / self._reference_tokens

    @property
    def edit_distance(self) -> float:
        """Edits per output."""
        return sum(one.edits for one in self.outcomes) / max(1, self.count)

    @property
    def length_ratio(self) -> float:
        """Tokens of the outputs per token of the nearest references."""
        return sum(one.output_length for one in self.outcomes) / self._reference_tokens

    def by_length(self) -> list[LengthBucket]:
        """The scores by the length of the source, in about six buckets of about as many outputs each.

        All sources of one length are in one bucket; where there are no more than six lengths, each is
        one. The buckets depend on the sources alone: those of two models on the same data compare.
        """
        found = []
        sized = [(one.source_length, one) for one in self.outcomes if one.source_length is not None]
        for shortest, longest in _ranges(sorted(length for length, _ in sized)):
            part = SequenceScores([one for length, one in sized if shortest <= length <= longest])
            found.append(LengthBucket(shortest, longest, part.count, part.exact_match, part.error_rate))
        return found

    def as_json(self) -> dict[str, JSON]:
        return {
            "exact_match": self.exact_match,
            "error_rate": self.error_rate,
            "edit_distance": self.edit_distance,
            "sequence_error_rate": self.sequence_error_rate,
            "length_ratio": self.length_ratio,
            "by_length": [asdict(bucket) for bucket in self.by_length()],
        }

    @property
    def _reference_tokens(self) -> int:
        return max(1, sum(one.reference_length for one in self.outcomes))


def _ranges(lengths: list[int]) -> list[tuple[int, int]]:
    """The shortest and the longest of each bucket, about as many of the sorted lengths in each."""
    known = sorted(set(lengths))
    ends = set(known)
    if len(known) > BUCKETS:
        ends = {lengths[len(lengths) * part // BUCKETS - 1] for part in range(1, BUCKETS + 1)}
    found, first = [], 0
    for place, length in enumerate(known):
        if length in ends:
            found.append((known[first], length))
            first = place + 1
    return found
