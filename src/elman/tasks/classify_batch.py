"""A batch of classification."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from elman.models.embedding import WordBatch
from elman.tasks.buckets import Counts, bucketed_words


class ClassifyBatch(NamedTuple):
    """Words, and the label (B,) of each text, or those that it has (B, K); and those that training never saw.

    An unseen one is −1 among (B,), and none of (B, K). Labels that count unequally have weights (K,), and
    a shift (K,) where they are more or less frequent than in what is learned from.
    """

    words: WordBatch
    labels: Tensor
    unseen: Sequence[Sequence[str]] = ()
    weights: Tensor | None = None
    counts: Counts | None = None
    shift: Tensor | None = None

    def counted(self) -> Counts:
        return Counts(len(self.labels), len(self.labels), int(self.words.lengths.sum()))

    @property
    def size(self) -> int:
        return len(self.labels)

    def taken(self, rows: Tensor) -> "ClassifyBatch":
        unseen = [self.unseen[i] for i in rows.tolist()] if self.unseen else ()
        labels = self.labels[rows.to(self.labels.device)]
        return self._replace(words=self.words.taken(rows), labels=labels, unseen=unseen)

    def bucketed(self) -> "ClassifyBatch":
        return self._replace(words=bucketed_words(self.words), unseen=(), counts=self.counted())
