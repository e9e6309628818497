"""The tensors that the kernels of a sequence read and write, laid out as they expect them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elman.recurrence.direction import DirectionTensors
from elman.recurrence.heads import whole_matrix
from elman.recurrence.triton.emit.writer import Variant
from elman.recurrence.triton.spec import ScanSpec
from elman.tensors.rows import zero_padding


def saved_values(spec: ScanSpec, like: Tensor) -> dict[str, Tensor]:
    counts = {name: len(getattr(spec.step, name)) for name in ("kept", "short", "long")}
    types = {"short": spec.numbers}
    return {
        name: like.new_empty(spec.B, spec.T, spec.D, count, spec.H, dtype=types.get(name, torch.float32))
        for name, count in counts.items()
        if count
    }


def input_parts(spec: ScanSpec, x: Tensor, directions: list[DirectionTensors]) -> dict[str, Tensor]:
    """Compute the input parts of all steps and directions in one product; its factors come along."""
    if not spec.step.equations.inputs:
        return {}
    x = zero_padding(x, spec.lengths).to(spec.numbers)  # a NaN there must reach no gradient
    if directions[0].W_x is None:
        return {"parts": x.contiguous()}
    rows = x.reshape(-1, x.shape[-1])
    W = _joined([direction.W_x for direction in directions], spec.numbers)
    biases = [direction.b for direction in directions]
    parts = rows @ W if biases[0] is None else torch.addmm(_joined(biases, spec.numbers), rows, W)
    return {"parts": parts, "rows": rows, "W_x": W}


def _joined(tensors: Sequence[Tensor | None], numbers: torch.dtype) -> Tensor:
    present = [t.to(numbers) for t in tensors if t is not None]
    return present[0] if len(present) == 1 else torch.cat(present, -1)


def other_tensors(spec: ScanSpec, like: Tensor, directions: list[DirectionTensors]) -> dict[str, Tensor]:
    """Collect what the kernels read besides parts and weights, one direction after the other."""
    e, first = spec.step.equations, directions[0]
    if not first.initial:
        found = {"initial": like.new_zeros(spec.D, len(e.states), spec.B, spec.H, dtype=torch.float32)}
    else:
        found = {"initial": _stacked([direction.initial for direction in directions])}
    if spec.lengths is not None:
        found["lengths"] = spec.lengths.contiguous()
    if first.mask is not None:
        found["mask"] = torch.stack([d.mask for d in directions if d.mask is not None]).to(torch.float32)
    if e.vectors:
        found["vectors"] = _stacked([direction.vectors for direction in directions])
    if e.noise:
        drawn = [noise for direction in directions for noise in direction.noise]
        found["noise"] = torch.stack(drawn, 2).to(torch.uint8)
    return found


def _stacked(groups: Sequence[Sequence[Tensor]]) -> Tensor:
    """Stack the tensors of all directions as (D, states, …), in float32."""
    tensors = [tensor for group in groups for tensor in group]
    stacked = torch.stack(tensors) if len(tensors) > 1 else tensors[0].contiguous()
    return stacked.view(len(groups), len(groups[0]), *tensors[0].shape).to(torch.float32)


def awaited(spec: ScanSpec, width: int, like: Tensor) -> Tensor:
    """Return (B, T, D, width) with all bits set, which says that nothing has arrived."""
    bits = torch.int16 if spec.numbers.itemsize == 2 else torch.int32
    return like.new_full((spec.B, spec.T, spec.D, width), -1, dtype=bits).view(spec.numbers)


def packed_weights(
    spec: ScanSpec, variant: Variant, weights: Sequence[Tensor | None], *, turned: bool = False
) -> Tensor:
    """Lay the weights out as (D, heads, programs, columns, depth), the gates of a unit side by side.

    ``turned``: the weights of the only gate by the unit whose state they multiply, for the backward pass.
    The form of steps multiplies the weights as they are: (D, H, gates · H).
    """
    G, columns, k, d = len(spec.step.equations.products), spec.pointwise.columns, spec.heads, variant.width
    present = [weight for weight in weights if weight is not None]
    if spec.tiling.form == "steps":
        return torch.stack([whole_matrix(weight, G).to(spec.numbers) for weight in present])
    shape = (k, variant.programs * variant.units, columns, variant.depth)
    blocks = [weight.view(k, d, G, d) for weight in present]
    blocks = blocks if turned else [block.permute(0, 3, 2, 1) for block in blocks]
    if shape == (k, d, G, d) and spec.D == 1:
        if present[0].dtype == spec.numbers:
            return blocks[0].contiguous()
        return present[0].new_empty(shape, dtype=spec.numbers).copy_(blocks[0])  # converted on the way
    packed = present[0].new_zeros(spec.D, *shape, dtype=spec.numbers)
    for place, block in zip(packed, blocks, strict=True):
        place[:, :d, :G, :d] = block
    return packed


def weight_gradient(a: Tensor, b: Tensor, like: Tensor | None) -> Tensor:
    """``a b`` in the numbers of the weights whose gradient it is: nothing is rounded in between."""
    if like is not None and like.dtype == torch.float32 and a.dtype != torch.float32 and a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a @ b
