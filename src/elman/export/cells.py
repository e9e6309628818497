"""A cell's step as C: its equations as they were read, phase by phase, in plain loops over the units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from elman.cells.base import Cell
from elman.cells.layer_norm_lstm import LayerNormLSTM
from elman.errors import ElmanError, ExportError
from elman.export.program import TRACED, Matrix, Program, Trace, padded
from elman.inspection.watching import named_equations
from elman.recurrence.heads import whole_matrix
from elman.recurrence.operations import REDUCTIONS
from elman.recurrence.phases import RECURRENT, Phase, expand, schedule
from elman.recurrence.statements import statements
from elman.recurrence.symbols import Node, Symbol
from elman.recurrence.trace import Equations, add_zoneout


class CellStep:
    """The C of one cell: ``NAME(m, x, s)`` takes input parts x and makes the states s the next ones.

    H: its units. wide: numbers from one state to the next in s, and from one value to the next in the
    workspace. output: the text of its output at unit u, given s.
    """

    def __init__(
        self, program: Program, name: str, cell: Cell, zoneout: Mapping[str, float], *, traced: bool = False
    ) -> None:
        equations = cell.equations
        self.traced, self.gates = traced, list[str]()  # named values that are written down beside the states
        if traced and equations is not None:
            equations, named = named_equations(cell)
            self.gates = [one for one in named if one not in equations.states and _is_wide(named[one])]
            more = tuple(named[one] for one in self.gates)
            equations = replace(equations, results=equations.results + more)
        own = type(cell) is not LayerNormLSTM and type(cell).project is not Cell.project
        if equations is None or own:
            raise ExportError(f"{type(cell).__name__} computes its input parts by code of its own")
        self.program, self.name, self.cell, self.H = program, name, cell, cell.hidden_size
        self.wide = padded(self.H)
        output = self._output(equations)
        e = self.equations = expand(add_zoneout(equations, zoneout), mask=False)
        self.phases = schedule(e.results)
        self.inputs, self.states = e.inputs, e.states
        self.weights = {RECURRENT: self._recurrent()} | {
            key: whole_matrix(value) for key, value in cell.learned_matrices().items()
        }
        self._place: dict[int, str] = {}  # of products, and of values that another loop reads
        self._used = 0
        self.program.define(
            f"static void {name}(Memory *m, const float *restrict x, float *restrict s)", self._body()
        )
        self.program.define(
            f"static void {name}_output(const float *restrict s, float *restrict y)",
            self._output_body(output),
        )
        self.output_size = self.H

    def trace(self, network: str, layer: int, direction: int) -> Trace:
        names = [*self.gates, *self.states]
        cell = type(self.cell).__name__
        return Trace(network, layer, direction, cell, self.H, names, len(self.states), f"{self.name}_trace")

    # What it reads

    def _recurrent(self) -> Tensor:
        W = self.cell.W_h
        return torch.zeros(self.H, 0) if W is None else whole_matrix(W, len(self.cell.Products._fields))

    def _block(self, name: str) -> Tensor:
        tensor, _, gate = name.partition(".")
        if tensor != RECURRENT or not gate:
            return self.weights[name]
        products = self.cell.Products._fields
        return self.weights[RECURRENT].chunk(len(products), -1)[products.index(gate)]

    def _output(self, equations: Equations) -> Node | None:
        if not self.cell.reads_whole_state:
            return None
        graph = equations.graph
        view = self.cell.with_symbols(graph)
        symbols = cast(list[Tensor], [graph.leaf("s", name) for name in equations.states])
        found: object = None
        with suppress(ElmanError):
            found = view.O(self.cell.State(*symbols))
        if not isinstance(found, Symbol):
            raise ExportError(f"{type(self.cell).__name__} has an output O(s) that is no equation")
        return found.node

    # Text

    def _leaves(self) -> dict[tuple[str, str], str]:
        found = {("x", name): f"x[{i * self.H} + u]" for i, name in enumerate(self.inputs)}
        found |= {("s", name): f"s[{i * self.wide} + u]" for i, name in enumerate(self.states)}
        found |= {("v", name): f"{self._vector(name)}[u]" for name in self.equations.vectors}
        return found | {("size", dim): f"{self.H}.0f" for dim in ("H",)}

    def _vector(self, name: str) -> str:
        return self.program.vector(getattr(self.cell, name))

    def _slot(self) -> str:
        self._used += 1
        return f"w + {(self._used - 1) * self.wide}"

    def _body(self) -> list[str]:
        leaves, lines, scalars = self._leaves(), list[str](), list[Node]()
        loop_of = self._loops()
        known: dict[int, str] = {}
        for number, phase in enumerate(self.phases):
            lines += self._products(phase, known, leaves)
            stages = sorted({loop_of[n.index][1] for n in phase.values})
            for stage in stages:
                lines += self._stage(
                    [n for n in phase.values if loop_of[n.index][:2] == (number, stage)],
                    known,
                    leaves,
                    loop_of,
                    scalars,
                )
        lines += self._kept_apart(leaves)
        count = len(self.states)
        new = [
            self._put(f"s + {i * self.wide}", node) for i, node in enumerate(self.equations.results[:count])
        ]
        if self.traced:
            lines += self._written_down()
        head = [f"float *restrict const w = {self._workspace()};"] if self._used else []
        if scalars:
            head.append(f"float {', '.join(f'r{n.index} = 0.0f' for n in scalars)};")
        unused = [f"(void){name};" for name in ("m", "x") if not self._reads(name, lines)]
        return [*head, *unused, *lines, *new]

    def _put(self, to: str, node: Node) -> str:
        if node.value is not None:
            return f"fill({to}, {constant(node.value)}, {self.H});"
        return f"copy({to}, {self._place[node.index]}, {self.H});"

    def _written_down(self) -> list[str]:
        """Gates, then states, where somebody asked for them."""
        count = len(self.states)
        nodes = [*self.equations.results[count:], *self.equations.results[:count]]
        size = len(nodes) * self.H
        to = self.program.field(f"{self.name}_trace", TRACED * size)
        lines = [self._put(f"to + {i * self.H}", node) for i, node in enumerate(nodes)]
        head = ["if (m->tracing && m->moment >= 0 && m->moment < TRACED) {"]
        return [*head, f"  float *to = {to} + m->moment * {size};", *(f"  {line}" for line in lines), "}"]

    def _reads(self, name: str, lines: Sequence[str]) -> bool:
        return bool(self._used or self.traced) if name == "m" else any("x[" in line for line in lines)

    def _workspace(self) -> str:
        return self.program.field(f"{self.name}_work", self._used * self.wide + padded(self._used))

    def _kept_apart(self, leaves: Mapping[tuple[str, str], str]) -> list[str]:
        """A new state that is an old one is copied before any is written."""
        lines = []
        for node in self.equations.results:
            if node.value is None and node.index not in self._place:
                self._place[node.index] = self._slot()
                text = leaves[node.op, node.name]
                lines.append(f"for (int u = 0; u < {self.H}; u++) ({self._place[node.index]})[u] = {text};")
        return lines

    def _loops(self) -> dict[int, tuple[int, int, str]]:
        """By node, where it is computed: phase, stage, and the dimension of its loop."""
        found: dict[int, tuple[int, int, str]] = {}
        for number, phase in enumerate(self.phases):
            for node in phase.values:
                below = [
                    found[a.index][1] + (a.op in REDUCTIONS)
                    for a in node.args
                    if a.index in found and found[a.index][0] == number
                ]
                dim = node.args[0].dim if node.op in REDUCTIONS else node.dim
                found[node.index] = number, max(below, default=0), dim
        return found

    def _products(
        self, phase: Phase, known: dict[int, str], leaves: Mapping[tuple[str, str], str]
    ) -> list[str]:
        lines = []
        for m in phase.multiplications:
            width = len(m.results) * self.H
            first = self._used * self.wide
            self._used += -(-padded(width) // self.wide)
            lines.append(f"fill(w + {first}, 0.0f, {padded(width)});")
            for i, operand in enumerate(m.operands):
                blocks = [self._block(names[i]) for names in m.blocks]
                matrix: Matrix = self.program.matrix(torch.cat(blocks, -1))
                if operand.index not in self._place:  # a leaf
                    if operand.op == "s":
                        self._place[operand.index] = f"s + {self.states.index(operand.name) * self.wide}"
                    else:
                        slot = self._place[operand.index] = self._slot()
                        text = leaves[operand.op, operand.name]
                        lines.append(f"for (int u = 0; u < {self.H}; u++) ({slot})[u] = {text};")
                lines.append(self.program.multiply(f"w + {first}", self._place[operand.index], matrix))
                if operand.op == "s" and not operand.args:
                    del self._place[operand.index]
            for j, result in enumerate(m.results):
                self._place[result.index] = f"w + {first + j * self.H}"
                known[result.index] = f"w[{first + j * self.H} + u]"
        return lines

    def _stage(
        self,
        nodes: Sequence[Node],
        known: dict[int, str],
        leaves: Mapping[tuple[str, str], str],
        loop_of: Mapping[int, tuple[int, int, str]],
        scalars: list[Node],
    ) -> list[str]:
        """First the numbers of the row, then a loop over the units with what is summed up in it."""
        lines: list[str] = []
        for dim in ("", "H"):
            own = [n for n in nodes if loop_of[n.index][2] == dim]
            plain = [n for n in own if n.op not in REDUCTIONS]
            sums = [n for n in own if n.op in REDUCTIONS]
            if not own:
                continue
            roots = [*plain, *(n.args[0] for n in sums)]
            inside, names = statements(roots, leaves=leaves, known=known, constant=constant, assign=_assigned)
            text = dict(zip((n.index for n in roots), names, strict=True))
            if not dim:
                for node in plain:
                    if not self._outlives(node, nodes, loop_of):
                        continue
                    scalars.append(node)
                    inside.append(f"r{node.index} = {text[node.index]};")
                    known[node.index] = f"r{node.index}"
                lines += ["{", *(f"  {line}" for line in inside), "}"]
                continue
            for node in plain:
                if self._outlives(node, nodes, loop_of):
                    slot = self._place[node.index] = self._slot()
                    inside.append(f"({slot})[u] = {text[node.index]};")
            for node in sums:
                scalars.append(node)
                value, name = text[node.args[0].index], f"r{node.index}"
                if node.op == "sum":
                    inside.append(f"{name} += {value};")
                else:
                    lines.append(f"{name} = -3.0e38f;")
                    inside.append(f"{name} = larger({name}, {value});")
                known[node.index] = name
            lines += [f"for (int u = 0; u < {self.H}; u++) {{", *(f"  {line}" for line in inside), "}"]
            for node in plain:
                known.pop(node.index, None)
                if node.index in self._place:
                    known[node.index] = f"({self._place[node.index]})[u]"
        return lines

    def _outlives(
        self, node: Node, here: Sequence[Node], loop_of: Mapping[int, tuple[int, int, str]]
    ) -> bool:
        """Does anything outside its loop read it?"""
        if node in self.equations.results:
            return True
        own = {n.index for n in here if loop_of[n.index][2] == loop_of[node.index][2]}
        for phase in self.phases:
            if any(node in m.operands for m in phase.multiplications):
                return True
            if any(node in n.args and n.index not in own for n in phase.values):
                return True
        return False

    def _output_body(self, output: Node | None) -> list[str]:
        if output is None:
            return [f"copy(y, s, {self.H});"]
        lines, (name,) = statements(
            [output], leaves=self._leaves(), known={}, constant=constant, assign=_assigned
        )
        return [
            f"for (int u = 0; u < {self.H}; u++) {{",
            *(f"  {line}" for line in lines),
            f"  y[u] = {name};",
            "}",
        ]


def _is_wide(node: Node) -> bool:
    """Is it a number for each unit?"""
    return node.dim == "H" and node.value is None


def _assigned(name: str, value: str, truth: bool) -> str:
    if not truth:
        return f"const V {name} = {value};"
    whole = any(sign in value for sign in ("&", "|", "~"))
    return f"const M {name} = {value if whole else f'-({value})'};"


def constant(value: float) -> str:
    """A number in single precision."""
    if value != value:
        return "(1e38f * 1e38f * 0.0f)"
    if value in (float("inf"), float("-inf")):
        return f"({'-' if value < 0 else ''}1e38f * 1e38f)"
    text = repr(value)
    return f"({text if any(c in text for c in '.e') else text + '.0'}f)"
