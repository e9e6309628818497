"""Steps of several phases on the CPU: the compiled programs, and a walk as one differentiable operation."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from elman.recurrence.cpu.compile import library
from elman.recurrence.cpu.emit import panel_product
from elman.recurrence.cpu.emit_phases import dim_of, emit_phases, input_dim
from elman.recurrence.cpu.kernel import pool, source_text, threads
from elman.recurrence.cpu.layout import Layout
from elman.recurrence.double_backward import differentiate
from elman.recurrence.learned import arrivals_of_walk, matrix_gradients, memory_gradients
from elman.recurrence.looks import POSITIONS
from elman.recurrence.phases import Blocks, step_programs
from elman.recurrence.trace import Equations, nodes_of, presence
from elman.recurrence.walk import Walk, walk_by_torch
from elman.tensors.memory import check_memory, dense, new_memory
from elman.tensors.products import multiply
from elman.tensors.scratch import Scratch
from elman.tensors.tracing import observed, own_precision

SMALL = 1 << 17  # multiplications below which a second thread costs more than it gives
SPLIT = 1 << 17  # weights of an average product from which on threads share it, and meet twice
HEADER = (
    "rows",
    "steps",
    "reverse",
    "threads",
    "training",
    "stride",
    "sum_stride",
    "split",
    "arrived",
    "phase",
)
POINTERS = ("row", "offset", "length", "positions")
ALIGNED = 64  # bytes of the longest vectors


class PhasedKernel:
    """The compiled forward and backward step of expanded equations."""

    def __init__(self, equations: Equations, blocks: Blocks, dtype: torch.dtype) -> None:
        self.equations, self.dtype = equations, dtype
        self.programs = step_programs(equations, blocks)
        nodes = nodes_of(equations)
        below = [node.result for node in equations.scores.values()]
        dims = dict.fromkeys(node.dim for node in (*nodes, *below) if node.dim)
        self.layout = Layout(list(dims), blocks)
        step = emit_phases(self.programs, self.layout)
        self._library = library(_assembled(step, self.layout, dtype))
        self.lanes: int = self._library.lanes()
        e = equations
        self.vector_dims = {name: dim_of(self.programs, "v", name) for name in e.vectors}
        self.state_dims = {
            name: node.dim or dim_of(self.programs, "s", name)
            for name, node in zip(e.states, e.results, strict=True)
        }
        self.input_dim = input_dim(self.programs)
        self._given = [(node.op, node.name, node.dim) for node in nodes if node.op in ("n", "k")]
        products = [node for node in nodes if node.op == "product"]
        pairs = [(a, b, n) for n in products for a, b in zip(n.args, n.name.split(), strict=True)]
        looks = [
            (n.name, n.args[0].dim if n.op == "fit" else n.dim) for n in nodes if n.op in ("fit", "context")
        ]
        looks += [(score.memory, score.result.dim) for score in e.scores.values()]
        self._memories = {blocks[name][0]: (blocks[name][2], dim) for name, dim in looks}
        self._matrices = {blocks[b][0]: (a.dim, blocks[b][2], n.dim) for a, b, n in pairs}

    def shapes(self, walk: Walk) -> list[tuple[str, tuple[int, ...]]]:
        """The tensors that the kernel reads, with the shapes that it expects."""
        e, dims, B, N = self.equations, walk.dims, walk.steps.B, walk.steps.N
        found: list[tuple[str, tuple[int, ...]]] = []
        if e.inputs:
            found.append(("x", (N, len(e.inputs) * dims[self.input_dim])))
        found += [(f"v {name}", (dims[dim],)) for name, dim in self.vector_dims.items()]
        found += [(f"{op} {name}", (N if op == "n" else B, dims[dim])) for op, name, dim in self._given]
        found += [(f"initial {name}", (B, dims[dim])) for name, dim in self.state_dims.items()]
        found += [(name, (dims[a], count * dims[b])) for name, (a, count, b) in self._matrices.items()]
        sizes = ((name, count * dims[dim]) for name, (count, dim) in self._memories.items())
        return found + [(name, (B, dims[POSITIONS], size)) for name, size in sizes]

    def kept_shapes(self, walk: Walk) -> dict[str, tuple[int, int]]:
        """What the forward pass leaves to the backward pass."""
        dims, N = walk.dims, walk.steps.N
        found = {f"sequence {name}": (N, dims[dim]) for name, dim in self.state_dims.items()}
        saved = self.programs.gradients.saved
        found["saved"] = (N, sum(dims[node.dim] if node.dim else 1 for node in saved))
        for i, m in enumerate(self.programs.multiplications):
            found[f"operand {i}"] = (N, sum(dims[a.dim] for a in m.operands))
        return found

    def call(
        self, entry: str, walk: Walk, numbers: Mapping[str, int], tensors: Mapping[str, Tensor | None]
    ) -> None:
        """Run one entry on tensors by name; those that are not given are absent."""
        words = array("q", [numbers.get(name, 0) for name in HEADER])
        words.extend(walk.dims[dim] for dim in self.layout.dims)
        words.extend(_address(tensors.get(name)) for name in (*POINTERS, *self.layout.tensors))
        words.extend([0, 0, 0, 0])
        address = words.buffer_info()[0]
        row, panels = (_ask(self._library, name, address) for name in ("row_size", f"{entry}_panels"))
        function = getattr(self._library, entry)
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p), None
        words[HEADER.index("stride")] = row
        with Scratch(self.dtype) as scratch:
            work = scratch.empty(numbers["rows"] * row + self.lanes)
            packed = scratch.empty(panels + self.lanes)
            words[-4:] = array("q", [0, aligned(work), aligned(packed), _address(tensors.get("sums"))])
            function(address, pool())


def _assembled(step: str, layout: Layout, dtype: torch.dtype) -> str:
    """The source of a kernel around the generated step."""
    task = [
        f"typedef struct {{ long {', '.join(HEADER)}, dim[{len(layout.dims)}];",
        f"  const long *{', *'.join(POINTERS)};",
        f"  REAL *tensor[{len(layout.tensors) + 1}], *work, *packed, *sums; }} Task;",
    ]
    head = [f"#define DOUBLE {int(dtype == torch.float64)}", source_text("mathematics.c")]
    around = [source_text("rows.c"), *panel_product("panel_product", 4), source_text("phases.c")]
    return "\n".join([*head, *task, *around, step])


def _ask(loaded: ctypes.CDLL, name: str, address: int) -> int:
    function = getattr(loaded, name)
    function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_long
    found: int = function(address)
    return found


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def aligned(tensor: Tensor) -> int:
    """The first address in it at which a vector may begin; there is room for one more at its end."""
    return -(-tensor.data_ptr() // ALIGNED) * ALIGNED


def run_walk(kernel: PhasedKernel, walk: Walk, tensors: Mapping[str, Tensor | None]) -> list[Tensor]:
    """The shown sequences (N, ·) and the final states (B, ·)."""
    names, flat = tuple(tensors), tuple(tensors.values())
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in flat):
        return list(_Phased.apply(walk, kernel, names, *flat))  # type: ignore[no-untyped-call]
    return _forward(kernel, walk, tensors, training=False)[0]


class _Phased(torch.autograd.Function):
    """Forward and backward through time by the kernel; a second derivative goes through torch."""

    @staticmethod
    def forward(
        ctx: Any, walk: Walk, kernel: PhasedKernel, names: tuple[str, ...], *flat: Tensor | None
    ) -> tuple[Tensor, ...]:
        results, kept = _forward(kernel, walk, dict(zip(names, flat, strict=True)), training=True)
        ctx.about, ctx.kept = (walk, kernel, names), tuple(kept)
        ctx.save_for_backward(*flat, *kept.values())
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        (walk, kernel, names), saved, wanted = ctx.about, ctx.saved_tensors, ctx.needs_input_grad[3:]
        flat, kept = saved[: len(names)], dict(zip(ctx.kept, saved[len(names) :], strict=True))
        e, create = kernel.equations, torch.is_grad_enabled()
        arrivals = arrivals_of_walk(kernel.programs, walk, gradients)
        with own_precision(next(t for t in flat if t is not None)):
            if create or observed(*gradients) is not None or presence(e, arrivals) is not None:
                compute = partial(_by_torch, kernel, walk, names)
                return None, None, None, *differentiate(compute, flat, gradients, wanted, create_graph=create)
            tensors = dict(zip(names, flat, strict=True))
            with Scratch(kernel.dtype) as scratch:
                found = _backward(kernel, walk, scratch, tensors, kept, gradients)
        return None, None, None, *(found.get(n) if w else None for n, w in zip(names, wanted, strict=True))


def _by_torch(
    kernel: PhasedKernel, walk: Walk, names: Sequence[str], flat: list[Tensor | None]
) -> list[Tensor]:
    tensors = dict(zip(names, flat, strict=True))
    return walk_by_torch(kernel.equations, kernel.layout.blocks, walk, tensors)


def _sizes(kernel: PhasedKernel, walk: Walk, tensors: Mapping[str, Tensor | None]) -> None:
    """The kernel goes by address: what is not laid out as it expects must not reach it."""
    for name, shape in kernel.shapes(walk):
        check_memory(name, tensors.get(name), shape, kernel.dtype)


def _rows(walk: Walk, sizes: Sequence[int]) -> tuple[dict[str, int], dict[str, Tensor | None]]:
    """How threads share the rows, and in which order these are visited: longest first.

    ``sizes`` are the weights of the products of a step.
    """
    B, count = walk.steps.B, threads() if walk.steps.N * sum(sizes) > SMALL else 1
    split = count > 1 and 3 * count > B and sum(sizes) >= SPLIT * len(sizes)
    count = count if split else min(B, count)
    numbers = {"rows": B, "steps": walk.steps.T, "reverse": int(walk.reverse), "threads": count}
    numbers["split"] = int(split)
    if walk.lengths is None:
        return numbers, {"positions": walk.positions}
    order = walk.lengths.argsort(descending=True, stable=True)
    if not split:
        order = torch.cat([order[part::count] for part in range(count)])
    offsets = walk.lengths.cumsum(0) - walk.lengths
    found = {"row": order, "offset": offsets[order], "length": walk.lengths[order]}
    return numbers, found | {"positions": walk.positions}


def _sizes_of_products(kernel: PhasedKernel, walk: Walk) -> list[int]:
    dims, products = walk.dims, kernel.programs.multiplications
    return [sum(dims[a.dim] for a in m.operands) * sum(dims[r.dim] for r in m.results) for m in products]


def _forward(
    kernel: PhasedKernel, walk: Walk, tensors: Mapping[str, Tensor | None], *, training: bool
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Run the kernel forward: what it returns, and what the backward pass reads."""
    _sizes(kernel, walk, tensors)
    dims, B, states = walk.dims, walk.steps.B, kernel.state_dims
    like = torch.empty(0, dtype=kernel.dtype)
    kept = {}
    shapes = kernel.kept_shapes(walk)
    for name in shapes if training else [f"sequence {name}" for name in walk.shown]:
        short = states.get(name.removeprefix("sequence ")) == POSITIONS  # beyond its end a row writes nothing
        kept[name] = like.new_zeros(shapes[name]) if short else new_memory(shapes[name], kernel.dtype)
    final = {f"final {name}": like.new_empty(B, dims[dim]) for name, dim in states.items()}
    numbers, rows = _rows(walk, _sizes_of_products(kernel, walk))
    numbers["training"] = int(training)
    kernel.call("forward", walk, numbers, {**tensors, **final, **kept, **rows})
    return [*(kept[f"sequence {name}"] for name in walk.shown), *final.values()], kept


