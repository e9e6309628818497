"""One cell over one batch of sequences, on the backend that serves best."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from elman.errors import BackendError, ShapeError
from elman.recurrence import loop
from elman.recurrence.contract import SILENCE, Noise, Unrolled, Walkable
from elman.recurrence.cpu import backend as cpu
from elman.recurrence.cpu.compile import compiler
from elman.recurrence.notices import say_once
from elman.recurrence.triton import backend as triton
from elman.tensors.checks import check_choice, check_lengths, check_like, check_tensor
from elman.tensors.memory import check_room
from elman.tensors.tracing import extraordinary, in_autocast, observed, opaque, own_precision

BACKENDS = ("auto", "loop", "cpu", "triton")


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
    outputs, last, (final,) = unroll_layer(
        (cell,), x, (state,), lengths, reverse=reverse, noises=(noise,), backend=backend
    )
    return Unrolled(outputs, last, final)


@opaque
def unroll_layer(
    cells: Sequence[Walkable],
    x: Tensor,
    states: Sequence[Any],
    lengths: Any = None,
    *,
    reverse: bool = False,
    noises: Sequence[Noise],
    backend: str = "auto",
    checked: bool = False,
) -> Unrolled:
    """The directions of a layer, outputs side by side; the second of two reads from the end.

    Lengths that are ``checked`` lie where x lies, and their values were looked at, not only their shape.

    Under CUDA's autocast the recurrence computes in its numbers, with a float32 state; any other
    backend keeps the precision of the weights, since errors add up over time.
    """
    check_choice("backend", backend, BACKENDS)
    B, T, _ = check_tensor("x", x, ("B", "T", cells[0].input_size)).shape
    weights = [cell.weights() for cell in cells]  # once: a parametrisation computes them
    present = [w for own in weights for w in (*own[:3], *own[3]) if w is not None]
    like = x.new_empty(0, dtype=present[0].dtype) if present and in_autocast(x) else x
    for weight in present:
        check_like("x", like, "the cell", weight)
    if lengths is not None and not checked:
        lengths = check_lengths(lengths, B, T, x.device)
    given = any(state is not None for state in states)
    if given or not (x.is_cuda and cells[0].starts_at_zero):  # there, zeros are made where they are used
        states = [
            check_state("state", cell, cell.initial_state(B, like) if state is None else state, B, like)
            for cell, state in zip(cells, states, strict=True)
        ]
    tensors = (x, *(field for state in states if state is not None for field in state), *present)
    if observed() is None:
        check_room(*tensors)
    noises = [noise.applied(own[2]) for noise, own in zip(noises, weights, strict=True)]
    chosen = choose(cells[0], backend, noises[0], *tensors)
    if chosen == "triton":
        with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
            parts, finals = triton.walk(cells, weights, x, states, lengths, reverse=reverse, noises=noises)
        lasts = [cell.O(final) for cell, final in zip(cells, finals, strict=True)]
    else:
        parts, finals, lasts, exact = [], [], [], x.to(like.dtype)
        states = [
            cell.initial_state(B, exact) if state is None else state
            for cell, state in zip(cells, states, strict=True)
        ]
        with own_precision(x):
            for d, (cell, own, state, noise) in enumerate(zip(cells, weights, states, noises, strict=True)):
                how: dict[str, Any] = {"reverse": reverse ^ (d == 1), "noise": noise}
                if chosen == "cpu":
                    outputs, final = cpu.walk(cell, own, exact, state, lengths, **how)
                else:
                    outputs, final = loop.walk(cell, exact, state, lengths, **how)
                parts.append(outputs)
                finals.append(final)
                lasts.append(cell.O(final))
    return Unrolled(_side_by_side(parts), _side_by_side(lasts), tuple(finals))


def _side_by_side(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


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
    device = tensors[0].device.type
    kernels = "triton" if device == "cuda" else "cpu"
    if cell.equations is None or backend in ("auto", kernels):
        reason = _hindrance(cell, noise, *tensors)
    else:
        reason = f"the tensors are on {device}"
    if reason is None:
        return kernels
    if backend != "auto":
        problem, *details = reason.split("\n")
        remedy = f"backend {backend!r} cannot serve: {problem}; use backend='auto' or 'loop'"
        raise BackendError("\n".join([remedy, *details]))
    return "loop"


def _hindrance(cell: Walkable, noise: Noise, *tensors: Tensor) -> str | None:
    """Why the kernel cannot run this, or None; what a user could mend is said once."""
    if cell.equations is None:
        return f"{type(cell).__name__} is a free-form cell, which runs on the plain loop"
    first = tensors[0]
    if not first.dtype.is_floating_point:
        return f"the tensors are {first.dtype}"
    if first.device.type not in ("cpu", "meta", "cuda"):
        return _say(f"there are no kernels for {first.device.type}")
    reason = extraordinary(*tensors)
    if reason is not None:
        return reason
    if first.is_cuda:
        reason = triton.unavailable(first.device)
        if reason is not None:
            return _say(reason)
        reason = triton.hindrance(first)
        if reason is not None:
            return reason
    elif os.name != "posix" or sys.maxsize < 1 << 32:
        return _say("kernels are built on 64-bit Unix only")
    elif compiler() is None:
        return _say("no C compiler found (cc, gcc or clang, or $CC)")
    try:
        if first.is_cuda:
            triton.step_of(cell, noise)
        else:
            cpu.kernel_for(cell, cpu.computes_in(first.dtype), noise)
    except BackendError as error:
        return _say(str(error.args[0]))
    return None


def _say(reason: str) -> str:
    """Warn, once a process, that a slower path is taken; what follows the first line are details."""
    problem, *details = reason.split("\n")
    more = " (backend='cpu' shows more)" if details else ""
    say_once(f"{problem}{more}: cells run on the plain loop, which is slower")
    return reason
