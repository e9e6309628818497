"""Reads a cell's equations, and derives the backward pass from what was read.

R is run once on symbols. The leaves of the graph it leaves behind are what an equation can name:

    x.i   input part of gate i, at this step       s.c   previous state c
    h.i   recurrent part of gate i                 v.p   learned per-unit vector p
    n.c   noise for state c, at this step          g.c   gradient of the new state c (backward only)
    k.h   what recurrent dropout leaves of h       size  how many units there are
    p.…   whether a gradient is present at this step, as a text about ``after`` (see ``derive``)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor

from elman.errors import BackendError, EquationError, nearest
from elman.recurrence.fixed import NumbersAreFixed
from elman.recurrence.looks import LOOKS, Remembered, Score, pull_back, remember
from elman.recurrence.operations import OPERATIONS, REDUCTIONS
from elman.recurrence.symbols import UNITS, Graph, Node, Operand, Symbol, reach

Names: TypeAlias = tuple[str, ...]

# Of a step and its gradient, that kernels are made of: a few seconds for a C compiler.
MOST_OPERATIONS = 10_000


@dataclass(frozen=True, eq=False)
class Equations:
    """One step of a cell as a graph: which leaves it reads and the new state it computes."""

    graph: Graph
    states: Names
    inputs: Names
    products: Names
    vectors: Names
    noise: Names
    results: tuple[Node, ...]
    matrices: Names = ()
    scores: Mapping[str, Score] = field(default_factory=dict)
    compiled: dict[Hashable, Any] = field(default_factory=dict)  # where backends keep what they made of it

    @cached_property
    def pointwise(self) -> bool:
        """Whether a step is one product of the first state, and pointwise after it."""
        return not self.matrices and all(not n.args or n.op in OPERATIONS for n in nodes_of(self))


class Blocks:
    """The namespace ``x`` or ``h`` while R is read: hands out leaves and notes which were asked for."""

    def __init__(self, graph: Graph, kind: str, gates: Names) -> None:
        self._graph, self._kind, self._gates = graph, kind, gates
        self._read: set[str] = set()

    def __getattr__(self, gate: str) -> Symbol:
        if gate not in self._gates:
            raise EquationError(f"{self._kind}.{gate}: no such gate; {nearest(gate, self._gates)}")
        self._read.add(gate)
        return self._graph.leaf(self._kind, gate)

    def __repr__(self) -> str:
        return f"the whole of {self._kind} (name the gate, as in {self._kind}.{(*self._gates, 'a')[0]})"

    @classmethod
    def __torch_function__(cls, *call: Operand) -> NoReturn:
        _refuse_whole()


def _refuse_whole(*arguments: Operand) -> NoReturn:
    raise EquationError(
        'x and h are read gate by gate, as in tanh(x.a + h.a) for gates = ("a",); a whole has no value'
    )


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul"):
    setattr(Blocks, f"__{_name}__", _refuse_whole)
    setattr(Blocks, f"__r{_name}__", _refuse_whole)
for _name in ("neg", "abs", "lt", "le", "gt", "ge", "getitem", "iter", "call"):
    setattr(Blocks, f"__{_name}__", _refuse_whole)


def trace(
    R: Callable[..., tuple[Operand, ...]],
    *,
    graph: Graph,
    state: Any,
    gates: Names,
    vectors: Names,
    matrices: Names = (),
) -> Equations:
    """Run R(x, h, s) on symbols and write down its equations.

    Args:
        R: the step; reads blocks of x and h by gate, s by field, and returns ``state(...)``.
        graph: where the symbols live that R finds for its learned vectors and matrices.
        state: the named tuple of the cell's state.
    """
    fields: Names = state._fields
    x, h = Blocks(graph, "x", gates), Blocks(graph, "h", gates)
    mode = nullcontext() if torch.compiler.is_compiling() else torch.enable_grad()  # an export would note it
    with mode, NumbersAreFixed():
        graph.reading = torch.is_grad_enabled()
        new = R(x, h, state(*(graph.leaf("s", name) for name in fields)))
    graph.reading = False
    if not isinstance(new, state):
        raise EquationError(
            f"R must return self.State({', '.join(f'{f}=…' for f in fields)}), not {type(new).__name__}"
        )
    results = []
    for name, value in zip(fields, new, strict=True):
        if isinstance(value, (int, float)):
            value = graph.constant(float(value))
        if not isinstance(value, Symbol) or value.node.boolean:
            raise EquationError(
                f"R returned {value!r} as state {name!r}; a real value computed from x, h and s belongs there"
            )
        results.append(value.node)
    inputs, products = (tuple(gate for gate in gates if gate in blocks._read) for blocks in (x, h))
    if graph.phased or len(matrices) > 0:
        results = [whole(Symbol(graph, node), UNITS).node for node in results]
    return Equations(graph, fields, inputs, products, vectors, (), tuple(results), matrices)


def add_zoneout(equations: Equations, rates: Mapping[str, float | None]) -> Equations:
    """The same step under zoneout, as equations.

    A state whose rate is None follows a drawn mask, ``new = n.c != 0 ? s.c : new``; a number is the
    expectation that evaluation uses, ``rate * s.c + (1 - rate) * new``.
    """
    graph, results = equations.graph, list(equations.results)
    for name, rate in rates.items():
        place = equations.states.index(name)
        new = Symbol(graph, results[place])
        old = graph.leaf("s", name)
        drawn = graph.leaf("n", name) != 0.0
        kept = drawn.choose(old, new) if rate is None else rate * old + (1.0 - rate) * new
        results[place] = kept.node
    noisy = tuple(name for name in equations.states if name in rates and rates[name] is None)
    return replace(equations, noise=noisy, results=tuple(results), compiled={})


@dataclass(frozen=True)
class Gradients:
    """The backward step: the gradient of every leaf, and the forward values it needs saved.

    ``current`` names the states whose new value is read back from the state sequence instead.
    ``multiplied`` are the products of a step of several phases that have a gradient, each with it;
    ``remembered`` says what the gradients of memories are made of.
    """

    inputs: tuple[Node | None, ...]
    products: tuple[Node | None, ...]
    states: tuple[Node | None, ...]
    vectors: tuple[Node | None, ...]
    saved: tuple[Node, ...]
    current: tuple[Node, ...]
    multiplied: tuple[tuple[Node, Node], ...] = ()
    remembered: tuple[Remembered, ...] = ()

    @property
    def teach_products(self) -> bool:
        """Whether recurrent products have a gradient; those that are only compared have none."""
        return any(node is not None for node in self.products)

    @property
    def reads_parts(self) -> bool:
        """Whether the backward step reads an input part as it was."""
        return any(node.op == "x" for node in self._computed_from())

    @property
    def conditions(self) -> list[Node]:
        """What the backward step asks about the step at which it is."""
        return [node for node in self._computed_from() if node.op == "p"]

    @property
    def previous(self) -> set[str]:
        """States whose value before the step the backward step reads."""
        return {node.name for node in self._computed_from() if node.op == "s"}

    def _computed_from(self) -> Iterable[Node]:
        return reach(self.outputs, stop=(*self.saved, *self.current)).values()

    @property
    def outputs(self) -> list[Node]:
        leaves = [n for n in (*self.inputs, *self.products, *self.states, *self.vectors) if n is not None]
        made = [gradient for _, gradient in self.multiplied]
        return [*leaves, *made, *(node for found in self.remembered for node in found.nodes)]


@dataclass(frozen=True)
class Arrivals:
    """Which states get a gradient from outside: at every step, and at a row's last step."""

    always: tuple[bool, ...]
    last: tuple[bool, ...]


