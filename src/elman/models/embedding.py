"""Tokens as vectors: learned, one-hot or pretrained; words also by their characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from elman.layers.rnn import RNN
from elman.models.indicators import Affixes
from elman.tensors.draws import Share, among, dropout, rand, weight_dropout
from elman.text.fields import TextField
from elman.text.vocabulary import UNKNOWN


class Embedding(nn.Module):
    """``e = E x`` for token numbers of any shape (row L1); ``width`` 0 feeds the one-hot x itself."""

    def __init__(self, V: int, width: int) -> None:
        super().__init__()
        self.V, self.output_size = V, width or V
        self.weight = nn.Parameter(torch.randn(V, width) * width**-0.5) if width else None

    def forward(self, ids: Tensor) -> Tensor:
        if self.weight is None:
            return F.one_hot(ids, self.V).to(torch.get_default_dtype())
        return F.embedding(ids, self.weight)


class RareTokenDropout(nn.Module):
    """In training a token that occurs n times is shown as unknown with probability ``α / (α + n)``.

    So the unknown token is learned from the rare ones, which it will stand for (Kiperwasser & Goldberg 2016).
    """

    rates: Tensor

    def __init__(self, strength: float, counts: Sequence[int], unknown: int) -> None:
        super().__init__()
        n = torch.tensor(counts, dtype=torch.float32)
        rates = strength / (strength + n)
        rates[n == 0] = 0.0  # markers
        self.register_buffer("rates", rates, persistent=False)
        self.unknown = unknown

    def forward(self, tokens: Tensor) -> Tensor:
        if not self.training:
            return tokens
        hidden = rand(*tokens.shape, device=tokens.device) < self.rates[tokens]
        return tokens.masked_fill(hidden, self.unknown)


class Ngrams(nn.Module):
    """What the n-grams that end at a token add to its vector: a row of a table for each n up to the order.

    Rows are found by a hash, so there is no vocabulary of n-grams (Joulin et al. 2016). In training, each is
    left out with the given rate.
    """

    BUCKETS = 2**14

    def __init__(self, order: int, width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.tables = nn.ParameterList(
            nn.Parameter(torch.randn(self.BUCKETS, width) * width**-0.5) for _ in range(order - 1)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T, ·) for token numbers (B, T)."""
        total = torch.zeros((), device=ids.device)
        key = ids
        for n, table in enumerate(self.tables, 1):
            key = key * 1_000_003 + F.pad(ids, (n, 0))[:, : ids.shape[1]] + 1
            part = F.embedding(key % self.BUCKETS, table)
            if self.training and self.dropout:
                part = part * (rand(*ids.shape, device=ids.device) >= self.dropout)[..., None]
            total = total + part
        return total


class Pretrained(nn.Module):
    """Vectors that were learned elsewhere, tuned or frozen; number 0 is a word without one."""

    weight: Tensor

    def __init__(self, rows: int, width: int, *, tuned: bool) -> None:
        super().__init__()
        self.output_size = width
        if tuned:
            self.weight = nn.Parameter(torch.zeros(rows, width))
        else:
            self.register_buffer("weight", torch.zeros(rows, width))

    def fill(self, matrix: NDArray[np.float32]) -> None:
        """Take the vectors of a file, scaled so that a component is about as large as a learned one's."""
        vectors = torch.as_tensor(matrix, dtype=torch.float32)
        with torch.no_grad():
            self.weight[1:] = vectors / (vectors.std() * vectors.shape[1] ** 0.5).clamp_min(1e-8)

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)


class Tokens(nn.Module):
    """Token numbers as vectors: the learned one and, where there is one, the pretrained one beside it.

    In training, rare tokens and a share of all positions are shown as unknown where that was asked for; and a
    share of the vocabulary has zero for its vectors, wherever it stands (``e_w ← m_w e_w``, Gal & Ghahramani
    2016), the others are scaled up.
    """

    def __init__(
        self,
        V: int,
        width: int,
        *,
        rare_dropout: RareTokenDropout | None = None,
        token_dropout: float = 0.0,
        embedding_dropout: float = 0.0,
        pretrained: Pretrained | None = None,
        unknown: int = 1,
    ) -> None:
        super().__init__()
        self.embedding_dropout = embedding_dropout
        self.rare_dropout, self.token_dropout, self.unknown = rare_dropout, token_dropout, unknown
        self.embedding = Embedding(V, width)
        self.pretrained = pretrained
        self.output_size = self.embedding.output_size + (pretrained.output_size if pretrained else 0)

    @classmethod
    def of(
        cls,
        field: TextField,
        width: int,
        *,
        rare_dropout: float,
        token_dropout: float,
        tuned: bool,
        embedding_dropout: float = 0.0,
    ) -> Tokens:
        """Vectors for the tokens of a field; pretrained ones where it has a file of them."""
        V, unknown = len(field.vocabulary), field.vocabulary.id(UNKNOWN)
        return cls(
            V,
            width,
            rare_dropout=RareTokenDropout(rare_dropout, field.counts, unknown) if rare_dropout else None,
            token_dropout=token_dropout,
            embedding_dropout=embedding_dropout,
            pretrained=Pretrained(V, field.vector_width, tuned=tuned) if field.vectors else None,
            unknown=unknown,
        )

    def fill(self, field: TextField) -> None:
        """Give fresh weights the vectors of the field's file."""
        if self.pretrained is not None:
            self.pretrained.fill(field.take_matrix())

    def forward(self, ids: Tensor) -> Tensor:
        """(…, ·) for token numbers of any shape."""
        if self.rare_dropout is not None:
            ids = self.rare_dropout(ids)
        if self.training and self.token_dropout:
            ids = ids.masked_fill(rand(*ids.shape, device=ids.device) < self.token_dropout, self.unknown)
        vectors: Tensor = self.embedding(ids)
        if self.pretrained is not None:
            vectors = torch.cat([vectors, self.pretrained(ids)], -1)
        if self.training and self.embedding_dropout:
            kept = weight_dropout(vectors.new_ones(self.embedding.V), self.embedding_dropout)
            vectors = vectors * kept[ids][..., None]
        return vectors


