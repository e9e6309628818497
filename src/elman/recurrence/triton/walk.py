"""A composed step over all of time on a GPU: products of torch, and a generated kernel for every phase."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.recurrence.compiled import make_once
from elman.recurrence.double_backward import differentiate
from elman.recurrence.learned import arrivals_of_walk, matrix_gradients, memory_gradients
from elman.recurrence.looks import POSITIONS
from elman.recurrence.phases import Blocks, StepPrograms, step_programs
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Equations, nodes_of, presence
from elman.recurrence.triton.emit.layout import WalkLayout, WalkVariant
from elman.recurrence.triton.emit.walk import walk_text
from elman.recurrence.triton.launch import DoesNotFit
from elman.recurrence.triton.program import power_of_two
from elman.recurrence.triton.recording import StepRunner, multiply, step_runner
from elman.recurrence.walk import Walk, walk_by_torch
from elman.tensors.tracing import observed, own_precision


class WalkAbout:
    """What is known of a composed step whatever the tensors are."""

    def __init__(self, equations: Equations, blocks: Blocks) -> None:
        e, nodes = equations, nodes_of(equations)
        self.programs = step_programs(e, blocks)
        dims = {node.name: node.dim for node in nodes if node.op == "s"}
        self.state_dims = {n: node.dim or dims[n] for n, node in zip(e.states, e.results, strict=True)}
        self.used = {node.dim for node in (*nodes, *(score.result for score in e.scores.values()))}
        self.input_dim = next((node.dim for node in nodes if node.op == "x"), "")
        self.short = {block[0] for block in blocks.values()}  # tensors in the numbers that are multiplied


class WalkCall(NamedTuple):
    """A walk on the GPU: its programs, what it is told, and the numbers that it multiplies."""

    equations: Equations
    about: WalkAbout
    blocks: Blocks
    walk: Walk
    numbers: torch.dtype

    @property
    def programs(self) -> StepPrograms:
        return self.about.programs

    @property
    def state_dims(self) -> dict[str, str]:
        return self.about.state_dims

    def size(self, node: Node) -> int:
        return self.walk.dims[node.dim] if node.dim else 1

    def variant(self, names: Sequence[str], *, training: bool, arriving: tuple[str, ...] = ()) -> WalkVariant:
        walk = self.walk
        sizes = {
            dim: max(16, power_of_two(size)) if dim == POSITIONS else size
            for dim, size in walk.dims.items()
            if dim in self.about.used
        }
        numbers = str(self.numbers).removeprefix("torch.")
        there = (walk.lengths is not None, training, walk.reverse)
        return WalkVariant(tuple(sizes.items()), numbers, tuple(names), walk.shown, *there, arriving)


def run_walk(
    equations: Equations,
    blocks: Blocks,
    walk: Walk,
    tensors: Mapping[str, Tensor | None],
    numbers: torch.dtype,
) -> list[Tensor]:
    """The shown sequences (N, ·) and the final states (B, ·)."""
    about = make_once(equations, "walk", lambda: WalkAbout(equations, blocks))
    call = WalkCall(equations, about, blocks, walk, numbers)
    present = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    names, flat = tuple(present), tuple(present.values())
    try:
        if torch.is_grad_enabled() and any(t.requires_grad for t in flat):
            return list(_Walk.apply(call, names, *flat))  # type: ignore[no-untyped-call]
        return _forward(call, present, training=False)[0]
    except DoesNotFit:  # a row is more than a program of this card holds
        return _by_torch(call, names, list(flat))


class _Walk(torch.autograd.Function):
    """Forward and backward through time by the kernels; a second derivative goes through torch."""

    @staticmethod
    def forward(ctx: Any, call: WalkCall, names: tuple[str, ...], *flat: Tensor) -> tuple[Tensor, ...]:
        results, kept = _forward(call, dict(zip(names, flat, strict=True)), training=True)
        ctx.about, ctx.kept = (call, names), tuple(kept)
        ctx.save_for_backward(*flat, *kept.values())
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        (call, names), saved, wanted = ctx.about, ctx.saved_tensors, ctx.needs_input_grad[2:]
        flat, kept = saved[: len(names)], dict(zip(ctx.kept, saved[len(names) :], strict=True))
        create = torch.is_grad_enabled()
        arrivals = arrivals_of_walk(call.programs, call.walk, gradients)
        with own_precision(flat[0]):
            if create or observed(*gradients) is not None or presence(call.equations, arrivals) is not None:
                compute = partial(_by_torch, call, names)
                return None, None, *differentiate(compute, flat, gradients, wanted, create_graph=create)
            tensors = dict(zip(names, flat, strict=True))
            try:
                found = _backward(call, tensors, kept, gradients)
            except DoesNotFit:
                compute = partial(_by_torch, call, names)
                return None, None, *differentiate(compute, flat, gradients, wanted, create_graph=False)
        given = zip(names, flat, wanted, strict=True)
        return None, None, *(found[n].to(t.dtype) if w and n in found else None for n, t, w in given)


def _by_torch(call: WalkCall, names: Sequence[str], flat: list[Tensor | None]) -> list[Tensor]:
    tensors = dict(zip(names, flat, strict=True))
    state = tensors[f"initial {call.equations.states[0]}"]
    assert state is not None
    whole = {name: None if t is None else t.to(state.dtype) for name, t in tensors.items()}
    results = walk_by_torch(call.equations, call.blocks, call.walk, whole)
    shown = len(call.walk.shown)
    return [*(t.to(call.numbers) for t in results[:shown]), *results[shown:]]


def _laid_out(call: WalkCall, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as kernels read them: by step with their padding, in the numbers that are multiplied."""
    walk, short, found = call.walk, call.about.short, {}
    for name, tensor in tensors.items():
        if walk.steps.real is not None and (name == "x" or name.startswith("n ")):
            tensor = walk.steps.padded(tensor)
        kind = call.numbers if name in short or name == "x" else torch.float32
        if tensor.dtype != kind or not tensor.is_contiguous():
            tensor = tensor.to(kind).contiguous()
        found[name] = tensor
    like = next(iter(found.values()))
    if walk.lengths is not None:
        found["lengths"] = walk.lengths.contiguous()
    if walk.positions is not None:
        found["positions"] = walk.positions.contiguous()
        found["sizes"] = torch.full((1,), walk.dims[POSITIONS], dtype=torch.int64, device=like.device)
    return found


