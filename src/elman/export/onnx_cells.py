"""Recurrent networks as nodes: native operators where these are the cell, else a Scan of its equations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elman.cells.base import Cell
from elman.cells.gru import GRU
from elman.cells.layer_norm_lstm import LayerNormLSTM
from elman.cells.lstm import LSTM
from elman.errors import ExportError
from elman.export.onnx_graph import GraphWriter, Value
from elman.layers.rnn import RNN
from elman.recurrence.heads import whole_matrix
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Equations, add_zoneout, nodes_of

NODES = {  # operations that are one node of the same meaning
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "neg": "Neg",
    "pow": "Pow",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "Relu",
    "softplus": "Softplus",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "sign": "Sign",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "maximum": "Max",
    "minimum": "Min",
    "where": "Where",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "eq": "Equal",
    "and": "And",
    "or": "Or",
    "not": "Not",
}
LAST = np.array([-1], np.int64)
Write = Callable[..., str]
OTHERS: dict[str, Write] = {  # operations that are several nodes
    "ne": lambda g, a, b: g.op("Not", g.op("Equal", a, b)),
    "clamp": lambda g, a, low, high: g.op("Min", g.op("Max", a, low), high),
    "gelu": lambda g, a: g.op(
        "Mul", g.op("Mul", a, 0.5), g.op("Add", g.op("Erf", g.op("Mul", a, 2**-0.5)), 1.0)
    ),
    "sum": lambda g, a: g.op("ReduceSum", a, LAST, keepdims=1),
    "max": lambda g, a: g.op("ReduceMax", a, axes=[-1], keepdims=1),
    "top": lambda g, a: g.op("ReduceMax", a, axes=[-1], keepdims=1),
}


class Read(NamedTuple):
    """What a network gives: outputs (B, T, ·), zero at padding, the last (B, ·), and all states (B, ·)."""

    outputs: str
    last: str
    states: list[list[str]]  # of each layer and direction, those of its cell


def equations_of(rnn: RNN, cell: Cell) -> Equations:
    """The equations of a cell as they are in use: what zoneout expects is part of them."""
    equations = cell.equations
    if equations is None:
        raise ExportError(f"{type(cell).__name__} is a free-form cell; it has no equations to export")
    noise = rnn.regularisers.draw(cell, 1, 1, torch.zeros(1, 1, cell.hidden_size), training=False)
    return add_zoneout(equations, noise.rates) if noise.rates else equations


def write_step(
    g: GraphWriter, cell: Cell, equations: Equations, parts: str, states: Sequence[str]
) -> list[str]:
    """The new states (N, H) from input parts (N, ·) and states, as the equations say."""
    H, _, W_h = cell.hidden_size, *cell.weights()[1:3]
    x = dict(zip(equations.inputs, _blocks(g, parts, len(equations.inputs), H), strict=True))
    h: dict[str, str] = {}
    if W_h is not None:
        count = len(equations.products)
        product = g.op("MatMul", states[0], g.matrix(whole_matrix(W_h, count)))
        h = dict(zip(equations.products, _blocks(g, product, count, H), strict=True))
    learned = dict(zip((*equations.vectors, *equations.matrices), cell.weights()[3], strict=True))
    s = dict(zip(equations.states, states, strict=True))
    values: dict[int, Value] = {}

    def leaf(node: Node) -> Value:
        if node.value is not None:
            return float(node.value)
        if node.op in ("zero", "size"):
            return np.zeros(H, np.float32) if node.op == "zero" else float(H)
        if node.op == "v":
            return g.weight(learned[node.name])
        return {"x": x, "h": h, "s": s}[node.op][node.name]

    for node in nodes_of(equations):
        given = [values[argument.index] for argument in node.args]
        if node.op == "product":
            terms = zip(given, node.name.split(), strict=True)
            made = [g.op("MatMul", one, g.matrix(whole_matrix(learned[name]))) for one, name in terms]
            values[node.index] = made[0] if len(made) == 1 else g.op("Sum", *made)
        elif not node.args:
            values[node.index] = leaf(node)
        elif node.op in NODES:
            values[node.index] = g.op(NODES[node.op], *given)
        elif node.op in OTHERS:
            values[node.index] = OTHERS[node.op](g, *given)
        else:
            raise ExportError(f"the operation {node.op!r} of {type(cell).__name__} has no node in ONNX")
    new = []
    for node, old in zip(equations.results, states, strict=True):
        value = values[node.index]
        whole = isinstance(value, str) and node.op not in ("v", "constant") and node.dim
        new.append(str(value) if whole else g.op("Expand", value, g.op("Shape", old)))
    return new


def _blocks(g: GraphWriter, value: str, count: int, H: int) -> list[str]:
    return g.split(value, [H] * count) if count else []


def write_parts(g: GraphWriter, cell: Cell, x: str) -> str:
    """All that depends on the input alone, (…, ·) for (…, D)."""
    W_x, b = cell.weights()[:2]
    if W_x is None:
        raise ExportError(f"{type(cell).__name__} reads no input; it cannot be exported")
    parts = g.op("MatMul", x, g.matrix(W_x))
    if type(cell) is LayerNormLSTM:
        shift = np.zeros(W_x.shape[1], np.float32) if b is None else g.weight(b)
        return g.op("LayerNormalization", parts, g.weight(cell.gain_x), shift, axis=-1, epsilon=cell.epsilon)
    if type(cell).project is not Cell.project:
        raise ExportError(f"{type(cell).__name__} has a project of its own, which is Python code")
    return parts if b is None else g.op("Add", parts, g.weight(b))


def shown_states(cell: Cell) -> list[int]:
    """Which of its states a cell puts out, side by side."""
    if not cell.reads_whole_state:
        return [0]
    probe = torch.rand(len(cell.state), 3, cell.hidden_size, generator=torch.Generator().manual_seed(1))
    output = cell.O(cell.State(*probe)).detach()
    blocks = output.split(cell.hidden_size, -1)
    found = [n for block in blocks for n in range(len(probe)) if torch.equal(block, probe[n])]
    if len(found) != len(blocks):
        raise ExportError(f"{type(cell).__name__} has an output O of its own that is more than its states")
    return found


def write_output(g: GraphWriter, cell: Cell, states: Sequence[str]) -> str:
    return g.concat([states[n] for n in shown_states(cell)])


def native(cell: Cell, equations: Equations) -> str | None:
    """The operator of ONNX that computes exactly this cell."""
    if cell.heads > 1 or equations is not cell.equations or not cell.hidden_size:
        return None
    return {LSTM: "LSTM", GRU: "GRU"}.get(type(cell))


def write_start(g: GraphWriter, rnn: RNN, B: str) -> list[list[str]]:
    """The states (B, H) before the first step, of every cell: zero or learned."""
    starts = iter(rnn.starts) if rnn.initial_state == "learned" else None
    found = []
    for cell in rnn.all_cells():
        if starts is None and not cell.starts_at_zero:
            raise ExportError(f"{type(cell).__name__} has an initial_state of its own, which is Python code")
        shape = g.op("Concat", B, np.array([cell.hidden_size], np.int64), axis=0)
        own = [0.0 if starts is None else g.weight(next(starts)) for _ in cell.state]
        found.append([g.op("Expand", value, shape) for value in own])
    return found


def write_sequence(
    g: GraphWriter, rnn: RNN, x: str, lengths: str, starts: list[list[str]] | None = None
) -> Read:
    """A network over (B, T, D), of which lengths (B,) are real."""
    B = g.op("Slice", g.op("Shape", x), *(np.array([n], np.int64) for n in (0, 1, 0)))
    states = write_start(g, rnn, B) if starts is None else starts
    x = g.op("Transpose", x, perm=[1, 0, 2])  # (T, B, D), as operators have it
    finals: list[list[str]] = []
    lasts: list[str] = []
    for depth in range(rnn.layers):
        cells = rnn.all_cells()[depth * rnn.directions : (depth + 1) * rnn.directions]
        own = states[depth * rnn.directions : (depth + 1) * rnn.directions]
        kinds = {native(cell, equations_of(rnn, cell)) for cell in cells}
        kind = kinds.pop() if len(kinds) == 1 else None
        if kind is None:
            made = [
                _write_scan(g, rnn, cell, x, lengths, start, reverse=bool(d))
                for d, (cell, start) in enumerate(zip(cells, own, strict=True))
            ]
            x = g.concat([outputs for outputs, _ in made])
            new = [final for _, final in made]
        else:
            x, new = _write_native(g, kind, cells, x, lengths, own)
        lasts = [write_output(g, cell, final) for cell, final in zip(cells, new, strict=True)]
        finals += new
    return Read(g.op("Transpose", x, perm=[1, 0, 2]), g.concat(lasts), finals)


def _write_native(
    g: GraphWriter, kind: str, cells: Sequence[Cell], x: str, lengths: str, starts: Sequence[Sequence[str]]
) -> tuple[str, list[list[str]]]:
    """An operator for all directions of a layer; its order of gates is not ours."""
    order = ("i", "o", "f", "z") if kind == "LSTM" else ("z", "r", "n")
    H, first = cells[0].hidden_size, np.array([0], np.int64)

    def stacked(blocks: Sequence[Tensor]) -> str:
        rows = [g.op("Unsqueeze", g.weight(block), first) for block in blocks]
        return g.concat(rows, 0)

    def rows(cell: Cell, name: str) -> Tensor:
        return torch.cat([cell.block(name, gate).t() for gate in order])  # (gates · H, ·)

    biases = []
    for cell in cells:
        zero = torch.zeros(H)
        own = [cell.block("b", gate) if cell.b is not None else zero for gate in order]
        last = [cell.get_parameter("m").detach() if kind == "GRU" and cell.vectors else zero]
        biases.append(torch.cat([*own, *[zero] * (len(order) - 1), *last]))
    options: dict[str, Any] = {"hidden_size": H}
    options["direction"] = "bidirectional" if len(cells) == 2 else "forward"
    if kind == "GRU":
        options["linear_before_reset"] = 1
    initial = [
        g.concat([g.op("Unsqueeze", start[n], first) for start in starts], 0)
        for n in range(len(cells[0].state))
    ]
    short = g.op("Cast", lengths, to=6)  # int32
    W, R = (stacked([rows(cell, name) for cell in cells]) for name in ("W_x", "W_h"))
    bias = g.constant(torch.stack(biases).numpy())
    made = g.ops(kind, 1 + len(initial), x, W, R, bias, short, *initial, **options)
    y = g.op("Transpose", made[0], perm=[0, 2, 1, 3])  # (T, B, directions, H)
    shape = np.array([0, 0, len(cells) * H], np.int64)
    finals = [[g.op("Gather", state, d, axis=0) for state in made[1:]] for d in range(len(cells))]
    return g.op("Reshape", y, shape), finals


def _write_scan(
    g: GraphWriter, rnn: RNN, cell: Cell, x: str, lengths: str, starts: Sequence[str], *, reverse: bool
) -> tuple[str, list[str]]:
    """The equations of a cell step by step over (T, B, D): outputs (T, B, ·), and the final states."""
    equations = equations_of(rnn, cell)
    parts = write_parts(g, cell, x)
    T = g.op(
        "Squeeze", g.op("Slice", g.op("Shape", x), *(np.array([n], np.int64) for n in (0, 1, 0))), LAST * 0
    )
    steps = g.op("Unsqueeze", g.op("Range", 0, T, 1), np.array([1], np.int64))  # (T, 1)
    real = g.op(
        "Unsqueeze", g.op("Less", steps, g.op("Unsqueeze", lengths, LAST * 0)), np.array([2], np.int64)
    )
    body, H = g.body(), cell.hidden_size
    prefix = body._fresh("loop")
    old = [body.input(f"{prefix}_{name}", "float", None, H) for name in cell.state]
    now = body.input(f"{prefix}_parts", "float", None, None)
    here = body.input(f"{prefix}_real", "bool", None, 1)
    new = write_step(body, cell, equations, now, old)
    kept = [body.op("Where", here, a, b) for a, b in zip(new, old, strict=True)]
    output = body.op("Where", here, write_output(body, cell, kept), 0.0)
    for name, value in zip(cell.state, kept, strict=True):
        body.output(f"{prefix}_{name}_new", value, "float", None, H)
    body.output(f"{prefix}_output", output, "float", None, cell.output_size)
    made = g.ops(
        "Scan",
        len(old) + 1,
        *starts,
        parts,
        real,
        body=body.graph(f"{type(cell).__name__}_step"),
        num_scan_inputs=2,
        scan_input_directions=[int(reverse)] * 2,
        scan_output_directions=[int(reverse)],
    )
    return made[-1], made[:-1]


def write_single_step(
    g: GraphWriter, rnn: RNN, x: str, states: list[list[str]]
) -> tuple[str, list[list[str]]]:
    """One step of all layers for (N, D): the output (N, ·), and the new states."""
    if rnn.bidirectional:
        raise ExportError("a network that reads in both directions has no single step")
    new = []
    for cell, own in zip(rnn.all_cells(), states, strict=True):
        new.append(write_step(g, cell, equations_of(rnn, cell), write_parts(g, cell, x), own))
        x = write_output(g, cell, new[-1])
    return x, new
