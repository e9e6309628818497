"""Batches padded to shapes that come again, so that an update of a shape can be recorded and replayed."""

from typing import NamedTuple, Protocol, Self, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.models.embedding import WordBatch
from elman.models.losses import NO_TARGET
from elman.tensors.checks import check_length_values
from elman.tensors.draws import Share
from elman.tensors.nested import map_tensors
from elman.tensors.rows import length_mask

N = TypeVar("N")

LEAST = 4  # steps between two sizes


class Counts(NamedTuple):
    """What there is in a batch, padding not counted: losses, examples, and tokens that are read."""

    losses: int
    examples: int
    tokens: int


class BucketedBatch(Protocol):
    """A batch that has a second form, for training on a GPU."""

    @property
    def counts(self) -> Counts | None: ...

    def bucketed(self) -> Self:
        """The batch, which is still with the CPU, padded to a shape that comes again, with its ``counts``.

        Nothing in it is for the host: the task's ``loss`` of it neither waits for the GPU nor gives it
        anything but what it computes, so that an update can be recorded as a CUDA graph.
        """


class SharedBatch(Protocol):
    """A batch whose rows several workers can share."""

    @property
    def size(self) -> int:
        """How many there are."""

    def taken(self, rows: Tensor) -> Self:
        """The batch of these rows (B',) alone, which are with the CPU, padded as it was."""


def taken_rows(batch: N, rows: Tensor) -> N:
    """The same, where all tensors of a batch have a row for each example."""
    return map_tensors(lambda tensor: tensor[rows.to(tensor.device)], batch)


def bucket(size: int) -> int:
    """The size rounded up: eight sizes lie between two powers of two, or fewer where these are small.

    >>> [bucket(size) for size in (1, 17, 20, 65, 200)]
    [4, 20, 20, 72, 208]
    """
    step = max(LEAST, 1 << max(0, (size - 1).bit_length() - 4))
    return -(-size // step) * step


def widened(ids: Tensor, T: int) -> Tensor:
    """Numbers (B, ·) with padding up to T steps."""
    return F.pad(ids, (0, T - ids.shape[1]))


def real_targets(targets: Tensor, lengths: Tensor, T: int) -> Tensor:
    """Targets (B, ·) up to T steps, of which what is padding, or unknown, has no loss."""
    wide = widened(targets, T)
    return wide.where(length_mask(lengths, T) & (wide >= 0), NO_TARGET)


def checked(lengths: Tensor, T: int) -> Tensor:
    """Lengths that are from 1 to T: whoever gets them on a GPU does not look."""
    check_length_values(lengths, T)
    return lengths


def bucketed_words(words: WordBatch) -> WordBatch:
    """The words of a batch, with as many more of the unknown one as make their number a power of two."""
    U, T = len(words.tokens), words.places.shape[1]
    rows = torch.arange(_doubled(U))
    rows = rows.where(rows < U, 0)
    letters = words.characters
    return WordBatch(
        words.tokens[rows],
        words.vectors[rows],
        widened(letters, bucket(letters.shape[1]))[rows],
        words.character_lengths[rows],
        widened(words.places, bucket(T)),
        checked(words.lengths, T),
        None if words.share is None else Share(words.share.rows[rows], _doubled(words.share.of)),
    )


def _doubled(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()
