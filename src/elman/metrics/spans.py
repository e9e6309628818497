"""Spans in tag sequences (names, chunks): read from BIO and BIOES tags, compared, kept well formed.

A tag is ``O`` (outside) or a letter, ``-`` and a type: ``B-person``. In **BIO** (IOB2) B begins a span
and I continues it. In **BIOES** (IOBES) E ends a span of several words and S is a span of one; BILOU is
the same with L for E and U for S. The type is all that follows the first ``-``.

Ill-formed sequences are read as conlleval reads them: nothing is dropped, and a word that cannot
continue the span before it begins a new one. So I-x after O, at the start, after I-y or B-y, or after
the end of a span (E-x, S-x) begins a span of type x, and a span that no E closes ends where it stops
being continued. This also reads IOB1, where B marks only a span that touches one of the same type.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.errors import ArgumentError
from elman.metrics.classification import JSON, Agreements, agreement_table

LETTERS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}
SCHEMES = {"BIO": ({"B", "I"},), "BIOES": ({"B", "I", "E", "S"}, {"B", "I", "L", "U"})}
MOST = 0.9  # share of tags (as they occur) that are span tags, from which on the others are mistakes


class Span(NamedTuple):
    """Words ``start`` to ``end - 1``, counted from 0, are one thing of this type."""

    type: str
    start: int
    end: int


def scheme(tags: Iterable[str]) -> str | None:
    """How these tags (all of a corpus, once or often) encode spans: "BIO", "BIOES", or None: not at all.

    They do if each is O or a letter, ``-`` and a type, the letters are those of one scheme, and some
    tag begins a span: parts of speech do not pass by accident.

    >>> scheme(["O", "B-person", "I-person"]), scheme(["B-x", "L-x", "O"]), scheme(["NOUN", "VERB"])
    ('BIO', 'BIOES', None)
    """
    letters = set()
    for tag in set(tags) - {"O"}:
        letter, dash, kind = tag.partition("-")
        if not dash or not kind:
            return None
        letters.add(letter)
    if not letters & {"B", "S", "U"}:
        return None
    return next((name for name, known in SCHEMES.items() if any(letters <= one for one in known)), None)


def is_span_tag(tag: str) -> bool:
    """Is a tag one that spans are told by, whatever the others are?"""
    letter, _, kind = tag.partition("-")
    return tag == "O" or (letter in LETTERS and kind != "")


def strange_tags(counts: Mapping[str, int]) -> list[str]:
    """Tags, by how often they occur, that keep all others from being read as spans: mistakes, mostly.

    >>> strange_tags({"O": 80, "B-x": 15, "B-": 1}), strange_tags({"NOUN": 5, "B-x": 5})
    (['B-'], [])
    """
    strange = [tag for tag in counts if not is_span_tag(tag)]
    meant = sum(counts.values()) - sum(counts[tag] for tag in strange)
    some = any(is_span_tag(tag) and tag != "O" for tag in counts)
    return strange if some and meant > MOST * sum(counts.values()) else []


def spans(tags: Sequence[str]) -> set[Span]:
    """All spans of a sentence.

    >>> sorted(spans(["B-per", "I-per", "O", "I-loc"]))
    [Span(type='loc', start=3, end=4), Span(type='per', start=0, end=2)]
    """
    found = set()
    start = 0
    parts = [_parts(tag) for tag in tags]
    for place, (before, here) in enumerate(zip([("O", ""), *parts], [*parts, ("O", "")], strict=True)):
        if _continues(before, here):
            continue
        if before[0] != "O":
            found.add(Span(before[1], start, place))
        start = place
    return found


def legal(before: str | None, after: str | None, scheme: str) -> bool:
    """Whether ``after`` may follow ``before`` in a well-formed sequence; None is the sentence's edge.

    >>> legal("B-per", "I-per", "BIO"), legal("O", "I-per", "BIO"), legal("B-per", None, "BIOES")
    (True, False, False)
    """
    if scheme not in SCHEMES:
        raise ArgumentError(f"scheme is {scheme!r}; it must be one of {', '.join(map(repr, SCHEMES))}")
    left, right = (_parts(tag) if tag is not None else ("O", "") for tag in (before, after))
    if _continues(left, right):
        return True
    open_still = scheme == "BIOES" and left[0] in ("B", "I")
    return not open_still and right[0] not in ("I", "E")


def legal_transitions(tags: Sequence[str]) -> NDArray[np.bool_]:
    """(K+1, K+1), [before, after]: what is legal among these tags; the last row and column are the edges.

    >>> legal_transitions(["O", "B-x", "I-x"]).astype(int)
    array([[1, 1, 0, 1],
           [1, 1, 1, 1],
           [1, 1, 1, 1],
           [1, 1, 0, 1]])
    """
    name = scheme(tags)
    if name is None:
        raise ArgumentError(f"the tags {', '.join(tags)} encode no spans; only BIO and BIOES tags have rules")
    edges = [*tags, None]
    return np.array([[legal(before, after, name) for after in edges] for before in edges])


def well_formed(tags: Sequence[str], scheme: str) -> bool:
    """Whether every transition of a sentence is legal, its edges included."""
    return all(legal(one, other, scheme) for one, other in zip([None, *tags], [*tags, None], strict=True))


class SpanCounts(Agreements):
    """Precision, recall and F1 of spans, as conlleval counts: right are type, start and end, or nothing is.

    ``precision``, ``recall`` and ``f1`` are over the spans of all types together (micro average).

    >>> counts = SpanCounts()
    >>> counts.add(["B-per", "I-per", "O", "B-loc"], ["B-per", "I-per", "O", "B-per"])
    >>> counts.precision, counts.recall, counts.f1
    (0.5, 0.5, 0.5)
    >>> counts.by_type()["loc"]
    Agreement(correct=0, predicted=0, gold=1)
    """

    def add(self, gold: Sequence[str], predicted: Sequence[str]) -> None:
        """Count the spans of one sentence, given its tags."""
        if len(gold) != len(predicted):
            raise ArgumentError(f"{len(gold)} gold tags and {len(predicted)} predicted; they come in pairs")
        true, found = spans(gold), spans(predicted)
        self.count(*([span.type for span in some] for some in (true, found, true & found)))

    def table(self) -> str:
        """For people: a line for every type, and all together, in percent."""
        return agreement_table([*self.by_type().items(), ("all spans", self.overall)])

    def as_json(self) -> dict[str, JSON]:
        """For machines: fractions."""
        return {
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
            "types": {kind: one.as_json() for kind, one in self.by_type().items()},
        }


def _parts(tag: str) -> tuple[str, str]:
    """Letter (L and U as E and S) and type."""
    if tag == "O":
        return "O", ""
    letter, _, kind = tag.partition("-")
    if letter not in LETTERS or not kind:
        raise ArgumentError(f"tag {tag!r} is neither O nor one of {' '.join(LETTERS)}, '-' and a type")
    return LETTERS[letter], kind


def _continues(before: tuple[str, str], here: tuple[str, str]) -> bool:
    """Whether two neighbouring tags lie in the same span."""
    return before[0] in ("B", "I") and here[0] in ("I", "E") and before[1] == here[1]
