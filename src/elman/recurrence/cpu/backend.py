"""The backend of pointwise cells on the CPU: a compiled kernel, and the short way of streams."""

import os
import sys
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from elman.recurrence.backend import KernelBackend, LayerCall, Refusal, run_directions
from elman.recurrence.compiled import make_once
from elman.recurrence.contract import NO_NOISE, Noise, RecurrentCell, State, StreamingCell, Unrolled, Weights
from elman.recurrence.cpu.compile import compiler
from elman.recurrence.cpu.kernel import Kernel
from elman.recurrence.cpu.phased import PhasedKernel, run_walk
from elman.recurrence.cpu.scan import ScanSpec, scan
from elman.recurrence.direction import DirectionTensors
from elman.recurrence.phases import Blocks, blocks_of, expand
from elman.recurrence.symbols import UNITS
from elman.recurrence.trace import Equations, add_zoneout
from elman.recurrence.walk import Walk
from elman.tensors.checks import check_length_values
from elman.tensors.memory import dense, is_dense, still_dense
from elman.tensors.nested import map_tensors
from elman.tensors.rows import RealSteps, real_rows
from elman.tensors.tracing import in_autocast

FEW_ROWS = 4  # up to here a streaming step reads the weights itself; beyond, torch's product is better


class CpuBackend(KernelBackend):
    """The equations as C, compiled at first use."""

    name, devices = "cpu", ("cpu", "meta")

    def available(self) -> bool:
        return _missing() is None

    def obstacle(self, call: LayerCall) -> Refusal | None:
        missing = _missing()
        return None if missing is None else Refusal(missing, mendable=True)

    def run(self, call: LayerCall) -> Unrolled:
        for cell, noise in zip(call.cells[1:], call.noises[1:], strict=True):  # fails before any work is done
            kernel_for(cell, computes_in(call.dtype), noise)
        return run_directions(call, unroll_direction)

    def walks(self, x: Tensor) -> bool:
        kinds = (torch.float32, torch.float64)
        return x.device.type == "cpu" and x.dtype in kinds and not in_autocast(x) and _missing() is None

    def walk(
        self, equations: Equations, blocks: Blocks, walk: Walk, tensors: Mapping[str, Tensor | None]
    ) -> list[Tensor]:
        like = next(tensor for tensor in tensors.values() if tensor is not None)
        kernel = make_once(equations, like.dtype, lambda: PhasedKernel(equations, blocks, like.dtype))
        return run_walk(kernel, walk, {n: t if t is None else dense(t) for n, t in tensors.items()})

    def streaming(self, call: LayerCall) -> StreamingCell | None:
        cell, noise, x = call.cells[0], call.noises[0], call.x
        few = x.shape[0] <= FEW_ROWS and x.dtype in (torch.float32, torch.float64)
        if not few or noise.mask is not None or noise.weight is not None or cell.projects_itself:
            return None
        if cell.equations is None or not cell.equations.pointwise:
            return None
        if cell.heads > 1 or None in noise.rates.values():
            return None
        streaming = StreamingKernel(cell, x.dtype, noise)
        return streaming if streaming.fits else None


def _missing() -> str | None:
    """What this machine lacks to build kernels."""
    if os.name != "posix" or sys.maxsize < 1 << 32:
        return "kernels are built on 64-bit Unix only"
    return "no C compiler found (cc, gcc or clang, or $CC)" if compiler() is None else None


def kernel_for(cell: RecurrentCell, dtype: torch.dtype, noise: Noise = NO_NOISE) -> Kernel | PhasedKernel:
    """The compiled equations of this cell, under this kind of zoneout; compiled at first use."""
    equations = cell.equations
    assert equations is not None
    rates = noise.rates
    key = (dtype, *rates.items()) if rates else dtype
    if equations.pointwise:
        return make_once(equations, key, lambda: Kernel(equations, dtype, rates))
    mask, blocks = noise.mask is not None, blocks_of(equations, equations.products)

    def make() -> PhasedKernel:
        return PhasedKernel(expand(add_zoneout(equations, rates), mask=mask), blocks, dtype)

    return make_once(equations, (mask, key), make)