def derive(equations: Equations, arrivals: Arrivals | None = None) -> Gradients:
    """Reverse-mode differentiation of the step: go through the graph from results to leaves.

    A gradient that is absent is not one that is zero: zero times infinity is not a number. Where nothing
    arrives at a state, nothing may leave it. By default a gradient is taken to arrive at every state at
    every step; with ``arrivals``, values that only absent gradients would reach get none, and those that
    are reached at some steps ask which step it is: ``after`` counts the steps of the row that follow it.

    Raises BackendError where there are more operations than kernels are made of.
    """
    adjoint, _ = _adjoints(equations, None if arrivals is None else presence(equations, arrivals))
    graph, pointwise = equations.graph, equations.pointwise
    dims = {(node.op, node.name): node.dim for node in nodes_of(equations) if not node.args}

    def of(kind: str, names: Names) -> tuple[Node | None, ...]:
        leaves = [graph.leaf(kind, name, dims.get((kind, name), UNITS)).node for name in names]
        found = [(adjoint.get(leaf.index), "" if pointwise else leaf.dim) for leaf in leaves]
        return tuple(None if gradient is None else whole(gradient, dim).node for gradient, dim in found)

    e = equations
    leaves = of("x", e.inputs), of("h", e.products), of("s", e.states), of("v", e.vectors)
    made = [node for node in nodes_of(e) if node.op == "product" and node.index in adjoint]
    multiplied = tuple((node, whole(adjoint[node.index], node.dim).node) for node in made)
    looked = [node for node in nodes_of(e) if node.op in LOOKS and node.index in adjoint]
    remembered = tuple(remember(node, whole(adjoint[node.index], node.dim)) for node in looked)
    found = Gradients(*leaves, (), (), multiplied, remembered)
    operations = sum(bool(node.args) for node in reach((*equations.results, *found.outputs)).values())
    if operations > MOST_OPERATIONS:
        limit = f"kernels are made of {MOST_OPERATIONS:,} at most"
        raise BackendError(f"a step and its gradient are {operations:,} operations, and {limit}")
    # Of forward values, dear ones and products are kept; what is cheap is computed again.
    dear = [n for n in nodes_of(equations) if n.op == "h" or _adds_parts(n) or (n.args and _dear(n))]
    reached = reach(found.outputs, stop=dear)
    kept = [node for node in dear if node.index in reached]
    current = tuple(node for node in kept if node in equations.results)
    return replace(found, saved=tuple(node for node in kept if node not in current), current=current)


