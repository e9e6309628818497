"""The walk of a pointwise cell on the CPU: prepare, run the kernel, read O."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from elman.recurrence.contract import SILENCE, Noise, Walkable
from elman.recurrence.cpu.kernel import Kernel, threads
from elman.recurrence.cpu.scan import Leaves, Shape, scan
from elman.recurrence.trace import Equations, add_zoneout
from elman.tensors.rows import real_rows

FEW_ROWS = 4  # up to here a streaming step reads the weights itself; beyond, torch's product is better
LARGE = 1 << 17  # weights from which on a streaming step is shared between threads

_kernels: WeakKeyDictionary[Equations, dict[Any, Kernel]] = WeakKeyDictionary()


def kernel_for(cell: Walkable, dtype: torch.dtype, noise: Noise = SILENCE) -> Kernel:
    """The compiled equations of this cell, under this kind of zoneout; compiled at first use."""
    equations = cell.equations
    assert equations is not None
    known = _kernels.get(equations)
    if known is None:
        known = _kernels.setdefault(equations, {})
    if not noise.zoneout:
        if dtype not in known:
            known[dtype] = Kernel(equations, dtype, {})
        return known[dtype]
    rates = {n: z if isinstance(z, float) else None for n, z in noise.zoneout.items()}
    key = (dtype, *rates.items())
    if key not in known:
        fixed = {name: rate for name, rate in rates.items() if rate is not None}
        known[key] = Kernel(add_zoneout(equations, rates), dtype, fixed)
    return known[key]


def walk(
    cell: Walkable, x: Tensor, state: Any, lengths: Tensor | None, *, reverse: bool, noise: Noise
) -> tuple[Tensor, Any]:
    """The same as ``loop.walk``, by the kernel.

    Numbers shorter than float32 are computed in float32 and come back as they were.
    """
    B, T = x.shape[:2]
    if lengths is not None and bool((lengths == T).all()):
        lengths = None
    index = real_rows(lengths, T) if lengths is not None else None
    shape = Shape(B, T, cell.hidden_size, reverse, lengths, index)
    asked = x.dtype
    compute = torch.float64 if asked == torch.float64 else torch.float32

    def ready(tensor: Tensor | None) -> Any:
        return tensor if tensor is None else tensor.to(compute).contiguous()

    kernel = kernel_for(cell, compute, noise)
    rows = shape.rows(x)
    own = cell.projects_itself
    leaves = Leaves(
        ready(cell.project(rows) if own else rows),
        None if own else ready(cell.W_x),
        None if own else ready(cell.b),
        ready(noise.weight if noise.weight is not None else cell.W_h),
        ready(noise.mask),
        tuple(ready(shape.rows(noise.zoneout[name])) for name in kernel.equations.noise),  # type: ignore[arg-type]
        tuple(map(ready, cell.vector_values())),
        tuple(map(ready, state)),
    )
    whole = cell.reads_whole_state
    sequences, final = scan(kernel, cell, leaves, shape, whole)
    if asked != compute:
        sequences = tuple(sequence.to(asked) for sequence in sequences)
        final = cell.State(*(field.to(asked) for field in final))
    outputs = cell.O(cell.State(*sequences)) if whole else sequences[0]
    return shape.padded(outputs), final


def stream(cell: Walkable, x: Tensor, state: Any, noise: Noise) -> Any:
    """One step for (B, D) without gradients: the new state.

    For few rows the kernel reads the weights where they lie, once; nothing is prepared or kept.
    """
    B, D = x.shape
    if B > FEW_ROWS or cell.projects_itself or noise.mask is not None or x.dtype.itemsize < 4:
        return walk(cell, x[:, None], state, None, reverse=False, noise=noise)[1]
    kernel = kernel_for(cell, x.dtype, noise)
    W_x, W_h, H = cell.W_x, cell.W_h if noise.weight is None else noise.weight, cell.hidden_size
    if kernel.equations.noise or W_x is None:
        return walk(cell, x[:, None], state, None, reverse=False, noise=noise)[1]
    weights = W_x.numel() + (0 if W_h is None else W_h.numel())
    final = [x.new_empty(B, H) for _ in state]
    kernel.call(
        "stream",
        rows=B,
        units=H,
        features=D,
        threads=threads() if weights >= LARGE else 1,
        weight=W_h,
        vector=cell.vector_values(),
        initial=[field.contiguous() for field in state],
        final=final,
        input=x.contiguous(),
        input_weight=W_x,
        bias=cell.b,
    )
    return cell.State(*final)
