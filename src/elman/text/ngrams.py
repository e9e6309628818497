"""The n-grams of a text, of its words and of their letters, as numbers: what a linear model looks at."""

import re
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

LETTERS = 5  # of the longest n-gram within a word
MOST_LETTERS = 20_000  # of a text that are looked at
REMEMBERED = 8_000  # words whose n-grams are kept
BLOCK = 1 << 32  # n-grams of words are below it, those of letters above
PIECES = re.compile(r"\w+|[^\w\s]")


class TextNgrams:
    """Finds n-grams: of words (one and two, in lower case, punctuation apart) and of letters (one to five).

    Letters are those of what stands between blanks, with the blanks at either end. So they serve languages
    that have no blanks as well, and a word that nobody has seen.

    >>> ngrams = TextNgrams()
    >>> one, other = ngrams.of("It is."), ngrams.of("is it?")
    >>> len(one), len(set(one.tolist()) & set(other.tolist()))
    (26, 10)
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Numbers, Numbers]] = {}

    def of(self, text: str) -> Numbers:
        """The numbers of all n-grams, as often as they occur."""
        found = [self._word(word) for word in text[:MOST_LETTERS].split()]
        if not found:
            return np.zeros(0, dtype=np.int64)
        pieces = np.concatenate([own for own, _ in found])
        pairs = (pieces[:-1] * 1_000_003 + pieces[1:]) % BLOCK
        return np.concatenate([pieces, pairs, *(letters for _, letters in found)])

    def of_all(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """The n-grams of some texts one after the other, and how many each text has."""
        found = [self.of(text) for text in texts]
        counts = np.array([len(own) for own in found], dtype=np.int64)
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64), counts

    def _word(self, word: str) -> tuple[Numbers, Numbers]:
        known = self._known.get(word)
        if known is not None:
            return known
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        lower = word.lower()
        pieces = [crc32(piece.encode()) for piece in PIECES.findall(lower)]
        spelled = f" {lower} "
        ends = range(1, LETTERS + 1)
        parts = [spelled[i : i + n] for n in ends for i in range(len(spelled) - n + 1)]
        letters = [BLOCK + crc32(part.encode()) for part in parts if part != " "]
        made = np.array(pieces, dtype=np.int64), np.array(letters, dtype=np.int64)
        self._known[word] = made
        return made
