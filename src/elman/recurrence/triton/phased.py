"""Sequences whose step has several phases: torch's products, and a generated kernel between them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from elman.recurrence.compiled import make_once
from elman.recurrence.direction import DirectionTensors
from elman.recurrence.phases import RECURRENT
from elman.recurrence.triton.buffers import input_parts, other_tensors, weight_gradient
from elman.recurrence.triton.emit.phase import Way, tile_of
from elman.recurrence.triton.emit.phased import backward, backward_kernels, forward, forward_kernels
from elman.recurrence.triton.emit.product import product_tile
from elman.recurrence.triton.emit.writer import Variant
from elman.recurrence.triton.launch import launch
from elman.recurrence.triton.recording import StepRunner, multiply, step_runner
from elman.recurrence.triton.spec import ScanSpec
from elman.recurrence.triton.stages import BlockProduct, PhasedProgram, PhasedStep

Learned: TypeAlias = dict[str, Tensor]  # by the name of a tensor that matrices are parts of, its gradient


def forward_by_phases(
    spec: ScanSpec, step: PhasedStep, x: Tensor, directions: list[DirectionTensors], *, training: bool
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Sequences, the final states (B, H) of each direction, and in training what the backward pass reads."""
    B, T, D, H = spec.B, spec.T, spec.D, spec.H
    program = step.program(directions[0].mask is not None)
    variant = spec.variant(mask=directions[0].mask is not None, training=training)
    given = input_parts(spec, x, directions) | other_tensors(spec, x, directions)
    sequences = {f"out_{name}": x.new_empty(B, T, D * H, dtype=spec.numbers) for name in spec.shown}
    kept = _kept_values(spec, program, x) if training else {}
    final = given["initial"].clone()
    arguments = {**given, **sequences, **kept, "final": final}
    way = _way(spec, program, variant, given["initial"], back=False)
    weights = [_block_matrix(spec, program, product, directions) for product in way.stages.products]
    with _steps(spec, way, weights, given["initial"]) as steps:
        steps.take(T, arguments)
    results = [*sequences.values(), *final.to(spec.exact).flatten(0, 1).unbind()]
    return results, {**given, **kept} if training else {}


def _kept_values(spec: ScanSpec, program: PhasedProgram, like: Tensor) -> dict[str, Tensor]:
    """Where the forward pass leaves what the backward pass reads."""
    B, T, D, H = spec.B, spec.T, spec.D, spec.H

    def empty(count: int, dtype: torch.dtype = torch.float32, width: int = H) -> Tensor:
        return like.new_empty(B, T, D, count * width, dtype=dtype)

    found = {
        "kept": empty(len(program.kept)),
        "short": empty(len(program.short), spec.numbers),
        "long": empty(len(program.long)),
        "single": empty(len(program.single), width=1),
    }
    for number, product in enumerate(program.products):
        found[f"operand_{number}"] = empty(len(product.operands), spec.numbers)
    return {name: tensor for name, tensor in found.items() if tensor.shape[-1]}


def backward_by_phases(
    spec: ScanSpec,
    step: PhasedStep,
    directions: list[DirectionTensors],
    kept: Mapping[str, Tensor],
    arriving: Mapping[str, Tensor],
) -> tuple[dict[str, Tensor], list[Learned]]:
    """The gradients of the parts, the vectors and the initial state; of each direction those of its matrices.

    ``arriving`` are the gradients of the shown sequences, ``d_out_…``, and of the final state, ``d_final``.
    """
    e, B, T, D, H = step.equations, spec.B, spec.T, spec.D, spec.H
    program, like = step.program("mask" in kept), kept["initial"]
    variant = spec.variant(mask="mask" in kept, training=True)
    found = {"d_initial": arriving["d_final"].float() if "d_final" in arriving else torch.zeros_like(like)}
    if e.inputs:
        found["d_parts"] = like.new_empty(B, T, D, len(e.inputs) * H, dtype=spec.numbers)
    for number, (gradients, place) in enumerate(zip(program.taught, program.shared, strict=True)):
        if place is None:
            found[f"d_result_{number}"] = like.new_empty(B, T, D, len(gradients) * H, dtype=spec.numbers)
    way = _way(spec, program, variant, like, back=True)
    weights = [_block_matrix(spec, program, product, directions) for product in way.stages.products]
    with _steps(spec, way, weights, like) as steps:
        if e.vectors:
            steps.buffers["sums"].zero_()
        steps.take(T, {**kept, **arriving, **found})
        if e.vectors:
            found["d_vectors"] = steps.buffers["sums"].sum(2)[None]
    own = {**kept, **found}
    return found, [_learned(spec, program, direction, own, d) for d, direction in enumerate(directions)]