def _backward(
    kernel: PhasedKernel,
    walk: Walk,
    scratch: Scratch,
    tensors: Mapping[str, Tensor | None],
    kept: dict[str, Tensor],
    gradients: Sequence[Tensor | None],
) -> dict[str, Tensor]:
    """Run the kernel backward; then the gradients of matrices and memories are products over all steps."""
    _sizes(kernel, walk, tensors)
    for name, shape in kernel.kept_shapes(walk).items():
        check_memory(f"what was saved for the backward pass ({name})", kept[name], shape, kernel.dtype)
    programs, e, g, dims = kernel.programs, kernel.equations, kernel.programs.gradients, walk.dims
    B, N, like, states = walk.steps.B, walk.steps.N, kept["saved"], kernel.state_dims
    outside = [f"d_sequence {name}" for name in walk.shown] + [f"d_final {name}" for name in e.states]
    arrived = [None if gradient is None else dense(gradient) for gradient in gradients]
    given: dict[str, Tensor | None] = {**tensors, **kept, **dict(zip(outside, arrived, strict=True))}
    found = {f"d_initial {name}": like.new_empty(B, dims[dim]) for name, dim in states.items()}
    if e.inputs:
        empty = like.new_zeros if None in g.inputs else like.new_empty
        found["dx"] = empty(N, len(e.inputs) * dims[kernel.input_dim])
    for i, (m, taught) in enumerate(programs.taught):
        if any(node is not None for node in taught):
            room = scratch.zeros if None in taught else scratch.empty
            found[f"d {i}"] = room(N, sum(dims[r.dim] for r in m.results))
    for i, product in enumerate(programs.memories):
        if not product.state:
            found[f"weights {i}"] = scratch.zeros(N, dims[POSITIONS])
        if product.units != g.inputs:
            found[f"units {i}"] = scratch.empty(N, sum(dims[node.dim] for node in product.units))
    for remembered in g.remembered:
        if remembered.score:
            tensor = kernel.layout.blocks[e.scores[remembered.score].memory][0]
            memory = tensors[tensor]
            assert memory is not None
            found[f"d_memory {tensor}"] = torch.zeros_like(memory)
    numbers, rows = _rows(walk, _sizes_of_products(kernel, walk))
    widths = [-(-dims[kernel.vector_dims[name]] // kernel.lanes) * kernel.lanes for name in e.vectors]
    stride, count = sum(widths), numbers["threads"]
    around = like.new_zeros(count * stride + kernel.lanes)
    offset = (aligned(around) - around.data_ptr()) // around.itemsize
    sums = around[offset : offset + count * stride]
    kernel.call("backward", walk, numbers | {"sum_stride": stride}, {**given, **found, **rows, "sums": sums})
    results = matrix_gradients(programs, kernel.layout.blocks, walk, {**given, **found}, multiply)
    there = {name: tensor for name, tensor in {**given, **found}.items() if tensor is not None}
    results |= memory_gradients(programs, there, there, walk.steps.padded)
    for name, vector in zip(e.vectors, sums.view(count, stride).sum(0).split(widths), strict=True):
        results[f"v {name}"] = vector[: dims[kernel.vector_dims[name]]]
    results |= {f"initial {name}": found[f"d_initial {name}"] for name in e.states}
    return results | ({"x": found["dx"]} if e.inputs else {})
