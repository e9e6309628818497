"""Launching a generated kernel: the grid, the arguments by name, and what a launch may fail with."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from elman.recurrence.triton.module import kernels

ALIGNED = 16  # bytes; Triton compiles a kernel anew for addresses that are not

# What Triton compiled for aligned addresses, by source, name, warps, device and numbers. Launching that
# takes a few microseconds; finding it through Triton's own door, which looks at every argument, a hundred.
_compiled: dict[tuple[Any, ...], Any] = {}


class DoesNotFit(Exception):
    """The card cannot hold this grid at once, or a program of it; another tiling may do."""


def launch(
    source: str,
    name: str,
    grid: tuple[int, int, int],
    tensors: Mapping[str, Tensor],
    numbers: Mapping[str, int],
    *,
    warps: int,
    cooperative: bool = False,
    overlap: bool = False,
    stages: int = 1,
) -> None:
    """Run one kernel of a generated source; of the tensors it takes those that it names.

    ``overlap``: it may begin before the kernel that was launched before it has ended. ``stages``: how much
    of a loop is fetched ahead.

    A cooperative grid is refused by the driver where its programs cannot all run at once: they wait
    for each other, and would wait forever.
    """
    kernel = kernels(source)[name]
    given = [tensors[n] for n in kernel.arg_names if n not in numbers]
    values = [numbers[n] for n in kernel.arg_names if n in numbers]  # they come last
    addresses = [tensor.data_ptr() for tensor in given]
    key = (source, name, warps, given[0].device.index, *(tensor.dtype for tensor in given))
    aligned = not any(address % ALIGNED for address in addresses)
    try:
        if aligned and key in _compiled:
            _compiled[key][grid](*addresses, *values)
            return
        options = {"num_warps": warps, "num_stages": stages, "launch_cooperative_grid": cooperative}
        options |= {"launch_pdl": True} if overlap else {}
        found = kernel[grid](*given, *values, **options)
    except Exception as error:
        from triton.runtime.errors import OutOfResources

        refused = isinstance(error, RuntimeError) and "cooperative" in str(error).lower()
        if refused or isinstance(error, OutOfResources):
            raise DoesNotFit(str(error)) from None
        raise
    if aligned and found is not None:  # the interpreter returns nothing
        _compiled[key] = found
