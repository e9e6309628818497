"""Named tuples of tensors, and values that nest them: the state of a network, what a search carries along."""

from collections import namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from torch import Tensor

N = TypeVar("N")

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import ClassVar, Self

    class NamedTensors(tuple[Tensor, ...]):
        """A named tuple whose fields are tensors; which fields, only the running program knows."""

        _fields: ClassVar[tuple[str, ...]]

        def __new__(cls, *values: Tensor, **named: Tensor) -> Self: ...
        def __getattr__(self, name: str) -> Tensor: ...
        @classmethod
        def _make(cls, values: Iterable[Tensor]) -> Self: ...
        def _replace(self, **values: Tensor) -> Self: ...
else:
    NamedTensors = tuple


def named_tensors(name: str, fields: tuple[str, ...]) -> type[NamedTensors]:
    return cast(type[NamedTensors], namedtuple(name, fields))


def tensors_in(nested: object) -> list[Tensor]:
    """All tensors of a nesting of tuples, lists and dicts, in their order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, nested)
    return found


def map_tensors(change: Callable[[Tensor], Tensor], nested: N) -> N:
    """The same nesting of tuples, lists and dicts, with every tensor in it changed.

    Named tuples keep their kind, and what is no tensor stays as it is.

    >>> import torch
    >>> map_tensors(torch.neg, (torch.tensor(1.0), [torch.tensor(2.0)], None))
    (tensor(-1.), [tensor(-2.)], None)
    """
    if isinstance(nested, Tensor):
        return cast(N, change(nested))
    if isinstance(nested, dict):
        return cast(N, {key: map_tensors(change, value) for key, value in nested.items()})
    if not isinstance(nested, (tuple, list)):
        return nested
    changed = [map_tensors(change, value) for value in nested]
    if hasattr(nested, "_make"):
        return cast(N, nested._make(changed))
    return cast(N, changed if isinstance(nested, list) else tuple(changed))
