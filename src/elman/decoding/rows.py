"""Rows of nested states."""

from abc import ABC, abstractmethod
from typing import Any, Self, TypeAlias

from torch import Tensor

from elman.errors import ShapeError

Nested: TypeAlias = Any  # tensors with the rows on axis 0, in tuples, lists and dicts; or None


class LazyRows(ABC):
    """A state that is told which rows are wanted, and sees to it when the next step is taken."""

    @abstractmethod
    def at(self, index: Tensor) -> Self:
        """The rows at ``index`` (N,)."""


def apart(log_probs: Tensor, live: Tensor) -> bool:
    """Whether the distributions lie on a device, and what a search knows of its rows with the host."""
    return log_probs.device != live.device


def select(state: Nested, index: Tensor | int) -> Nested:
    """The rows at ``index`` of every tensor of a nested state; with a number, that row without its axis.

    >>> import torch
    >>> select({"h": torch.tensor([[1.0], [2.0]]), "layers": (torch.tensor([3, 4]),)}, torch.tensor([1, 1]))
    {'h': tensor([[2.],
            [2.]]), 'layers': (tensor([4, 4]),)}
    """
    if state is None:
        return None
    if isinstance(state, LazyRows) and isinstance(index, Tensor):
        return state.at(index)
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
