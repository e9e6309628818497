"""The tagger: words, recurrence, a softmax or a CRF over the tags at every position (row T1)."""

from torch import Tensor, nn

from elman.config import ModelSettings
from elman.models.crf import CRF
from elman.models.embedding import WordBatch, Words
from elman.models.encoder import Encoder


class Tagger(nn.Module):
    """A transducer: ``softmax(W y_i + b)`` at each position, or a linear-chain CRF over those scores."""

    def __init__(self, words: Words, settings: ModelSettings, K: int, *, crf: bool) -> None:
        super().__init__()
        self.words = words
        self.encoder = Encoder(words.output_size, settings, causal=False)
        self.output = nn.Linear(self.encoder.output_size, K)
        self.crf = CRF(K) if crf else None

    def forward(self, words: WordBatch) -> Tensor:
        """Scores of the tags (B, T, K)."""
        scores: Tensor = self.output(self.encoder(self.words(words), words.lengths).outputs)
        return scores
