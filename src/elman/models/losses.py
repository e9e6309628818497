"""Losses of predicted distributions: always a sum; only the training loop divides."""

from __future__ import annotations

from torch import Tensor, softmax
from torch.nn import functional as F


def output_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    kind: str = "cross-entropy",
    smoothing: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """``Σ l(δ)`` over the rows of logits (N, V) with targets (N,).

    ``cross-entropy``: l = −Σ_v q_v log y_v;  ``squared``: l = ½‖y − q‖², with y = softmax(logits) and q the
    target's one-hot vector, smoothed if asked. ``weights`` (V,) count the classes unequally.
    """
    if kind == "cross-entropy":
        return F.cross_entropy(logits, targets, weights, reduction="sum", label_smoothing=smoothing)
    logits = logits.float() if logits.dtype.itemsize < 4 else logits  # half precision cannot hold the sum
    V = logits.shape[-1]
    q = F.one_hot(targets, V).to(logits.dtype) * (1 - smoothing) + smoothing / V
    losses = (softmax(logits, -1) - q).square().sum(-1) / 2  # (N,)
    return (losses if weights is None else losses * weights[targets]).sum()
