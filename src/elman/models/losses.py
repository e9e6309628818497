"""Losses of predicted distributions: always a sum; only the training loop divides."""

from typing import Any

import torch
from torch import Tensor, softmax
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from elman.tensors.products import multiply
from elman.tensors.tracing import extraordinary, in_autocast

LOSSES = ("cross-entropy", "squared")
NO_TARGET = -100  # of a row that has no loss, as torch writes it
ROWS = 256  # whose distributions are in memory at a time
LOGITS = 1 << 28  # that are in memory at a time where rows need not stay in a cache: 1 GiB in float32


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
    target's one-hot vector, smoothed if asked. ``weights`` (V,) count the classes unequally. A row whose
    target is ``NO_TARGET`` has no loss.
    """
    if kind == "cross-entropy":
        return F.cross_entropy(
            logits, targets, weights, reduction="sum", label_smoothing=smoothing, ignore_index=NO_TARGET
        )
    logits = logits.float() if logits.dtype.itemsize < 4 else logits  # half precision cannot hold the sum
    V, real = logits.shape[-1], targets != NO_TARGET
    targets = targets.where(real, 0)
    q = F.one_hot(targets, V).to(logits.dtype) * (1 - smoothing) + smoothing / V
    losses = (softmax(logits, -1) - q).square().sum(-1) / 2  # (N,)
    return (losses if weights is None else losses * weights[targets]).where(real, 0.0).sum()


def label_loss(
    logits: Tensor,
    targets: Tensor,
    *,
    kind: str = "cross-entropy",
    smoothing: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """``Σ l(δ)`` over rows of logits (N, K), each of a label: ``y = σ(logits)``, targets (N, K) 0 or 1.

    ``cross-entropy``: l = −Σ_k q_k log y_k + (1 − q_k) log(1 − y_k);  ``squared``: l = ½‖y − q‖². ``weights``
    (K,) count the labels that are there unequally.
    """
    logits = logits.float() if logits.dtype.itemsize < 4 else logits
    q = targets.to(logits.dtype) * (1 - smoothing) + smoothing / 2
    if kind == "cross-entropy":
        return F.binary_cross_entropy_with_logits(logits, q, pos_weight=weights, reduction="sum")
    losses = (logits.sigmoid() - q).square() / 2
    return (losses if weights is None else losses * torch.where(targets > 0, weights, 1.0)).sum()


def layer_loss(
    readouts: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    *,
    kind: str = "cross-entropy",
    smoothing: float = 0.0,
    every: bool = True,
) -> Tensor:
    """``output_loss`` of the output layer, ``readouts (N, R) weightᵀ + bias``, without keeping logits (N, V).

    On the CPU, rows go through the layer in chunks that stay in the cache, and each chunk gives its loss and
    its gradients at once: two thirds of the time of the layer and its loss one after the other. On a GPU it
    is one product of all rows, unless there are so many that parts of them are computed again backward.
    ``every`` row has a target: none is ``NO_TARGET``.
    """
    given = readouts, weight, bias
    plain = kind == "cross-entropy" and readouts.is_cpu and not in_autocast(readouts) and every
    if not plain or extraordinary(*given) is not None or not torch.is_grad_enabled():

        def loss(rows: Tensor, gold: Tensor) -> Tensor:
            return output_loss(F.linear(rows, weight, bias), gold, kind=kind, smoothing=smoothing)

        size = max(1, LOGITS // len(weight))
        if len(readouts) <= size:
            return loss(readouts, targets)
        parts = zip(readouts.split(size), targets.split(size), strict=True)
        losses = [checkpoint(loss, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
        return torch.stack(losses).sum()
    result: Tensor = _SoftmaxLoss.apply(*given, targets, smoothing)  # type: ignore[no-untyped-call]
    return result


class _SoftmaxLoss(torch.autograd.Function):
    """With p = softmax(x Wᵀ + b) and the target q: dx = (p − q) W, dW = (p − q)ᵀ x, db = Σ (p − q)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor, targets: Tensor, smoothing: float) -> Tensor:
        wanted = any(ctx.needs_input_grad)
        V = len(b)
        total = x.new_zeros(())
        dx, dW, db = torch.empty_like(x), torch.zeros_like(W), torch.zeros_like(b)
        for start in range(0, len(x), ROWS):
            rows, gold = x[start : start + ROWS], targets[start : start + ROWS, None]
            log_p = multiply(rows, W.t(), b).log_softmax(-1)  # (ROWS, V)
            total -= (1 - smoothing) * log_p.gather(1, gold).sum()
            if smoothing:
                total -= smoothing / V * log_p.sum()
            if not wanted:
                continue
            d = log_p.exp_()
            if smoothing:
                d -= smoothing / V
            d.scatter_add_(1, gold, d.new_full(gold.shape, smoothing - 1))
            dx[start : start + ROWS] = multiply(d, W)
            dW.addmm_(d.t(), rows)
            db += d.sum(0)
        ctx.save_for_backward(dx, dW, db)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return *(gradients[0] * part for part in ctx.saved_tensors), None, None
