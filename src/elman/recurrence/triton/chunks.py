"""Linear recurrences in parallel over time: a sequence in chunks, all of which are computed at once.

A chunk is a row of its own: in memory (B, T, ·) is (B · chunks, T / chunks, ·). Where it starts is found
first: a kernel goes over all chunks from zero and multiplies their factors, another carries the state from
chunk to chunk. Then the kernel of any other cell runs over the chunks. The way back is the same from the
other end, for the gradient of a state is linear in that of the next one, with the same factors. Sums are
always taken in this order, so results are repeatable.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

import torch
from torch import Tensor

from elman.recurrence.compiled import make_once
from elman.recurrence.linear import Level, linear_levels
from elman.recurrence.triton.emit.writer import Variant
from elman.recurrence.triton.launch import launch
from elman.recurrence.triton.program import StepProgram
from elman.recurrence.triton.sequence import launch_sequence
from elman.recurrence.triton.spec import ScanSpec
from elman.recurrence.triton.tiling import MOST_GROUPS, Card, Workload

SHORTEST = 32  # steps of a chunk: below, what is read twice outweighs what runs at once
FEWEST = 4  # chunks that are worth it
BUSY = 8  # programs of a processor that hide each other's waiting
UNITS = 128  # of a program that carries
STRIDES = ("of_factor", "of_end", "of_start", "of_into", "of_last")  # from one direction to the other

NUMBERS = ("B", "H", "chunks", "reverse", "adds", *STRIDES)
CARRY = f"""
@triton.jit(do_not_specialize={list(NUMBERS)})
def carry(factor, end, start, into, last, {", ".join(NUMBERS)}):
    b, d = tl.program_id(0).to(tl.int64), tl.program_id(2).to(tl.int64)
    u = tl.program_id(1) * {UNITS} + tl.arange(0, {UNITS})
    live = u < H
    backwards = reverse ^ d.to(tl.int32)
    state = tl.load(start + d * of_start + b * H + u, mask=live & (adds == 0), other=0)
    at = (b * chunks + backwards * (chunks - 1)) * H + u
    move = (1 - 2 * backwards) * H
    factor, end, into = factor + d * of_factor, end + d * of_end, into + d * of_into
    a, e = tl.load(factor + at, mask=live, other=0), tl.load(end + at, mask=live, other=0)
    known = tl.load(into + at, mask=live & (adds > 0), other=0)
    for chunk in range(chunks):
        following = at + move
        more = live & (chunk < chunks - 1)
        next_a = tl.load(factor + following, mask=more, other=0)
        next_e = tl.load(end + following, mask=more, other=0)
        next_known = tl.load(into + following, mask=more & (adds > 0), other=0)
        tl.store(into + at, state + known, mask=live)
        state = tl.where(state == 0.0, e, a * state + e)
        a, e, known, at = next_a, next_e, next_known, following
    tl.store(last + d * of_last + b * H + u, state, mask=live)
"""


_whole: ContextVar[bool] = ContextVar("whole", default=False)


@contextmanager
def in_one_piece() -> Iterator[None]:
    """Inside, linear recurrences go step by step: what parallel ones are compared with."""
    before = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(before)


def count_chunks(step: StepProgram, workload: Workload, T: int, card: Card | None) -> int:
    """How many chunks a sequence is computed in; 1: it goes step by step.

    Chunks of the same length are liked: others need padding.
    """
    if workload.products or card is None or _whole.get() or not linear_levels(step.equations):
        return 1
    tiles = workload.directions * -(-workload.H // 64) * workload.B / 16  # that run at once anyway
    filling = int(BUSY * card.processors / tiles)
    most = min(filling, T // SHORTEST, math.isqrt(4 * T))  # then carrying takes no longer than a chunk
    even = (n for n in range(most, most // 2, -1) if T % n == 0)
    return next(even, most) if most >= FEWEST else 1


def padded_length(T: int, chunks: int) -> int:
    """The steps of a sequence that can be cut into so many chunks of the same length."""
    return -(-T // chunks) * chunks


def forward_in_chunks(spec: ScanSpec, variant: Variant, arguments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fill the outputs, the final state and what is saved; what the way back needs besides is returned."""
    inner, initial, n = _inner(spec), arguments["initial"], spec.chunks
    D, S, B, H = initial.shape
    starts = initial.new_zeros(D, S, B, n, H)
    usual = replace(variant, mask=False)  # which has nothing to multiply
    summary = replace(usual, training=False, summary=True)
    given, kept = {**arguments, **_lengths(inner)}, {}
    for number, level in enumerate(linear_levels(spec.step.equations)):
        own, count = replace(inner, step=_summary(level)), len(level.states)
        ends = _ends(spec, own, summary, given, starts)
        for i, place in enumerate(_places(spec, level)):
            _carry(spec, ends[:, i - 2 * count], ends[:, i - count], initial[:, place], starts[:, place])
        kept[f"factors_{number}"] = ends[:, -count:]
    given["initial"] = kept["starts"] = starts.view(D, S, B * n, H)
    given["final"] = initial.new_empty(D, S, B * n, H)
    launch_sequence(inner, "forward", usual, given)
    final = given["final"].view(D, S, B, n, H)
    for d in range(D):
        arguments["final"][d].copy_(_at_the_end(spec, d, final[d]))
    return kept


