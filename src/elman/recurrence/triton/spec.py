"""What one scan on the GPU is told besides its tensors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from elman.recurrence.contract import RecurrentCell
from elman.recurrence.direction import DirectionTensors
from elman.recurrence.trace import Equations
from elman.recurrence.triton.emit.writer import Variant
from elman.recurrence.triton.program import StepProgram
from elman.recurrence.triton.stages import PhasedStep
from elman.recurrence.triton.tiling import Tiling

Step: TypeAlias = StepProgram | PhasedStep


@dataclass(frozen=True)
class ScanSpec:
    """The cells of the directions, their equations (in ``step`` with zoneout), the tiling and the sizes.

    numbers: what is multiplied; ``exact``: those of the weights. The state is float32 throughout.
    rates: of zoneouts that are an expectation, by state.
    chunks: into which a linear recurrence is cut; T is a multiple of it.
    refuse: to be called where the tiling turns out not to fit in the backward pass.
    """

    tiling: Tiling
    refuse: Callable[[], None]
    cells: tuple[RecurrentCell, ...]
    equations: Equations
    step: Step
    numbers: torch.dtype
    exact: torch.dtype
    precision: str
    B: int
    T: int
    H: int
    reverse: bool
    lengths: Tensor | None
    all_states: bool
    rates: Mapping[str, float]
    chunks: int = 1

    @property
    def D(self) -> int:
        return len(self.cells)

    @property
    def heads(self) -> int:
        """Of the recurrent weights; none of a cell that multiplies nothing."""
        return self.cells[0].heads if self.step.equations.products else 1

    @property
    def shown(self) -> tuple[str, ...]:
        """States whose sequence is returned."""
        states = self.step.equations.states
        return states if self.all_states else states[:1]

    @property
    def pointwise(self) -> StepProgram:
        """The step, where it is one product and pointwise equations."""
        assert isinstance(self.step, StepProgram)
        return self.step

    def variant(self, *, mask: bool, training: bool, d_final: bool = False) -> Variant:
        tile, numbers = self.tiling, str(self.numbers).removeprefix("torch.")
        there = self.lengths is not None, mask, self.all_states, training, d_final
        sizes = self.H, tile.rows, tile.units
        heads = self.heads if tile.form in ("whole", "shared") else 1
        return Variant(*sizes, numbers, self.precision, self.D, *there, tile.block, tile.held, heads=heads)

    def split(self, flat: Sequence[Tensor | None]) -> tuple[Tensor, list[DirectionTensors]]:
        x, *rest = flat
        assert x is not None
        size, e = len(rest) // self.D, self.step.equations
        return x, [DirectionTensors.of(e, rest[d * size : (d + 1) * size]) for d in range(self.D)]
