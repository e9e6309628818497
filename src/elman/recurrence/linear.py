"""Recurrences that are linear in their state, recognised in the equations.

Where every state that a step reads is updated as ``s' = a ⊙ s + b``, with a and b of the input alone, many
steps together are one such update again: their a's multiplied, and where they lead from zero. So a sequence
can be computed in parts at the same time (see ``triton/chunks.py``). Other states may be any function of
these, as long as no step reads them: an output such as ``h' = o ⊙ tanh(c')``. And a and b may read states
that are linear by themselves, as the input of the step before: then these come first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from elman.recurrence.compiled import make_once
from elman.recurrence.symbols import Node, Symbol, reach
from elman.recurrence.trace import Equations, nodes_of

Terms: TypeAlias = tuple[Symbol | None, Symbol | None]  # a and b of ``a ⊙ s + b``; None: zero


@dataclass(frozen=True)
class Level:
    """States that are scanned together, after those of the levels before.

    ``summary`` are equations with the states of all levels up to this one, and the products of the factors of
    its own: where many steps lead, and what they multiply.
    """

    states: tuple[str, ...]
    summary: Equations


def linear_levels(equations: Equations) -> tuple[Level, ...]:
    """How a step is linear in its states, by levels; none where it is not."""
    return make_once(equations, "linear", lambda: _find(equations))


def _find(equations: Equations) -> tuple[Level, ...]:
    if not equations.pointwise or equations.products:
        return ()
    e, graph = equations, equations.graph
    read = [name for name in e.states if graph.leaf("s", name).node in nodes_of(e)]
    terms: dict[str, Terms] = {}
    for name in read:
        found = _LinearTerms(e, name).of(e.results[e.states.index(name)])
        if found is None:
            return ()
        terms[name] = found
    needs = {name: _states_in(found) for name, found in terms.items()}
    levels: list[Level] = []
    done: list[str] = []
    while len(done) < len(terms):
        own = tuple(name for name in terms if name not in done and needs[name] <= {*done})
        if not own:  # they need each other
            return ()
        done += own
        ends = [e.results[e.states.index(name)] for name in done]
        factors = [terms[name][0] for name in own]
        each = zip(own, [graph.constant(0.0) if a is None else a for a in factors], strict=True)
        made = [(a * graph.leaf("s", factor_of(name))).node for name, a in each]
        states = (*done, *map(factor_of, own))
        levels.append(Level(own, replace(e, states=states, results=(*ends, *made), compiled={})))
    return tuple(levels)


def _states_in(terms: Terms) -> set[str]:
    present = [value.node for value in terms if value is not None]
    return {node.name for node in reach(present).values() if node.op == "s"}


def factor_of(name: str) -> str:
    """The state of a summary that is the product of a state's factors."""
    return f"{name}_factor_"


class _LinearTerms:
    """Writes values as ``a ⊙ s + b`` in one state, where that is possible."""

    def __init__(self, equations: Equations, state: str) -> None:
        self.graph, self.leaf = equations.graph, equations.graph.leaf("s", state).node
        self._known: dict[int, Terms | None] = {}

    def of(self, node: Node) -> Terms | None:
        """The factor and the rest; None where the value is not linear in this state."""
        if node.index not in self._known:
            self._known[node.index] = self._split(node)
        return self._known[node.index]

    def _split(self, node: Node) -> Terms | None:
        if not self._reads(node):
            return None, Symbol(self.graph, node)
        if node is self.leaf:
            return self.graph.constant(1.0), None
        if node.op == "where":
            return self._choice(node)
        terms = [self.of(argument) for argument in node.args]
        each = [term for term in terms if term is not None]
        if len(each) < len(terms) or node.op not in ("add", "sub", "neg", "mul", "div"):
            return None
        if node.op == "neg":
            return _each(each[0], lambda value: -value)
        if node.op in ("add", "sub"):
            return _sum(each[0][0], each[1][0], node.op), _sum(each[0][1], each[1][1], node.op)
        turned = node.op == "mul" and each[0][0] is None
        read, (other, scale) = each[::-1] if turned else each
        if other is not None or scale is None:  # a product or a quotient of two that read the state
            return None
        return _each(read, lambda value: value / scale if node.op == "div" else value * scale)

    def _choice(self, node: Node) -> Terms | None:
        condition, one, other = node.args
        first, second = self.of(one), self.of(other)
        if first is None or second is None or self._reads(condition):
            return None
        chosen = Symbol(self.graph, condition)

        def choose(a: Symbol | None, b: Symbol | None) -> Symbol | None:
            if a is None and b is None:
                return None
            return chosen.choose(0.0 if a is None else a, 0.0 if b is None else b)

        return choose(first[0], second[0]), choose(first[1], second[1])

    def _reads(self, node: Node) -> bool:
        return self.leaf.index in reach([node])


def _each(terms: Terms, change: Callable[[Symbol], Symbol]) -> Terms:
    a, b = terms
    return None if a is None else change(a), None if b is None else change(b)


def _sum(one: Symbol | None, other: Symbol | None, op: str) -> Symbol | None:
    if one is None or other is None:
        return one if other is None else other if op == "add" else -other
    return one + other if op == "add" else one - other
