"""One side of a pair of texts: its unit, its vocabulary and its pretrained vectors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.config import TextSettings
from elman.models.embedding import Pretrained, RareTokenDropout, Tokens
from elman.tasks.base import vocabulary_from
from elman.text.units import Unit, make_unit
from elman.text.vectors import Vectors, coverage, read_vectors, wanted_forms
from elman.text.vocabulary import UNKNOWN, Vocabulary

PIECES = 8_000  # units of a byte-pair encoding whose size is not set
MANY = 2_000  # types from which on a word seen once is shown as unknown


class Side:
    """From texts of one side to numbers, and to the module that gives them vectors."""

    vocabulary: Vocabulary

    def __init__(self, settings: TextSettings, remove: str | None = None) -> None:
        self.settings = settings
        self._remove = re.compile(remove) if remove else None
        self.unit: Unit = make_unit("word")
        self.counts: list[int] = []
        self.vector_width = 0
        self.matrix: NDArray[np.float32] | None = None

    def clean(self, text: str) -> str:
        """The text without what the settings take out of it."""
        return text if self._remove is None else self._remove.sub("", text)

    def split(self, text: str) -> list[str]:
        return self.unit.split(self.clean(text))

    def reference(self, text: str) -> str:
        """The text as an output could be: without what is taken out, in lower case where all is."""
        return self.clean(text).lower() if self.settings.lowercase else self.clean(text)

    def plain_unit(self) -> Unit:
        """A unit that has nothing to learn."""
        return make_unit(self.settings.unit, lowercase=self.settings.lowercase)

    def learn_unit(self, texts: Iterable[str]) -> None:
        """Byte-pair encoding of these texts."""
        settings = self.settings
        size = settings.vocabulary_size or PIECES
        self.unit = make_unit("bpe", lowercase=settings.lowercase, size=size, training=texts)

    def learn(self, counts: Counter[str], notes: list[str], name: str) -> None:
        """The vocabulary of these tokens, and what the file of vectors knows of them."""
        settings = self.settings
        rare = 2 if settings.unit == "word" and len(counts) > MANY else 1
        self.vocabulary = vocabulary_from(settings, counts, self.unit, rare)
        self.counts = [counts[token] for token in self.vocabulary.tokens]
        known = sum(count for token, count in counts.items() if token in self.vocabulary)
        notes.append(
            f"{name}: {len(self.vocabulary):,} entries for {len(counts):,} types, "
            f"{known / max(1, counts.total()):.2%} of tokens"
        )
        if settings.vectors:
            vectors = self._vectors()
            notes.append(f"{name}: {coverage(vectors, counts).sentence()}")
            self.vector_width = vectors.matrix.shape[1]
            self.matrix = vectors.rows(self.vocabulary.tokens[1:])

    def share(self, other: Side) -> None:
        """Take over all that the other side has learned; what is taken out of a text stays one's own."""
        self.unit, self.vocabulary, self.counts = other.unit, other.vocabulary, other.counts
        self.vector_width, self.matrix = other.vector_width, other.matrix

    def embedding(self, width: int, *, rare_dropout: float, token_dropout: float) -> Tokens:
        unknown = self.vocabulary.id(UNKNOWN)
        pretrained = None
        if self.settings.vectors:
            pretrained = Pretrained(len(self.vocabulary), self.vector_width, tuned=self.settings.tune_vectors)
        return Tokens(
            len(self.vocabulary),
            width,
            hiding=RareTokenDropout(rare_dropout, self.counts, unknown) if rare_dropout else None,
            token_dropout=token_dropout,
            pretrained=pretrained,
            unknown=unknown,
        )

    def fill(self, tokens: Tokens) -> None:
        """Give fresh weights the vectors of the file."""
        if tokens.pretrained is not None:
            matrix = self._vectors().rows(self.vocabulary.tokens[1:]) if self.matrix is None else self.matrix
            tokens.pretrained.fill(matrix)
        self.matrix = None

    def tables(self) -> dict[str, Any]:
        return {"tokens": self.vocabulary.tokens, "counts": self.counts, "vector_width": self.vector_width}

    def restore(self, tables: Mapping[str, Any]) -> None:
        self.vocabulary = Vocabulary.from_json({"tokens": tables["tokens"]})
        self.counts = list(tables["counts"])
        self.vector_width = int(tables["vector_width"])

    def _vectors(self) -> Vectors:
        return read_vectors(str(self.settings.vectors), wanted_forms(self.vocabulary.tokens))