def _forward(
    call: WalkCall, tensors: Mapping[str, Tensor], *, training: bool
) -> tuple[list[Tensor], dict[str, Tensor]]:
    walk, dims, numbers = call.walk, call.walk.dims, call.numbers
    (B, T), states = (walk.steps.B, walk.steps.T), call.state_dims
    given = _laid_out(call, tensors)
    like = given[f"initial {call.equations.states[0]}"]

    def sequence(dim: str, dtype: torch.dtype) -> Tensor:
        make = like.new_zeros if dim == POSITIONS else like.new_empty  # beyond its end a row writes nothing
        return make(B, T, dims[dim], dtype=dtype)

    found = {f"sequence shown {name}": sequence(states[name], numbers) for name in walk.shown}
    final = {f"final {name}": given[f"initial {name}"].clone() for name in states}
    kept: dict[str, Tensor] = {}
    if training:
        kept = {f"sequence {name}": sequence(dim, torch.float32) for name, dim in states.items()}
        width = sum(call.size(node) for node in call.programs.gradients.saved)
        kept["saved"] = like.new_empty(B, T, max(1, width))
        for i, m in enumerate(call.programs.multiplications):
            kept[f"operand {i}"] = like.new_empty(B, T, sum(map(call.size, m.operands)), dtype=numbers)
    variant = call.variant(list(tensors), training=training)
    with _steps(call, "forward", variant, given, like) as steps:
        steps.walk(T, {**given, **found, **final, **kept})
    exact = tensors[f"initial {call.equations.states[0]}"].dtype
    shown = [walk.steps.rows(found[f"sequence shown {name}"]) for name in walk.shown]
    kept |= {f"given {name}": tensor for name, tensor in given.items()} if training else {}
    return [*shown, *(field.to(exact) for field in final.values())], kept