def computes_in(dtype: torch.dtype) -> torch.dtype:
    """Return the numbers that are computed in: those shorter than float32 become float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def unroll_direction(call: LayerCall, x: Tensor, state: State) -> tuple[Tensor, State]:
    """Unroll one direction by the kernel, as the loop does.

    Numbers shorter than float32 are computed in float32 and come back as they were.
    """
    cell, lengths, noise = call.cells[0], call.lengths, call.noises[0]
    B, T = x.shape[:2]
    if lengths is not None and check_length_values(lengths, T) == T:
        lengths = None
    index = real_rows(lengths, T, lengths.device) if lengths is not None else None
    asked, compute = x.dtype, computes_in(x.dtype)
    kernel, all_states = kernel_for(cell, compute, noise), cell.reads_whole_state
    steps = RealSteps(B, T, index)
    rows, drawn = steps.rows(x), [steps.rows(mask) for mask in noise.drawn(kernel.equations.noise)]
    given = cell.project(rows) if cell.projects_itself or isinstance(kernel, PhasedKernel) else rows
    whole = isinstance(kernel, PhasedKernel)
    flat = [given, *DirectionTensors.gather(cell, call.weights[0], state, noise, drawn, whole=whole)]
    flat = [tensor if tensor is None else dense(tensor.to(compute)) for tensor in flat]
    if isinstance(kernel, PhasedKernel):
        names = kernel.equations.states
        shown = names if all_states else names[:1]
        walk = Walk(steps, {UNITS: cell.hidden_size}, shown, call.reverse, lengths)
        found = run_walk(kernel, walk, _by_name(kernel.equations, flat))
        sequences, final = tuple(found[: len(shown)]), cell.State(*found[len(shown) :])
    else:
        sizes = B, T, cell.hidden_size
        spec = ScanSpec(kernel, cell, *sizes, call.reverse, all_states, lengths, index)
        sequences, final = scan(spec, flat)
    if asked != compute:
        sequences, final = map_tensors(lambda tensor: tensor.to(asked), (sequences, final))
    outputs = cell.O(cell.State(*sequences)) if all_states else sequences[0]
    return steps.padded(outputs), final


def _by_name(equations: Equations, flat: Sequence[Tensor | None]) -> dict[str, Tensor | None]:
    """The input parts and the tensors of a direction by the names that a walk has for them."""
    e, own = equations, DirectionTensors.of(equations, flat[1:])
    named: dict[str, Tensor | None] = {"x": flat[0]} if e.inputs else {}
    for kind, names, tensors in (("n ", e.noise, own.noise), ("v ", e.vectors, own.vectors)):
        named |= {f"{kind}{name}": tensor for name, tensor in zip(names, tensors, strict=True)}
    named |= {"W_h": own.W_h, "k h": own.mask} | dict(zip(e.matrices, own.matrices, strict=True))
    return named | {f"initial {name}": t for name, t in zip(e.states, own.initial, strict=True)}


class StreamingKernel:
    """The streaming step of one cell, for few rows and without gradients: everything is worked out.

    Weights are looked up at every step and may change; if they no longer fit, ``step`` returns None.
    """

    def __init__(self, cell: RecurrentCell, dtype: torch.dtype, noise: Noise) -> None:
        self.cell, self._equations = cell, cell.equations
        kernel = kernel_for(cell, dtype, noise)
        assert isinstance(kernel, Kernel)
        self._kernel = kernel
        self._dtype, self._make, self._whole = dtype, cell.State._make, cell.reads_whole_state
        self._units, self._row = cell.hidden_size, cell.hidden_size * dtype.itemsize  # of a state, in bytes
        self._sizes = [t.nbytes for t in _flat(cell.weights()) if t is not None]
        self._known: list[tuple[Tensor | None, int, int, int]] = []
        self.fits = self._have_their_shapes(cell.weights()) and self._fit(cell.weights())

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State] | None:
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

    def _have_their_shapes(self, weights: Weights) -> bool:
        """Whether the weights are as large as the equations say; where not, the plain way tells which."""
        W_x, b, W_h, vectors = weights
        e, cell = self._kernel.equations, self.cell
        own = DirectionTensors(W_x, b, W_h, None, (), vectors, (), ())
        if W_x is None or (W_h is None) != (not e.products):
            return False
        expected = own.expected(e, 1, (1,), cell.input_size, cell.hidden_size)
        return all(tensor.shape == shape for _, tensor, shape in expected)

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
    """Return a tensor with its address, the bytes of its storage and its own."""
    if tensor is None:
        return None, 0, 0, 0
    return tensor, tensor.data_ptr(), tensor.untyped_storage().nbytes(), tensor.nbytes


def _flat(weights: Weights) -> list[Tensor | None]:
    W_x, b, W_h, vectors = weights
    return [W_x, b, W_h, *vectors]
