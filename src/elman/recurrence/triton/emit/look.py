"""Writes looks at a memory for a program that has a whole row; it goes over the positions in pieces.

A look reads and writes values by position in memory: registers cannot be cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from elman.recurrence.looks import POSITIONS
from elman.recurrence.statements import statements
from elman.recurrence.symbols import Node
from elman.recurrence.triton.emit.layout import WalkLayout, WalkVariant
from elman.recurrence.triton.emit.writer import number_text
from elman.recurrence.triton.program import power_of_two

PIECE = 1024  # numbers of a memory that a warp looks at at a time


class LookWriter:
    """The looks of one moment; what a moment knows of its values stands in ``emit/moment.py``."""

    t: WalkLayout
    v: WalkVariant
    number: int
    names: dict[int, str]
    placed: set[int]
    stage: dict[int, int]

    def write(self, *lines: str) -> None:
        raise NotImplementedError

    def value(self, node: Node) -> str:
        raise NotImplementedError

    def named(self, node: Node) -> str:
        raise NotImplementedError

    def place(self, dim: str) -> int:
        raise NotImplementedError

    def by_row(self, tensor: str, dim: str) -> str:
        raise NotImplementedError

    def store(self, address: str, value: str, dim: str, numbers: str = "float32") -> None:
        raise NotImplementedError

    def looks(self, nodes: Sequence[Node]) -> None:
        """Compute these looks, those that look in the same way together."""
        left = list(nodes)
        while left:
            together = [n for n in left if n is left[0] or _same(n, left[0])]
            left = [n for n in left if n not in together]
            {"context": self._context, "pull": self._pull}.get(together[0].op, self._fits)(together)

    def _position_address(self, node: Node) -> str:
        """Where the values of a row lie by position, as a piece of them is loaded."""
        if node.op == "s" and not self.t.back:
            return f"{self.t.take(f'final {node.name}')} + b * most"
        if node.index not in self.placed and self.stage.get(node.index, self.number) == self.number:
            self.placed.add(node.index)
            self.t.carried[node.index] = node
            self.store(self.by_row(f"c {node.index}", POSITIONS), self.value(node), POSITIONS)
            self.write("tl.debug_barrier()")
        return f"{self.t.take(f'c {node.index}')} + b * most"

    def _loop(self, dim: str, body: Sequence[str]) -> None:
        wide = max(16, power_of_two(self.v.size(dim)))
        piece = min(self.v.size(POSITIONS), max(1, PIECE * self.v.warps // wide))
        self.write(f"for j0 in range(0, count, {piece}):")
        lines = [f"j = j0 + tl.arange(0, {piece})[:, None]", *body]
        self.write(*(f"    {line}" for line in lines))

    def _entry(self, memory: str, dim: str, name: str) -> str:
        tensor, part, parts = self.t.blocks[memory]
        size, i = self.v.size(dim), self.place(dim)
        address = f"{self.t.take(tensor)} + (b * most + j) * {parts * size} + {part * size} + u{i}"
        return f"{name} = tl.load({address}, mask=(j < count) & in{i}, other=0).to(tl.float32)"

    def _context(self, nodes: Sequence[Node]) -> None:
        dim = nodes[0].dim
        wide = max(16, power_of_two(self.v.size(dim)))
        weights = self._position_address(nodes[0].args[0])
        body = [f"w_ = tl.load({weights} + j, mask=j < count, other=0)"]
        for node in nodes:
            self.write(f"{self.named(node)} = tl.zeros([1, {wide}], tl.float32)")
            body += [self._entry(node.name, dim, "m_"), f"{self.named(node)} += tl.sum(w_ * m_, 0)[None, :]"]
        self._loop(dim, body)

    def _fits(self, nodes: Sequence[Node]) -> None:
        """Fits, or one score: a number for every position, through memory."""
        body: list[str] = []
        for node in nodes:
            self.t.carried[node.index] = node
            self.placed.add(node.index)
            if node.op == "fit":
                dim = node.args[0].dim
                body += [self._entry(node.name, dim, "m_"), f"e_ = {self.value(node.args[0])} * m_"]
            else:
                score = self.t.programs.equations.scores[node.name]
                dim = score.result.dim
                body += [
                    self._entry(score.memory, dim, "m_"),
                    *self._neighbours(node.args, len(score.near), score.reach),
                ]
                lines, (result,) = self._expression([score.result], node.args, score.memory, len(score.near))
                body += [*lines, f"e_ = {result}"]
            out = f"{self.t.take(f'c {node.index}')} + b * most + j"
            body.append(f"e_ = tl.where(in{self.place(dim)}, e_, 0.0)")
            body.append(f"tl.store({out}, tl.sum(e_, 1)[:, None], mask=j < count)")
        self._loop(dim, body)
        self.write("tl.debug_barrier()")

    def _neighbours(self, args: Sequence[Node], near: int, reach: int) -> list[str]:
        if not near:
            return []
        base = self._position_address(args[-1])
        lines = []
        for c in range(near):
            shift = f"j + {c - reach}"
            lines.append(
                f"w{c}_ = tl.load({base} + {shift}, mask=({shift} >= 0) & ({shift} < count), other=0)"
            )
        return lines

    def _expression(
        self, nodes: Sequence[Node | None], args: Sequence[Node], memory: str, near: int
    ) -> tuple[list[str], list[str]]:
        leaves = {("e", str(i)): self.value(a) for i, a in enumerate(args) if a.dim != POSITIONS}
        leaves |= {("m", memory): "m_", ("e", "g"): "g_"} | {("w", str(c)): f"w{c}_" for c in range(near)}
        return statements(
            nodes,
            leaves=leaves,
            known={},
            constant=lambda v: f"tl.full([1, 1], {number_text(v)}, tl.float32)",
        )

    def _pull(self, nodes: Sequence[Node]) -> None:
        """The gradients of a score's arguments and of its memory."""
        score = self.t.programs.equations.scores[nodes[0].name.split()[0]]
        gradient, *args = nodes[0].args
        dim, near = score.result.dim, len(score.near)
        wide, i = max(16, power_of_two(self.v.size(dim))), self.place(dim)
        by_unit = [n for n in nodes if int(n.name.split()[1]) < len(score.slopes) - 1]
        by_place = [n for n in nodes if n not in by_unit]
        base = self._position_address(gradient)
        body = [f"g_ = tl.load({base} + j, mask=j < count, other=0)", self._entry(score.memory, dim, "m_")]
        body += self._neighbours(args, near, score.reach)
        wanted = [score.slopes[int(n.name.split()[1])] for n in by_unit]
        found = [*wanted, score.slopes[-1], *(score.near if by_place else ())]
        lines, results = self._expression(found, args, score.memory, near)
        body += lines
        for node, slope in zip(by_unit, results, strict=False):
            self.write(f"{self.named(node)} = tl.zeros([1, {wide}], tl.float32)")
            body.append(f"{self.named(node)} += tl.sum({slope} + 0.0 * m_, 0)[None, :]")
        tensor, part, parts = self.t.blocks[score.memory]
        size = self.v.size(dim)
        place = (
            f"{self.t.take(f'd_memory {tensor}')} + (b * most + j) * {parts * size} + {part * size} + u{i}"
        )
        mask = f"mask=(j < count) & in{i}"
        old = f"tl.load({place}, {mask}, other=0)"
        body.append(f"tl.store({place}, {old} + {results[len(by_unit)]} + 0.0 * m_, {mask})")
        for c, slope in enumerate(results[len(by_unit) + 1 :]):
            total = f"tl.sum(tl.where(in{i}, {slope} + 0.0 * m_, 0.0), 1)[:, None]"
            body.append(
                f"tl.store({self.t.take('near')} + (b * {near} + {c}) * most + j, {total}, mask=j < count)"
            )
        self._loop(dim, body)
        if by_place:
            self.write("tl.debug_barrier()")
            name, s = self.named(by_place[0]), self.place(POSITIONS)
            self.write(f"{name} = 0.0 * u{s}")
            for c in range(near):
                shift = f"u{s} - {c - score.reach}"
                mask = f"mask=in{s} & ({shift} >= 0) & ({shift} < count), other=0"
                self.write(
                    f"{name} += tl.load({self.t.take('near')} + (b * {near} + {c}) * most + {shift}, {mask})"
                )


def _same(a: Node, b: Node) -> bool:
    if a.op == "context":
        return a.args == b.args and a.dim == b.dim
    if a.op == "pull":
        return a.args == b.args and a.name.split()[0] == b.name.split()[0]
    return a.op == "fit" and a.args[0].dim == b.args[0].dim