class WordBatch(NamedTuple):
    """The distinct words of a batch, the unknown one first, and where they stand.

    tokens (U,): numbers in the vocabulary; vectors (U,): rows of the pretrained table; characters (U, C) with
    their lengths (U,); places (B, T): which word stands where; lengths (B,). Lengths stay with the CPU, which
    asks for them, unless it has counted what there is. share: which words of a larger batch these are, where
    its rows are shared.
    """

    tokens: Tensor
    vectors: Tensor
    characters: Tensor
    character_lengths: Tensor
    places: Tensor
    lengths: Tensor
    share: Share | None = None

    def taken(self, rows: Tensor) -> WordBatch:
        """Some of the rows, and the words that stand there."""
        places = self.places[rows.to(self.places.device)]
        used = torch.cat([places.new_zeros(1), places.flatten()]).unique()
        here = used.to(self.character_lengths.device)
        return WordBatch(
            self.tokens[used],
            self.vectors[used],
            self.characters[used],
            self.character_lengths[here],
            torch.searchsorted(used, places),
            self.lengths[rows],
            Share(here, len(self.tokens)),
        )


class Words(nn.Module):
    """A word as its learned vector, its pretrained one, what an RNN reads in its letters, and its affixes.

    They stand side by side, and every distinct word of a batch is composed once, however often it occurs.
    """

    def __init__(
        self,
        V: int,
        width: int,
        *,
        rare_dropout: RareTokenDropout | None = None,
        token_dropout: float = 0.0,
        ngrams: Ngrams | None = None,
        pretrained: Pretrained | None = None,
        characters: int = 0,
        character_width: int = 0,
        cell: str = "lstm",
        cell_options: Mapping[str, Any] | None = None,
        backend: str = "auto",
        dropout: float = 0.0,
        affixes: Affixes | None = None,
        alone: bool = False,
    ) -> None:
        """``alone``: there is no learned vector, nor a one-hot one, beside what else there is of a word."""
        super().__init__()
        self.rare_dropout, self.token_dropout, self.dropout = rare_dropout, token_dropout, dropout
        self.embedding, self.alone = Embedding(V, 0 if alone else width), alone
        self.ngrams = ngrams
        self.pretrained = pretrained
        own = 0 if alone else self.embedding.output_size
        self.output_size = own + (pretrained.output_size if pretrained else 0)
        self.spelling: RNN | None = None
        if character_width:
            self.letters = Embedding(characters, character_width)
            size = character_width
            self.spelling = RNN(
                cell, size, size, bidirectional=True, cell_options=cell_options, backend=backend
            )
            self.output_size += self.spelling.output_size
        self.affixes = affixes
        self.output_size += 0 if affixes is None else affixes.output_size

    def forward(self, words: WordBatch) -> Tensor:
        with among(words.share):
            tokens = words.tokens if self.rare_dropout is None else self.rare_dropout(words.tokens)
            composed = self._composed(tokens, words)
        places = words.places
        if self.training and self.token_dropout:
            hidden = rand(*places.shape, device=places.device) < self.token_dropout
            places = places.masked_fill(hidden, 0)
        vectors = F.embedding(places, composed)  # (B, T, ·)
        if self.ngrams is None:
            return vectors
        added = self.ngrams(tokens[places])  # as wide as the learned vector, which comes first
        return torch.cat([vectors[..., : added.shape[-1]] + added, vectors[..., added.shape[-1] :]], -1)

    def _composed(self, tokens: Tensor, words: WordBatch) -> Tensor:
        """(U, ·) the vector of each distinct word."""
        parts = [] if self.alone else [self.embedding(tokens)]
        if self.pretrained is not None:
            parts.append(self.pretrained(words.vectors))
        if self.spelling is not None:
            letters = dropout(self.letters(words.characters), self.dropout, self.training)
            parts.append(self.spelling(letters, words.character_lengths).last)
        if self.affixes is not None:
            parts.append(self.affixes(words.characters, words.character_lengths))
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]
