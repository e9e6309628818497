"""A step of several phases as the kernels of a GPU compute it: which kernel computes what, and what crosses.

A stage is what lies between two products. The phases of ``recurrence/phases.py`` say at which stage a value
can be computed; here it is decided where it is: a value that is made of the inputs alone waits until it is
needed, and what later stages need of an earlier one is carried over through memory.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from elman.recurrence.compiled import make_once
from elman.recurrence.operations import OPERATIONS, REDUCTIONS
from elman.recurrence.phases import (
    Multiplication,
    Phase,
    blocks_of,
    expand,
    step_programs,
)
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Arrivals, Equations, presence
from elman.recurrence.triton.emit.writer import Variant

FREE = ("v", "constant", "size", "zero", "real")  # leaves that cost nothing to load
GATHERED = 16  # rows of what is multiplied begin at multiples of so many numbers


@dataclass(frozen=True)
class BlockProduct:
    """Values side by side times a matrix of blocks: ``results[j] = Σ_i operands[i] · blocks[j][i]``.

    phase: the stage that follows it. The order is that of the tensors which the blocks are parts of.
    """

    phase: int
    operands: tuple[Node, ...]
    results: tuple[Node, ...]
    blocks: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(phase: int, found: Multiplication, order: dict[str, int]) -> "BlockProduct":
        def place(name: str) -> int:
            return order[name.removesuffix("'")]

        rows = [result.name.split() for result in found.results]
        inner = sorted(range(len(found.operands)), key=lambda i: place(rows[0][i]))
        outer = sorted(range(len(rows)), key=lambda j: place(rows[j][inner[0]]))
        return BlockProduct(
            phase,
            tuple(found.operands[i] for i in inner),
            tuple(found.results[j] for j in outer),
            tuple(tuple(rows[j][i] for i in inner) for j in outer),
        )

    def stride(self, H: int) -> int:
        """The length of a row of operands in memory."""
        return -(-len(self.operands) * H // GATHERED) * GATHERED


class Stages:
    """What every stage of a step, forward or back, computes, loads and hands on.

    last: the last stage. outputs: by stage, the values that are wanted; carried: those that a later stage
    loads; operands: by stage, (product, place, value). slots: where a carried value lies, beside others
    of its kind (with units, or one number a row).
    """

    def __init__(
        self,
        phases: Sequence[Phase],
        known: Collection[Node],
        order: dict[str, int],
        *,
        ends: Iterable[Node],
        rest: Iterable[Node],
        last: int,
    ) -> None:
        """``ends`` are wanted at the last stage, ``rest`` where they are computed."""
        self.last = last
        self.products = [
            BlockProduct.of(n, m, order) for n, p in enumerate(phases) for m in p.multiplications
        ]
        self._known = {node.index for node in known}
        self._stage = self._assign(phases)
        self._tensors = self._find_tensors(phases)
        self.outputs: list[list[Node]] = [[] for _ in range(last + 1)]
        self.operands: list[list[tuple[int, int, Node]]] = [[] for _ in range(last + 1)]
        self.carried: list[list[Node]] = [[] for _ in range(last + 1)]
        self.outputs[last] += ends
        for node in rest:
            self.outputs[self.stage(node)].append(node)
        for number, product in enumerate(self.products):
            for place, node in enumerate(product.operands):
                made = node.index in self._stage and node.index not in self._known
                stage = self.stage(node) if made else product.phase - 1
                self.operands[stage].append((number, place, node))
        self._computed: list[list[Node]] = [[] for _ in range(last + 1)]
        for stage in reversed(range(last + 1)):
            self._computed[stage] = self._demand(stage)
        found = [node for nodes in self.carried for node in nodes]
        self.slots = {
            node.index: slot
            for scalar in (False, True)
            for slot, node in enumerate(node for node in found if (node.dim == "") == scalar)
        }
        self.rows = sum(node.dim == "" for node in found)  # carried values that are one number a row
        self.units = len(found) - self.rows

    def stage(self, node: Node) -> int:
        return self._stage.get(node.index, 0)

    def known(self, node: Node) -> bool:
        return node.index in self._known

    def computed(self, stage: int) -> list[Node]:
        """What a stage computes, arguments before results."""
        return self._computed[stage]

    def is_carried(self, node: Node, stage: int) -> bool:
        """Whether a stage loads what an earlier one left."""
        if self.known(node) or node.op == "product" or (not node.args and node.op != "g"):
            return False
        return self.stage(node) < stage and (node.op == "g" or node.index not in self._tensors)

    def reads(self, state: str) -> bool:
        """Whether a stage between two products reads this state as it was before the step."""
        nodes = [node for stage in range(min(1, self.last), self.last + 1) for node in self.computed(stage)]
        wanted = [node for stage in range(min(1, self.last), self.last + 1) for node in self.wanted(stage)]
        read = (*wanted, *(argument for node in nodes for argument in node.args))
        return any(node.op == "s" and node.name == state for node in read)

    def wanted(self, stage: int) -> list[Node]:
        """What others want of a stage."""
        operands = [node for _, _, node in self.operands[stage]]
        return [*self.outputs[stage], *self.carried[stage], *operands]

    def whole(self, stage: int) -> bool:
        """Whether a stage looks at all units of a row at once."""
        single = any(node.dim == "" and node.value is None for node in self.wanted(stage))
        return single or any(node.op in REDUCTIONS for node in self.computed(stage))

    def _assign(self, phases: Sequence[Phase]) -> dict[int, int]:
        level: dict[int, int] = {}
        nodes: dict[int, Node] = {}
        for number, phase in enumerate(phases):
            for node in (*phase.values, *(r for m in phase.multiplications for r in m.results)):
                level[node.index], nodes[node.index] = number, node
        arrived: set[int] = set()  # made of gradients that arrive
        for index in sorted(nodes):
            if any(a.op == "g" or a.index in arrived for a in nodes[index].args):
                arrived.add(index)
        stage: dict[int, int] = {}
        latest: dict[int, int] = {}
        for index in sorted(nodes, reverse=True):
            node = nodes[index]
            waits = not level[index] and index not in arrived and node.op != "product"
            stage[index] = latest.get(index, self.last) if waits else level[index]
            first = stage[index] - (node.op == "product")
            for argument in node.args:
                latest[argument.index] = min(latest.get(argument.index, self.last), first)
        return stage

    def _demand(self, stage: int) -> list[Node]:
        """Walk back from what is wanted of a stage; what comes from an earlier one, that has to carry."""
        found: dict[int, Node] = {}
        todo = self.wanted(stage)
        while todo:
            node = todo.pop()
            if self.is_carried(node, stage):
                before = self.carried[self.stage(node)]
                if node not in before:
                    before.append(node)
            elif node.args and node.op != "product" and not self.known(node) and node.index not in found:
                found[node.index] = node
                todo.extend(node.args)
        return [found[index] for index in sorted(found)]

    def _find_tensors(self, phases: Sequence[Phase]) -> dict[int, frozenset[int]]:
        """Values that are cheap to compute again, with the tensors that they are made of: one, or none."""
        found: dict[int, frozenset[int]] = {}

        def tensors(node: Node) -> frozenset[int] | None:
            if self.known(node) or not node.args:
                free = node.op in FREE and not self.known(node)
                return frozenset() if free else frozenset({node.index})
            return found.get(node.index)

        values = [node for phase in phases for node in phase.values if node.op in OPERATIONS]
        for node in sorted(values, key=lambda node: node.index):
            each = [tensors(argument) for argument in node.args]
            known = [one for one in each if one is not None]
            union = frozenset[int]().union(*known)
            if len(known) == len(each) and len(union) < (1 if OPERATIONS[node.op].dear else 2):
                found[node.index] = union
        return found


class PhasedProgram:
    """An expanded step with its gradients, and where its values are kept for the backward pass.

    short, long: saved values that few bits hold, and the others; ``single``: those that are one number
    a row. kept: states. shared: by product, the first of the inputs that have the same gradients.
    """

    def __init__(self, equations: Equations, gates: Sequence[str]) -> None:
        self.programs = step_programs(equations)
        self.equations, self.gradients = equations, self.programs.gradients
        e, g = self.equations, self.gradients
        current = {e.states[e.results.index(node)] for node in g.current}
        units = [node for node in g.saved if node.dim]
        self.single = tuple(node for node in g.saved if not node.dim)
        self.short = tuple(node for node in units if node.op in OPERATIONS and OPERATIONS[node.op].bounded)
        self.long = tuple(node for node in units if node not in self.short)
        self.kept = tuple(name for name in e.states if name in g.previous | current)
        self.blocks = blocks_of(e, tuple(gates))
        self.order = {name: place for place, name in enumerate(self.blocks)}
        self._forward = {training: self._stages_forward(training) for training in (False, True)}
        self.products = self._forward[True].products
        adjoint = {node.index: gradient for node, gradient in g.multiplied}
        self.taught = [[adjoint.get(result.index) for result in own.results] for own in self.products]
        self.shared = [self._shared(gradients) for gradients in self.taught]
        self._backward = {lengths: self._stages_backward(lengths) for lengths in (False, True)}

    def __str__(self) -> str:
        forward, backward = self._forward[True], self._backward[False]
        kernels = max(1, forward.last)
        each = (forward, kernels, "forward"), (backward, backward.last, "back")
        counts = [
            f"{counted(len(stages.products), 'product')} and {counted(number, 'kernel')} {way}"
            for stages, number, way in each
        ]
        return f"steps of {counted(kernels, 'phase')}: {', '.join(counts)}"

    def stages(self, variant: Variant, *, back: bool) -> Stages:
        return self._backward[variant.lengths] if back else self._forward[variant.training]

    def _stages_forward(self, training: bool) -> Stages:
        phases = self.programs.forward
        saved = self.gradients.saved if training else ()
        return Stages(phases, (), self.order, ends=self.equations.results, rest=saved, last=len(phases) - 1)

    def _stages_backward(self, lengths: bool) -> Stages:
        e, g, phases = self.equations, self.gradients, self.programs.backward
        ends = [node for node in g.states if node is not None]
        if lengths:  # at padding what arrives goes on
            ends += [e.graph.leaf("g", name).node for name in e.states]
        own = [nodes for nodes, place in zip(self.taught, self.shared, strict=True) if place is None]
        rest = [node for nodes in (g.inputs, g.vectors, *own) for node in nodes if node is not None]
        last = max(1, len(phases) - 1)
        return Stages(phases, (*g.saved, *g.current), self.order, ends=ends, rest=rest, last=last)

    def _shared(self, gradients: list[Node | None]) -> int | None:
        own, size = self.gradients.inputs, len(gradients)
        return next((i for i in range(len(own) - size + 1) if list(own[i : i + size]) == gradients), None)


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


class PhasedStep:
    """The equations of a step of several phases; its programs are made where they are first needed."""

    def __init__(self, equations: Equations) -> None:
        self.equations = equations

    def program(self, mask: bool) -> PhasedProgram:
        """The step with recurrent dropout, or without."""
        e = self.equations

        def make() -> PhasedProgram:
            return PhasedProgram(expand(e, mask=mask), e.products)

        return make_once(e, ("phases", mask), make)

    def arriving(self, arrivals: Arrivals) -> "PhasedStep | None":
        """This step, if its backward pass may take the gradients that are absent for zeros."""
        e = self.program(False).equations
        own = replace(e, compiled={})
        matters = make_once(e, ("arrivals", arrivals), lambda: presence(own, arrivals) is not None)
        return None if matters else self
