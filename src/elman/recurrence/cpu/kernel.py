"""A compiled cell: the generated library, what it wants to be told, and the threads it runs on."""

import ctypes
import os
from array import array
from collections.abc import Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor

from elman.recurrence.compiled import for_arrivals
from elman.recurrence.contract import Weights
from elman.recurrence.cpu.compile import library
from elman.recurrence.cpu.emit import emit, overlaid, shares_gradient
from elman.recurrence.trace import Arrivals, Equations, add_zoneout, derive, presence

# The fields of ``Task`` in kernel.c, in its order; all are eight bytes wide.
TASK = (
    *("rows", "steps", "units", "features", "operand_stride", "reverse", "threads", "split"),
    *("heads", "all_units"),
    *("row", "offset", "length"),
    *("x", "given", "weight", "mask", "vector", "noise", "initial", "final", "sequence", "saved", "training"),
    *("d_sequence", "d_final", "d_x", "d_product", "d_initial", "d_vector", "operand"),
    *("input", "input_weight", "bias"),
    *("packed", "states", "operands", "arrived", "phase"),
)
ROWS, UNITS, FEATURES, THREADS = map(TASK.index, ("rows", "units", "features", "threads"))
BY_STATE = ("initial", "final", "sequence", "d_sequence", "d_final", "d_initial")

TaskFields: TypeAlias = dict[str, int | Tensor | Sequence[Tensor | None] | None]

STREAM_SHARED = 1 << 18  # input weights from which on threads share a streaming step

_HOME = os.getpid()


@cache
def _openmp() -> tuple[ctypes.Array[ctypes.c_void_p], bool]:
    """Torch's own thread pool, so that no second one competes for the cores."""
    process = ctypes.CDLL(None)
    names = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
    found = [getattr(process, name, None) for name in names]
    addresses = [ctypes.cast(f, ctypes.c_void_p) if f is not None else None for f in found]
    return (ctypes.c_void_p * 3)(*addresses), None not in found


def pool() -> int:
    """The address of torch's thread pool, as entries of a kernel are given it."""
    return ctypes.addressof(_openmp()[0])


def threads() -> int:
    """Count the threads: torch's own, but one in a forked child, where the parent's pool is gone."""
    return torch.get_num_threads() if _openmp()[1] and os.getpid() == _HOME else 1


class Kernel:
    """The compiled forward, backward and streaming step of one set of equations."""

    def __init__(
        self,
        equations: Equations,
        dtype: torch.dtype,
        rates: Mapping[str, float | None],
        arrivals: Arrivals | None = None,
    ) -> None:
        """
        Args:
            rates: of zoneout, by state; None: it follows a drawn mask.
            arrivals: from where gradients come, if that changes the backward step.
        """
        self.plain, self.dtype, self.rates = equations, dtype, rates
        self.equations = equations = add_zoneout(equations, rates)
        self.presence = None if arrivals is None else presence(equations, arrivals)
        usual = derive(equations)
        gradients = usual if arrivals is None else derive(equations, arrivals)
        self.overlaid = overlaid(equations, usual)
        self.saved = len(usual.saved) - self.overlaid
        self.shared = shares_gradient(equations, gradients)
        self.learns = gradients.teach_products
        head, step = f"#define DOUBLE {int(dtype == torch.float64)}", emit(equations, gradients, usual)
        self.source = "\n".join(
            [head, source_text("mathematics.c"), step, *map(source_text, ("task.c", "rows.c", "kernel.c"))]
        )
        loaded = library(self.source)
        self._entries = {name: getattr(loaded, name) for name in ("forward", "backward", "stream")}
        for entry in self._entries.values():
            entry.argtypes, entry.restype = (ctypes.c_void_p, ctypes.c_void_p), None
        self._stream = self._entries["stream"]
        self.lanes: int = loaded.lanes()
        self._pool = pool()
        counts = dict.fromkeys(TASK, 1) | dict.fromkeys(BY_STATE, len(equations.states))
        counts |= {"vector": len(equations.vectors) + 1, "noise": len(equations.noise) + 1}
        *places, size = accumulate(counts.values(), initial=0)
        self._places = dict(zip(TASK, places, strict=True))
        self._empty = array("q", [0] * size)

    def arriving(self, arrivals: Arrivals) -> "Kernel":
        """The kernel whose backward pass takes gradients from there alone; mostly this one."""
        make = partial(Kernel, self.plain, self.dtype, self.rates, arrivals)
        return for_arrivals(self, self.equations, arrivals, make)

    def call(self, entry: str, task: TaskFields) -> None:
        """Run one entry of the library on a task, told field by field; what is not told is zero."""
        words = self._empty[:]
        for name, value in task.items():
            several = (value,) if value is None or isinstance(value, (int, Tensor)) else value
            for place, one in enumerate(several, self._places[name]):
                if one is not None:
                    words[place] = one if isinstance(one, int) else one.data_ptr()
        self._entries[entry](words.buffer_info()[0], self._pool)

    def stream(self, x: Tensor, weights: Weights, state: Sequence[Tensor]) -> list[Tensor]:
        """One step for few rows, the weights read where they lie: the new state.

        A call has to take microseconds, so the task is written without the comfort of ``call``.
        """
        W_x, b, W_h, vectors = weights
        assert W_x is not None
        B, H = state[0].shape
        empty = x.new_empty
        final = [empty(B, H) for _ in state]
        words, places = self._empty[:], self._places
        words[ROWS], words[UNITS], words[FEATURES] = B, H, x.shape[1]
        words[THREADS] = threads() if W_x.numel() >= STREAM_SHARED else 1
        place = places["input"]
        words[place], words[place + 1] = x.data_ptr(), W_x.data_ptr()
        if b is not None:
            words[place + 2] = b.data_ptr()
        if W_h is not None:
            words[places["weight"]] = W_h.data_ptr()
        for place, tensor in enumerate(vectors, places["vector"]):
            words[place] = tensor.data_ptr()
        for place, tensor in enumerate((*state, *final), places["initial"]):
            words[place] = tensor.data_ptr()
        self._stream(words.buffer_info()[0], self._pool)
        return final

    def width(self, units: int) -> int:
        """Round a row of units up to whole vectors."""
        return -(-units // self.lanes) * self.lanes


@cache
def source_text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
