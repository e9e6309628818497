"""A cell's equations as they were when a walk began, run in torch: whatever the cell has become since."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from elman.recurrence.contract import Product, Walkable
from elman.recurrence.operations import OPERATIONS
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Equations, nodes_of

BY_NUMBER = ("pow", "clamp")  # torch wants numbers as their last arguments where these are constant


class Replay:
    """Stands in the loop for the cell whose equations these are."""

    def __init__(self, cell: Walkable, equations: Equations) -> None:
        self.State, self.Inputs, self.Products = cell.State, cell.Inputs, cell.Products
        self._results = equations.results
        self._nodes = nodes_of(equations)
        self._names = equations.vectors
        self._vectors: dict[str, Tensor] = {}

    def with_vectors(self, values: tuple[Tensor, ...]) -> Replay:
        """The same equations, reading these values for the learned vectors."""
        new = object.__new__(Replay)
        new.__dict__.update(self.__dict__, _vectors=dict(zip(self._names, values, strict=True)))
        return new

    def at_hand(self) -> Replay:
        return self

    def step(self, x: Any, s: Any, product: Product) -> Any:
        """One step: every value of the graph in turn."""
        leaves = {"x": x, "h": product(s[0]), "s": s}
        values: dict[int, Tensor] = {}

        def value(node: Node, by_number: bool) -> Tensor | float | None:
            return node.value if by_number and node.op == "constant" else values[node.index]

        for node in self._nodes:
            if node.op == "constant":
                values[node.index] = s[0].new_full((), node.value)
            elif node.args:
                first, *rest = node.args
                others = (value(argument, node.op in BY_NUMBER) for argument in rest)
                values[node.index] = OPERATIONS[node.op].meaning(values[first.index], *others)
            elif node.op == "v":
                values[node.index] = self._vectors[node.name]
            else:
                values[node.index] = getattr(leaves[node.op], node.name)
        return self.State(*(values[node.index] for node in self._results))
