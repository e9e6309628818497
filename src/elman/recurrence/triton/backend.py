"""The backend of pointwise cells on a CUDA device: it tries tilings in turn, and explains its choice."""

import functools
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.errors import BackendError, ShapeError
from elman.recurrence.backend import KernelBackend, LayerCall, Refusal, side_by_side
from elman.recurrence.compiled import make_once
from elman.recurrence.contract import NO_NOISE, Noise, RecurrentCell, State, Unrolled
from elman.recurrence.direction import DirectionTensors
from elman.recurrence.phases import Blocks
from elman.recurrence.trace import Equations, add_zoneout
from elman.recurrence.triton.chunks import count_chunks, padded_length
from elman.recurrence.triton.launch import DoesNotFit
from elman.recurrence.triton.program import StepProgram, signature
from elman.recurrence.triton.scan import scan
from elman.recurrence.triton.spec import ScanSpec, Step
from elman.recurrence.triton.stages import PhasedStep
from elman.recurrence.triton.tiling import Card, Tiling, Workload, find_obstacles, tilings
from elman.recurrence.triton.walk import run_walk
from elman.recurrence.walk import Walk
from elman.tensors.products import tf32_products
from elman.tensors.rows import fill_padding, zero_padding
from elman.tensors.tracing import in_autocast

_refused: set[tuple[Card, Workload, Tiling]] = set()  # tilings that a card turned down
PHASES = Tiling("phases", 0, 0, 4, 1, 1, 1, 0, 0.0)  # of a step that has several: there is no choice
NUMBERS = (torch.float32, torch.bfloat16, torch.float16)


class TritonBackend(KernelBackend):
    """The equations as kernels of Triton, compiled at first use; the directions of a layer run at once."""

    name, devices = "triton", ("cuda",)

    def available(self) -> bool:
        return torch.cuda.is_available() and unavailable(torch.device("cuda", 0)) is None

    def obstacle(self, call: LayerCall) -> Refusal | None:
        missing = unavailable(call.x.device)
        reason = missing or unserved(computes_in(call.x))
        if reason is not None:
            return Refusal(reason, mendable=missing is not None)
        try:
            step = step_of(call.cells[0], call.noises[0])  # which differentiates, and compiles nothing
            if isinstance(step, PhasedStep):
                step.program(call.noises[0].mask is not None)
        except BackendError as error:
            return Refusal(str(error.args[0]), mendable=True)
        return None

    def walks(self, x: Tensor) -> bool:
        return x.is_cuda and unavailable(x.device) is None and unserved(computes_in(x)) is None

    def walk(
        self, equations: Equations, blocks: Blocks, walk: Walk, tensors: Mapping[str, Tensor | None]
    ) -> list[Tensor]:
        like = next(tensor for tensor in tensors.values() if tensor is not None)
        with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
            return run_walk(equations, blocks, walk, tensors, computes_in(like))

    def run(self, call: LayerCall) -> Unrolled:
        """Triton launches on the current device, which must be that of x."""
        with torch.cuda.device(call.x.device) if call.x.is_cuda else nullcontext():
            outputs, finals = unroll_directions(call)
        lasts = [cell.O(final) for cell, final in zip(call.cells, finals, strict=True)]
        return Unrolled(side_by_side(outputs), side_by_side(lasts), tuple(finals))


@functools.cache
def unavailable(device: torch.device) -> str | None:
    """Why there are no kernels for this card, or None."""
    if torch.version.hip is not None:
        return "kernels are made for NVIDIA's cards"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"{torch.cuda.get_device_name(device)} is too old: kernels need compute capability 8.0"
    try:
        card_of(device)
    except ImportError:
        return "Triton is not installed (it comes with torch's CUDA builds; pip install triton)"
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:  # no C compiler for its driver
        return f"Triton does not work here ({' '.join(str(error).split())[:200]})"
    return None


def computes_in(x: Tensor) -> torch.dtype:
    """Return the numbers that are multiplied: the tensors' own, under autocast its numbers."""
    casts = in_autocast(x) and x.dtype != torch.float64  # which autocast leaves alone
    return torch.get_autocast_dtype("cuda") if casts else x.dtype


