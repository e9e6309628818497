"""Writes what a kernel of a composed step computes at one step: its values, each loaded or computed once."""

from __future__ import annotations

from elman.recurrence.looks import LOOKS, POSITIONS
from elman.recurrence.operations import OPERATIONS, REDUCTIONS
from elman.recurrence.symbols import Node
from elman.recurrence.trace import nodes_of
from elman.recurrence.triton.emit.layout import WalkLayout
from elman.recurrence.triton.emit.look import LookWriter
from elman.recurrence.triton.emit.writer import DTYPES, number_text
from elman.recurrence.triton.program import power_of_two


class Moment(LookWriter):
    """One step as a kernel sees it: its time, and its values, each of which is loaded or computed once."""

    def __init__(self, layout: WalkLayout, lines: list[str], prefix: str, step: str) -> None:
        """
        Args:
            lines: of the kernel, to which those of this moment are added.
            step: its number, as a text.
        """
        self.t, self.v, self.p, self.lines = layout, layout.v, prefix, lines
        self.names: dict[int, str] = {}
        self.placed: set[int] = set()  # values by position that lie in memory
        self.number = 0
        turned = self.t.back ^ self.v.reverse
        self.write(
            f"{prefix}_t = {f'T - 1 - ({step})' if turned else step}", f"{prefix}_row = b * T + {prefix}_t"
        )
        self.real = f"({prefix}_t < length)"
        g = self.t.programs.gradients
        known = (*g.saved, *g.current) if self.t.back else ()
        self.known = {node.index: node for node in known}
        self.stage = {n.index: i for i, p in enumerate(self.t.phases) for n in p.values}

    def write(self, *lines: str) -> None:
        self.lines += lines

    def place(self, dim: str) -> int:
        return next(i for i, (name, _) in enumerate(self.v.dims) if name == dim)

    # ---- addresses: a tensor's row, at all units of a dimension -----------------------------------

    def _units(self, dim: str) -> str:
        return f" + u{self.place(dim)}" if dim else ""

    def _long(self, dim: str) -> str:
        return "most" if dim == POSITIONS else str(self.v.size(dim)) if dim else "1"

    def by_row(self, tensor: str, dim: str) -> str:
        return f"{self.t.take(tensor)} + b * {self._long(dim)}{self._units(dim)}"

    def by_step(self, tensor: str, dim: str, wide: str = "", before: str = "0", time: str = "") -> str:
        row = f"({self.p}_row{time})"
        return f"{self.t.take(tensor)} + {row} * ({wide or self._long(dim)}) + {before}{self._units(dim)}"

    def load(self, node: Node, address: str) -> str:
        mask = f", mask=in{self.place(node.dim)}, other=0" if node.dim else ""
        self.write(f"{self.p}_{node.index} = tl.load({address}{mask}).to(tl.float32)")
        return f"{self.p}_{node.index}"

    def store(self, address: str, value: str, dim: str, numbers: str = "float32") -> None:
        mask = f"in{self.place(dim)}" if dim else ""
        value = f"({value}).to({DTYPES[numbers]})"
        if dim:
            value = f"{value} + tl.zeros([1, {max(16, power_of_two(self.v.size(dim)))}], {DTYPES[numbers]})"
            self.write(f"tl.store({address}, {value}{f', mask={mask}' if mask else ''})")
        else:
            value = f"{value} + tl.zeros([1, 1], {DTYPES[numbers]})"
            self.write(f"tl.store({address} + tl.zeros([1, 1], tl.int32), {value})")

    # ---- values ----------------------------------------------------------------------------------

    def value(self, node: Node) -> str:
        if node.value is not None:
            return f"tl.full([1, 1], {number_text(node.value)}, tl.float32)"
        if node.index not in self.names:
            self.names[node.index] = self._load(node)
        return self.names[node.index]

    def state_leaf(self, name: str, result: Node) -> Node:
        graph = self.t.programs.equations.graph
        return graph.leaf("s", name, result.dim or self._dim_of_state(name)).node

    def gradient_leaf(self, name: str, dim: str) -> Node:
        return self.t.programs.equations.graph.leaf("g", name, dim).node

    def _dim_of_state(self, name: str) -> str:
        nodes = nodes_of(self.t.programs.equations)
        return next(node.dim for node in nodes if (node.op, node.name) == ("s", name))

    def _load(self, node: Node) -> str:
        t = self.t
        if node.index in self.known:
            return self._saved(node)
        if node.op == "product":
            return self._product(node)
        if node.args:  # of an earlier phase, or found by a look
            t.carried[node.index] = node
            found = self.load(node, self.by_row(f"c {node.index}", node.dim))
            return f"({found} != 0.0)" if node.boolean else found
        return self._leaf(node)

    def _saved(self, node: Node) -> str:
        g, e = self.t.programs.gradients, self.t.programs.equations
        if node in g.current:
            return self.load(node, self.by_step(f"sequence {e.states[e.results.index(node)]}", node.dim))
        wide, before = (" + ".join(map(self._long, dims)) or "0" for dims in self._saved_dims(node))
        return self.load(node, self.by_step("saved", node.dim, wide, before))

    def _saved_dims(self, node: Node) -> tuple[list[str], list[str]]:
        dims = [saved.dim for saved in self.t.programs.gradients.saved]
        return dims, dims[: self.t.programs.gradients.saved.index(node)]

    def _product(self, node: Node) -> str:
        number, (_, _, results) = next((i, p) for i, p in enumerate(self.t.products) if node in p[2])
        before = self.t.width(results[: results.index(node)])
        row = f"b * {self.t.width(results)} + {before}"
        return self.load(node, f"{self.t.take(f'out {number}')} + {row}{self._units(node.dim)}")

    def _leaf(self, node: Node) -> str:
        e = self.t.programs.equations
        if node.op == "x":
            size = self.v.size(node.dim)
            wide, before = str(len(e.inputs) * size), str(e.inputs.index(node.name) * size)
            return self.load(node, self.by_step("x", node.dim, wide, before))
        if node.op == "n":
            return self.load(node, self.by_step(f"n {node.name}", node.dim))
        if node.op == "k":
            return self.load(node, self.by_row(f"k {node.name}", node.dim))
        if node.op == "v":
            return self.load(node, f"{self.t.take(f'v {node.name}')}{self._units(node.dim)}")
        if node.op == "size":
            own = f"{float(self.v.size(node.name))}" if node.name != POSITIONS else "count"
            return f"(tl.zeros([1, 1], tl.float32) + {own})"
        if node.op == "zero":
            return f"(0.0 * u{self.place(node.dim)})"
        if node.op == "g":
            return self._arrived(node)
        assert node.op == "s", node.op
        if not self.t.back:
            return self.load(node, self.by_row(f"final {node.name}", node.dim))
        name, where = f"{self.p}_{node.index}", f"in{self.place(node.dim)}"
        time = f"{self.p}_t {'<' if self.v.reverse else '>'} {'T - 1' if self.v.reverse else '0'}"
        before = self.by_step(f"sequence {node.name}", node.dim, time=" + 1" if self.v.reverse else " - 1")
        first = self.by_row(f"initial {node.name}", node.dim)
        self.write(f"{name} = tl.load({before}, mask={where} & ({time}), other=0)")
        self.write(f"{name} += tl.load({first}, mask={where} & ~({time}), other=0)")
        return name

    def _arrived(self, node: Node) -> str:
        found = self.load(node, self.by_row(f"d_state {node.name}", node.dim))
        if node.name in self.v.arriving:
            address = self.by_step(f"d_sequence {node.name}", node.dim)
            self.write(
                f"{found} += tl.load({address}, mask=in{self.place(node.dim)}, other=0).to(tl.float32)"
            )
        return found

    # ---- a phase ---------------------------------------------------------------------------------

    def phase(self, number: int) -> None:
        """Compute what belongs to a phase, and store what others read of it."""
        self.number = number
        todo = list(self.t.phases[number].values)
        while todo:
            waiting, looks = [], []
            missing = {node.index for node in todo}
            for node in todo:  # all that needs no look, then all looks that nothing is missing for
                if any(a.index in missing for a in node.args):
                    waiting.append(node)
                elif node.op in LOOKS:
                    looks.append(node)
                else:
                    self._compute(node)
                    missing.discard(node.index)
            self.looks(looks)
            todo = waiting
        self._hand_on(number)

    def _compute(self, node: Node) -> None:
        if node.op in REDUCTIONS:
            (a,) = node.args
            fill = "0.0" if node.op == "sum" else 'float("-inf")'
            value = f"tl.where(in{self.place(a.dim)}, {self.value(a)}, {fill})"
            kind = "sum" if node.op == "sum" else "max"
            self.write(f"{self.named(node)} = tl.{kind}({value}, 1)[:, None]")
            return
        text = OPERATIONS[node.op].text.format(*(self.value(a) for a in node.args))
        self.write(f"{self.named(node)} = {text}")

    def named(self, node: Node) -> str:
        return self.names.setdefault(node.index, f"{self.p}_{node.index}")

    def _here(self, node: Node, number: int) -> bool:
        """Whether this phase is where a value is first known, which is who stores it."""
        if node.index in self.stage:
            return self.stage[node.index] == number
        if node.op == "product" and node.index not in self.known:
            return next(i for i, _, results in self.t.products if node in results) == number
        return number == 0

    def _hand_on(self, number: int) -> None:
        t, v = self.t, self.v
        real = self.real if v.lengths and t.back else ""
        for i, (_, operands, _) in enumerate(t.products):
            for j, node in enumerate(operands):
                if self._here(node, number):
                    row = f"b * {t.stride(operands)} + {t.width(operands[:j])}"
                    value = f"tl.where({real}, {self.value(node)}, 0.0)" if real else self.value(node)
                    self.store(
                        f"{t.take(f'in {i}')} + {row}{self._units(node.dim)}", value, node.dim, v.numbers
                    )
                    if v.training and not t.back:
                        wide, before = str(t.width(operands)), str(t.width(operands[:j]))
                        address = self.by_step(f"operand {i}", node.dim, wide, before)
                        self.store(address, self.value(node), node.dim, v.numbers)
        later = [n for phase in t.phases[number + 1 :] for value in phase.values for n in value.args]
        wanted = [n for n in later if self.stage.get(n.index) == number]
        if number + 1 < len(t.phases):
            wanted += [n for n in self._ends() if self.stage.get(n.index) == number]
        for node in {n.index: n for n in wanted}.values():
            t.carried[node.index] = node
            value = f"tl.where({self.value(node)}, 1.0, 0.0)" if node.boolean else self.value(node)
            self.store(self.by_row(f"c {node.index}", node.dim), value, node.dim)
        if not t.back:
            self._save(number)
            return
        self._learn(number, real)

    def _ends(self) -> list[Node]:
        """What the last phase of a step leaves to the next step."""
        p = self.t.programs
        return [n for n in (p.gradients.states if self.t.back else p.equations.results) if n is not None]

    def _save(self, number: int) -> None:
        if not self.v.training:
            return
        for node in self.t.programs.gradients.saved:
            if self._here(node, number):
                wide, before = (" + ".join(map(self._long, dims)) or "0" for dims in self._saved_dims(node))
                self.store(self.by_step("saved", node.dim, wide, before), self.value(node), node.dim)

    def _learn(self, number: int, real: str) -> None:
        t, e, g, v = self.t, self.t.programs.equations, self.t.programs.gradients, self.v

        def put(tensor: str, node: Node, wide: str = "", before: str = "0", numbers: str = v.numbers) -> None:
            value = f"tl.where({real}, {self.value(node)}, 0.0)" if real else self.value(node)
            self.store(self.by_step(tensor, node.dim, wide, before), value, node.dim, numbers)

        for i, node in enumerate(g.inputs):
            if node is not None and self._here(node, number):
                size = v.size(node.dim)
                put("dx", node, str(len(g.inputs) * size), str(i * size))
        for i, (m, gradients) in enumerate(t.programs.taught):
            for j, node in enumerate(gradients):
                if node is not None and self._here(node, number):
                    put(f"d {i}", node, str(t.width(m.results)), str(t.width(m.results[:j])))
        for i, product in enumerate(t.programs.memories):
            if not product.state and self._here(product.weights, number):
                put(f"weights {i}", product.weights, numbers="float32")
            if product.units != g.inputs:
                for j, node in enumerate(product.units):
                    if self._here(node, number):
                        wide, before = (str(t.width(product.units[:end])) for end in (None, j))
                        put(f"units {i}", node, wide, before)
        for name, node in zip(e.vectors, g.vectors, strict=True):
            if node is not None and self._here(node, number):
                address = self.by_row(f"sum {name}", node.dim)
                value = f"tl.where({real}, {self.value(node)}, 0.0)" if real else self.value(node)
                mask = f"mask=in{self.place(node.dim)}, other=0"
                self.store(address, f"tl.load({address}, {mask}) + {value}", node.dim)