def _block_matrix(
    spec: ScanSpec, program: PhasedProgram, product: BlockProduct, directions: list[DirectionTensors]
) -> Tensor:
    """The matrix (D, K, N) of a product, put together from the blocks of all directions."""
    turned = product.blocks[0][0].endswith("'")  # and so do all, or none
    rows = product.blocks if turned else list(zip(*product.blocks, strict=True))
    found = []
    for own in directions:
        matrix = _joined([_joined(_runs(spec.H, program, own, row), 1) for row in rows], 0)
        found.append((matrix.t() if turned else matrix).to(spec.numbers))
    return found[0][None] if len(found) == 1 else torch.stack(found)


def _runs(H: int, program: PhasedProgram, own: DirectionTensors, names: Sequence[str]) -> list[Tensor]:
    """The blocks of these names, what lies side by side in a tensor as one."""
    runs: list[tuple[str, int, int]] = []
    for name in names:
        tensor, place, _ = program.blocks[name.removesuffix("'")]
        if runs and runs[-1][0] == tensor and runs[-1][2] == place:
            runs[-1] = tensor, runs[-1][1], place + 1
        else:
            runs.append((tensor, place, place + 1))
    return [_tensor_of(program, own, tensor)[:, first * H : last * H] for tensor, first, last in runs]


def _joined(blocks: Sequence[Tensor], dimension: int) -> Tensor:
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks), dimension)


def _tensor_of(program: PhasedProgram, own: DirectionTensors, tensor: str) -> Tensor:
    """The tensor that blocks are parts of."""
    if tensor == RECURRENT:
        assert own.W_h is not None
        return own.W_h
    return own.matrices[program.equations.matrices.index(tensor)]


def _learned(
    spec: ScanSpec, program: PhasedProgram, own: DirectionTensors, found: Mapping[str, Tensor], d: int
) -> Learned:
    """The gradients of W_h and of the matrices of one direction, as large products over all steps."""
    H, N, D = spec.H, spec.B * spec.T, spec.D
    learned: Learned = {}
    for number, product in enumerate(program.products):
        if all(node is None for node in program.taught[number]):
            continue
        first, size = program.shared[number], len(product.results) * H
        gradients = found[f"d_result_{number}" if first is None else "d_parts"].view(N, D, -1)[:, d]
        gradients = gradients if first is None else gradients[:, first * H : first * H + size]
        operand = found[f"operand_{number}"].view(N, D, -1)[:, d]
        first_tensor = program.blocks[product.blocks[0][0]][0]
        result = weight_gradient(operand.t(), gradients, _tensor_of(program, own, first_tensor))
        for j, names in enumerate(product.blocks):
            for i, name in enumerate(names):
                tensor, place, parts = program.blocks[name]
                if tensor not in learned:
                    learned[tensor] = result.new_zeros(H, parts * H)
                block = result[i * H : (i + 1) * H, j * H : (j + 1) * H]
                learned[tensor][:, place * H : (place + 1) * H] += block
    return learned


