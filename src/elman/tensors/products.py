"""Large matrix products through the faster of torch's two CPU libraries, differentiable as ever."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.tensors.tracing import extraordinary, in_autocast

LARGE = 1 << 22  # multiplications from which on oneDNN is the better library
HUGE = 1 << 26  # from which on making its code for another size is nothing beside them
ROWS = 64  # of which factors of the others have a multiple


def multiply(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """``a b + bias`` for (N, K) and (K, M), without a gradient.

    oneDNN takes factors as they lie and is faster than MKL on the large products of recurrent networks, by
    5–15 % on one AMD EPYC (Zen 4) and by a factor of up to 2 on another, from some 4 million multiplications
    on; small ones are better off with MKL.
    """
    large = a.is_cpu and a.shape[0] * b.numel() >= LARGE
    if large and a.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        N = len(a)
        a, b = _rounded(_dense(a), _dense(b))  # of a slice of something larger oneDNN makes a slow loop
        result: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), bias, "none", [], "")
        return result[:N]
    return torch.addmm(bias, a, b) if bias is not None else a @ b


def _dense(matrix: Tensor) -> Tensor:
    """The matrix without gaps, as it lies or transposed."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()


def _rounded(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The factors with zeros behind the rows of a, or of what it is the transpose of: sizes that come again.

    Batches of texts have ever other numbers of rows, and oneDNN makes code for each size, of which it keeps
    some thousand: that took a sixth of the time of a small network's updates.
    """
    rows = a if a.is_contiguous() else a.t()
    more = -len(rows) % ROWS
    if not more or len(a) * b.numel() > HUGE:
        return a, b
    rows = F.pad(rows, (0, 0, 0, more))
    return (rows, b) if a.is_contiguous() else (rows.t(), F.pad(b, (0, 0, 0, more)))


def apply_layer(layer: nn.Linear, x: Tensor) -> Tensor:
    """What a layer makes of x (…, D), as a large product; one that is more than weights does it itself."""
    if type(layer) is not nn.Linear or layer._forward_hooks or layer._forward_pre_hooks:
        given: Tensor = layer(x)
        return given
    rows = affine(x.reshape(-1, x.shape[-1]), layer.weight.t(), layer.bias)
    return rows.view(*x.shape[:-1], rows.shape[-1])


def tf32_products() -> bool:
    """Whether torch may round the factors of float32 products on CUDA to 10 bits (TF32)."""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, W)
        return multiply(x, W, b)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, W = ctx.saved_tensors
        g, wanted = gradients[0], ctx.needs_input_grad
        return (
            affine(g, W.t()) if wanted[0] else None,
            affine(x.t(), g) if wanted[1] else None,
            g.sum(0) if wanted[2] else None,
        )


def affine(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """``x W + b`` for (N, D) and (D, M), differentiable any number of times."""
    if in_autocast(x) or extraordinary(x, W, b) is not None:
        return torch.addmm(b, x, W) if b is not None else x @ W
    result: Tensor = _Affine.apply(x, W, b)  # type: ignore[no-untyped-call]
    return result
