"""The recurrent language model: embedding, recurrence, softmax over the vocabulary (rows L1 and L2)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.config import ModelSettings
from elman.models.adaptive_softmax import AdaptiveSoftmax
from elman.models.embedding import Tokens
from elman.models.encoder import Encoder, check_forward
from elman.models.losses import layer_loss, output_loss


class LanguageModel(nn.Module):
    """``e_t = E x_t``; ``h_t = RNN(e_t, h_{t-1})``; ``softmax(U h_t + b)``, with U = E where tied.

    ``adaptive``: an adaptive softmax in place of the plain one.
    """

    def __init__(
        self, tokens: Tokens, settings: ModelSettings, *, tied: bool, adaptive: bool = False
    ) -> None:
        super().__init__()
        check_forward(settings)
        self.V = V = tokens.embedding.V
        self.tokens = tokens
        self.encoder = Encoder(self.tokens.output_size, settings, causal=True)
        H = self.encoder.output_size
        self.tied = tied
        E = self.tokens.embedding.output_size
        self.adaptive = AdaptiveSoftmax(H, V) if adaptive else None
        self.bridge = nn.Linear(H, E) if tied and E != H else None
        self.weight = None if tied or adaptive else nn.Parameter(torch.randn(V, H) * H**-0.5 * 0.1)
        self.bias = None if adaptive else nn.Parameter(torch.zeros(V))

    def forward(self, ids: Tensor, lengths: Tensor | None = None, state: Any = None) -> tuple[Tensor, Any]:
        """Outputs of the recurrence (B, T, ·) for the tokens (B, T), and the state after them."""
        outputs, _, state = self.encoder(self.tokens(ids), lengths, state)
        return outputs, state

    def activations(
        self, ids: Tensor, lengths: Tensor | None = None, state: Any = None
    ) -> tuple[Tensor, Tensor, Any]:
        """As ``forward``; and before the others the outputs (B, T, ·) as they are without dropout on them."""
        encoder = self.encoder
        raw, _, state = encoder.network(encoder.before(self.tokens(ids)), lengths, state)
        return raw, encoder.after(raw), state

    def logits(self, outputs: Tensor) -> Tensor:
        """``U h + b`` for outputs (…, ·): (…, V); of an adaptive softmax, log-probabilities."""
        return F.linear(*self.layer(outputs)) if self.adaptive is None else self.adaptive(outputs)

    def layer(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the output layer multiplies and adds: h (as wide as U), U and b."""
        weight = self.tokens.embedding.weight if self.tied else self.weight
        assert weight is not None
        assert self.bias is not None
        return outputs if self.bridge is None else self.bridge(outputs), weight, self.bias

    def loss(self, outputs: Tensor, targets: Tensor, *, kind: str, smoothing: float, every: bool) -> Tensor:
        """``Σ l(δ)`` for outputs (N, ·) and targets (N,); ``every``: none of these is ``NO_TARGET``."""
        if self.adaptive is None:
            return layer_loss(*self.layer(outputs), targets, kind=kind, smoothing=smoothing, every=every)
        if kind == "cross-entropy" and not smoothing:
            return self.adaptive.loss(outputs, targets)
        return output_loss(self.adaptive(outputs), targets, kind=kind, smoothing=smoothing)

    def step(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Log-probabilities (B, V) of what follows one more token (B,), and the new state."""
        y, state = self.encoder.step(self.tokens(ids), state)
        return self.logits(y).log_softmax(-1), state


def activity(raw: Tensor, dropped: Tensor, real: Tensor | None, *, ar: float, tar: float) -> Tensor:
    """``Σ_t α mean((m ⊙ h_t)²) + β mean((h_t − h_{t+1})²)`` over real steps t, means over units (AR and TAR).

    ``raw`` and ``dropped`` (B, T, H) are h and m ⊙ h; ``real`` (B, T), where not all steps are
    (Merity et al. 2017).
    """
    sizes = dropped.float().square().mean(-1)  # (B, T)
    changes = (raw[:, 1:] - raw[:, :-1]).float().square().mean(-1)
    if real is not None:
        sizes, changes = sizes * real, changes * real[:, 1:]
    return ar * sizes.sum() + tar * changes.sum()
