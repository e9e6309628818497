"""What a walk leaves to large products after it: the gradients of matrices and memories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from elman.recurrence.phases import Blocks, StepPrograms
from elman.recurrence.trace import Arrivals
from elman.recurrence.walk import Walk


def arrivals_of_walk(programs: StepPrograms, walk: Walk, gradients: Sequence[Tensor | None]) -> Arrivals:
    """Which states get a gradient from outside: at every step, and at a row's last step."""
    states, count = programs.equations.states, len(walk.shown)
    always = dict(zip(walk.shown, gradients[:count], strict=True))
    last = dict(zip(states, gradients[count:], strict=True))
    return Arrivals(*(tuple(found.get(name) is not None for name in states) for found in (always, last)))


def matrix_gradients(
    programs: StepPrograms,
    blocks: Blocks,
    walk: Walk,
    tensors: Mapping[str, Tensor | None],
    multiply: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> dict[str, Tensor]:
    """Of all matrices: what was multiplied (``operand I``) times the gradients of what came out (``d I``)."""
    found: dict[str, list[Tensor | None]] = {}
    for i, (m, _) in enumerate(programs.taught):
        operand, gradient = tensors.get(f"operand {i}"), tensors.get(f"d {i}")
        if operand is None or gradient is None:
            continue
        made = multiply(operand.t(), gradient)
        columns = made.split([walk.dims[result.dim] for result in m.results], 1)
        for names, column in zip(m.blocks, columns, strict=True):
            parts = column.split([walk.dims[a.dim] for a in m.operands])
            for name, part in zip(names, parts, strict=True):
                tensor, place, count = blocks[name]
                own = found.setdefault(tensor, [None] * count)
                known = own[place]
                own[place] = part if known is None else known + part
    return {name: _side_by_side(parts) for name, parts in found.items()}


def _side_by_side(parts: Sequence[Tensor | None]) -> Tensor:
    """The parts of a tensor as one; one that nothing was multiplied by has no gradient."""
    like = next(part for part in parts if part is not None)
    if len(parts) == 1:
        return like
    return torch.cat([torch.zeros_like(like) if part is None else part for part in parts], 1)


def memory_gradients(
    programs: StepPrograms,
    tensors: Mapping[str, Tensor],
    found: Mapping[str, Tensor],
    padded: Callable[[Tensor], Tensor],
    multiply: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> dict[str, Tensor]:
    """Of all memories; a row's is the sum over its steps. ``padded`` makes (B, T, ·) of a sequence.

    Those of scores were added up in the walk: ``d_memory NAME``.
    """
    sums = {name.removeprefix("d_memory "): t for name, t in found.items() if name.startswith("d_memory ")}
    for i, product in enumerate(programs.memories):
        weights = found[f"sequence {product.state}" if product.state else f"weights {i}"]
        units = found["dx" if product.units == programs.gradients.inputs else f"units {i}"]
        made = multiply(padded(weights).mT, padded(units))
        like = tensors[product.tensor]
        if made.shape == like.shape:
            sums[product.tensor] = made if product.tensor not in sums else sums[product.tensor] + made
            continue
        if product.tensor not in sums:
            sums[product.tensor] = made.new_zeros(like.shape)
        wide = made.shape[-1] // len(product.parts)
        for j, part in enumerate(product.parts):
            sums[product.tensor][..., part * wide : (part + 1) * wide] += made[..., j * wide : (j + 1) * wide]
    return sums
