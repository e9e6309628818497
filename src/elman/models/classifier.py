"""The classifier: an acceptor, read at its end or pooled, then a feed-forward head (rows C1 and C2)."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from elman.config import ModelSettings
from elman.models.embedding import WordBatch, Words
from elman.models.encoder import Dropout, Encoder
from elman.models.poolings.base import Pooling
from elman.models.shortcut import LinearShortcut
from elman.registry import POOLINGS, construct


class Classifier(nn.Module):
    """``softmax(MLP(pool(y_1 … y_n)))``; ``last`` is ``RNN(x)``, of both directions if there are two."""

    def __init__(
        self,
        words: Words,
        settings: ModelSettings,
        K: int,
        *,
        pooling: str,
        pooling_options: Mapping[str, Any] | None = None,
        head: int = 0,
        shortcut: bool = False,
    ) -> None:
        """
        Args:
            head: width of a hidden layer before the softmax; 0: none.
            shortcut: beside the network there is a linear model, which is fitted and weighed by itself.
        """
        super().__init__()
        self.words = words
        self.shortcut = LinearShortcut(K) if shortcut else None
        self.encoder = Encoder(words.output_size, settings, causal=pooling == "last")  # the end sees all
        kind, width = POOLINGS.find(pooling), self.encoder.output_size
        named = "model.pooling_options"
        self.pooling: Pooling = construct(kind, width, options=pooling_options, named=named)
        width = self.pooling.output_size
        layers = (
            [nn.Linear(width, head), nn.ReLU(), Dropout(settings.dropout or 0.0, locked=False)]
            if head
            else []
        )
        self.head = nn.Sequential(*layers, nn.Linear(head or width, K))

    def forward(self, words: WordBatch) -> Tensor:
        """Scores of the classes (B, K), by the network alone."""
        unrolled = self.encoder(self.words(words), words.lengths)
        scores: Tensor = self.head(self.pooling(unrolled, words.lengths))
        return scores
