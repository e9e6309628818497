"""``unroll``: one cell over one batch of sequences, on the backend that serves best."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from elman.errors import BackendError, BackendNotice
from elman.recurrence import loop
from elman.recurrence.contract import SILENCE, Noise, Unrolled, Walkable
from elman.recurrence.cpu import backend as cpu
from elman.recurrence.cpu.compile import compiler
from elman.tensors.tracing import extraordinary, opaque

BACKENDS = ("auto", "loop", "cpu")
_noticed: set[str] = set()


@opaque
def unroll(
    cell: Walkable,
    x: Tensor,
    state: Any,
    lengths: Tensor | None = None,
    *,
    reverse: bool = False,
    noise: Noise = SILENCE,
    backend: str = "auto",
) -> Unrolled:
    """``y_{1:n} = RNN*(x_{1:n}, s_0)``: walk the cell over x (B, T, D) from ``state``.

    At a padded step (``lengths``, (B,)) the state is carried and the output is zero; with ``reverse``
    every row is read from its own last real step to its first. Arguments are checked by the layer.
    """
    if choose(cell, backend, x, *state) == "cpu":
        outputs, final = cpu.walk(cell, x, state, lengths, reverse=reverse, noise=noise)
    else:
        outputs, final = loop.walk(cell, x, state, lengths, reverse=reverse, noise=noise)
    return Unrolled(outputs, cell.O(final), final)


@opaque
def step(cell: Walkable, x: Tensor, state: Any, *, noise: Noise = SILENCE, backend: str = "auto") -> Any:
    """``s' = R(s, x)`` for one step of (B, D)."""
    walk = cpu.walk if choose(cell, backend, x, *state) == "cpu" else loop.walk
    return walk(cell, x[:, None], state, None, reverse=False, noise=noise)[1]


def streams(
    cell: Walkable, x: Tensor, state: Any, *, noise: Noise = SILENCE, backend: str = "auto"
) -> cpu.Stream | None:
    """The short way for such steps without gradients, or None where there is none."""
    if choose(cell, backend, x, *state) == "cpu" and cpu.Stream.serves(cell, x, noise):
        return cpu.Stream(cell, x.dtype, noise)
    return None


def choose(cell: Walkable, backend: str, *tensors: Tensor) -> str:
    """The backend that serves: what was asked for if it can, else an error that says why."""
    if backend == "loop":
        return "loop"
    reason = _hindrance(cell, *tensors)
    if reason is None:
        return "cpu"
    if backend != "auto":
        raise BackendError(f"backend {backend!r} cannot serve: {reason}; use backend='auto' or 'loop'")
    return "loop"


def _hindrance(cell: Walkable, *tensors: Tensor) -> str | None:
    """Why the kernel cannot run this, or None."""
    if cell.equations is None:
        return f"{type(cell).__name__} is a free-form cell, which runs on the plain loop"
    for tensor in tensors:
        if not tensor.dtype.is_floating_point:
            return f"the tensors are {tensor.dtype}"
    reason = extraordinary(*tensors)
    return reason if reason is not None else _without_compiler()


def _without_compiler() -> str | None:
    if compiler() is not None:
        return None
    notice = "no C compiler found (cc, gcc or clang, or $CC): cells run on the plain loop, which is slower"
    if notice not in _noticed:
        _noticed.add(notice)
        warnings.warn(notice, BackendNotice, stacklevel=2)
    return notice
