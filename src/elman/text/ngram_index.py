"""Which n-grams of a text a linear model knows, and how much each counts."""

import numpy as np
from numpy.typing import NDArray

from elman.text.ngrams import BLOCK, Numbers

SPREAD = np.uint64(0x9E3779B97F4A7C15)  # an odd number that mixes all bits into the highest


class NgramIndex:
    """Where n-grams stand among those that are known: a look into a table, where most of them have a place.

    Those that meet there stand in a second one, and so on. ``of``: whose it is.
    """

    def __init__(self, of: object, hashes: Numbers) -> None:
        self.of, self.hashes = of, hashes
        self.tables: list[NDArray[np.int32]] = []
        left = np.arange(len(hashes), dtype=np.int32)
        while len(left) or not self.tables:
            table = np.full(1 << max(4, (4 * len(left)).bit_length()), -1, dtype=np.int32)
            slots = _slots(hashes[left], table)
            table[slots] = left
            left = left[table[slots] != left]
            self.tables.append(table)

    def find(self, ngrams: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
        """The places, and which of the n-grams are known."""
        places = np.full(len(ngrams), -1, dtype=np.int64)
        open_ = np.arange(len(ngrams))
        for table in self.tables:
            asked = ngrams[open_]
            found = table[_slots(asked, table)]
            known = found >= 0
            known[known] = self.hashes[found[known]] == asked[known]
            places[open_[known]] = found[known]
            open_ = open_[~known & (found >= 0)]  # where nobody stands, nobody was sent on
        return places[places >= 0], places >= 0


def _slots(ngrams: Numbers, table: NDArray[np.int32]) -> NDArray[np.uint64]:
    return (ngrams.astype(np.uint64) * SPREAD) >> np.uint64(64 - (len(table).bit_length() - 1))


def ngram_values(
    ngrams: Numbers, counts: Numbers, index: NgramIndex, rarity: NDArray[np.float32]
) -> tuple[Numbers, NDArray[np.float32], Numbers]:
    """The known n-grams of texts: their places, their values, and where each text's begin."""
    texts, size = len(counts), max(1, len(rarity))
    places, known = index.find(ngrams)
    keys, often = np.unique(np.repeat(np.arange(texts), counts)[known] * size + places, return_counts=True)
    rows, places = keys // size, keys % size
    values = (1 + np.log(often)) * rarity[places]
    kinds = rows * 2 + (index.hashes[places] >= BLOCK) if len(places) else rows
    squares = np.bincount(kinds, values**2, minlength=2 * texts)
    values = (values / np.sqrt(squares[kinds])).astype(np.float32)
    return places, values, np.searchsorted(rows, np.arange(texts))
