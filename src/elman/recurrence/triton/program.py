"""A step as the kernels of a GPU compute it: its equations, its gradients, and what is saved between them."""

from dataclasses import replace

from elman.recurrence.compiled import for_arrivals, make_once
from elman.recurrence.operations import OPERATIONS
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Arrivals, Equations, derive, nodes_of, presence


class StepProgram:
    """The equations, their gradients, and where their values are kept for the backward pass.

    short, long: saved values that few bits hold, and the others. kept: states.
    shared: x.i and h.i have the same gradient in every gate.
    """

    def __init__(self, equations: Equations, arrivals: Arrivals | None = None) -> None:
        """``arrivals`` tells where gradients come from, if that changes the backward pass."""
        e, g = equations, derive(equations)
        current = {e.states[e.results.index(node)] for node in g.current}
        self.equations, self.current = e, g.current
        self.gradients = g if arrivals is None else derive(e, arrivals)
        self.presence = None if arrivals is None else presence(e, arrivals)
        self.short = tuple(node for node in g.saved if _bounded(node))
        self.long = tuple(node for node in g.saved if not _bounded(node))
        self.kept = tuple(name for name in e.states if name in g.previous | current)
        own = self.gradients
        self.shared = bool(e.products) and e.inputs == e.products and own.inputs == own.products
        self.reads_parts = g.reads_parts

    def arriving(self, arrivals: Arrivals) -> "StepProgram":
        """The step whose backward pass takes gradients from there alone; mostly this one."""
        own = replace(self.equations, compiled={})
        return for_arrivals(self, self.equations, arrivals, lambda: StepProgram(own, arrivals))

    @property
    def gathers(self) -> bool:
        """Whether the backward pass exchanges gradients of products rather than parts of their sums."""
        return len(self.equations.products) == 1

    @property
    def values(self) -> int:
        """How many numbers of a unit a step back has at hand: what it reads, and gradients that it makes."""
        e, parts = self.equations, len(self.equations.inputs)
        read = len(self.short) + len(self.long) + 2 * len(self.kept) + (parts if self.reads_parts else 0)
        return read + parts + 2 * len(e.states)

    @property
    def columns(self) -> int:
        return columns_of(len(self.equations.products))


def signature(equations: Equations | None) -> tuple[str, ...]:
    """The equations as text: the same for cells that compute the same."""
    assert equations is not None
    e = equations

    def write() -> tuple[str, ...]:
        nodes = nodes_of(e)
        place = {node.index: str(number) for number, node in enumerate(nodes)}
        lines = [" ".join([n.op, n.name, repr(n.value), *(place[a.index] for a in n.args)]) for n in nodes]
        named = (e.inputs, e.products, e.states, e.vectors, e.matrices)
        return *lines, *(place[node.index] for node in e.results), *(" ".join(names) for names in named)

    return make_once(equations, "signature", write)


def _bounded(node: Node) -> bool:
    """Whether a value lies between −1 and 1: by its operation, or as ``exp(a - max(a, b))``."""
    if node.op == "exp" and node.args[0].op == "sub":
        a, most = node.args[0].args
        return most.op == "maximum" and a in most.args
    return node.op in OPERATIONS and OPERATIONS[node.op].bounded


def columns_of(products: int) -> int:
    """Count the columns of a unit: one for every gate, and zeros up to a power of two."""
    return power_of_two(max(1, products))


def power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
