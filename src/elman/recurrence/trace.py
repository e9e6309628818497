"""Reads a cell's equations, and derives the backward pass from what was read.

R is run once on symbols. The leaves of the graph it leaves behind are what an equation can name:

    x.i   input part of gate i, at this step       s.c   previous state c
    h.i   recurrent part of gate i                 v.p   learned per-unit vector p
    n.c   noise for state c, at this step          g.c   gradient of the new state c (backward only)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import torch

from elman.errors import EquationError, nearest
from elman.recurrence.operations import OPERATIONS
from elman.recurrence.symbols import Graph, Node, NumbersAreFixed, Symbol


@dataclass(frozen=True, eq=False)
class Equations:
    """One step of a cell as a graph: which leaves it reads and the new state it computes."""

    graph: Graph
    states: tuple[str, ...]
    inputs: tuple[str, ...]
    products: tuple[str, ...]
    vectors: tuple[str, ...]
    noise: tuple[str, ...]
    results: tuple[Node, ...]
    compiled: dict[Any, Any] = field(default_factory=dict)  # where backends keep what they made of it


class Blocks:
    """The namespace ``x`` or ``h`` while R is read: hands out leaves and notes which were asked for."""

    def __init__(self, graph: Graph, kind: str, gates: tuple[str, ...]) -> None:
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
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        _refuse_whole()


def _refuse_whole(*arguments: Any) -> NoReturn:
    _refuse('x and h are read gate by gate, as in tanh(x.a + h.a) for gates = ("a",); a whole has no value')


for _name in ("add", "sub", "mul", "truediv", "pow", "matmul"):
    setattr(Blocks, f"__{_name}__", _refuse_whole)
    setattr(Blocks, f"__r{_name}__", _refuse_whole)
for _name in ("neg", "abs", "lt", "le", "gt", "ge", "getitem", "iter", "call"):
    setattr(Blocks, f"__{_name}__", _refuse_whole)


def _gates_read(blocks: Blocks) -> tuple[str, ...]:
    return tuple(gate for gate in blocks._gates if gate in blocks._read)


def trace(
    R: Callable[[Any, Any, Any], Any],
    *,
    graph: Graph,
    state: Any,
    gates: tuple[str, ...],
    vectors: tuple[str, ...],
) -> Equations:
    """Run R(x, h, s) on symbols and write down its equations.

    Args:
        R: the step; reads blocks of x and h by gate, s by field, and returns ``state(...)``.
        graph: where the symbols live that R finds for its learned vectors.
        state: the named tuple of the cell's state.
    """
    fields: tuple[str, ...] = state._fields
    x, h = Blocks(graph, "x", gates), Blocks(graph, "h", gates)
    mode = nullcontext() if torch.compiler.is_compiling() else torch.enable_grad()  # an export would note it
    with mode, NumbersAreFixed():
        graph.reading = torch.is_grad_enabled()
        new = R(x, h, state(*(graph.leaf("s", name) for name in fields)))
    graph.reading = False
    if not isinstance(new, state):
        _refuse(f"R must return self.State({', '.join(f'{f}=…' for f in fields)}), not {type(new).__name__}")
    results = []
    for name, value in zip(fields, new, strict=True):
        if isinstance(value, (int, float)):
            value = graph.constant(float(value))
        if not isinstance(value, Symbol) or value.node.boolean:
            _refuse(
                f"R returned {value!r} as state {name!r}; a real value computed from x, h and s belongs there"
            )
        results.append(value.node)
    return Equations(graph, fields, _gates_read(x), _gates_read(h), vectors, (), tuple(results))


def add_zoneout(equations: Equations, rates: Mapping[str, float | None]) -> Equations:
    """The same step under zoneout, as equations.

    A state whose rate is None follows a drawn mask, ``new = n.c != 0 ? s.c : new``; a number is the
    expectation that evaluation uses, ``rate * s.c + (1 - rate) * new``.
    """
    graph, results = equations.graph, list(equations.results)
    for name, rate in rates.items():
        place = equations.states.index(name)
        old, new = graph.leaf("s", name), Symbol(graph, results[place])
        drawn = graph.leaf("n", name) != 0.0
        kept = drawn.choose(old, new) if rate is None else rate * old + (1.0 - rate) * new
        results[place] = kept.node
    noisy = tuple(name for name in equations.states if name in rates and rates[name] is None)
    return replace(equations, noise=noisy, results=tuple(results), compiled={})


@dataclass(frozen=True)
class Gradients:
    """The backward step: the gradient of every leaf, and the forward values it needs saved.

    ``current`` names the states whose new value is read back from the state sequence instead.
    """

    inputs: tuple[Node | None, ...]
    products: tuple[Node | None, ...]
    states: tuple[Node | None, ...]
    vectors: tuple[Node | None, ...]
    saved: tuple[Node, ...]
    current: tuple[Node, ...]

    @property
    def reads_parts(self) -> bool:
        """Whether the backward step reads an input part as it was."""
        return any(node.op == "x" for node in self._computed_from())

    @property
    def previous(self) -> set[str]:
        """States whose value before the step the backward step reads."""
        return {node.name for node in self._computed_from() if node.op == "s"}

    def _computed_from(self) -> Iterable[Node]:
        return _reach(self.outputs, stop=(*self.saved, *self.current)).values()

    @property
    def outputs(self) -> list[Node]:
        return [n for n in (*self.inputs, *self.products, *self.states, *self.vectors) if n is not None]


def derive(equations: Equations) -> Gradients:
    """Reverse-mode differentiation of the step: walk the graph from results to leaves."""
    graph = equations.graph
    forward = _reach(equations.results)
    adjoint: dict[int, Symbol] = {}

    def add(node: Node, gradient: Symbol | float | None) -> None:
        if gradient is None or node.op == "constant" or node.boolean:
            return
        gradient = gradient if isinstance(gradient, Symbol) else graph.constant(gradient)
        adjoint[node.index] = adjoint[node.index] + gradient if node.index in adjoint else gradient

    for name, node in zip(equations.states, equations.results, strict=True):
        add(node, graph.leaf("g", name))
    for node in sorted(forward.values(), key=lambda n: -n.index):
        if node.index in adjoint and node.args:
            symbols = [Symbol(graph, n) for n in (node, *node.args)]
            gradients = OPERATIONS[node.op].derivative(adjoint[node.index], *symbols)
            for argument, gradient in zip(node.args, gradients, strict=True):
                add(argument, gradient)

    def of(kind: str, names: tuple[str, ...]) -> tuple[Node | None, ...]:
        reached = (adjoint.get(graph.leaf(kind, name).node.index) for name in names)
        return tuple(symbol.node if symbol is not None else None for symbol in reached)

    found = Gradients(
        of("x", equations.inputs),
        of("h", equations.products),
        of("s", equations.states),
        of("v", equations.vectors),
        (),
        (),
    )
    saved, current = _keep(found.outputs, forward, equations.results)
    return replace(found, saved=saved, current=current)


def _keep(
    outputs: list[Node], forward: dict[int, Node], results: tuple[Node, ...]
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Forward values to keep: dear ones and products; what is cheap is computed again."""
    saved: dict[int, Node] = {}
    current: dict[int, Node] = {}
    seen: set[int] = set()
    todo = list(outputs)
    while todo:
        node = todo.pop()
        if node.index in seen:
            continue
        seen.add(node.index)
        dear = node.op == "h" or (node.op in OPERATIONS and OPERATIONS[node.op].dear)
        if node.index in forward and dear:
            (current if node in results else saved)[node.index] = node
        else:
            todo.extend(node.args)
    return tuple(saved[i] for i in sorted(saved)), tuple(current[i] for i in sorted(current))


def _reach(roots: Iterable[Node], stop: Iterable[Node] = ()) -> dict[int, Node]:
    """All nodes that the roots are computed from, not going beyond ``stop``."""
    found: dict[int, Node] = {}
    ends = {node.index for node in stop}
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node.index not in found:
            found[node.index] = node
            if node.index not in ends:
                todo.extend(node.args)
    return found


def _refuse(message: str) -> NoReturn:
    raise EquationError(message)
