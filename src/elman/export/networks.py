"""Recurrent networks, embeddings and bridges as C: what reads a sequence, and what goes on step by step."""

from __future__ import annotations

import torch
from torch import nn

from elman.cells.base import Cell
from elman.cells.layer_norm_lstm import LayerNormLSTM
from elman.errors import ExportError
from elman.export.cells import CellStep
from elman.export.program import Matrix, Program, padded
from elman.layers.bridge import Bridge
from elman.layers.rnn import RNN
from elman.models.embedding import Tokens
from elman.recurrence.contract import State


class Network:
    """An RNN of the program.

    ``advance(x, s, y)`` is one step of all layers in one direction; ``read`` a function over a sequence.
    shown: what it does is written down where the program is traced.
    """

    def __init__(self, program: Program, name: str, rnn: nn.Module, *, shown: bool = True) -> None:
        if not isinstance(rnn, RNN):
            raise ExportError(f"the network {type(rnn).__name__} is not recurrent")
        self.program, self.name, self.rnn = program, name, rnn
        self.traced = traced = shown and program.traced
        rates = rnn.regularisers.zoneout_rates(rnn.cell_class.state)
        self.steps: list[list[CellStep]] = []
        self.inputs: list[list[tuple[Matrix, str | None] | None]] = []
        with torch.no_grad():
            starts = rnn.start_states(None, 1, torch.zeros(1, rnn.input_size))
        self.starts: list[list[str | None]] = []
        for depth in range(rnn.layers):
            cells = [one for one in rnn.cells[depth].children() if isinstance(one, Cell)]
            made = [
                CellStep(program, f"{name}_{depth}{d}", cell, rates, traced=traced)
                for d, cell in enumerate(cells)
            ]
            program.traces += [step.trace(name, depth, d) for d, step in enumerate(made) if traced]
            self.steps.append(made)
            self.inputs.append([self._projection(cell) for cell in cells])
            self.starts.append(
                [self._start(step, state) for step, state in zip(made, starts[depth], strict=True)]
            )
        self.width = rnn.output_size
        self.input_size = rnn.input_size
        wide = max((len(s.inputs) * s.H for layer in self.steps for s in layer), default=1)
        self.parts = program.field(f"{name}_parts", padded(wide))

    def _projection(self, cell: Cell) -> tuple[Matrix, str | None] | None:
        if cell.W_x is None:
            return None
        if isinstance(cell, LayerNormLSTM):  # whose bias comes after the norm
            return self.program.matrix(cell.W_x), None
        return self.program.matrix(cell.W_x), None if cell.b is None else self.program.bias(cell.b)

    def _norm(self, cell: Cell) -> list[str]:
        """What a layer-normalised cell does to its input parts."""
        if not isinstance(cell, LayerNormLSTM):
            return []
        width = len(cell.gain_x)
        b = torch.zeros(width) if cell.b is None else cell.b
        gain, shift = self.program.vector(cell.gain_x), self.program.vector(b)
        return [f"normalise({self.parts}, {width}, {gain}, {shift}, {float(cell.epsilon)!r});"]

    def _start(self, step: CellStep, state: State) -> str | None:
        fields = [field[0].detach() for field in state]
        if not any(bool(field.any()) for field in fields):
            return None
        whole = [nn.functional.pad(field, (0, step.wide - step.H)) for field in fields]
        return self.program.vector(torch.stack(whole))

    def state_size(self, depth: int) -> int:
        """Numbers of the state of one direction of a layer."""
        step = self.steps[depth][0]
        return len(step.states) * step.wide

    @property
    def total_state(self) -> int:
        return sum(self.state_size(depth) for depth in range(len(self.steps)))

    def state_places(self) -> list[int]:
        """Where the state of each layer begins, in one direction."""
        return [sum(self.state_size(d) for d in range(depth)) for depth in range(len(self.steps))]

    def begin(self, s: str) -> list[str]:
        """All layers at their start, in one direction."""
        lines = []
        for depth, place in enumerate(self.state_places()):
            lines.append(self._begin(f"{s} + {place}", depth, 0))
        return lines

    def _begin(self, s: str, depth: int, direction: int) -> str:
        start, size = self.starts[depth][direction], self.state_size(depth)
        return f"fill({s}, 0.0f, {size});" if start is None else f"copy({s}, {start}, {size});"

    def _step(self, depth: int, direction: int, x: str, s: str, y: str) -> list[str]:
        step, projection = self.steps[depth][direction], self.inputs[depth][direction]
        lines = [] if projection is None else self.program.affine(self.parts, x, *projection)
        lines += self._norm(step.cell)
        return [*lines, f"{step.name}(m, {self.parts}, {s});", f"{step.name}_output({s}, {y});"]

    def define_advance(self) -> None:
        """``NAME_advance(m, x, s, y)``: one step of a network in one direction."""
        lines, at = [], "x"
        between = self.program.field(f"{self.name}_between", max(s[0].wide for s in self.steps))
        last = len(self.steps) - 1
        for depth, place in enumerate(self.state_places()):
            to = "y" if depth == last else between
            lines += self._step(depth, 0, at, f"s + {place}", to)
            at = between
        self.program.define(
            f"static void {self.name}_advance(Memory *m, const float *x, float *s, float *y)", lines
        )

    def define_read(self, most: int, *, keeps: bool) -> None:
        """``NAME_read(m, count)``: all outputs and the last states of a sequence.

        A function ``NAME_input(m, t, x)`` gives its vectors. Outputs lie in ``NAME_outputs``, a step after
        the other; states of all layers and directions in ``NAME_states``. Without ``keeps`` only the last
        outputs, in ``NAME_last``, stay.
        """
        p, name, B = self.program, self.name, self.rnn.directions
        widths = [sum(step.H for step in layer) for layer in self.steps]
        deepest = len(self.steps) - 1
        outputs = p.field(f"{name}_outputs", most * max(widths)) if keeps or deepest else ""
        other = p.field(f"{name}_lower", most * max(widths[:-1])) if deepest else ""
        states = p.field(f"{name}_states", sum(B * self.state_size(d) for d in range(deepest + 1)))
        last = p.field(f"{name}_last", padded(self.width))
        x = p.field(f"{name}_x", padded(self.input_size))
        lines: list[str] = []
        place = 0
        for depth, layer in enumerate(self.steps):
            into = outputs if (deepest - depth) % 2 == 0 else other
            below = other if into == outputs else outputs
            kept = depth < deepest or keeps
            offset = 0
            for direction, step in enumerate(layer):
                s = f"{states} + {place}"
                lines.append(self._begin(s, depth, direction))
                order = "int t = 0; t < count; t++" if direction == 0 else "int t = count - 1; t >= 0; t--"
                at = x if depth == 0 else f"{below} + (size_t)t * {widths[depth - 1]}"
                y = f"{into} + (size_t)t * {widths[depth]} + {offset}"
                if depth == deepest and not kept:
                    y = f"{last} + {offset}"
                body = [f"{name}_input(m, t, {x});"] if depth == 0 else []
                body += ["m->moment = t;"] if self.traced else []
                body += self._step(depth, direction, at, s, y)
                lines += [f"for ({order}) {{", *(f"  {line}" for line in body), "}"]
                if depth == deepest:
                    lines.append(f"{step.name}_output({s}, {last} + {offset});")
                offset += step.H
                place += self.state_size(depth)
        lines += ["m->moment = -1;"] if self.traced else []
        p.define(f"static void {name}_read(Memory *m, int count)", lines)

    def read_states(self, depth: int, direction: int) -> str:
        """Where ``read`` leaves the state of a layer."""
        before = sum(self.rnn.directions * self.state_size(d) for d in range(depth))
        return f"m->{self.name}_states + {before + direction * self.state_size(depth)}"


