"""What torch's sums, maxima and softmax mean in equations: they go over all units of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from elman.errors import EquationError

if TYPE_CHECKING:  # which imports these functions
    from elman.recurrence.symbols import Symbol


def _over_units(name: str, a: Symbol, dim: int | Sequence[int] | None, keepdim: bool | None) -> None:
    """Sums go over all units, and what they give stands beside all units: no other is needed in a step."""
    if dim not in (-1, (-1,), [-1]) or keepdim is False:
        how = "dim=-1" if keepdim is None else "dim=-1 and keepdim=True"
        raise EquationError(f"{name!r} goes over the units of a row, nothing else: write {how}")
    if a.node.boolean:
        raise EquationError(
            f"{name!r} of a comparison: make it a number first, torch.where(x.a > 0, 1.0, 0.0)"
        )
    if not a.node.dim:
        raise EquationError(f"{name!r} of one number for a whole row; it goes over a value that has units")


def sum_over_units(a: Symbol, dim: int | None = None, keepdim: bool = False) -> Symbol:
    _over_units("sum", a, dim, bool(keepdim))
    return a.graph.reduce("sum", a)


def mean_over_units(a: Symbol, dim: int | None = None, keepdim: bool = False) -> Symbol:
    _over_units("mean", a, dim, bool(keepdim))
    return a.graph.reduce("sum", a) / a.graph.size(a.node.dim)


def largest_over_units(a: Symbol, dim: int | None = None, keepdim: bool = False) -> Symbol:
    _over_units("amax", a, dim, bool(keepdim))
    return a.graph.reduce("max", a)


def softmax_over_units(
    a: Symbol, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None
) -> Symbol:
    """``_stacklevel`` is what ``F.softmax`` hands on; it means nothing here."""
    _over_units("softmax", a, dim, None)
    if dtype is not None:
        raise EquationError("'softmax' cannot change the kind of numbers; leave out dtype")
    powers = (a - a.graph.reduce("top", a)).exp()
    return powers / a.graph.reduce("sum", powers)
