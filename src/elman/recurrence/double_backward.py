"""Gradients that can be differentiated once more: a kernel's backward pass by way of the plain loop."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def differentiate(
    compute: Callable[[list[Tensor | None]], Sequence[Tensor]],
    leaves: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
    wanted: Sequence[bool],
    *,
    create_graph: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of the wanted leaves, where torch sees every operation.

    Args:
        compute: what the kernel computed, from the leaves, in torch.
        gradients: of what ``compute`` returns, in its order; None: nothing arrives there.
        create_graph: whether the result is to be differentiated in turn.
    """
    with torch.enable_grad():
        fresh = [t.view_as(t) if t is not None and w else t for t, w in zip(leaves, wanted, strict=True)]
        results = compute(fresh)
        pairs = [(r, g) for r, g in zip(results, gradients, strict=True) if g is not None and r.requires_grad]
        outputs, arriving = [result for result, _ in pairs], [gradient for _, gradient in pairs]
        inputs = [t for t, w in zip(fresh, wanted, strict=True) if t is not None and w]
        found = torch.autograd.grad(outputs, inputs, arriving, create_graph=create_graph, allow_unused=True)
    each = iter(found)
    return tuple(next(each) if w else None for w in wanted)
