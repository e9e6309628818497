"""The distinct words of some examples, each with its numbers: vocabulary, vectors, letters."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from elman.text.batches import pad
from elman.text.vocabulary import UNKNOWN, Vocabulary

LONGEST = 60  # letters of a word that are read; of a longer one the first and the last half of them


class Lexicon:
    """Words are kept as they are written, so that a rare one still has its letters and its vector.

    >>> lexicon = Lexicon(Vocabulary.build({"cat": 2}), Vocabulary.build({"c": 1, "a": 1, "t": 1}))
    >>> lexicon.ids(["cat", "taco", "cat"])
    [0, 1, 0]
    >>> tokens, vectors, letters, lengths = lexicon.rows(np.array([0, 1]))
    >>> tokens.tolist(), letters.tolist(), lengths.tolist()
    ([4, 1], [[5, 4, 6, 0], [6, 4, 5, 1]], [3, 4])
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        characters: Vocabulary | None = None,
        vectors: Mapping[str, int] | None = None,
        *,
        lower: bool = False,
    ) -> None:
        """``lower``: the vocabulary is looked up in lower case; letters and vectors see the word as it is."""
        self.vocabulary, self.characters, self.vectors = vocabulary, characters, vectors or {}
        self.lower = lower
        self._places: dict[str, int] = {}
        self._spellings: list[str] = []
        self._tokens: list[int] = []
        self._vectors: list[int] = []
        self._letters: list[NDArray[Any]] = []
        self._no_letters = np.array([vocabulary.index[UNKNOWN]], dtype=np.int64)

    @property
    def words(self) -> list[str]:
        return list(self._places)

    @property
    def spellings(self) -> list[str]:
        """The words by their numbers, as they are written; the list itself, which grows."""
        return self._spellings

    def ids(self, words: Iterable[str]) -> list[int]:
        """Numbers of words in this lexicon; new ones are taken in."""
        words = list(words)
        found = [*map(self._places.get, words)]
        if None in found:
            found = [self._add(word) if word not in self._places else self._places[word] for word in words]
        return cast(list[int], found)

    def __len__(self) -> int:
        return len(self._tokens)

    def rows(self, ids: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """For words (U,): tokens (U,), rows of vectors (U,), letters (U, C) and their lengths (U,)."""
        tokens = np.array([self._tokens[i] for i in ids], dtype=np.int64)
        vectors = np.array([self._vectors[i] for i in ids], dtype=np.int64)
        letters, lengths = pad([self._letters[i] for i in ids])
        return tokens, vectors, letters, lengths

    def _add(self, word: str) -> int:
        place = self._places[word] = len(self._tokens)
        self._spellings.append(word)
        self._tokens.append(self.vocabulary.id(word.lower() if self.lower else word))
        self._vectors.append(self.vectors.get(word, self.vectors.get(word.lower(), 0)))
        spelt = word if len(word) <= LONGEST else word[: LONGEST // 2] + word[-LONGEST // 2 :]
        letters = [] if self.characters is None or word == UNKNOWN else self.characters.ids(spelt)
        self._letters.append(np.array(letters, dtype=np.int64) if letters else self._no_letters)
        return place
