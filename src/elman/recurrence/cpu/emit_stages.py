"""Writes a step of several phases as C: loops over the units of a row, and products of rows between them.

A phase is cut into stages: a loop over units ends where a value needs a number that is known only after it,
a sum over the units say. In a stage come first the numbers of the row, then a loop for each dimension, then
what looks at a memory. A value that another loop reads lies in the row's part of ``work``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elman.recurrence.cpu.emit import lines_of, number
from elman.recurrence.cpu.emit_looks import LookEmitter
from elman.recurrence.cpu.layout import Layout
from elman.recurrence.looks import LOOKS, Score
from elman.recurrence.operations import REDUCTIONS
from elman.recurrence.phases import Phase
from elman.recurrence.symbols import Node


class StepEmitter(LookEmitter):
    """Writes the phases of one direction of time, forward or backward."""

    def __init__(
        self,
        name: str,
        layout: Layout,
        phases: Sequence[Phase],
        *,
        leaves: Mapping[tuple[str, str], str],
        known: Mapping[int, str],
        outputs: Sequence[tuple[Node, str]],
        sums: Sequence[tuple[Node, str]] = (),
        scores: Mapping[str, Score] | None = None,
    ) -> None:
        """
        Args:
            leaves: by kind and name, the text of a leaf at unit u of this row.
            known: the same of values that were saved, by node.
            outputs: where values are stored: an address without the unit.
            sums: values that are added up over all rows and steps, and where.
        """
        self.name, self.at, self.phases = name, layout, phases
        self.leaves, self.known = leaves, known
        self.outputs, self.sums, self.scores = outputs, sums, scores or {}
        self.phase_of = {node.index: i for i, phase in enumerate(phases) for node in phase.values}
        self.products = {
            result.index: (m, j)
            for phase in phases
            for m in phase.multiplications
            for j, result in enumerate(m.results)
        }
        self.number = {id(m): i for i, m in enumerate(m for phase in phases for m in phase.multiplications)}
        self.stage: dict[int, int] = {}
        for phase in phases:
            for node in phase.values:
                below = [
                    self.stage[a.index] + (a.op in REDUCTIONS or a.op in LOOKS)
                    for a in node.args
                    if self.phase_of.get(a.index) == self.phase_of[node.index]
                ]
                self.stage[node.index] = max(below, default=0)
        self.stored = self._crossing()
        for m, i in ((m, self.number[id(m)]) for phase in phases for m in phase.multiplications):
            for group, nodes in (("from", m.operands), ("to", m.results)):
                for j, node in enumerate(nodes):  # side by side
                    self.at.slot(f"{self.name} {group} {i} {j}", node.dim)

    def loop(self, node: Node) -> tuple[int, int, str]:
        """Where a value is computed: its phase, its stage and the dimension of the loop."""
        dim = node.args[0].dim if node.op in REDUCTIONS else node.dim
        return self.phase_of[node.index], self.stage[node.index], dim

    def _crossing(self) -> dict[int, str]:
        """Values that another loop reads, and their places in the row."""
        readers: dict[int, set[tuple[int, int, str]]] = {}
        found: dict[int, Node] = {}
        for phase in self.phases:
            for node in phase.values:
                for a in node.args:
                    found[a.index] = a
                    readers.setdefault(a.index, set()).add(
                        (-1, 0, "") if node.op in LOOKS else self.loop(node)
                    )
        stored = {}
        for index, places in readers.items():
            node = found[index]
            if index not in self.phase_of:
                if (-1, 0, "") in places and index not in self.products:
                    stored[index] = self.at.slot(f"{self.name} {index}", node.dim)  # a leaf that a look reads
                continue
            here = self.loop(node)
            scalar_here = not node.dim and all(place[0] == here[0] for place in places)
            if node.op in LOOKS or (places != {here} and not scalar_here):
                stored[index] = self.at.slot(f"{self.name} {index}", node.dim)
        for node, _ in (*self.outputs, *self.sums):
            if node.op in LOOKS and node.index not in stored and node.index in self.phase_of:
                stored[node.index] = self.at.slot(f"{self.name} {node.index}", node.dim)
        return stored

    # ---- text ------------------------------------------------------------------------------------

    def text(self) -> list[str]:
        lines: list[str] = []
        for i, _ in enumerate(self.phases):
            lines += self._phase(i)
        return lines

    def _phase(self, i: int) -> list[str]:
        phase = self.phases[i]
        head = f"static void {self.name}_phase_{i}(const Task *k, long p, long t, REAL *sums) {{"
        lines = [head, "  const long row = row_of(k, p), at = place(k, p, t);"]
        lines += [*self.at.sizes_text(row=True), "  REAL *const w = k->work + p * k->stride;"]
        lines += ["  (void)row, (void)at, (void)w, (void)sums;"]
        extra = self._extra(i)
        stages = 1 + max((self.stage[node.index] for node in phase.values), default=0)
        stages = max([stages, *(place[1] + 1 for place in extra)])
        text: dict[int, str] = {}  # names of the row's numbers, for the whole phase
        for stage in range(stages):
            here = [node for node in phase.values if self.stage[node.index] == stage]
            looks = [node for node in here if node.op in LOOKS]
            plain = [node for node in here if node.op not in LOOKS]
            dims = {self.loop(node)[2] for node in plain} | {place[2] for place in extra if place[1] == stage}
            for dim in sorted(dims):
                nodes = [node for node in plain if self.loop(node)[2] == dim]
                lines += self._loop(i, dim, nodes, extra.get((i, stage, dim), []), text)
            lines += self.looks(looks)
        return [*lines, "}"]

    def _extra(self, i: int) -> dict[tuple[int, int, str], list[tuple[Node, str]]]:
        """What the loops of a phase store besides values for others: operands, outputs, sums, leaves."""
        found: dict[tuple[int, int, str], list[tuple[Node, str]]] = {}

        def add(node: Node, how: str) -> None:
            if node.index in self.phase_of and node.op not in LOOKS and node.op not in REDUCTIONS:
                where = self.loop(node)
            elif node.index in self.phase_of:  # complete only after its stage
                where = (self.phase_of[node.index], self.stage[node.index] + 1, node.dim)
            elif node.index in self.products:
                m, _ = self.products[node.index]
                where = (next(j for j, p in enumerate(self.phases) if m in p.multiplications), 0, node.dim)
            else:
                where = (0, 0, node.dim)
            if where[0] == i:
                found.setdefault((i, where[1], where[2]), []).append((node, how))

        for m in (m for phase in self.phases for m in phase.multiplications):
            for j, node in enumerate(m.operands):
                add(node, f"from {self.number[id(m)]} {j}")
        for node, address in self.outputs:
            add(node, f"out {address}")
        for node, address in self.sums:
            add(node, f"sum {address}")
        for leaf in filter(None, map(self._leaf, self.stored)):
            add(leaf, "slot")
        return found

    def _leaf(self, index: int) -> Node | None:
        """A leaf, or a saved value, that a look reads: it is copied into the row."""
        if index in self.phase_of or index in self.products:
            return None
        args = (a for phase in self.phases for node in phase.values for a in node.args)
        return next(a for a in args if a.index == index)

    def _loop(
        self, i: int, dim: str, nodes: Sequence[Node], extra: Sequence[tuple[Node, str]], text: dict[int, str]
    ) -> list[str]:
        """One loop over a dimension, or of the row's numbers where it has none."""
        named = dict(text)
        inside: list[str] = []
        here = {node.index for node in nodes}

        def fetch(node: Node) -> None:
            if node.index in named or node.value is not None or node.index in here:
                return
            named[node.index] = f"r{node.index}"
            kind = "M" if node.boolean else "V"
            inside.append(f"{kind} r{node.index} = {self._load(node, i)};")

        plain = [node for node in nodes if node.op not in REDUCTIONS]
        reductions = [node for node in nodes if node.op in REDUCTIONS]
        for node in (*(a for n in nodes for a in n.args), *(n for n, _ in extra)):
            if node.index not in here:
                fetch(node)
        lines, _ = lines_of(plain, {}, named)
        inside += lines
        own = named | {node.index: f"t{node.index}" for node in plain}

        def value(node: Node) -> str:
            return f"all({number(node.value)})" if node.value is not None else own[node.index]

        before, after = [], []
        for node in plain:
            if node.index in self.stored:
                inside.append(f"*(V *)(w + {self.stored[node.index]} + u) = (V){value(node)};")
        for node, how in extra:
            inside.append(self._store(node, how, value(node), dim))
        for node in reductions:
            name, arg = f"t{node.index}", value(node.args[0])
            start, update, end = {
                "sum": ("all(0)", f"{name} += keep({arg}, n, 0);", "total"),
            }.get(
                node.op, ("all(-INFINITY)", f"{name} = larger({name}, keep({arg}, n, -INFINITY));", "largest")
            )
            before.append(f"  V {name} = {start};")
            inside.append(update)
            after.append(f"  {name} = {end}({name});")
            if node.index in self.stored:
                after.append(f"  *(V *)(w + {self.stored[node.index]}) = {name};")
            text[node.index] = name
        if not dim:  # they stay in variables
            text.update(own)
            scalar = [line.replace(" + u)", ")") for line in inside]
            return [f"  {line}" for line in scalar]
        body = [f"    {line}" for line in inside]
        size = self.at.length(dim)
        head = f"  for (long u = 0, n = {size}; u < {size}; u += LANES, n -= LANES) {{"
        return [*before, head, *body, "  }", *after]

    def _load(self, node: Node, i: int) -> str:
        unit = " + u" if node.dim else ""
        if node.index in self.known:
            return self.known[node.index]
        if node.index in self.products:
            m, j = self.products[node.index]
            return f"*(V *)(w + {self.at.slot(f'{self.name} to {self.number[id(m)]} {j}', node.dim)}{unit})"
        if node.index in self.phase_of:
            return f"{'(M)' if node.boolean else ''}*(V *)(w + {self.stored[node.index]}{unit})"
        if node.op == "size":
            return f"all((REAL){self.at.length(node.name)})"
        if node.op == "zero":
            return "all(0)"
        return self.leaves[node.op, node.name]

    def _store(self, node: Node, how: str, value: str, dim: str) -> str:
        kind, _, where = how.partition(" ")
        if kind == "slot":
            return f"*(V *)(w + {self.stored[node.index]} + u) = {value};"
        if kind == "from":
            return f"*(V *)(w + {self.at.slot(f'{self.name} from {where}', dim)} + u) = keep({value}, n, 0);"
        if kind == "sum":
            return f"*(V *)({where} + u) += {value};"
        if not dim:
            return f"{{ REAL *out = {where}; if (out) *out = {value}[0]; }}"
        return f"{{ REAL *out = {where}; if (out) store(out + u, {value}, n); }}"

    def address(self, node: Node) -> str:
        if node.index in self.products:
            m, j = self.products[node.index]
            return f"(w + {self.at.slot(f'{self.name} to {self.number[id(m)]} {j}', node.dim)})"
        return f"(w + {self.stored[node.index]})"
