"""The recurrent language model: embedding, recurrence, softmax over the vocabulary (rows L1 and L2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.config import ModelSettings
from elman.models.embedding import Embedding, Hiding, Pretrained
from elman.models.encoder import Encoder


class LanguageModel(nn.Module):
    """``e_t = E x_t``; ``h_t = RNN(e_t, h_{t-1})``; ``softmax(U h_t + b)``, with U = E where tied."""

    def __init__(
        self,
        V: int,
        settings: ModelSettings,
        *,
        tied: bool,
        pretrained: Pretrained | None = None,
        hiding: Hiding | None = None,
        unknown: int = 1,
    ) -> None:
        super().__init__()
        self.V, self.hiding, self.unknown = V, hiding, unknown
        self.token_dropout = settings.token_dropout or 0.0
        self.embedding = Embedding(V, settings.embedding or 0)
        self.pretrained = pretrained
        width = self.embedding.output_size + (pretrained.output_size if pretrained else 0)
        self.encoder = Encoder(width, settings, causal=True)
        H = self.encoder.output_size
        self.tied = tied
        self.bridge = (
            nn.Linear(H, self.embedding.output_size) if tied and self.embedding.output_size != H else None
        )
        self.weight = None if tied else nn.Parameter(torch.randn(V, H) * H**-0.5 * 0.1)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, ids: Tensor, lengths: Tensor | None = None, state: Any = None) -> tuple[Tensor, Any]:
        """Outputs of the recurrence (B, T, ·) for the tokens (B, T), and the state after them."""
        if self.hiding is not None:
            ids = self.hiding(ids)
        if self.training and self.token_dropout:
            ids = ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.token_dropout, self.unknown)
        outputs, _, state = self.encoder(self._vectors(ids), lengths, state)
        return outputs, state

    def logits(self, outputs: Tensor) -> Tensor:
        """``U h + b`` for outputs (…, ·): (…, V)."""
        if self.bridge is not None:
            outputs = self.bridge(outputs)
        weight = self.embedding.weight if self.tied else self.weight
        return F.linear(outputs, weight, self.bias)  # type: ignore[arg-type]

    def step(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Log-probabilities (B, V) of what follows one more token (B,), and the new state."""
        y, state = self.encoder.step(self._vectors(ids), state)
        return self.logits(y).log_softmax(-1), state

    def _vectors(self, ids: Tensor) -> Tensor:
        learned: Tensor = self.embedding(ids)
        if self.pretrained is None:
            return learned
        return torch.cat([learned, self.pretrained(ids)], -1)