def _backward(
    call: WalkCall,
    tensors: Mapping[str, Tensor],
    kept: Mapping[str, Tensor],
    gradients: Sequence[Tensor | None],
) -> dict[str, Tensor]:
    walk, programs, dims, numbers = call.walk, call.programs, call.walk.dims, call.numbers
    e, g, states, (B, T, _) = call.equations, programs.gradients, call.state_dims, walk.steps
    given = {n.removeprefix("given "): t for n, t in kept.items() if n.startswith("given ")}
    kept = {n: t for n, t in kept.items() if not n.startswith("given ")}
    like = kept["saved"]
    arrived = dict(zip(walk.shown, gradients[: len(walk.shown)], strict=True))
    arriving = tuple(name for name, gradient in arrived.items() if gradient is not None)
    for name in arriving:
        rows = arrived[name]
        assert rows is not None
        given[f"d_sequence {name}"] = walk.steps.padded(rows.to(numbers)).contiguous()
    found: dict[str, Tensor] = {}
    zeros: dict[str, tuple[int, ...]] = {}  # what begins with zeros, in one piece of memory
    for name, last in zip(states, gradients[len(walk.shown) :], strict=True):
        if last is None:
            zeros[f"d_state {name}"] = (B, dims[states[name]])
        else:
            found[f"d_state {name}"] = last.float().clone()
    if e.inputs:
        make = like.new_zeros if None in g.inputs else like.new_empty
        found["dx"] = make(B, T, len(e.inputs) * dims[call.about.input_dim], dtype=numbers)
    for i, (m, taught) in enumerate(programs.taught):
        if any(node is not None for node in taught):
            make = like.new_zeros if None in taught else like.new_empty
            found[f"d {i}"] = make(B, T, sum(map(call.size, m.results)), dtype=numbers)
    for i, product in enumerate(programs.memories):
        if not product.state:
            zeros[f"weights {i}"] = (B, T, dims[POSITIONS])
        if product.units != g.inputs:
            found[f"units {i}"] = like.new_empty(B, T, sum(map(call.size, product.units)), dtype=numbers)
    for score in (e.scores[one.score] for one in g.remembered if one.score):
        tensor = call.blocks[score.memory][0]
        zeros[f"d_memory {tensor}"] = tuple(tensors[tensor].shape)
    for name, node in zip(e.vectors, g.vectors, strict=True):
        if node is not None:
            zeros[f"sum {name}"] = (B, call.size(node))
    found |= _zeros(like, zeros)
    variant = call.variant(list(tensors), training=True, arriving=arriving)
    with _steps(call, "backward", variant, given, like) as steps:
        steps.walk(T, {**given, **kept, **found})
    flat = {n: t.flatten(0, 1) if t.dim() == 3 else t for n, t in {**kept, **found}.items()}
    results = matrix_gradients(programs, call.blocks, walk, flat, _product)
    seen = {**kept, **found}
    results |= memory_gradients(programs, tensors, seen, lambda t: t.to(numbers), _product)
    results |= {f"v {name}": found[f"sum {name}"].sum(0) for name in e.vectors if f"sum {name}" in found}
    results |= {f"initial {name}": found[f"d_state {name}"] for name in states}
    return results | ({"x": walk.steps.rows(found["dx"])} if e.inputs else {})


