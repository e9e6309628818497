"""Linear recurrences in parallel over time: a sequence in chunks, all of which are computed at once.

A chunk is a row of its own: in memory (B, T, ·) is (B · chunks, T / chunks, ·). Where it starts is found
first: a kernel goes over all chunks from zero and multiplies their factors, another carries the state from
chunk to chunk. Then the kernel of any other cell runs over the chunks. The way back is the same from the
other end, for the gradient of a state is linear in that of the next one, with the same factors. Sums are
always taken in this order, so results are repeatable.
"""

import math
from collections.abc import Mapping
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
from elman.recurrence.triton.tiling import Card, Tiling, Workload

SHORTEST = 32  # steps of a chunk: below, what is read twice outweighs what runs at once
FEWEST = 4  # chunks that are worth it
BUSY = 8  # programs of a processor that hide each other's waiting
UNITS = 128  # of a program that carries

CARRY = f"""
@triton.jit(do_not_specialize=["chunks", "H", "backwards"])
def carry(factor, end, start, into, last, chunks, H, backwards):
    row = tl.program_id(0).to(tl.int64)
    u = tl.program_id(1) * {UNITS} + tl.arange(0, {UNITS})
    live = u < H
    state = tl.load(start + row * H + u, mask=live, other=0)
    at = (row * chunks + backwards * (chunks - 1)) * H + u
    move = (1 - 2 * backwards) * H
    a, b = tl.load(factor + at, mask=live, other=0), tl.load(end + at, mask=live, other=0)
    for chunk in range(chunks):
        following = at + move
        more = live & (chunk < chunks - 1)
        next_a = tl.load(factor + following, mask=more, other=0)
        next_b = tl.load(end + following, mask=more, other=0)
        tl.store(into + at, state, mask=live)
        state = tl.where(state == 0.0, b, a * state + b)
        a, b, at = next_a, next_b, following
    tl.store(last + row * H + u, state, mask=live)
"""


