"""Padded batches and their real rows: (B, T, …) with lengths, and (N, …) without the padding."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from elman.tensors.tracing import observed


def length_mask(lengths: Tensor, T: int) -> Tensor:
    """(B, T), True at real positions.

    >>> length_mask(torch.tensor([1, 3]), 3)
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    return torch.arange(T, device=lengths.device) < lengths[:, None]


def real_rows(lengths: Tensor, T: int) -> Tensor:
    """(N,): where the real positions lie among the B·T positions of a padded batch, row by row."""
    return length_mask(lengths, T).flatten().nonzero().squeeze(1)


def fill_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """Padding replaced by the row's last real step, without a gradient: (B, T, ·).

    What stands in the padding, a NaN say, reaches nothing, and what is computed there is no worse
    than at real steps.
    """
    last = x.detach()[torch.arange(len(x), device=x.device), lengths - 1]
    return x.where(length_mask(lengths, x.shape[1])[..., None], last[:, None])


class _Pick(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.total = rows.shape[0]
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return spread(gradients[0], ctx.saved_tensors[0], ctx.total), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, index: Tensor, total: int) -> Tensor:
        ctx.save_for_backward(index)
        return rows.new_zeros(total, *rows.shape[1:]).index_copy_(0, index, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return pick(gradients[0], ctx.saved_tensors[0]), None, None


def pick(rows: Tensor, index: Tensor) -> Tensor:
    """The rows at ``index``, each at most once: (R, …) → (N, …). Its gradient is ``spread``."""
    if observed() is not None:
        return rows.index_select(0, index)
    result: Tensor = _Pick.apply(rows, index)  # type: ignore[no-untyped-call]
    return result


def spread(rows: Tensor, index: Tensor, total: int) -> Tensor:
    """Rows put at ``index`` among zeros: (N, …) → (total, …). Its gradient is ``pick``."""
    if observed() is not None:
        return rows.new_zeros(total, *rows.shape[1:]).index_copy(0, index, rows)
    result: Tensor = _Spread.apply(rows, index, total)  # type: ignore[no-untyped-call]
    return result
