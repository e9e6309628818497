"""Kernels that go through all of time, launched over all rows."""

import torch
from torch import Tensor

from elman.recurrence.triton.emit.backward import backward
from elman.recurrence.triton.emit.forward import forward
from elman.recurrence.triton.emit.writer import ROUNDS, Variant
from elman.recurrence.triton.launch import launch
from elman.recurrence.triton.module import source_of
from elman.recurrence.triton.spec import ScanSpec

WRITERS = {"forward": forward, "backward": backward}


def launch_sequence(spec: ScanSpec, name: str, variant: Variant, arguments: dict[str, Tensor]) -> None:
    """Run a kernel over all rows, as many groups at a time as the tiling allows."""
    tiling, source = spec.tiling, source_of(spec.pointwise, WRITERS[name], variant)
    exchange = variant.programs > 1 and bool(spec.step.equations.products)
    ring = None
    if exchange and name == "backward" and not spec.pointwise.gathers:
        size = tiling.groups * spec.D * variant.heads * ROUNDS * variant.programs**2 * variant.words
        kind = torch.float32 if variant.packing == 1 else torch.int32
        ring = arguments["ring"] = arguments["initial"].new_zeros(size, dtype=kind)
    for first in range(0, spec.B, tiling.rows * tiling.groups):
        if ring is not None and first:
            ring.zero_()
        programs = variant.heads * variant.programs
        grid = (programs, min(tiling.groups, -(-(spec.B - first) // tiling.rows)), spec.D)
        numbers = {"T": spec.T, "B": spec.B, "first": first, "reverse": int(spec.reverse)}
        launch(source, name, grid, arguments, numbers, warps=tiling.warps, cooperative=exchange)