def _ends(
    spec: ScanSpec, inner: ScanSpec, variant: Variant, given: Mapping[str, Tensor], starts: Tensor
) -> Tensor:
    """Where all chunks lead, (D, ·, B, chunks, H), and last the products of their factors.

    States of levels before start where they do, those of this one at zero and factors at one.
    """
    before = [name for name in inner.step.equations.states if name in spec.step.equations.states]
    D, _, B, n, H = starts.shape
    ends = starts.new_empty(D, len(inner.step.equations.states), B, n, H)
    initial = ends  # nobody reads it
    if 2 * len(before) > ends.shape[1]:
        initial = torch.empty_like(ends)
        for i, name in enumerate(before):
            initial[:, i] = starts[:, spec.step.equations.states.index(name)]
    launch_sequence(inner, "forward", variant, {**given, "initial": initial, "final": ends})
    return ends


def backward_in_chunks(spec: ScanSpec, variant: Variant, arguments: dict[str, Tensor]) -> None:
    """Fill the gradients of the parts, the vectors and the initial state."""
    inner, n, d_initial = _inner(spec), spec.chunks, arguments["d_initial"].zero_()
    D, S, B, H = d_initial.shape
    arriving = d_initial.new_zeros(D, S, B, n, H)
    for d in range(D) if "d_final" in arguments else ():
        _put_at_the_end(spec, d, arriving[d], arguments["d_final"][d].float())
    alone = d_initial.new_empty(D, S, B, n, H)
    given = {**arguments, "initial": arguments["starts"], "d_final": arriving, "d_initial": alone}
    given |= _lengths(inner)
    usual = replace(variant, mask=False, d_final=True)
    for number, level in reversed(list(enumerate(linear_levels(spec.step.equations)))):
        launch_sequence(inner, "backward", replace(usual, summary=True), given)
        for i, place in enumerate(_places(spec, level)):
            factor, first = arguments[f"factors_{number}"][:, i], d_initial[:, place]
            _carry(spec, alone[:, place], factor, None, arriving[:, place], first)
    launch_sequence(inner, "backward", usual, given)


def _carry(
    spec: ScanSpec,
    end: Tensor,
    factor: Tensor,
    start: Tensor | None,
    into: Tensor,
    last: Tensor | None = None,
) -> None:
    """From chunk to chunk, in all directions: where each begins, (D, B, chunks, H), and where the last ends.

    Backward there is no start but zero, and what is found is added to what is there.
    """
    (D, B, n, H), back = into.shape, start is None
    last = into.new_empty(D, B, H) if last is None else last
    tensors = {"factor": factor, "end": end, "start": last if start is None else start}
    tensors |= {"into": into, "last": last}
    numbers = {"B": B, "H": H, "chunks": n, "reverse": int(spec.reverse ^ back), "adds": int(back)}
    numbers |= {stride: tensors[stride.removeprefix("of_")].stride(0) for stride in STRIDES}
    launch(CARRY, "carry", (B, -(-H // UNITS), D), tensors, numbers, warps=4)


def _inner(spec: ScanSpec) -> ScanSpec:
    """The same sequences, every chunk a row."""
    n, steps, lengths = spec.chunks, spec.T // spec.chunks, spec.lengths
    rows = -(-spec.B * n // spec.tiling.rows)
    tiling = replace(spec.tiling, groups=min(rows, MOST_GROUPS), launches=-(-rows // MOST_GROUPS))
    if lengths is not None:
        first = torch.arange(0, spec.T, steps, device=lengths.device)
        lengths = (lengths[:, None] - first).clamp(0, steps).flatten()
    return replace(spec, B=spec.B * n, T=steps, lengths=lengths, tiling=tiling, chunks=1)


def _lengths(inner: ScanSpec) -> dict[str, Tensor]:
    return {} if inner.lengths is None else {"lengths": inner.lengths}


def _summary(level: Level) -> StepProgram:
    return make_once(level.summary, "summary", lambda: StepProgram(level.summary))


def _places(spec: ScanSpec, level: Level) -> list[int]:
    """Where the states of a level stand among all."""
    return [spec.step.equations.states.index(name) for name in level.states]


def _at_the_end(spec: ScanSpec, d: int, states: Tensor) -> Tensor:
    """(S, B, H): of (S, B, chunks, H) that of the chunk in which the last step of a row is taken."""
    last = _last_chunk(spec, d)
    return states[:, :, last] if isinstance(last, int) else states.gather(2, last).squeeze(2)


def _put_at_the_end(spec: ScanSpec, d: int, states: Tensor, given: Tensor) -> None:
    last = _last_chunk(spec, d)
    if isinstance(last, int):
        states[:, :, last] = given
    else:
        states.scatter_(2, last, given[:, :, None])


def _last_chunk(spec: ScanSpec, d: int) -> int | Tensor:
    """The chunk in which the last step is taken, of every row, (S, B, 1, H), if that is not the same."""
    if spec.reverse ^ (d == 1):
        return 0
    if spec.lengths is None:
        return spec.chunks - 1
    last = torch.div(spec.lengths - 1, spec.T // spec.chunks, rounding_mode="floor").clamp(min=0)
    return last.view(1, spec.B, 1, 1).expand(len(spec.step.equations.states), spec.B, 1, spec.H)
