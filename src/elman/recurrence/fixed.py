"""While equations are read, numbers stay in their tensors, and learned matrices are functions."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from elman.errors import EquationError
from elman.recurrence.symbols import FREE_FORM, UNITS, Graph, Operand, Symbol

_NUMBERS = {getattr(torch.Tensor, name) for name in ("item", "tolist", "numpy")} | {
    getattr(torch.Tensor, f"__{kind}__") for kind in ("float", "int", "index", "bool", "array")
}


class NumbersAreFixed(TorchFunctionMode):
    """While equations are read no number comes out of a tensor: it would stay when the tensor changes."""

    def __torch_function__(
        self, function: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if function in _NUMBERS:
            raise EquationError(
                f"equations cannot read a number out of a tensor ({function.__name__!r}), it would stay when "
                f"the tensor changes; keep it as a Python number, or {FREE_FORM}"
            )
        return function(*args, **(kwargs or {}))


def matrix(graph: Graph, name: str) -> Callable[[Operand], Symbol]:
    """What R finds for a learned matrix: a function that multiplies a value by it."""

    def multiply(value: Operand) -> Symbol:
        if isinstance(value, Symbol) and value.node.dim == UNITS and not value.node.boolean:
            return graph.product([(value, name)], UNITS)
        given = repr(value)
        if isinstance(value, Symbol):
            given = "a comparison" if value.node.boolean else "one number for a whole row"
        raise EquationError(f"self.{name}(…) multiplies a value of the step that has units, not {given}")

    multiply.__qualname__ = f"self.{name}"
    return multiply
