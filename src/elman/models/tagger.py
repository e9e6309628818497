"""The tagger: words, recurrence, a softmax or a CRF over the tags at every position (row T1)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.config import ModelSettings
from elman.models.crf import CRF
from elman.models.embedding import WordBatch, Words
from elman.models.encoder import Encoder
from elman.models.indicators import ENDING, FACTOR, SHAPE, SPREAD, WORD, Indicators, hashed_sums
from elman.tensors.rows import length_mask
from elman.tensors.transfer import moved

EDGE = 7  # the number of what is beyond a sentence
NEAR = (-2, -1, 1, 2)


class LinearTagger(nn.Module):
    """Scores of tags as a CRF of features has them: a weight for each indicator and tag, summed.

    Indicators of the word itself; of two words before it and after it, which word, its short shape and its
    ending; and both pairs of neighbours.
    """

    share: Tensor  # of its scores in those of a tagger

    MOST_WEIGHTS = 2**22
    MOST_BUCKETS = 2**18
    SCALE = 32.0  # of the weights: their sums go as far as a network's in as many updates

    def __init__(self, letters: Sequence[str], K: int) -> None:
        super().__init__()
        self.indicators = Indicators(letters)
        buckets = min(self.MOST_BUCKETS, 1 << max(8, (self.MOST_WEIGHTS // K).bit_length() - 1))
        self.weight = nn.Parameter(torch.zeros(buckets, K))
        self.bias = nn.Parameter(torch.zeros(K))
        self.register_buffer("share", torch.tensor(0.5))

    def forward(self, words: WordBatch) -> Tensor:
        """(B, T, K)."""
        B, T = words.places.shape
        own = self.indicators(words.characters, words.character_lengths)[words.places]  # (B, T, F)
        real = length_mask(moved(words.lengths, own.device), T)
        shared = torch.stack([own[..., one] for one in (WORD, SHAPE, ENDING)], -1)
        seen = shared.masked_fill(~real[..., None], EDGE)
        around = F.pad(seen, (0, 0, 2, 2), value=EDGE)  # (B, T + 4, 3)
        near = [around[:, 2 + d : 2 + d + T] * SPREAD + d * FACTOR for d in NEAR]
        word = around[..., 0]
        pairs = [word[:, 1 + d : 1 + d + T] * FACTOR + word[:, 2 + d : 2 + d + T] for d in (0, 1)]
        both = (torch.stack(pairs, -1) * FACTOR + torch.arange(2, device=own.device)) * SPREAD
        found = torch.cat([own, *near, both], -1)
        sums = hashed_sums(found.flatten(0, 1), self.weight, dropout=0.0).view(B, T, -1) + self.bias
        return self.SCALE * sums


class Tagger(nn.Module):
    """A transducer: ``softmax(W y_i + b)`` at each position, or a linear-chain CRF over those scores.

    With a shortcut there is a linear tagger beside it. Each learns by itself, since beside one that knows the
    training data the other would have nothing left to learn. Scores are a mean of both, so that
    ``P(tags) ∝ P_network(tags)^(1 - λ) · P_linear(tags)^λ``, with the share λ that suits validation data.
    """

    def __init__(
        self,
        words: Words,
        settings: ModelSettings,
        K: int,
        *,
        crf: bool,
        biased: bool = False,
        shortcut: LinearTagger | None = None,
    ) -> None:
        super().__init__()
        self.words = words
        self.encoder = Encoder(words.output_size, settings, causal=False)
        self.output = nn.Linear(self.encoder.output_size, K)
        self.crf = CRF(K, biased=biased) if crf else None
        self.shortcut = shortcut

    def forward(self, words: WordBatch) -> Tensor:
        """Scores of the tags (B, T, K)."""
        network, *linear = self.experts(words)
        return network + self.shortcut.share * (linear[0] - network) if self.shortcut else network

    def experts(self, words: WordBatch) -> list[Tensor]:
        """Scores (B, T, K) by the network, and by the linear tagger where there is one."""
        return [self._network(words), *([self.shortcut(words)] if self.shortcut else [])]

    def _network(self, words: WordBatch) -> Tensor:
        scores: Tensor = self.output(self.encoder(self.words(words), words.lengths).outputs)
        return scores
