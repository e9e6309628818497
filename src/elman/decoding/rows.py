"""Rows of nested states."""

from typing import Any

from torch import Tensor

from elman.errors import ShapeError


def select(state: Any, index: Tensor | int) -> Any:
    """The rows at ``index`` of every tensor of a nested state; with a number, that row without its axis.

    >>> import torch
    >>> select({"h": torch.tensor([[1.0], [2.0]]), "layers": (torch.tensor([3, 4]),)}, torch.tensor([1, 1]))
    {'h': tensor([[2.],
            [2.]]), 'layers': (tensor([4, 4]),)}
    """
    if state is None:
        return None
    if isinstance(state, Tensor) and state.dim():
        return state[index]
    if isinstance(state, dict):
        return {name: select(part, index) for name, part in state.items()}
    if isinstance(state, (tuple, list)):
        parts = [select(part, index) for part in state]
        if isinstance(state, tuple):
            return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
        return parts
    raise ShapeError(
        f"a state holds {state!r}; it must be made of tensors with the rows on axis 0, None, "
        "and tuples, lists and dicts of them"
    )
