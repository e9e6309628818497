"""Writes the kernels of a composed step, of several dimensions and with looks at a memory.

A program takes a whole row: all its units and all positions of its memory. So it needs no neighbour, and a
step is as few kernels as it has phases. Round a step they turn, as in ``emit/phased.py``: the kernel that
ends a step begins the next one. Tensors, and the time, are found in ``table``:

    x, noise, masks, vectors, memories, states   as ``recurrence/walk.py`` names them, (B, T, ·) by step
    in I, out I    what product I multiplies, side by side, and what comes out, float32
    c N            a value that another kernel or a look reads, by row, float32

A look goes over the positions in pieces, which it reads and writes in memory: registers cannot be cut.
"""

from __future__ import annotations

from elman.recurrence.looks import POSITIONS
from elman.recurrence.phases import Blocks, StepPrograms
from elman.recurrence.triton.emit.layout import WalkLayout, WalkVariant
from elman.recurrence.triton.emit.moment import Moment
from elman.recurrence.triton.program import power_of_two


def _text(layout: WalkLayout) -> str:
    """The source: a kernel for every phase, the last and the first being one, and who fills the table."""
    bodies = [_Kernel(layout, number).lines for number in range(layout.first, layout.first + layout.count)]
    names = [f"p{i}" for i in range(len(layout.tensors))]
    lines = [
        '@triton.jit(do_not_specialize=["T"])',
        f"def prepare({', '.join(['table', *names, 'T'])}):",
        "    tl.store(table, 0)",
        "    tl.store(table + 1, T.to(tl.int64))",
        *(f"    tl.store(table + {i + 2}, {name}.to(tl.int64))" for i, name in enumerate(names)),
        *("", ""),
    ]
    for number, body in enumerate(bodies, layout.first):
        found = [
            f"{name} = tl.load(table + {i + 2}).to(tl.pointer_type({layout.type(tensor)}))"
            for i, (name, tensor) in enumerate(zip(names, layout.tensors, strict=True))
            if any(name in _words(line) for line in body)
        ]
        lines += [
            '@triton.jit(do_not_specialize=["B", "first", "reverse", "offset"])',
            f"def {layout.name}_{number}(table, B, first, reverse, offset):",
            "    step, T = tl.load(table) + offset, tl.load(table + 1)",
            "    b = first + tl.program_id(1).to(tl.int64)",
            *(f"    {line}" for line in (*found, *body)),
            *("", ""),
        ]
    return "\n".join(lines)


def _words(line: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in line).split())


class _Kernel:
    """One kernel: a phase of a step, or the last phase of one step and the first of the next."""

    def __init__(self, text: WalkLayout, number: int) -> None:
        self.t, self.v = text, text.v
        self.lines: list[str] = []
        for i, (dim, size) in enumerate(self.v.dims):
            wide = max(16, power_of_two(size))
            self.lines.append(f"u{i} = tl.arange(0, {wide})[None, :]")
            if dim == POSITIONS:
                self.lines.append(f"count = tl.load({text.take('positions')} + b)")
                self.lines.append(f"most = tl.load({text.take('sizes')})")
            self.lines.append(f"in{i} = u{i} < {'count' if dim == POSITIONS else size}")
        if self.v.lengths:
            self.lines.append(f"length = tl.load({text.take('lengths')} + b)")
        last = len(text.phases) - 1
        if text.back and number == 0:
            self._backward_turn(last)
        elif not text.back and number == last:
            self._forward_turn(last)
        else:
            moment = Moment(self.t, self.lines, "t", "step")
            moment.phase(number)

    def _forward_turn(self, last: int) -> None:
        e = self.t.programs.equations
        now = Moment(self.t, self.lines, "t", "step")
        self.lines.append("if step >= 0:")
        start = len(self.lines)
        now.phase(last)
        for name, node in zip(e.states, e.results, strict=True):
            value, old = now.value(node), now.value(now.state_leaf(name, node))
            kept = f"tl.where({now.real}, {value}, {old})" if self.v.lengths else value
            now.write(f"y_{e.states.index(name)} = {kept}")
        for name, node in zip(e.states, e.results, strict=True):
            y, dim = f"y_{e.states.index(name)}", now.state_leaf(name, node).dim
            now.store(now.by_row(f"final {name}", dim), y, dim)
            if name in self.v.shown:
                now.store(now.by_step(f"sequence shown {name}", dim), y, dim, self.v.numbers)
            if self.v.training:
                now.store(now.by_step(f"sequence {name}", dim), y, dim)
        self.lines[start:] = [f"    {line}" for line in self.lines[start:]]
        if last:
            self.lines.append("tl.debug_barrier()")
            following = Moment(self.t, self.lines, "n", "step + 1")
            self.lines.append("if step + 1 < T:")
            start = len(self.lines)
            following.phase(0)
            self.lines[start:] = [f"    {line}" for line in self.lines[start:] or ["pass"]]

    def _backward_turn(self, last: int) -> None:
        e, g = self.t.programs.equations, self.t.programs.gradients
        before = Moment(self.t, self.lines, "b", "step - 1")
        self.lines.append("if step > 0:")
        start = len(self.lines)
        if last:
            before.phase(last)
        for name, node, result in zip(e.states, g.states, e.results, strict=True):
            dim = before.state_leaf(name, result).dim
            value = "0.0 * u" + str(before.place(dim)) if node is None else before.value(node)
            if self.v.lengths:
                value = f"tl.where({before.real}, {value}, {before.value(before.gradient_leaf(name, dim))})"
            before.store(before.by_row(f"d_state {name}", dim), value, dim)
        self.lines[start:] = [f"    {line}" for line in self.lines[start:]]
        self.lines.append("tl.debug_barrier()")
        now = Moment(self.t, self.lines, "t", "step")
        self.lines.append("if step < T:")
        start = len(self.lines)
        now.phase(0)
        self.lines[start:] = [f"    {line}" for line in self.lines[start:]]


def walk_text(
    name: str, programs: StepPrograms, blocks: Blocks, variant: WalkVariant
) -> tuple[str, WalkLayout]:
    """The source of one way through time, and what its runner has to know."""
    found = WalkLayout(name, programs, blocks, variant)
    _text(found)  # which finds out what is carried
    return _text(found), found
