"""Looks at a memory: what a step may ask of the positions that a row remembers, attention say.

A memory is a tensor (B, S, ·), of which each row has its own; its real positions are a dimension, "S".

    fit      e_j = Σ_u q_u m_ju                   how well a position fits a value
    context  c_u = Σ_j w_j m_ju                   what weights find there
    score    e_j = Σ_u E(a_u, …, m_ju, w_j+c, …)  any pointwise E, also of a position's neighbours
    pull     d_u = Σ_j g_j ∂E/∂a_u                the gradient of a score's argument

The first two are each other's derivative, and the gradient of their memory is a sum over time of products of
what stood on either side: a large product after the walk. That of a score is its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elman.recurrence.operations import OPERATIONS
from elman.recurrence.symbols import Graph, Node, Symbol
from elman.recurrence.symbols import reach as nodes_below

POSITIONS = "S"
LOOKS = ("fit", "context", "score", "pull")


@dataclass(frozen=True, eq=False)
class Score:
    """A pointwise expression E over leaves ``e.0``, ``e.1``, … (arguments) and ``m.key`` (the memory).

    It may also read ``w.0``, ``w.1``, …: its last argument is then a value by position, and these are its
    values from ``reach`` positions before this one on.

    slopes: its derivatives by the arguments and, last, by the memory, times the leaf ``e.g``; near: by ``w``.
    """

    memory: str
    result: Node
    slopes: tuple[Node | None, ...]
    near: tuple[Node | None, ...] = ()
    reach: int = 0


@dataclass(frozen=True, eq=False)
class Remembered:
    """The gradient of a memory.

    With ``score`` it is the sum over time of that score's slope, for its gradient and its arguments;
    without, of ``nodes[0]`` (by position) times ``nodes[1]`` (by unit).
    """

    memory: str
    nodes: tuple[Node, ...]
    score: str = ""


def make_score(
    graph: Graph, memory: str, result: Symbol, count: int, *, near: int = 0, reach: int = 0
) -> Score:
    """A score of so many arguments by unit, with its slopes; ``near`` neighbours may have part in it."""
    leaves = [graph.leaf("e", str(i), result.node.dim) for i in range(count)]
    leaves.append(graph.leaf("m", memory, result.node.dim))
    leaves += [graph.leaf("w", str(i), "") for i in range(near)]
    adjoint = {result.node.index: graph.leaf("e", "g", "")}
    todo = sorted(nodes_below([result.node]).values(), key=lambda node: -node.index)
    for node in todo:
        if node.index in adjoint and node.args:
            symbols = [Symbol(graph, n) for n in (node, *node.args)]
            gradients = OPERATIONS[node.op].derivative(adjoint[node.index], *symbols)
            for argument, gradient in zip(node.args, gradients, strict=True):
                if gradient is None or argument.value is not None or argument.boolean:
                    continue
                gradient = gradient if isinstance(gradient, Symbol) else graph.constant(gradient)
                known = adjoint.get(argument.index)
                adjoint[argument.index] = gradient if known is None else known + gradient
    found = [adjoint.get(leaf.node.index) for leaf in leaves]
    slopes = [None if slope is None else slope.node for slope in found]
    return Score(memory, result.node, tuple(slopes[: count + 1]), tuple(slopes[count + 1 :]), reach)


def pull_back(node: Node, g: Symbol, scores: Mapping[str, Score]) -> Sequence[Symbol | None]:
    """The gradients of what a look reads, from the gradient of what it found."""
    graph = g.graph
    if node.op == "fit":
        return [graph.look("context", [g], node.name, node.args[0].dim)]
    if node.op == "context":
        return [graph.look("fit", [g], node.name, POSITIONS)]
    arguments, score = [Symbol(graph, a) for a in node.args], scores[node.name]
    slopes = [*score.slopes[:-1], *([score.near[0]] if score.near else [])]
    return [
        None if slope is None else graph.look("pull", [g, *arguments], f"{node.name} {i}", a.node.dim)
        for i, (slope, a) in enumerate(zip(slopes, arguments, strict=True))
    ]


def remember(node: Node, g: Symbol) -> Remembered:
    """What the gradient of the memory is made of, at which this look looked."""
    if node.op == "fit":
        return Remembered(node.name, (g.node, node.args[0]))
    if node.op == "context":
        return Remembered(node.name, (node.args[0], g.node))
    return Remembered(node.name, (g.node, *node.args), score=node.name)
