"""Gradients that can be differentiated once more: a kernel's backward pass by way of the plain loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def differentiate(
    walk: Callable[[list[Tensor | None]], Sequence[Tensor]],
    leaves: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
    wanted: Sequence[bool],
    *,
    again: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of the wanted leaves, where torch sees every operation.

    Args:
        walk: computes what the kernel computed, from the leaves, in torch.
        gradients: of what ``walk`` returns, in its order; None: nothing arrives there.
        again: whether the result is to be differentiated in turn.
    """
    with torch.enable_grad():
        fresh = [t.view_as(t) if t is not None and w else t for t, w in zip(leaves, wanted, strict=True)]
        results = walk(fresh)
        pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and r.requires_grad]
        found = iter(
            torch.autograd.grad(
                [result for result, _ in pairs],
                [t for t, w in zip(fresh, wanted, strict=True) if t is not None and w],
                [gradient for _, gradient in pairs],
                create_graph=again,
                allow_unused=True,
            )
        )
    return tuple(next(found) if w else None for w in wanted)