def _zeros(like: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Tensors of zeros, float32, cut out of one; each begins where vectors may begin."""
    sizes = [math.prod(shape) for shape in shapes.values()]
    room = [-(-size // 64) * 64 for size in sizes]
    parts = like.new_zeros(sum(room), dtype=torch.float32).split(room)
    each = zip(shapes.items(), sizes, parts, strict=True)
    return {name: part[:size].view(shape) for (name, shape), size, part in each}


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A large product, in float32 whatever is multiplied."""
    if a.dtype == torch.float32 or not a.is_cuda:
        return a.float() @ b.float()
    return (torch.mm if a.dim() == 2 else torch.bmm)(a, b, out_dtype=torch.float32)


class WalkRunner(StepRunner):
    """A step is a sequence of products and kernels, which turn round it (see ``emit/walk.py``)."""

    def __init__(
        self, call: WalkCall, text: WalkLayout, source: str, weights: Sequence[Tensor], like: Tensor
    ) -> None:
        super().__init__(source, call.walk.steps.B, False, weights, like)
        self.t, B = text, call.walk.steps.B
        self.grid = self.grids(1, 1, 1)
        self.rooms: dict[str, Tensor] = {}
        self.room = power_of_two(max(16, call.walk.dims.get(POSITIONS, 0)))
        for i, (_, operands, results) in enumerate(text.products):
            self.rooms[f"in {i}"] = like.new_zeros(B, text.stride(operands), dtype=call.numbers)
            self.rooms[f"out {i}"] = like.new_empty(B, text.width(results), dtype=torch.float32)
        for index, node in text.carried.items():
            size = self.room if node.dim == POSITIONS else call.size(node)
            self.rooms[f"c {index}"] = like.new_empty(B, size, dtype=torch.float32)
        near = max((len(score.near) for score in call.equations.scores.values()), default=0)
        self.rooms["near"] = like.new_empty(B * near, self.room, dtype=torch.float32)
        self.buffers |= self.rooms

    def walk(self, T: int, tensors: Mapping[str, Tensor]) -> None:
        """All steps, on tensors by name."""
        named = {**tensors, **self.rooms}
        self.take(T, {f"p{i}": named[name] for i, name in enumerate(self.t.tensors)})

    def begin(self) -> None:
        if not self.t.back and len(self.t.phases) > 1:
            self._kernel(len(self.t.phases) - 1, -1)

    def step(self, offset: int) -> None:
        last = len(self.t.phases) - 1
        if self.t.back:
            self._kernel(0, offset)
        for number in range(1, last + 1):
            self._multiply(number)
            if not self.t.back or number < last:
                self._kernel(number, offset)
        if not last and not self.t.back:
            self._kernel(0, offset)

    def end(self) -> None:
        if self.t.back:
            self._kernel(0, 0)

    def _kernel(self, number: int, offset: int) -> None:
        self.run(f"{self.t.name}_{number}", self.grid, offset, warps=self.t.v.warps)

    def _multiply(self, phase: int) -> None:
        for i, (number, operands, _) in enumerate(self.t.products):
            if number == phase:
                a = self.rooms[f"in {i}"][None, :, : self.t.width(operands)]
                multiply(a, self.weights[i], self.rooms[f"out {i}"][None])


def _steps(
    call: WalkCall, name: str, variant: WalkVariant, given: Mapping[str, Tensor], like: Tensor
) -> AbstractContextManager[Any]:
    source, text = make_once(
        call.equations, (name, variant), lambda: walk_text(name, call.programs, call.blocks, variant)
    )
    weights = [_block_matrix(call, given, operands, results) for _, operands, results in text.products]

    def make(weights: Sequence[Tensor]) -> StepRunner:
        return WalkRunner(call, text, source, weights, like)

    return step_runner(make, weights, source, (call.walk.steps.B, False), like)


def _block_matrix(
    call: WalkCall, given: Mapping[str, Tensor], operands: Sequence[Node], results: Sequence[Node]
) -> Tensor:
    """The matrix (1, K, N) of a product, put together from its blocks."""
    columns = []
    for result in results:
        parts = []
        for block in result.name.split():
            tensor, place, count = call.blocks[block.removesuffix("'")]
            part = given[tensor].chunk(count, 1)[place]
            parts.append(part.t() if block.endswith("'") else part)
        columns.append(parts[0] if len(parts) == 1 else torch.cat(parts))
    return (columns[0] if len(columns) == 1 else torch.cat(columns, 1)).contiguous()[None]
