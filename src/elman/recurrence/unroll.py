"""One cell over one batch of sequences, on the backend that serves best."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from typing import Any

from torch import Tensor

from elman.errors import BackendError, BackendNotice, ShapeError
from elman.recurrence import loop
from elman.recurrence.contract import SILENCE, Noise, Unrolled, Walkable
from elman.recurrence.cpu import backend as cpu
from elman.recurrence.cpu.compile import compiler
from elman.tensors.checks import check_choice, check_lengths, check_like, check_tensor
from elman.tensors.tracing import extraordinary, opaque

BACKENDS = ("auto", "loop", "cpu")
_noticed: set[str] = set()


@opaque
def unroll(
    cell: Walkable,
    x: Tensor,
    state: Any = None,
    lengths: Any = None,
    *,
    reverse: bool = False,
    noise: Noise = SILENCE,
    backend: str = "auto",
) -> Unrolled:
    """``y_{1:n} = RNN*(x_{1:n}, s_0)``: walk one cell over x (B, T, D) from ``state`` (None: zero).

    At a padded step (``lengths``, (B,)) the state is carried and the output is zero; with ``reverse``
    every row is read from its own last real step to its first.
    """
    check_choice("backend", backend, BACKENDS)
    B, T, _ = check_tensor("x", x, ("B", "T", cell.input_size)).shape
    weights = cell.weights()  # once: a parametrisation computes them
    present = [weight for weight in (*weights[:3], *weights[3]) if weight is not None]
    for weight in present:
        check_like("x", x, "the cell", weight)
    if lengths is not None:
        lengths = check_lengths(lengths, B, T).to(x.device)
    state = check_state("state", cell, cell.initial_state(B, x) if state is None else state, B, x)
    if choose(cell, backend, noise, x, *state, *present) == "cpu":
        outputs, final = cpu.walk(cell, weights, x, state, lengths, reverse=reverse, noise=noise)
    else:
        outputs, final = loop.walk(cell, x, state, lengths, reverse=reverse, noise=noise)
    return Unrolled(outputs, cell.O(final), final)


def check_state(name: str, cell: Walkable, state: Any, B: int, like: Tensor) -> Any:
    """A state of this cell for B rows, of the same numbers as ``like``."""
    fields: tuple[str, ...] = cell.State._fields
    if not isinstance(state, (tuple, list)) or len(state) != len(fields):
        raise ShapeError(f"{name} is not a State({', '.join(fields)}) of {type(cell).__name__}")
    for field, value, shape in zip(fields, state, cell.state_shapes, strict=True):
        check_tensor(f"{name}.{field}", value, (B, *shape))
        check_like(f"{name}.{field}", value, "x", like)
    return cell.State(*state)


def streams(
    cell: Walkable, x: Tensor, state: Any, *, noise: Noise = SILENCE, backend: str = "auto"
) -> cpu.Stream | None:
    """The short way for such steps without gradients, or None where there is none."""
    if cell.has_hooks or not cpu.Stream.serves(cell, x, noise):
        return None
    if choose(cell, backend, noise, x, *state) == "cpu":
        way = cpu.Stream(cell, x.dtype, noise)
        return way if way.fits else None
    return None


def choose(cell: Walkable, backend: str, noise: Noise, *tensors: Tensor) -> str:
    """The backend that serves: what was asked for if it can, else an error that says why."""
    if backend == "loop":
        return "loop"
    reason = _hindrance(cell, noise, *tensors)
    if reason is None:
        return "cpu"
    if backend != "auto":
        raise BackendError(f"backend {backend!r} cannot serve: {reason}; use backend='auto' or 'loop'")
    return "loop"


def _hindrance(cell: Walkable, noise: Noise, *tensors: Tensor) -> str | None:
    """Why the kernel cannot run this, or None; what a user could mend is said once."""
    if cell.equations is None:
        return f"{type(cell).__name__} is a free-form cell, which runs on the plain loop"
    first = tensors[0]
    if not first.dtype.is_floating_point:
        return f"the tensors are {first.dtype}"
    if first.device.type not in ("cpu", "meta"):
        return _say(f"there is no kernel for {first.device.type} yet")
    reason = extraordinary(*tensors)
    if reason is not None:
        return reason
    if os.name != "posix" or sys.maxsize < 1 << 32:
        return _say("kernels are built on 64-bit Unix only")
    if compiler() is None:
        return _say("no C compiler found (cc, gcc or clang, or $CC)")
    try:
        cpu.kernel_for(cell, cpu.computes_in(first.dtype), noise)
    except BackendError as error:
        _say("the C compiler fails (backend='cpu' shows what it says)")
        return str(error.args[0])
    return None


def _say(reason: str) -> str:
    """Warn, once a process, that a slower path is taken."""
    if reason not in _noticed:
        _noticed.add(reason)
        notice = f"{reason}: cells run on the plain loop, which is slower"
        warnings.warn(notice, BackendNotice, stacklevel=_outside())
    return reason


def _outside() -> int:
    """How many calls up the user's own line is."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("elman", "torch"):
        frame, level = frame.f_back, level + 1
    return level