def unserved(dtype: torch.dtype) -> str | None:
    if dtype in NUMBERS:
        return None
    return f"kernels on the GPU compute in float32, bfloat16 and float16, not {dtype}"


@functools.cache
def card_of(device: torch.device) -> Card:
    from triton.runtime import driver

    found = driver.active.utils.get_device_properties(device.index)
    name = torch.cuda.get_device_name(device)
    overlaps = torch.cuda.get_device_capability(device) >= (9, 0)
    return Card(name, found["multiprocessor_count"], found["max_shared_mem"], overlaps)


def step_of(cell: RecurrentCell, noise: Noise = NO_NOISE) -> Step:
    """The equations of this cell under this kind of zoneout, with their gradients."""
    equations = cell.equations
    assert equations is not None
    rates = noise.rates

    def make() -> Step:
        own = add_zoneout(equations, rates) if rates else replace(equations, compiled={})
        return StepProgram(own) if own.pointwise else PhasedStep(own)

    return make_once(equations, ("step", *rates.items()), make)


def _by_phases(step: Step) -> PhasedStep:
    """The same step as a product and what comes after it."""
    if isinstance(step, PhasedStep):
        return step
    e = step.equations
    return make_once(e, "by phases", lambda: PhasedStep(replace(e, compiled={})))


def explain(cell: RecurrentCell, B: int, dtype: torch.dtype, *, directions: int = 1, T: int = 1) -> list[str]:
    """Tell which form B rows of T steps take on this card, how it is tiled, and why no faster one."""
    device = torch.device("cuda", torch.cuda.current_device())
    free = None if cell.equations is not None else f"{type(cell).__name__} is a free-form cell"
    reason = free or unserved(dtype) or unavailable(device)
    if reason is not None:
        return [f"taken: the plain loop: {reason}"]
    card, step = card_of(device), step_of(cell)
    about = f"{card.name}: {card.processors} processors, {card.memory / 1024:.0f} KB on chip for a program"
    if isinstance(step, PhasedStep):
        return [about, f"taken: {step.program(False)}"]
    workload = _workload(step, cell.hidden_size, B, dtype, directions, cell.heads)
    chosen, *others = (t for t in tilings(workload, card) if (card, workload, t) not in _refused)
    chunks = count_chunks(step, workload, T, card)
    parallel = f"time in {chunks} chunks at once, each of them " if chunks > 1 else ""
    return [
        about,
        f"taken: {parallel}{chosen}",
        *(f"instead of {other}" for other in others[:3]),
        *(f"not {reason}" for reason in find_obstacles(workload, card)),
    ]


def _workload(step: Step, H: int, B: int, dtype: torch.dtype, directions: int, heads: int) -> Workload:
    numbers, products = str(dtype).removeprefix("torch."), len(step.equations.products)
    precision = ("tf32" if tf32_products() else "ieee") if dtype == torch.float32 else ""
    values = step.values if isinstance(step, StepProgram) else 0
    return Workload(H, B, products, numbers, precision, directions, heads if products else 1, values)


