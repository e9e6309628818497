"""Batches of words for a graph: numbers, letters, and what is seen in a word, as rows that hashes find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.text.batches import pad
from elman.text.lexicon import Lexicon
from elman.text.vocabulary import UNKNOWN

Arrays = Mapping[str, NDArray[Any]]
Integers = NDArray[np.int64]
AFFIX = 4  # letters of the longest beginning and ending
FACTOR = 1_000_003
SPREAD = -7046029254386353131
WORD, SHAPE, ENDING = 1, 3, 4 + AFFIX + 2
EDGE = 7
NEAR = (-2, -1, 1, 2)
REMEMBERED = 20_000  # words of earlier texts whose numbers are kept


def indicators(arrays: Arrays, letters: Integers, lengths: Integers) -> Integers:
    """What can be seen in words (U, F), from their letters (U, C): as ``models/indicators.py`` has it."""
    C, ends = letters.shape[1], lengths[:, None]
    place = np.arange(C)
    real = place < ends
    powers = arrays["powers"][:C] * real
    kinds, small = arrays["kinds"][letters], arrays["small"][letters]
    begun = (small * powers).cumsum(1)
    change = np.concatenate([np.ones_like(real[:, :1]), kinds[:, 1:] != kinds[:, :-1]], 1) & real
    whole = [
        (arrays["written"][letters] * powers).sum(1),
        begun[:, -1],
        (kinds * powers).sum(1),
        (kinds * arrays["powers"][change.cumsum(1)] * change).sum(1),
    ]
    backwards = np.take_along_axis(small, (ends - 1 - place[:AFFIX]).clip(0), 1)
    affixes = [begun[:, :AFFIX], (backwards * powers[:, :AFFIX]).cumsum(1)]
    wide = [np.zeros((len(letters), AFFIX), np.int64) for _ in affixes]
    for made, one in zip(wide, affixes, strict=True):
        made[:, : one.shape[1]] = np.where(real[:, :AFFIX], one, 0)
    found = np.concatenate([np.stack(whole, 1), *wide], 1)
    own = np.arange(1, found.shape[1] + 1)
    return np.where(found == 0, 0, (found * FACTOR + own) * SPREAD)


def surroundings(own: Integers, places: Integers, lengths: Integers) -> Integers:
    """(B, T, F) the indicators of each word and of those around it: as ``models/tagger.py`` has it."""
    T = places.shape[1]
    here = own[places]  # (B, T, F)
    real = np.arange(T) < lengths[:, None]
    seen = np.where(real[..., None], here[..., [WORD, SHAPE, ENDING]], EDGE)
    around = np.pad(seen, ((0, 0), (2, 2), (0, 0)), constant_values=EDGE)
    near = [around[:, 2 + d : 2 + d + T] * SPREAD + d * FACTOR for d in NEAR]
    word = around[..., 0]
    pairs = [word[:, 1 + d : 1 + d + T] * FACTOR + word[:, 2 + d : 2 + d + T] for d in (0, 1)]
    both = (np.stack(pairs, -1) * FACTOR + np.arange(2)) * SPREAD
    return np.concatenate([here, *near, both], -1)


def hashed(found: Integers, buckets: int) -> tuple[Integers, NDArray[np.float32]]:
    """Where numbers are in a table of so many rows, and whether each counts, and how."""
    mixed = (found ^ (found >> 29)) * SPREAD
    return (mixed >> 40) & (buckets - 1), np.sign(mixed).astype(np.float32)


class WordBatches:
    """Makes the inputs of a graph out of words.

    buckets: of the tables that hashes find rows in, by name; needed: the inputs that the graph has.
    """

    def __init__(
        self,
        lexicon: Callable[[], Lexicon],
        arrays: Arrays,
        buckets: Mapping[str, int],
        needed: Sequence[str],
    ) -> None:
        self._make, self._arrays, self._buckets, self._needed = lexicon, arrays, buckets, needed
        self._kept: Lexicon | None = None

    def rows(self, texts: Sequence[Sequence[str]]) -> list[Integers]:
        """The words of texts by their numbers in the lexicon."""
        lexicon = self.lexicon
        return [np.array(lexicon.ids(words), np.int64) for words in texts]

    @property
    def lexicon(self) -> Lexicon:
        if self._kept is None or len(self._kept) >= REMEMBERED:
            self._kept = self._make()
        return self._kept

    def inputs(self, rows: Sequence[Integers]) -> dict[str, NDArray[Any]]:
        lexicon = self._kept
        assert lexicon is not None
        places, lengths = pad(rows)
        [unknown] = lexicon.ids([UNKNOWN])
        distinct, inverse = np.unique(places, return_inverse=True)
        tokens, vectors, letters, spelled = lexicon.rows(np.concatenate([[unknown], distinct]))
        where = inverse.reshape(places.shape) + 1
        found = {"tokens": tokens, "vectors": vectors, "letters": letters, "letter_lengths": spelled}
        found |= {"places": where, "lengths": lengths}
        if self._buckets:
            own = indicators(self._arrays, letters, spelled)
            seen = {"affix": own}
            if "linear" in self._buckets:
                seen["linear"] = surroundings(own, where, lengths)
            for name, buckets in self._buckets.items():
                found[f"{name}_rows"], found[f"{name}_signs"] = hashed(seen[name], buckets)
        return {name: value for name, value in found.items() if name in self._needed}
