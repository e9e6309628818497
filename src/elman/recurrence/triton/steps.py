"""Sequences step by step, for weights that the chip cannot hold: a product and a generated kernel each."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from torch import Tensor

from elman.recurrence.triton.emit.steps import backward, forward, tiled
from elman.recurrence.triton.emit.writer import Variant
from elman.recurrence.triton.module import source_of
from elman.recurrence.triton.recording import StepRunner, multiply, step_runner
from elman.recurrence.triton.spec import ScanSpec

WRITERS = {"forward": forward, "backward": backward}


def forward_by_steps(spec: ScanSpec, variant: Variant, arguments: Mapping[str, Tensor]) -> None:
    """Fill the outputs, the final state and what the backward pass reads, as ``emit`` describes them."""
    initial = arguments["initial"]
    arguments["final"].copy_(initial)
    with _steps("forward", spec, variant, arguments) as steps:
        if spec.step.equations.products:
            steps.buffers["now"][..., : spec.H].copy_(_masked(initial[:, 0], arguments))
        steps.take(spec.T, arguments)


def backward_by_steps(spec: ScanSpec, variant: Variant, arguments: Mapping[str, Tensor]) -> None:
    """Fill the gradients of the parts, the vectors and the initial state."""
    e, d_initial = spec.step.equations, arguments["d_initial"]
    if "d_final" in arguments:
        d_initial.copy_(arguments["d_final"])
    else:
        d_initial.zero_()
    with _steps("backward", spec, variant, arguments) as steps:
        for name, buffer in steps.buffers.items():
            if name in ("arrived", "sums"):
                buffer.zero_()
        steps.take(spec.T, arguments)
        if e.products:
            d_initial[:, 0] += _masked(steps.buffers["arrived"], arguments)
        if e.vectors:
            arguments["d_vectors"].copy_(steps.buffers["sums"].sum(2))


def _masked(state: Tensor, arguments: Mapping[str, Tensor]) -> Tensor:
    return state * arguments["mask"] if "mask" in arguments else state


class PointwiseRunner(StepRunner):
    """A step forward is a product and a kernel, a step back a kernel and a product."""

    def __init__(
        self, name: str, spec: ScanSpec, variant: Variant, weights: Sequence[Tensor], like: Tensor
    ) -> None:
        source = source_of(spec.pointwise, WRITERS[name], variant)
        super().__init__(source, spec.B, spec.reverse, weights, like)
        e, B, D, H, tiles = spec.step.equations, spec.B, spec.D, spec.H, tiled(variant)
        G, V = len(e.products), len(e.vectors)
        self.name, self.launches = name, self.grids(tiles.rows, tiles.programs, D)
        if G and name == "forward":
            self.buffers["now"] = like.new_empty(D, B, tiles.stride, dtype=spec.numbers)
            self.buffers["products"] = like.new_empty(D, B, G * H)
            self.product = self.buffers["now"][..., :H], self.buffers["products"]
        elif G:
            self.buffers["sent"] = like.new_empty(D, B, G * H, dtype=spec.numbers)
            self.buffers["arrived"] = like.new_empty(D, B, H)
            self.product = self.buffers["sent"], self.buffers["arrived"]
        if V and name == "backward":
            self.buffers["sums"] = like.new_empty(D, V, B, H)

    def step(self, offset: int) -> None:
        if self.name == "forward":
            self._multiply()
        self.run(self.name, self.launches, offset, warps=4)
        if self.name == "backward":
            self._multiply()

    def _multiply(self) -> None:
        """Multiply the state by the weights, or the gradients of the products by their transpose."""
        for weight in self.weights:
            a, result = self.product
            multiply(a, weight if self.name == "forward" else weight.transpose(1, 2), result)


def _steps(
    name: str, spec: ScanSpec, variant: Variant, arguments: Mapping[str, Tensor]
) -> AbstractContextManager[StepRunner]:
    like = arguments["initial"]  # float32
    weights = [arguments["weight"]] if "weight" in arguments else []
    source = source_of(spec.pointwise, WRITERS[name], variant)

    def make(weights: Sequence[Tensor]) -> StepRunner:
        return PointwiseRunner(name, spec, variant, weights, like)

    return step_runner(make, weights, source, (spec.B, spec.reverse), like)