def unroll_directions(call: LayerCall, chunks: int | None = None) -> tuple[list[Tensor], list[State]]:
    """The directions of a layer at once: outputs (B, T, ·) and the final state of every direction.

    ``chunks``: the parts of a sequence that are computed at once; None: it is to be chosen.
    Outputs may come as one tensor, side by side. Directions whose equations differ (an option of one was
    changed) are unrolled one after the other.
    """
    cells, x, lengths, cell = call.cells, call.x, call.lengths, call.cells[0]
    if len(cells) > 1 and _differ(*cells):
        unrolled = [unroll_directions(one) for one in call.directions()]
        return [outputs for (outputs,), _ in unrolled], [final for _, (final,) in unrolled]
    step, equations = step_of(cell, call.noises[0]), cell.equations
    phased = isinstance(step, PhasedStep)
    assert equations is not None
    (B, T), H, e, given = x.shape[:2], cell.hidden_size, step.equations, x
    if cell.projects_itself and e.inputs:  # from what is no worse in the padding
        clean = x if lengths is None else fill_padding(x, lengths)
        given = torch.cat([one.project(clean) for one in cells], -1)
    each = zip(cells, call.weights, call.states, call.noises, strict=True)
    directions = [
        DirectionTensors.of(e, DirectionTensors.gather(c, w, s, n, n.drawn(e.noise), whole=phased))
        for c, w, s, n in each
    ]
    heads = 1 if phased else cell.heads
    _check_shapes(step, directions, given, H, heads)
    numbers, all_states = computes_in(x), cell.reads_whole_state
    card, workload = card_of(x.device), _workload(step, H, B, numbers, len(cells), heads)
    expected = {name: rate for name, rate in call.noises[0].rates.items() if rate is not None}
    if chunks is None:
        chunks = count_chunks(step, workload, T, card) if isinstance(step, StepProgram) else 1
        if T % chunks:
            return _in_whole_chunks(call, chunks)
    kinds, sizes = (numbers, call.dtype, workload.precision), (B, T, H)
    rest = (*kinds, *sizes, call.reverse, lengths, all_states, expected, chunks)
    for tiling in [PHASES] if phased else tilings(workload, card):
        if (card, workload, tiling) in _refused:
            continue
        refuse = functools.partial(_refused.add, (card, workload, tiling))
        try:
            own = _by_phases(step) if tiling.form == "phases" else step
            spec = ScanSpec(tiling, refuse, tuple(cells), equations, own, *rest)
            sequences, finals = scan(spec, given, directions)
            break
        except DoesNotFit:
            refuse()
    else:
        raise BackendError(f"a row of {H} units is more than the card computes at once")
    if not all_states:
        return [sequences[0]], finals
    return _outputs(cells, sequences, lengths), finals


def _in_whole_chunks(call: LayerCall, chunks: int) -> tuple[list[Tensor], list[State]]:
    """The same with padding, so that all chunks are of the same length."""
    B, T, _ = call.x.shape
    more = padded_length(T, chunks) - T
    lengths = call.x.new_full((B,), T, dtype=torch.int64) if call.lengths is None else call.lengths

    def padded(sequence: Tensor) -> Tensor:
        return F.pad(sequence, (0, 0, 0, more)) if more else sequence

    drawn = [
        {name: padded(z) if isinstance(z, Tensor) else z for name, z in noise.zoneout.items()}
        for noise in call.noises
    ]
    noises = [replace(noise, zoneout=own) for noise, own in zip(call.noises, drawn, strict=True)]
    whole = call._replace(x=padded(call.x), lengths=lengths, noises=noises)
    outputs, finals = unroll_directions(whole, chunks)
    return [own[:, :T] for own in outputs], finals


def _differ(one: RecurrentCell, other: RecurrentCell) -> bool:
    same = signature(one.equations) == signature(other.equations)
    return not same or one.reads_whole_state != other.reads_whole_state


def _outputs(
    cells: Sequence[RecurrentCell], sequences: Sequence[Tensor], lengths: Tensor | None
) -> list[Tensor]:
    """O of all states, for every direction; zero at padding, where O sees what is no worse than elsewhere."""
    B, T, _ = sequences[0].shape
    shown = sequences if lengths is None else [fill_padding(sequence, lengths) for sequence in sequences]
    found = []
    for cell, *own in zip(cells, *(sequence.chunk(len(cells), -1) for sequence in shown), strict=True):
        rows = cell.State(*(sequence.flatten(0, 1) for sequence in own))
        found.append(zero_padding(cell.O(rows).unflatten(0, (B, T)), lengths))
    return found


def _check_shapes(step: Step, directions: list[DirectionTensors], x: Tensor, H: int, heads: int) -> None:
    """Kernels go by address, so that a weight of another shape must not reach them."""
    B, T, D = x.shape
    for direction in directions:
        for name, tensor, expected in direction.expected(step.equations, B, (B, T), D, H, heads):
            if tensor.shape != expected:
                raise ShapeError(f"{name} has shape {tuple(tensor.shape)}; the equations need {expected}")
    wide = len(step.equations.inputs) * H
    if directions[0].W_x is None and wide and wide * len(directions) != D:
        raise ShapeError(f"what project returns has {D} features; the equations need {wide}")