class PhasedRunner(StepRunner):
    """A step is a sequence of products and kernels; the kernels turn round it (see ``emit/phased.py``)."""

    def __init__(self, spec: ScanSpec, way: Way, weights: Sequence[Tensor], like: Tensor) -> None:
        overlap = way.variant.overlap
        weights = [weight.contiguous() for weight in weights]
        super().__init__(_source(way), spec.B, spec.reverse, weights, like, overlap=overlap)
        B, D, H = spec.B, spec.D, spec.H
        self.way, self.stages = way, way.stages
        kinds = (backward_kernels if way.back else forward_kernels)(self.stages)
        tiles = {kernel: tile_of(H, whole=whole) for kernel, whole in kinds.items()}
        self.kernels = {k: (self.grids(t.rows, t.programs, D), t.warps) for k, t in tiles.items()}
        self.products: list[tuple[Tensor, Tensor]] = []
        for number, product in enumerate(self.stages.products):
            operand = like.new_empty(D, B, product.stride(H), dtype=spec.numbers)
            result = like.new_empty(D, way.parts(number), B, len(product.results) * H)
            self.buffers |= {f"in_{number}": operand, f"result_{number}": result}
            self.products.append((operand[..., : len(product.operands) * H], result[:, 0]))
        self.buffers["carry"] = like.new_empty(D, self.stages.units, B, H)
        self.buffers["carry_rows"] = like.new_empty(D, self.stages.rows, B)
        if way.back:
            self.buffers["sums"] = like.new_empty(D, len(way.program.equations.vectors), B, H)

    def begin(self) -> None:
        if not self.way.back and self.stages.last:
            self._kernel(self.stages.last, -1)

    def step(self, offset: int) -> None:
        back, last = self.way.back, self.stages.last
        for number in range(0 if back else min(1, last), last + 1):
            self._multiply(number)
            if not back or number < last:
                self._kernel(number, offset)

    def end(self) -> None:
        if self.way.back:
            self._kernel(0, 0)

    def _kernel(self, number: int, offset: int) -> None:
        name = f"{'backward' if self.way.back else 'forward'}_{number}"
        grids, warps = self.kernels[name]
        self.run(name, grids, offset, warps=warps)

    def _multiply(self, phase: int) -> None:
        """The products before this stage."""
        for number, (product, tile) in enumerate(zip(self.stages.products, self.way.tiles, strict=True)):
            if product.phase != phase:
                continue
            weight, (operand, result) = self.weights[number], self.products[number]
            if tile is None:
                multiply(operand, weight, result)
                continue
            name, tensors = f"multiply_{number}", {**self.buffers, f"weight_{number}": weight}
            columns = -(-weight.shape[2] // tile.columns)
            for first, grid in self.grids(tile.rows, columns, len(weight) * tile.parts):
                numbers, ahead = {"B": self.B, "first": first}, tile.stages
                warps, overlap = tile.warps, self.overlap
                launch(self.source, name, grid, tensors, numbers, warps=warps, overlap=overlap, stages=ahead)


def _way(spec: ScanSpec, program: PhasedProgram, variant: Variant, like: Tensor, *, back: bool) -> Way:
    """How the kernels go: on a card they may overlap, and multiply few rows themselves."""

    def make() -> Way:
        overlap = like.is_cuda and torch.cuda.get_device_capability(like.device) >= (9, 0)
        own = replace(variant, overlap=overlap)
        products = program.stages(own, back=back).products
        tiles = [product_tile(product, own, spec.B) if like.is_cuda else None for product in products]
        return Way(program, own, tuple(tiles), back)

    return make_once(program.equations, ("way", back, variant, spec.B, like.device), make)


def _source(way: Way) -> str:
    """The text of all kernels, written once for every variant."""
    write = backward if way.back else forward
    return make_once(way.program.equations, (write, way.variant, way.tiles), lambda: write(way))


def _steps(
    spec: ScanSpec, way: Way, weights: Sequence[Tensor], like: Tensor
) -> AbstractContextManager[StepRunner]:
    def make(weights: Sequence[Tensor]) -> StepRunner:
        return PhasedRunner(spec, way, weights, like)

    return step_runner(make, weights, _source(way), (spec.B, spec.reverse), like)