def count_chunks(step: StepProgram, workload: Workload, T: int, card: Card | None) -> int:
    """How many chunks a sequence is computed in; 1: it goes step by step."""
    if workload.products or card is None or not linear_levels(step.equations):
        return 1
    tiles = workload.directions * -(-workload.H // 64) * workload.B / 16  # that run at once anyway
    filling = int(BUSY * card.processors / tiles)
    found = min(filling, T // SHORTEST, math.isqrt(4 * T))  # then carrying takes no longer than a chunk
    return found if found >= FEWEST else 1


def padded_length(T: int, chunks: int) -> int:
    """The steps of a sequence that can be cut into so many chunks of the same length."""
    return -(-T // chunks) * chunks


def forward_in_chunks(spec: ScanSpec, variant: Variant, arguments: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fill the outputs, the final state and what is saved; what the way back needs besides is returned."""
    inner, initial, n = _inner(spec), arguments["initial"], spec.chunks
    D, S, B, H = initial.shape
    given = {**arguments, "lengths": inner.some_lengths}
    usual = replace(variant, mask=False, lengths=True)  # a mask has nothing to multiply
    summary = replace(usual, training=False, summary=True)
    starts, factors = initial.new_zeros(D, S, B, n, H), []
    for level in linear_levels(spec.step.equations):
        found = _ends(spec, replace(inner, step=_summary(level)), summary, given, starts)
        places, size = _places(spec, level), len(level.states)
        ends, factor = found[:, -2 * size : -size], found[:, -size:].contiguous()
        factors.append(factor)
        for d in range(D):
            carried, _ = _carry(factor[d], ends[d], initial[d, places], n, _backwards(spec, d))
            starts[d, places] = carried.view(size, B, n, H)
    given |= {"initial": starts.view(D, S, B * n, H), "final": starts.new_empty(D, S, B * n, H)}
    launch_sequence(inner, "forward", usual, given)
    for d in range(D):
        own = given["final"].view(D, S, B, n, H)[d].gather(2, _last_chunks(spec, d))
        arguments["final"][d].copy_(own.squeeze(2))
    return {"starts": given["initial"], "factors": torch.cat(factors, 1)}


def _ends(
    spec: ScanSpec, inner: ScanSpec, variant: Variant, given: Mapping[str, Tensor], starts: Tensor
) -> Tensor:
    """Where all chunks lead, and last the products of their factors.

    States of levels before start where they do, those of this one at zero, which is what is there so far.
    """
    all_states, states = spec.step.equations.states, inner.step.equations.states
    D, _, B, n, H = starts.shape
    places = [all_states.index(name) for name in states if name in all_states]
    initial = starts.new_ones(D, len(states), B * n, H)
    initial[:, : len(places)] = starts[:, places].flatten(2, 3)
    ends = torch.empty_like(initial)
    launch_sequence(inner, "forward", variant, {**given, "initial": initial, "final": ends})
    return ends


def backward_in_chunks(spec: ScanSpec, variant: Variant, arguments: dict[str, Tensor]) -> None:
    """Fill the gradients of the parts, the vectors and the initial state."""
    inner, n = _inner(spec), spec.chunks
    D, S, B, H = arguments["initial"].shape
    arriving = arguments["initial"].new_zeros(D, S, B, n, H)
    if "d_final" in arguments:
        for d in range(D):
            arriving[d].scatter_(2, _last_chunks(spec, d), arguments["d_final"][d].float()[:, :, None])
    given = {**arguments, "initial": arguments["starts"], "lengths": inner.some_lengths}
    given |= {"d_final": arriving.view(D, S, B * n, H), "d_initial": arriving.new_empty(D, S, B * n, H)}
    usual = replace(variant, mask=False, lengths=True, d_final=True)
    arguments["d_initial"].zero_()
    last = arguments["factors"].shape[1]
    for level in reversed(linear_levels(spec.step.equations)):
        launch_sequence(inner, "backward", replace(usual, summary=True), given)
        places, size = _places(spec, level), len(level.states)
        factor, last = arguments["factors"][:, last - size : last], last - size
        for d in range(D):
            own, nothing = given["d_initial"][d, places], arriving.new_zeros(size, B, H)
            more, first = _carry(factor[d], own, nothing, n, not _backwards(spec, d))
            arriving[d, places] += more.view(size, B, n, H)
            arguments["d_initial"][d, places] = first.view(size, B, H)
    launch_sequence(inner, "backward", usual, given)


def _carry(factor: Tensor, end: Tensor, start: Tensor, n: int, back: bool) -> tuple[Tensor, Tensor]:
    """From chunk to chunk: where each begins, (rows, chunks, H), and where the last one ends, (rows, H)."""
    H = factor.shape[-1]
    rows = factor.numel() // (n * H)
    tensors = {"factor": factor.contiguous(), "end": end.contiguous(), "start": start.contiguous()}
    into, last = factor.new_empty(rows, n, H), factor.new_empty(rows, H)
    tensors |= {"into": into, "last": last}
    numbers = {"chunks": n, "H": H, "backwards": int(back)}
    launch(CARRY, "carry", (rows, -(-H // UNITS), 1), tensors, numbers, warps=4)
    return into, last


def _inner(spec: ScanSpec) -> ScanSpec:
    """The same sequences, every chunk a row."""
    n, steps = spec.chunks, spec.T // spec.chunks
    tile, rows = spec.tiling, -(-spec.B * n // spec.tiling.rows)
    tiling: Tiling = replace(tile, groups=min(rows, 65535), launches=-(-rows // 65535))
    first = torch.arange(0, spec.T, steps, device=spec.some_lengths.device)
    lengths = (spec.some_lengths[:, None] - first).clamp(0, steps).flatten()
    return replace(spec, B=spec.B * n, T=steps, lengths=lengths, tiling=tiling, chunks=1)


def _summary(level: Level) -> StepProgram:
    return make_once(level.summary, "summary", lambda: StepProgram(level.summary))


def _places(spec: ScanSpec, level: Level) -> list[int]:
    """Where the states of a level stand among all."""
    return [spec.step.equations.states.index(name) for name in level.states]


def _backwards(spec: ScanSpec, d: int) -> bool:
    """Whether a direction begins at the end."""
    return spec.reverse ^ (d == 1)


def _last_chunks(spec: ScanSpec, d: int) -> Tensor:
    """(S, B, 1, H): the chunk in which the last step of a row is taken."""
    last = torch.div(spec.some_lengths - 1, spec.T // spec.chunks, rounding_mode="floor")
    last = torch.zeros_like(last) if _backwards(spec, d) else last.clamp(min=0)
    return last.view(1, spec.B, 1, 1).expand(len(spec.step.equations.states), spec.B, 1, spec.H)
