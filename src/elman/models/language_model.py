"""The recurrent language model: embedding, recurrence, softmax over the vocabulary (rows L1 and L2)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.config import ModelSettings
from elman.models.embedding import Tokens
from elman.models.encoder import Encoder, check_forward


class LanguageModel(nn.Module):
    """``e_t = E x_t``; ``h_t = RNN(e_t, h_{t-1})``; ``softmax(U h_t + b)``, with U = E where tied."""

    def __init__(self, tokens: Tokens, settings: ModelSettings, *, tied: bool) -> None:
        super().__init__()
        check_forward(settings)
        self.V = V = tokens.embedding.V
        self.tokens = tokens
        self.encoder = Encoder(self.tokens.output_size, settings, causal=True)
        H = self.encoder.output_size
        self.tied = tied
        E = self.tokens.embedding.output_size
        self.bridge = nn.Linear(H, E) if tied and E != H else None
        self.weight = None if tied else nn.Parameter(torch.randn(V, H) * H**-0.5 * 0.1)
        self.bias = nn.Parameter(torch.zeros(V))

    def forward(self, ids: Tensor, lengths: Tensor | None = None, state: Any = None) -> tuple[Tensor, Any]:
        """Outputs of the recurrence (B, T, ·) for the tokens (B, T), and the state after them."""
        outputs, _, state = self.encoder(self.tokens(ids), lengths, state)
        return outputs, state

    def logits(self, outputs: Tensor) -> Tensor:
        """``U h + b`` for outputs (…, ·): (…, V)."""
        return F.linear(*self.layer(outputs))

    def layer(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the output layer multiplies and adds: h (as wide as U), U and b."""
        weight = self.tokens.embedding.weight if self.tied else self.weight
        assert weight is not None
        return outputs if self.bridge is None else self.bridge(outputs), weight, self.bias

    def step(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Log-probabilities (B, V) of what follows one more token (B,), and the new state."""
        y, state = self.encoder.step(self.tokens(ids), state)
        return self.logits(y).log_softmax(-1), state