class Vectors:
    """Tokens as vectors: rows of a table, the pretrained ones beside the learned ones, or one-hot."""

    def __init__(self, program: Program, tokens: Tokens) -> None:
        self.program, self.width = program, tokens.output_size
        weight = tokens.embedding.weight
        self.V = tokens.embedding.V
        own = torch.eye(0) if weight is None else weight
        parts = [] if weight is None else [own]
        if tokens.pretrained is not None:
            parts.append(tokens.pretrained.weight)
        self.one_hot = self.V if weight is None else 0
        self.table = program.table(torch.cat(parts, -1)) if parts else None

    def write(self, to: str, token: str) -> list[str]:
        lines = []
        if self.one_hot:
            lines += [f"fill({to}, 0.0f, {self.one_hot});", f"({to})[{token}] = 1.0f;"]
        if self.table is not None:
            lines.append(
                self.program.row(f"{to} + {self.one_hot}" if self.one_hot else to, self.table, token)
            )
        return lines


def linear(program: Program, layer: nn.Linear) -> tuple[Matrix, str | None]:
    """A layer of torch as a matrix of the program and its bias."""
    bias = None if layer.bias is None else program.bias(layer.bias)
    return program.matrix(layer.weight.t()), bias


def bridge_lines(program: Program, bridge: Bridge, source: Network, target: Network, to: str) -> list[str]:
    """Statements that start the target from where ``read`` left the source."""
    if bridge.policy == "zero":
        return [f"fill({to}, 0.0f, {target.total_state});"]
    lines: list[str] = []
    names = bridge.target_states._fields
    for depth, (place, at) in enumerate(zip(bridge.sources, target.state_places(), strict=True)):
        H, step = bridge.widths[depth], target.steps[depth][0]
        given = [source.steps[place][d] for d in range(source.rnn.directions)]
        fields = [
            (d, i, f"{source.read_states(place, d)} + {i * one.wide}")
            for d, one in enumerate(given)
            for i, _ in enumerate(one.states)
        ]
        if bridge.policy == "transform":
            width = len(fields) * given[0].H
            joined = program.field(f"bridge_{depth}_in", width)
            made = program.field(f"bridge_{depth}_out", padded(len(names) * H))
            for number, (_, _, address) in enumerate(fields):
                lines.append(f"copy({joined} + {number * given[0].H}, {address}, {given[0].H});")
            layer = bridge.networks[depth]
            assert isinstance(layer, nn.Linear)
            lines += program.affine(made, joined, *linear(program, layer))
            lines.append(f"apply_tanh({made}, {len(names) * H});")
            for i, _ in enumerate(names):
                lines.append(f"copy({to} + {at + i * step.wide}, {made} + {i * H}, {H});")
            continue
        lines.append(f"fill({to} + {at}, 0.0f, {target.state_size(depth)});")
        for i, name in enumerate(names):
            own = given[0].states
            index = own.index(name) if name in own else 0
            parts = [address for _, number, address in fields if number == index]
            S, goal = given[0].H, f"{to} + {at + i * step.wide}"
            if S * len(parts) == H:
                lines += [f"copy({goal} + {j * S}, {part}, {S});" for j, part in enumerate(parts)]
                continue
            n = min(S, H)
            added = " + ".join(f"({part})[u]" for part in parts)
            lines.append(f"for (int u = 0; u < {n}; u++) ({goal})[u] = {added};")
    return lines
