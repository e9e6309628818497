"""Whole sequences against references: exact matches, error rates, and the scores of translation."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from elman.errors import ArgumentError, UnknownNameError, nearest

METRICS = ("bleu", "chrf", "ter")
TOKENIZERS = ("13a", "intl", "char", "zh", "none")  # sacrebleu's others need a download or another package
SHORT, LONG, DIVERSE = 12, 120, 200  # words of a text, and different words of all
BUCKETS = 6  # of source lengths


def edit_distance(found: Sequence[Hashable], gold: Sequence[Hashable]) -> int:
    """The fewest tokens to insert, delete or replace that turn ``found`` into ``gold`` (Levenshtein).

    The table of distances is walked column by column. A column is two integers with a bit a row: where
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
                raise ArgumentError(
                    f"output is {output!r} and a reference {reference!r}; both must be texts, or both tokens"
                )
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

    def as_json(self) -> dict[str, Any]:
        """For machines."""
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


def translation_scores(
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str = "13a",
    metrics: Sequence[str] = METRICS,
) -> dict[str, Any]:
    """BLEU, chrF and TER of a corpus as sacrebleu computes and prints them, from 0 to 100 (TER: upwards).

    ``references`` has one or several texts for each output, not the same number for each. They are
    texts as people write them: BLEU splits them by ``tokenize``. ``signatures`` has what must stand
    beside a figure that is published; ``notes`` what should be known before that.

    >>> scores = translation_scores(["the cat sat down"], [["the cat sat", "the cat sat down."]])
    >>> round(scores["bleu"], 1), round(scores["chrf"], 1), scores["signatures"]["ter"].split("|")[0]
    (100.0, 92.8, 'nrefs:2')
    """
    from sacrebleu.metrics.base import Metric  # not above: no command needs it to start
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    _check_translations(outputs, references, tokenize, metrics)
    # sacrebleu wants the first references of all outputs, then the second ones, None where there is none;
    # forced, it keeps what _notes says off the log.
    columns = list(zip_longest(*references))
    known: dict[str, Metric] = {"bleu": BLEU(tokenize=tokenize, force=True), "chrf": CHRF(), "ter": TER()}
    scores: dict[str, Any] = {}
    signatures = {}
    for name in metrics:
        metric = known[name]
        scores[name] = metric.corpus_score(outputs, columns).score
        signatures[name] = str(metric.get_signature())
    return {
        **scores,
        "signatures": signatures,
        "notes": _notes(outputs, tokenize) if "bleu" in scores else [],
    }


def quickly_edited(references: Sequence[Sequence[str]]) -> bool:
    """Can the translation edit rate be computed soon? It tries every shift of words that occur elsewhere, so
    long outputs of few different words take seconds each.
    """
    words = [text.split() for texts in references for text in texts]
    longest = max(map(len, words), default=0)
    return longest <= SHORT or (longest <= LONG and len(set().union(*words)) >= DIVERSE)


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


def _check_translations(
    outputs: Sequence[str], references: Sequence[Sequence[str]], tokenize: str, metrics: Sequence[str]
) -> None:
    for name, known in ((tokenize, TOKENIZERS), *((metric, METRICS) for metric in metrics)):
        if name not in known:
            raise UnknownNameError(f"no tokenizer or metric named {name!r}; {nearest(name, known)}")
    if not outputs or len(outputs) != len(references):
        raise ArgumentError(
            f"{len(outputs)} outputs and references for {len(references)}; give some, and as many of both"
        )
    for number, given in enumerate(references, 1):
        if isinstance(given, str) or not given:
            raise ArgumentError(
                f"references of output {number} are {given!r}; give a list of at least one text"
            )


def _notes(outputs: Sequence[str], tokenize: str) -> list[str]:
    """sacrebleu warns of outputs that were tokenised before; so do we, but not on stderr."""
    split_off = sum(output.endswith(" .") for output in outputs)
    if tokenize == "none" or 2 * split_off < len(outputs):
        return []
    return [
        f"{split_off} of {len(outputs)} outputs end in ' .': BLEU of texts that are split already "
        "cannot be compared with BLEU of texts as people write them"
    ]
