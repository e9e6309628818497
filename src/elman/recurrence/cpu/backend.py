"""The walk of a pointwise cell on the CPU: prepare, run the kernel, read O."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elman.recurrence.compiled import make_once
from elman.recurrence.contract import SILENCE, Noise, Walkable
from elman.recurrence.cpu.kernel import Kernel, Weights
from elman.recurrence.cpu.scan import Leaves, Shape, scan
from elman.tensors.checks import check_length_values
from elman.tensors.memory import dense, is_dense, still_dense
from elman.tensors.rows import real_rows

FEW_ROWS = 4  # up to here a streaming step reads the weights itself; beyond, torch's product is better


def kernel_for(cell: Walkable, dtype: torch.dtype, noise: Noise = SILENCE) -> Kernel:
    """The compiled equations of this cell, under this kind of zoneout; compiled at first use."""
    equations = cell.equations
    assert equations is not None
    rates = {n: z if isinstance(z, float) else None for n, z in noise.zoneout.items()}
    key = (dtype, *rates.items()) if rates else dtype
    kernel: Kernel = make_once(equations, key, lambda: Kernel(equations, dtype, rates))
    return kernel


def computes_in(dtype: torch.dtype) -> torch.dtype:
    """Numbers shorter than float32 are computed in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def walk(
    cell: Walkable,
    weights: Weights,
    x: Tensor,
    state: Any,
    lengths: Tensor | None,
    *,
    reverse: bool,
    noise: Noise,
) -> tuple[Tensor, Any]:
    """The same as ``loop.walk``, by the kernel; ``weights`` are those of the cell.

    Numbers shorter than float32 are computed in float32 and come back as they were.
    """
    B, T = x.shape[:2]
    if lengths is not None and check_length_values(lengths, T) == T:
        lengths = None
    index = real_rows(lengths, T, lengths.device) if lengths is not None else None
    shape = Shape(B, T, cell.hidden_size, reverse, lengths, index)
    asked = x.dtype
    compute = computes_in(asked)

    def ready(tensor: Tensor | None) -> Any:
        return tensor if tensor is None else dense(tensor.to(compute))

    kernel = kernel_for(cell, compute, noise)
    rows = shape.rows(x)
    own = cell.projects_itself
    W_x, b, W_h, vectors = weights
    leaves = Leaves(
        ready(cell.project(rows) if own else rows),
        None if own else ready(W_x),
        None if own else ready(b),
        ready(noise.weight if noise.weight is not None else W_h),
        ready(noise.mask),
        tuple(ready(shape.rows(noise.zoneout[name])) for name in kernel.equations.noise),  # type: ignore[arg-type]
        tuple(map(ready, vectors)),
        tuple(map(ready, state)),
    )
    whole = cell.reads_whole_state
    sequences, final = scan(kernel, cell, leaves, shape, whole)
    if asked != compute:
        sequences = tuple(sequence.to(asked) for sequence in sequences)
        final = cell.State(*(field.to(asked) for field in final))
    outputs = cell.O(cell.State(*sequences)) if whole else sequences[0]
    return shape.padded(outputs), final


class Stream:
    """The streaming step of one cell, for few rows and without gradients: everything is worked out.

    Weights are looked up at every step and may change; if they no longer fit, ``step`` returns None.
    """

    def __init__(self, cell: Walkable, dtype: torch.dtype, noise: Noise) -> None:
        self.cell, self._equations = cell, cell.equations
        self._kernel = kernel_for(cell, dtype, noise)
        self._dtype, self._make, self._whole = dtype, cell.State._make, cell.reads_whole_state
        self._units, self._row = cell.hidden_size, cell.hidden_size * dtype.itemsize  # of a state, in bytes
        self._sizes = [t.nbytes for t in _flat(cell.weights()) if t is not None]
        self._known: list[tuple[Tensor | None, int, int, int]] = []
        self.fits = self._fit(cell.weights())

    @staticmethod
    def serves(cell: Walkable, x: Tensor, noise: Noise) -> bool:
        few = x.shape[0] <= FEW_ROWS and x.dtype in (torch.float32, torch.float64)
        return few and noise.mask is None and noise.weight is None and not cell.projects_itself

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any] | None:
        """Output and new state for contiguous x (B, D) and state; others may have changed it since."""
        cell, dtype, weights = self.cell, self._dtype, self.cell.weights()
        if cell.equations is not self._equations or cell.has_hooks or not self._fit(weights):
            return None
        if not still_dense(x, x.nbytes, dtype):
            return None
        rows = (x.size(0), self._units)
        size = rows[0] * self._row
        for field in state:
            if not still_dense(field, size, dtype) or field.shape != rows:
                return None
        new = self._make(self._kernel.stream(x, weights, state))
        return self.cell.O(new) if self._whole else new[0], new

    def _fit(self, weights: Weights) -> bool:
        """Whether the kernel can read these weights: as large as at the beginning, and in their memory.

        Those of the step before are looked at again for what can be changed in their place.
        """
        flat, dtype = _flat(weights), self._dtype
        if len(flat) != len(self._known):
            return self._look(flat)
        for tensor, (known, address, room, size) in zip(flat, self._known, strict=True):
            if tensor is not known:
                return self._look(flat)
            if tensor is not None:
                if tensor.data_ptr() != address or tensor.untyped_storage().nbytes() != room:
                    return self._look(flat)
                if tensor.nbytes != size or tensor.dtype is not dtype:
                    return False
                if not tensor.is_contiguous() or tensor.is_neg():
                    return False
        return True

    def _look(self, flat: list[Tensor | None]) -> bool:
        present = [tensor for tensor in flat if tensor is not None]
        fit = [t.nbytes for t in present if is_dense(t) and t.dtype is self._dtype] == self._sizes
        self._known = [_about(tensor) for tensor in flat] if fit else []
        return fit


def _about(tensor: Tensor | None) -> tuple[Tensor | None, int, int, int]:
    """A tensor, its address, the bytes of its storage and its own."""
    if tensor is None:
        return None, 0, 0, 0
    return tensor, tensor.data_ptr(), tensor.untyped_storage().nbytes(), tensor.nbytes


def _flat(weights: Weights) -> list[Tensor | None]:
    W_x, b, W_h, vectors = weights
    return [W_x, b, W_h, *vectors]
