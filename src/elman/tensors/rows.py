"""Padded batches and their real rows, (B, T, …) and (N, …); rows that belong to the same example."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.tensors.tracing import observed
from elman.tensors.transfer import moved


def length_mask(lengths: Tensor, T: int) -> Tensor:
    """(B, T), True at real positions.

    >>> length_mask(torch.tensor([1, 3]), 3)
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    return torch.arange(T, device=lengths.device) < lengths[:, None]


def real_rows(lengths: Tensor, T: int, device: torch.device) -> Tensor:
    """(N,): where the real positions lie among the B·T positions of a padded batch, row by row.

    They are counted where the lengths are: a GPU that counts is waited for, since N is not known before.
    """
    return moved(length_mask(lengths, T).flatten().nonzero().squeeze(1), device)


def fill_padding(x: Tensor, lengths: Tensor) -> Tensor:
    """Padding replaced by the row's last real step, without a gradient: (B, T, ·).

    What stands in the padding, a NaN say, reaches nothing, and what is computed there is no worse
    than at real steps.
    """
    last = x.detach()[torch.arange(len(x), device=x.device), lengths - 1]
    return x.where(length_mask(lengths, x.shape[1])[..., None], last[:, None])


def zero_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x (B, T, ·) with zeros at padded steps, whatever stood there; without lengths there are none."""
    return x if lengths is None else x.masked_fill(~length_mask(lengths, x.shape[1])[..., None], 0.0)


class _MovedRows(torch.autograd.Function):
    """``spread`` among so many rows, or without a total ``pick``: each is the other's gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, total: int | None) -> Tensor:
        ctx.save_for_backward(index)
        ctx.before, ctx.total = rows.shape[0], total
        if total is None:
            return rows.index_select(0, index)
        return rows.new_zeros(total, *rows.shape[1:]).index_copy_(0, index, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (g,), (index,) = gradients, ctx.saved_tensors
        return spread(g, index, ctx.before) if ctx.total is None else pick(g, index), None, None


def pick(rows: Tensor, index: Tensor) -> Tensor:
    """The rows at ``index``, each at most once: (R, …) → (N, …). Its gradient is ``spread``."""
    if observed() is not None:
        return rows.index_select(0, index)
    result: Tensor = _MovedRows.apply(rows, index, None)  # type: ignore[no-untyped-call]
    return result


def spread(rows: Tensor, index: Tensor, total: int) -> Tensor:
    """Rows put at ``index`` among zeros: (N, …) → (total, …). Its gradient is ``pick``."""
    if observed() is not None:
        return rows.new_zeros(total, *rows.shape[1:]).index_copy(0, index, rows)
    result: Tensor = _MovedRows.apply(rows, index, total)  # type: ignore[no-untyped-call]
    return result


class Groups(NamedTuple):
    """Rows of one example, which stand side by side, as a group: U groups of at most K rows.

    examples: (U,) the examples that have rows, rising.
    first: (U,) the first row of each.
    group, slot: (N,) the group of every row, and its place in there.
    K: rows of the largest group.
    """

    examples: Tensor
    first: Tensor
    group: Tensor
    slot: Tensor
    K: int

    @classmethod
    def of(cls, examples: Tensor) -> "Groups":
        """
        >>> Groups.of(torch.tensor([2, 2, 5])).slot
        tensor([0, 1, 0])
        """
        present, group, counts = torch.unique_consecutive(examples, return_inverse=True, return_counts=True)
        first = counts.cumsum(0) - counts
        slot = torch.arange(len(examples), device=examples.device) - first[group]
        return cls(present, first, group, slot, int(counts.max()))

    def spread(self, values: Tensor) -> Tensor:
        """(N, …) as (U, K, …); −∞ where a group has no such row."""
        U = len(self.examples)
        spread = values.new_full((U, self.K, *values.shape[1:]), -torch.inf)
        spread[self.group, self.slot] = values
        return spread


class RealSteps(NamedTuple):
    """The steps of B rows of up to T steps without padding: N in all, which ``real`` lists if need be."""

    B: int
    T: int
    real: Tensor | None = None

    @property
    def N(self) -> int:
        return self.B * self.T if self.real is None else len(self.real)

    def rows(self, x: Tensor) -> Tensor:
        """Pick the real steps: (B, T, ·) → (N, ·)."""
        flat = x.reshape(self.B * self.T, x.shape[-1])
        return flat if self.real is None else pick(flat, self.real)

    def padded(self, rows: Tensor) -> Tensor:
        """Put the real steps back among zeros: (N, ·) → (B, T, ·)."""
        full = rows if self.real is None else spread(rows, self.real, self.B * self.T)
        return full.view(self.B, self.T, rows.shape[-1])
