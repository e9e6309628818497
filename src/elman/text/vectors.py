"""Pretrained word vectors in the text form that word2vec, GloVe and fastText share."""

from __future__ import annotations

import math
import os
import re
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from elman.errors import DataError, VectorsError, shortened
from elman.text.counts import Counted
from elman.text.files import Line, Repairs, open_lines

REPEATED = "second vector of a word skipped"
_COUNT = re.compile("[0-9]{1,15}")  # a word of more digits is a word
MISCOUNTED = "wrong count of vectors in the header ignored"


@dataclass(frozen=True, eq=False)
class Vectors:
    """Words and their vectors, row by row; ``repairs`` counts what was put right while reading."""

    words: list[str]
    matrix: NDArray[np.float32]
    repairs: Repairs = field(default_factory=Repairs)

    @cached_property
    def index(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def find(self, word: str) -> int | None:
        """The row of a word, or of its lower-case form where the word itself has none."""
        return self.index.get(word, self.index.get(word.lower()))

    def rows(self, words: Iterable[str]) -> NDArray[np.float32]:
        """A vector for every word; zero where there is none."""
        found = [self.find(word) for word in words]
        nothing = np.zeros(self.matrix.shape[1], dtype=np.float32)
        return np.stack([nothing if row is None else self.matrix[row] for row in found])


def read_vectors(path: str | os.PathLike[str], wanted: Container[str] | None = None) -> Vectors:
    """The vectors of a file, or of the ``wanted`` words in it, one line in memory at a time.

    A line is a word and its numbers; a first line of two whole numbers is word2vec's header. A word may
    contain spaces: without a header the first line says how many numbers there are, and every other line
    must end in as many. Of words that are not wanted the numbers are counted, not read. To find words by
    their lower-case form too, ask for :func:`wanted_forms` of them.
    """
    announced, width, seen = None, 0, 0
    rows: dict[str, int] = {}
    values = array("f")
    repairs = Repairs()
    for line in open_lines(path, repairs):
        if width == 0:
            announced, width = _header(line)
            if announced is not None:
                continue
        seen += 1
        word, numbers = _cut(line, width)
        if wanted is not None and word not in wanted:
            continue
        if word in rows:
            repairs[REPEATED] += 1
            continue
        values.extend(_parsed(line, numbers, width))
        rows[word] = len(rows)
    if not seen:
        raise VectorsError("there is no vector in the file", path=path, remedy="is it the right file?")
    if announced is not None and announced != seen:
        repairs[MISCOUNTED] += 1
    return Vectors(list(rows), np.frombuffer(values, np.float32).reshape(-1, width), repairs)


def wanted_forms(words: Iterable[str]) -> set[str]:
    """The words and their lower-case forms.

    >>> sorted(wanted_forms(["The", "cat"]))
    ['The', 'cat', 'the']
    """
    return {form for word in words for form in (word, word.lower())}


def coverage(vectors: Vectors, counts: Mapping[str, int] | Counted) -> str:
    """How many of the counted words have a vector, as types and as tokens; by their lower-case form, too.

    >>> vectors = Vectors(["the", "cat"], np.zeros((2, 3), np.float32))
    >>> print(coverage(vectors, {"The": 1, "the": 2, "dog": 1}))
    vectors for 2 of 3 types (66.7 %) and 3 of 4 tokens (75.0 %); in lower case only: 1 type, 1 token
    """
    found, lower = Counter[str](), Counter[str]()
    types, tokens = 0, 0
    for word, count in counts.items():
        types, tokens = types + 1, tokens + count
        if vectors.find(word) is not None:
            found[word] = count
            if word not in vectors.index:
                lower[word] = count
    shown = f"{_share(len(found), types, 'type')} and {_share(found.total(), tokens, 'token')}"
    only = f"{_plural(len(lower), 'type')}, {_plural(lower.total(), 'token')}"
    return f"vectors for {shown}" + (f"; in lower case only: {only}" if lower else "")


def _header(line: Line) -> tuple[int | None, int]:
    """How many vectors a header announces, or None where the line is a vector; and their width."""
    items = line.text.split()
    if len(items) == 2 and all(_COUNT.fullmatch(item) for item in items) and int(items[1]):
        return int(items[0]), int(items[1])
    width = 0
    while width < len(items) - 1 and _number(items[-1 - width]) is not None:
        width += 1
    if width == 0:
        raise _error(line, "the first line is neither a header nor a word and its numbers")
    return None, width


def _cut(line: Line, width: int) -> tuple[str, str]:
    """The word and its numbers as they are written."""
    text = line.text.strip(" \t")
    if text.count(" ") == width:  # nearly always, and far faster than taking the line apart
        word, _, numbers = text.partition(" ")
        return word.rstrip("\t"), numbers
    items = text.rsplit(None, width)  # from the right: the word may contain spaces
    if len(items) != width + 1:
        raise _miscounted(line, max(0, len(items) - 1), width)
    extra = items[0].split()[-1]
    if extra != items[0] and _number(extra) is not None:
        raise _error(line, f"more than {width} numbers; vectors have {width} here")
    return items[0], " ".join(items[1:])


def _parsed(line: Line, numbers: str, width: int) -> array[float]:
    items = numbers.split()
    if len(items) != width:
        raise _miscounted(line, len(items), width)
    try:
        row = array("f", map(float, items))
    except ValueError:
        raise _first_bad_number(line, width) from None
    if not math.isfinite(sum(row)):  # one NaN or infinity makes the sum another
        raise _first_bad_number(line, width)
    return row


def _first_bad_number(line: Line, width: int) -> DataError:
    items = [*re.finditer(r"\S+", line.text)][-width:]
    values = [_number(item[0]) for item in items]
    place = next(i for i, v in enumerate(values) if v is None or not math.isfinite(array("f", [v])[0]))
    problem = "no number" if values[place] is None else "no finite 32-bit number"
    said = f"number {place + 1} of {width} is {shortened(items[place][0])!r}, {problem}"
    return _error(line, said, items[place].start() + 1)


def _miscounted(line: Line, count: int, width: int) -> DataError:
    return _error(line, f"{_plural(count, 'number')}; vectors have {width} here")


def _error(line: Line, problem: str, column: int | None = None) -> DataError:
    remedy = "a line is a word and its numbers, separated by spaces; mend or delete the line"
    return line.error(VectorsError, problem, remedy, column)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _share(part: int, whole: int, noun: str) -> str:
    return f"{part:,} of {_plural(whole, noun)} ({100 * part / max(1, whole):.1f} %)"


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
