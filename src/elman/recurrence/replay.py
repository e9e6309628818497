"""A cell's equations as they were when they were read, run in torch: whatever the cell has become since."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from elman.recurrence.contract import Product, RecurrentCell, State
from elman.recurrence.operations import OPERATIONS, REDUCTIONS
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Equations, nodes_of
from elman.tensors.nested import NamedTensors

BY_NUMBER = ("pow", "clamp")  # torch wants numbers as their last arguments where these are constant


class Replay:
    """Stands in the loop for the cell whose equations these are.

    held: by the index of a node, what becomes of its value before others read it.
    """

    held: Mapping[int, Callable[[Tensor], Tensor]] = MappingProxyType({})

    def __init__(
        self,
        cell: RecurrentCell,
        equations: Equations,
        vectors: tuple[Tensor, ...],
        matrices: tuple[Tensor, ...],
    ) -> None:
        self.State, self.Inputs, self.Products = cell.State, cell.Inputs, cell.Products
        self._results, self._nodes = equations.results, nodes_of(equations)
        self._vectors = dict(zip(equations.vectors, vectors, strict=True))
        self._matrices = dict(zip(equations.matrices, matrices, strict=True))
        self._multiply: Mapping[str, Callable[[Tensor], Tensor]] = {}

    def learned_matrices(self) -> Mapping[str, Tensor]:
        return self._matrices

    def at_hand(self, multiply: Mapping[str, Callable[[Tensor], Tensor]]) -> "Replay":
        self._multiply = multiply
        return self

    def step(self, x: NamedTensors, s: State, product: Product) -> State:
        values = self.values(x, s, product)
        return self.State(*(values[node.index] for node in self._results))

    def values(self, x: NamedTensors, s: State, product: Product) -> dict[int, Tensor]:
        """All values of a step, by the indices of their nodes."""
        leaves = {"x": x, "h": product(s[0]), "s": s}
        values: dict[int, Tensor] = {}

        def value(node: Node, by_number: bool) -> Tensor | float | None:
            return node.value if by_number and node.value is not None else values[node.index]

        for node in self._nodes:
            if node.value is not None:
                values[node.index] = s[0].new_full((), node.value)
            elif node.op == "product":
                ((argument,), (name,)) = node.args, node.name.split()
                values[node.index] = self._multiply[name](values[argument.index])
            elif node.op in REDUCTIONS:
                values[node.index] = REDUCTIONS[node.op].meaning(values[node.args[0].index])
            elif node.op == "zero":
                values[node.index] = torch.zeros_like(s[0])
            elif node.op == "size":
                values[node.index] = s[0].new_full((), s[0].shape[-1])
            elif node.args:
                first, *rest = node.args
                others = (value(argument, node.op in BY_NUMBER) for argument in rest)
                values[node.index] = OPERATIONS[node.op].meaning(values[first.index], *others)
            elif node.op == "v":
                values[node.index] = self._vectors[node.name]
            else:
                values[node.index] = getattr(leaves[node.op], node.name)
            if node.index in self.held:
                values[node.index] = self.held[node.index](values[node.index])
        return values