def _adjoints(
    equations: Equations, present: Presence | None
) -> tuple[dict[int, Symbol], dict[int, frozenset[int]]]:
    """The gradient of every value that has one, and the states whose gradients it is made of."""
    graph = equations.graph
    adjoint: dict[int, Symbol] = {}
    origins: dict[int, frozenset[int]] = {}

    def add(node: Node, gradient: Symbol | float | None, origin: frozenset[int], dim: str = "") -> None:
        if gradient is None or node.op == "constant" or node.boolean:
            return
        gradient = gradient if isinstance(gradient, Symbol) else graph.constant(gradient)
        if dim and not node.dim:  # one number stood beside many: their gradients add up
            many = gradient.node.dim
            gradient = graph.reduce("sum", gradient) if many else gradient * graph.size(dim)
        adjoint[node.index] = adjoint[node.index] + gradient if node.index in adjoint else gradient
        origins[node.index] = origins.get(node.index, frozenset()) | origin

    for place, (name, node) in enumerate(zip(equations.states, equations.results, strict=True)):
        if present is None or any(place in there for there in present.sets):
            add(node, graph.leaf("g", name, node.dim or UNITS), frozenset({place}))
    sums: dict[int, list[tuple[Symbol, str]]] = {}  # by value, the products that it has part in
    for node in reversed(nodes_of(equations)):
        if node.index in sums:  # all are known, since a value comes before what is made of it
            add(node, graph.product(sums[node.index], node.dim), origins.get(-node.index - 1, frozenset()))
        if node.index in adjoint and node.op == "product":
            for argument, name in zip(node.args, node.name.split(), strict=True):
                sums.setdefault(argument.index, []).append(
                    (whole(adjoint[node.index], node.dim), turned(name))
                )
                place = -argument.index - 1
                origins[place] = origins.get(place, frozenset()) | origins[node.index]
        elif node.index in adjoint and node.op in LOOKS:
            found = pull_back(node, whole(adjoint[node.index], node.dim), equations.scores)
            for argument, pulled in zip(node.args, found, strict=True):
                add(argument, pulled, origins[node.index])
        elif node.index in adjoint and node.args:
            symbols = [Symbol(graph, n) for n in (node, *node.args)]
            origin = origins[node.index]
            when = None if present is None or _keeps_zero(node) else present.when(origin)
            rule = REDUCTIONS[node.op].derivative if node.op in REDUCTIONS else OPERATIONS[node.op].derivative
            gradients = rule(adjoint[node.index], *symbols)
            for argument, gradient in zip(node.args, gradients, strict=True):
                if gradient is not None and when is not None:
                    gradient = graph.leaf("p", when).choose(gradient, 0.0)
                add(argument, gradient, origin, node.dim)
    return adjoint, origins


