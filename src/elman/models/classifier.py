"""The classifier: an acceptor, read at its end or pooled, then a feed-forward head (rows C1 and C2)."""

from __future__ import annotations

from torch import Tensor, nn

from elman.config import ModelSettings
from elman.models.embedding import WordBatch, Words
from elman.models.encoder import Encoder
from elman.models.pooling import Pooling


class Classifier(nn.Module):
    """``softmax(MLP(pool(y_1 … y_n)))``; ``last`` is ``RNN(x)``, of both directions if there are two."""

    def __init__(self, words: Words, settings: ModelSettings, K: int, *, pooling: str, head: int) -> None:
        super().__init__()
        self.words = words
        self.encoder = Encoder(words.output_size, settings, causal=pooling == "last")  # the end sees all
        self.pooling = Pooling(pooling, self.encoder.output_size)
        width = self.pooling.output_size
        layers = [nn.Linear(width, head), nn.ReLU(), nn.Dropout(settings.dropout or 0.0)] if head else []
        self.head = nn.Sequential(*layers, nn.Linear(head or width, K))

    def forward(self, words: WordBatch) -> Tensor:
        """Scores of the classes (B, K)."""
        scores: Tensor = self.head(
            self.pooling(self.encoder(self.words(words), words.lengths), words.lengths)
        )
        return scores
