"""A step of several phases: products of matrices, and between them what is pointwise or sums over units.

A step that is more than one product of the state and pointwise equations after it is a program: values are
computed in phases, and what a phase computed is multiplied before the next one begins. The backward step is
the same kind of program, derived from the graph as any other. Backends write code for both alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from elman.recurrence.looks import LOOKS, Remembered
from elman.recurrence.operations import OPERATIONS, REDUCTIONS
from elman.recurrence.symbols import Graph, Node, Symbol, reach
from elman.recurrence.trace import Equations, Gradients, Names, derive, nodes_of

RECURRENT = "W_h"  # the tensor that holds the recurrent weights of all gates

# By name of a matrix or a memory: the tensor that it is a part of, which part it is, and of how many.
Blocks: TypeAlias = Mapping[str, tuple[str, int, int]]
NO_BLOCKS: Blocks = {}


@dataclass(frozen=True)
class Multiplication:
    """Values side by side times a matrix: ``results[j] = Σ_i operands[i] · blocks[j][i]``.

    The name of a block that is turned ends in ``'``.
    """

    operands: tuple[Node, ...]
    results: tuple[Node, ...]

    @property
    def blocks(self) -> list[list[str]]:
        return [result.name.split() for result in self.results]


@dataclass(frozen=True)
class Phase:
    """What is multiplied first, and the values that are computed then, arguments before results."""

    multiplications: tuple[Multiplication, ...]
    values: tuple[Node, ...]


def schedule(outputs: Iterable[Node], known: Collection[Node] = ()) -> list[Phase]:
    """The phases in which the outputs are computed from leaves and what is known."""
    given = {node.index for node in known}
    nodes = sorted(reach(outputs, stop=known).values(), key=lambda node: node.index)
    level: dict[int, int] = {}
    for node in nodes:
        below = 0 if node.index in given else max((level[a.index] for a in node.args), default=0)
        level[node.index] = below + (node.op == "product" and node.index not in given)
    made = [node for node in nodes if node.args and node.index not in given]
    phases = []
    for number in range(max(level.values(), default=0) + 1):
        here = [node for node in made if level[node.index] == number]
        together: dict[tuple[int, ...], list[Node]] = {}
        for node in here:
            if node.op == "product":
                together.setdefault(tuple(a.index for a in node.args), []).append(node)
        products = tuple(Multiplication(group[0].args, tuple(group)) for group in together.values())
        phases.append(Phase(products, tuple(node for node in here if node.op != "product")))
    return phases


def rebuild(
    equations: Equations,
    graph: Graph,
    leaf: Callable[[Node], Symbol],
    product: Callable[[Node, list[Symbol]], Symbol],
) -> list[Symbol]:
    """The new states once more, in this graph, of other leaves and with other products."""
    new: dict[int, Symbol] = {}
    for node in nodes_of(equations):
        args = [new[a.index] for a in node.args]
        if node.value is not None:
            new[node.index] = graph.constant(node.value)
        elif node.op in ("h", "product"):
            new[node.index] = product(node, args)
        elif node.op in REDUCTIONS:
            new[node.index] = graph.reduce(node.op, args[0])
        elif node.op in OPERATIONS:
            new[node.index] = graph.apply(node.op, *args)
        elif node.op in LOOKS:
            new[node.index] = graph.look(node.op, args, node.name, node.dim)
        else:
            new[node.index] = leaf(node)
    return [new[node.index] for node in equations.results]


def expand(equations: Equations, *, mask: bool, padded: bool = False) -> Equations:
    """The same step with its recurrent parts as products like any other.

    Args:
        mask: recurrent dropout: what matrices multiply is multiplied by ``k``, a leaf.
        padded: at a step that is not real, the leaf ``real``, the state stays as it was.
    """
    graph = equations.graph

    def product(node: Node, args: list[Symbol]) -> Symbol:
        state = graph.leaf("s", equations.states[0])
        names = [f"{RECURRENT}.{node.name}"] if node.op == "h" else node.name.split()
        kept = [a * graph.leaf("k", "h", a.node.dim) if mask else a for a in args or [state]]
        return graph.product(list(zip(kept, names, strict=True)), node.dim)

    results = rebuild(equations, graph, lambda node: Symbol(graph, node), product)
    if padded:
        old = [graph.leaf("s", name) for name in equations.states]
        results = [graph.leaf("real", "").choose(r, s) for r, s in zip(results, old, strict=True)]
    return replace(equations, products=(), results=tuple(r.node for r in results), compiled={})


@dataclass(frozen=True)
class OuterProduct:
    """The gradient of some parts of a memory: ``Σ_t weights_t ⊗ units_t``, a large product after the walk.

    state: the weights are this state, whose sequence is there; "": they are values of the backward step.
    """

    tensor: str
    weights: Node
    state: str
    parts: tuple[int, ...]
    units: tuple[Node, ...]


@dataclass(frozen=True)
class StepPrograms:
    """A step and its gradient as programs.

    ``saved`` are the values that the forward step leaves to the backward step; ``taught`` are the forward
    multiplications, each with the gradients of its results (None: it has none).
    """

    equations: Equations
    gradients: Gradients
    forward: list[Phase]
    backward: list[Phase]
    taught: list[tuple[Multiplication, list[Node | None]]]
    memories: list[OuterProduct]

    @property
    def multiplications(self) -> list[Multiplication]:
        return [m for phase in self.forward for m in phase.multiplications]


def step_programs(equations: Equations, blocks: Blocks = NO_BLOCKS) -> StepPrograms:
    """The programs of an expanded step."""
    g = derive(equations)
    forward = schedule((*equations.results, *g.saved))
    backward = schedule(g.outputs, known=(*g.saved, *g.current))
    adjoint = {node.index: gradient for node, gradient in g.multiplied}
    made = [m for phase in forward for m in phase.multiplications]
    taught = [(m, [adjoint.get(result.index) for result in m.results]) for m in made]
    return StepPrograms(equations, g, forward, backward, taught, _outer_products(equations, g, blocks))


def _outer_products(equations: Equations, g: Gradients, blocks: Blocks) -> list[OuterProduct]:
    together: dict[tuple[str, int], dict[int, Remembered]] = {}
    for found in g.remembered:
        if not found.score:
            tensor, part, _ = blocks[found.memory]
            together.setdefault((tensor, found.nodes[0].index), {})[part] = found
    products = []
    for (tensor, _), parts in together.items():
        weights = parts[min(parts)].nodes[0]
        state = equations.states[equations.results.index(weights)] if weights in equations.results else ""
        units = [parts[part].nodes[1] for part in sorted(parts)]
        products.append(OuterProduct(tensor, weights, state, tuple(sorted(parts)), tuple(units)))
    return products


def blocks_of(equations: Equations, gates: Names) -> dict[str, tuple[str, int, int]]:
    """The blocks of a cell's matrices (see ``Blocks``)."""
    found = {f"{RECURRENT}.{gate}": (RECURRENT, i, len(gates)) for i, gate in enumerate(gates)}
    return found | {name: (name, 0, 1) for name in equations.matrices}
