"""A walk: a step of several phases over all of time, as a value; and the same by torch, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.recurrence.looks import POSITIONS, Score
from elman.recurrence.operations import OPERATIONS, REDUCTIONS
from elman.recurrence.phases import Blocks
from elman.recurrence.replay import BY_NUMBER
from elman.recurrence.symbols import Node, reach
from elman.recurrence.trace import Equations, Names, nodes_of
from elman.tensors.rows import RealSteps, length_mask


class Walk(NamedTuple):
    """What a walk is told besides its tensors.

    dims: the length of every dimension; that of a memory is the longest row's.
    lengths (B,): real steps of each row, None: all; ``positions`` (B,): real entries of each row's memory.
    shown: the states whose sequences are returned, before the final state.

    Tensors have names: ``x`` (N, ·) the input parts of all real steps; matrices and memories their own;
    ``v NAME`` vectors, ``n NAME`` (N, ·) noise, ``k NAME`` (B, ·) masks, ``initial NAME`` (B, ·) states.
    """

    steps: RealSteps
    dims: Mapping[str, int]
    shown: Names
    reverse: bool = False
    lengths: Tensor | None = None
    positions: Tensor | None = None


def walk_by_torch(
    equations: Equations, blocks: Blocks, walk: Walk, tensors: Mapping[str, Tensor | None]
) -> list[Tensor]:
    """The shown sequences (N, ·) and the final states (B, ·), differentiable any number of times.

    Rows come in one after another, the longest first, and end together. So nothing is computed at padding,
    and a step at which no gradient arrives is that for all rows.
    """
    e, given = equations, {name: t for name, t in tensors.items() if t is not None}
    rows, steps, counts = _order(walk, given[f"initial {e.states[0]}"].device)
    by_row = {n: t[rows] for n, t in given.items() if n.startswith(("k ", "initial ")) or t.dim() == 3}
    by_step = {n: t[steps].split(counts) for n, t in given.items() if n == "x" or n.startswith("n ")}
    positions = None if walk.positions is None else walk.positions[rows]
    state, history = [by_row[f"initial {name}"][:0] for name in e.states], []
    nodes = nodes_of(e)
    for t, count in enumerate(counts):
        there = {name: tensor[:count] for name, tensor in by_row.items()}
        new = [there[f"initial {name}"][len(state[0]) :] for name in e.states]
        state = [torch.cat(pair) for pair in zip(state, new, strict=True)]
        real = None if positions is None else positions[:count]
        now = given | there | {name: parts[t] for name, parts in by_step.items()}
        values: dict[int, Tensor] = {}
        for node in nodes:
            values[node.index] = _value(node, values, e, blocks, walk._replace(positions=real), now, state)
        state = [values[node.index].expand_as(old) for node, old in zip(e.results, state, strict=True)]
        history.append(state)
    places, back = [e.states.index(name) for name in walk.shown], steps.argsort()
    shown = [torch.cat([at[i] for at in history])[back] for i in places]
    return [*shown, *(field[rows.argsort()] for field in state)]


def _order(walk: Walk, device: torch.device) -> tuple[Tensor, Tensor, list[int]]:
    """The rows (B,) and the real steps (N,) in the order of a walk, and how many rows take each step."""
    B, T, _ = walk.steps
    lengths = torch.full((B,), T, device=device) if walk.lengths is None else walk.lengths
    rows = lengths.argsort(descending=True, stable=True)
    first, longest = (lengths.cumsum(0) - lengths)[rows], lengths[rows]
    counts = [B if walk.lengths is None else int((lengths > after).sum()) for after in reversed(range(T))]
    steps = []
    for after, count in zip(reversed(range(T)), counts, strict=True):
        steps.append(first[:count] + (after if walk.reverse else longest[:count] - 1 - after))
    return rows, torch.cat(steps), counts


def _value(
    node: Node,
    values: Mapping[int, Tensor],
    e: Equations,
    blocks: Blocks,
    walk: Walk,
    given: Mapping[str, Tensor],
    state: list[Tensor],
) -> Tensor:
    there = None if walk.positions is None else length_mask(walk.positions, walk.dims[POSITIONS])
    args = [values[a.index] for a in node.args]
    if node.value is not None:
        return state[0].new_full((), node.value)
    if node.op == "product":
        names = (name.removesuffix("'") for name in node.name.split())
        return sum(a @ _part(given, blocks, name) for a, name in zip(args, names, strict=True))  # type: ignore[return-value]
    if node.op in REDUCTIONS:
        if node.args[0].dim == POSITIONS and there is not None:
            args = [args[0].masked_fill(~there, 0.0 if node.op == "sum" else -torch.inf)]
        return REDUCTIONS[node.op].meaning(args[0])
    if node.op == "fit":
        return (_part(given, blocks, node.name) @ args[0][..., None])[..., 0]
    if node.op == "context":
        weights = args[0] if there is None else args[0].masked_fill(~there, 0.0)
        return (weights[:, None] @ _part(given, blocks, node.name))[:, 0]
    if node.op == "score":
        score = e.scores[node.name]
        if score.near and there is not None:
            args[-1] = args[-1].masked_fill(~there, 0.0)
        return _score(score, args, _part(given, blocks, score.memory))
    if node.args:
        numbers = [
            a.value if node.op in BY_NUMBER and a.value is not None else v
            for a, v in zip(node.args[1:], args[1:], strict=True)
        ]
        return OPERATIONS[node.op].meaning(args[0], *numbers)
    if node.op == "size":
        size = walk.dims[node.name]
        own = walk.positions if node.name == POSITIONS else None
        return state[0].new_full((), size) if own is None else own[:, None].to(state[0].dtype)
    if node.op == "zero":
        return state[0].new_zeros(len(state[0]), walk.dims[node.dim])
    if node.op == "s":
        return state[e.states.index(node.name)]
    if node.op == "x":
        return given["x"].chunk(len(e.inputs), -1)[e.inputs.index(node.name)]
    return given[f"{node.op} {node.name}"]


def _part(given: Mapping[str, Tensor], blocks: Blocks, name: str) -> Tensor:
    tensor, part, count = blocks[name]
    return given[tensor].chunk(count, -1)[part]


def _score(score: Score, args: list[Tensor], memory: Tensor) -> Tensor:
    """``Σ_u E`` for every position, (B, S)."""
    values: dict[int, Tensor] = {}
    S = memory.shape[1]
    around = F.pad(args[-1], (score.reach, len(score.near))) if score.near else None
    todo = sorted(reach([score.result]).values(), key=lambda node: node.index)
    for node in todo:
        if node.value is not None:
            values[node.index] = memory.new_full((), node.value)
        elif node.op == "m":
            values[node.index] = memory
        elif node.op == "w":
            assert around is not None
            values[node.index] = around[:, int(node.name) : int(node.name) + S, None]
        elif node.op == "e":
            argument = args[int(node.name)]
            values[node.index] = argument if argument.dim() == 1 else argument[:, None]
        else:
            values[node.index] = OPERATIONS[node.op].meaning(*(values[a.index] for a in node.args))
    return values[score.result.index].sum(-1)