@dataclass(frozen=True)
class Presence:
    """Which states have a gradient, by the number of steps that follow; from some step on it recurs.

    ``sets[n]`` are those with n steps after this one, in their order; beyond the last set it goes on with
    ``sets[lead]``. ``multiplying`` are the states that are computed from recurrent products.
    """

    sets: tuple[frozenset[int], ...]
    lead: int
    multiplying: frozenset[int]

    def when(self, states: Collection[int]) -> str | None:
        """At which steps one of these states has a gradient, as a condition in ``after``; None: at all."""
        there = [not present.isdisjoint(states) for present in self.sets]
        if all(there) or not states:
            return None
        period = len(there) - self.lead
        terms = [f"(after == {n})" for n in range(self.lead) if there[n]]
        recurring = [n for n in range(period) if there[self.lead + n]]
        if len(recurring) == period:
            terms.append(f"(after >= {self.lead})")
        else:
            since = f"(after >= {self.lead}) & ((after - {self.lead}) % {period}"
            terms += [f"({since} == {n}))" for n in recurring]
        return f"({' | '.join(terms)})"

    def of_products(self, after: Tensor) -> Tensor:
        """Whether any recurrent product has a gradient, with so many steps after it."""
        beyond = (after - self.lead) % (len(self.sets) - self.lead) + self.lead
        number = beyond.where(after >= self.lead, after)
        found = torch.zeros_like(after, dtype=torch.bool)
        for place, present in enumerate(self.sets):  # one by one: a table would have to go to the device
            if not present.isdisjoint(self.multiplying):
                found |= number == place
        return found


def presence(equations: Equations, arrivals: Arrivals) -> Presence | None:
    """Where gradients are present, going back from a row's last step; None: wherever it matters.

    A state has one if it gets one from outside, or if a state that has one at the next step reads it; the
    first state is read by every recurrent product.
    """
    if arrivals in equations.compiled:
        known: Presence | None = equations.compiled[arrivals]
        return known
    graph = equations.graph
    _, origins = _adjoints(equations, None)

    def reached_by(*leaves: tuple[str, str]) -> frozenset[int]:
        return frozenset().union(*(origins.get(graph.leaf(*leaf).node.index, ()) for leaf in leaves))

    readers = [reached_by(("s", name)) for name in equations.states]
    multiplying = reached_by(*(("h", name) for name in equations.products))
    readers[0] |= multiplying
    always = {place for place, there in enumerate(arrivals.always) if there}
    present = frozenset(always | {place for place, there in enumerate(arrivals.last) if there})
    sets: list[frozenset[int]] = []
    while present not in sets:
        sets.append(present)
        present = frozenset(always | {place for place, by in enumerate(readers) if by & present})
    found = Presence(tuple(sets), sets.index(present), multiplying)
    risky = {origins[n.index] for n in nodes_of(equations) if n.index in origins and not _keeps_zero(n)}
    matters = any(found.when(origin) is not None for origin in (*risky, multiplying))
    equations.compiled[arrivals] = found if matters else None
    return found if matters else None


def turned(name: str) -> str:
    """The name of a matrix that is turned: its rows are the columns of the other."""
    return name.removesuffix("'") if name.endswith("'") else f"{name}'"


def whole(value: Symbol, dim: str) -> Symbol:
    """A value that is the same for all units, as one number for each."""
    return value if value.node.dim or not dim else value + value.graph.leaf("zero", "", dim)


def _dear(node: Node) -> bool:
    """Whether a value is saved for the backward step, if that reads it: it takes more than to load it."""
    return node.op not in OPERATIONS or OPERATIONS[node.op].dear


def _adds_parts(node: Node) -> bool:
    """Whether a value is the sum of the two parts of a gate: saved as one, neither of them is read again."""
    return node.op == "add" and {argument.op for argument in node.args} == {"x", "h"}


def _keeps_zero(node: Node) -> bool:
    """Whether of a gradient of zero at this value nothing but zero goes on, whatever the other values are."""
    if not node.args or node.op in ("sum", "top"):
        return True
    factors = [n.value for n in node.args if n.value is not None and math.isfinite(n.value)]
    row = OPERATIONS.get(node.op)  # none: what a matrix or a memory multiplied is a factor, too
    return row is not None and (row.passing or (node.op == "mul" and bool(factors)))


def nodes_of(equations: Equations) -> list[Node]:
    """All values of a step, arguments before results."""
    return sorted(reach(equations.results).values(), key=lambda node: node.index)
