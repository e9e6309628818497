"""One cell over one batch of sequences, on the first backend that serves."""

import functools
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from elman.errors import BackendError, ShapeError
from elman.recurrence.backend import Backend, LayerCall, Refusal
from elman.recurrence.contract import NO_NOISE, Noise, RecurrentCell, State, StreamingCell, Unrolled
from elman.recurrence.cpu.backend import CpuBackend
from elman.recurrence.loop import LoopBackend
from elman.recurrence.notices import say_once
from elman.recurrence.triton.backend import TritonBackend
from elman.tensors.checks import check_choice, check_lengths, check_like, check_tensor, is_tuple
from elman.tensors.memory import check_room
from elman.tensors.tracing import in_autocast, observed, opaque

# In the order in which they are tried; the loop, which never refuses, comes last.
ALL_BACKENDS: tuple[Backend, ...] = (TritonBackend(), CpuBackend(), LoopBackend())
BACKENDS = ("auto", *(backend.name for backend in reversed(ALL_BACKENDS)))  # what a user may ask for


def usable_backends() -> list[str]:
    """Those of ``BACKENDS`` that this machine can use."""
    here = {backend.name for backend in ALL_BACKENDS if backend.available()}
    return [name for name in BACKENDS if name == "auto" or name in here]


@opaque
def unroll_layer(
    cells: Sequence[RecurrentCell],
    x: Tensor,
    states: Sequence[State | None],
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
    check_choice("backend", backend, BACKENDS, usable_backends)
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
    dropped = zip(noises, cells, weights, strict=True)
    noises = [noise.applied(cell, own[2]) for noise, cell, own in dropped]
    tensors = [x, *(field for state in states if state is not None for field in state), *present]
    if observed() is None:
        check_room(*tensors)
    call = LayerCall(cells, weights, x, states, lengths, noises, reverse, like.dtype, tensors)
    chosen = choose(call, backend)
    try:
        return chosen.run(call)
    except BackendError as error:  # what a look could not tell, as that a compiler fails
        _note(chosen.name, Refusal(str(error.args[0]), mendable=True), backend)
    return choose(call, backend, after=chosen).run(call)


def check_state(name: str, cell: RecurrentCell, state: Any, B: int, like: Tensor) -> State:
    """Check that this is a state of the cell for B rows, of the same numbers as ``like``."""
    fields = cell.State._fields
    if not is_tuple(state, len(fields)):
        raise ShapeError(f"{name} is not a State({', '.join(fields)}) of {type(cell).__name__}")
    for field, value, shape in zip(fields, state, cell.state_shapes, strict=True):
        check_tensor(f"{name}.{field}", value, (B, *shape))
        check_like(f"{name}.{field}", value, "x", like)
    return cell.State(*state)


@functools.cache
def candidates(wanted: str, device: str) -> tuple[Backend, ...]:
    """The backends that may serve on this kind of device, in order; or the one that is named."""
    if wanted != "auto":
        return tuple(b for b in ALL_BACKENDS if b.name == wanted)
    return tuple(b for b in ALL_BACKENDS if not b.devices or device in b.devices)


def choose(call: LayerCall, wanted: str, after: Backend | None = None) -> Backend:
    """The first backend that serves; one that was asked for by its name and refuses is an error.

    Choosing compiles nothing. ``after``: the one that was chosen before, and could not do it.
    """
    device = call.x.device.type
    found = candidates(wanted, device)
    if wanted == "auto" and not found[0].devices and call.cells[0].equations is not None:
        _note("auto", Refusal(f"there are no kernels for {device}", mendable=True), wanted)
    for backend in found if after is None else found[found.index(after) + 1 :]:
        refusal = backend.refusal(call)
        if refusal is None:
            return backend
        _note(backend.name, refusal, wanted)
    raise AssertionError("the loop never refuses")


def walk_backend(wanted: str, x: Tensor) -> Backend | None:
    """The backend that walks a composed step on tensors like x; None: it goes step by step."""
    if wanted == "loop" or observed(x) is not None:
        return None
    return next((b for b in candidates(wanted, x.device.type) if b.walks(x)), None)


def streaming_cell(
    cell: RecurrentCell, x: Tensor, state: State, *, noise: Noise = NO_NOISE, backend: str = "auto"
) -> StreamingCell | None:
    """The short way for steps without gradients like this one, x (B, D); None where there is none."""
    if cell.has_hooks:
        return None
    call = LayerCall((cell,), (cell.weights(),), x, (state,), None, (noise,), False, x.dtype, (x, *state))
    try:
        return choose(call, backend).streaming(call)
    except BackendError:  # the step itself says why
        return None


def _note(name: str, refusal: Refusal, wanted: str) -> None:
    """Say once what a user could mend; raise BackendError for a backend that was asked for by its name."""
    problem, *details = refusal.reason.split("\n")
    if refusal.mendable:
        more = f" (backend={name!r} shows more)" if details else ""
        say_once(f"{problem}{more}: cells run on the plain loop, which is slower")
    if wanted != "auto":
        remedy = f"backend {wanted!r} cannot serve: {problem}; use backend='auto' or 'loop'"
        raise BackendError("\n".join([remedy, *details])) from None
