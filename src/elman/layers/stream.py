"""The state of a stream, which remembers the short way to its next step."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from elman.recurrence.cpu.backend import Stream as Way
from elman.tensors.tracing import observed


class Stream(tuple[Any, ...]):
    """The state after a step, one entry a layer, as ``RNN.step`` returns it.

    It is a tuple like any other state. Besides, it knows that its tensors fit the network that made
    it, so that a following step without gradients need not check and choose again.
    """

    _owner: weakref.ref[Any]
    _key: tuple[Any, ...]
    _ways: Sequence[Way]

    def __new__(cls, states: Iterable[Any], owner: Any, x: Tensor, ways: Sequence[Way | None]) -> Stream:
        stream = super().__new__(cls, states)
        stream._owner = weakref.ref(owner)
        stream._key = _key(owner, x)
        stream._ways = () if None in ways else ways  # type: ignore[assignment]
        return stream

    def __reduce__(self) -> Any:
        return tuple, (tuple(self),)

    def advance(self, owner: Any, x: Tensor) -> tuple[Tensor, Stream] | None:
        """The next step, or None where the long way has to be taken."""
        if type(x) is not Tensor or not self._ways:
            return None
        mine: bool = self._owner() is owner and self._key == _key(owner, x)
        if not mine:
            return None
        if observed() is not None or torch.is_autocast_enabled("cpu"):
            return None
        x = x.contiguous()
        states = []
        for layer, way, state in zip(owner.cells._modules.values(), self._ways, self, strict=True):
            same = layer._modules["0"] is way.cell and not way.cell.has_hooks
            stepped = way.step(x, state) if same else None
            if stepped is None:
                return None
            x, new = stepped
            states.append(new)
        after = tuple.__new__(Stream, states)
        after._owner, after._key, after._ways = self._owner, self._key, self._ways
        return x, after


def _key(owner: Any, x: Tensor) -> tuple[Any, ...]:
    return owner.training, owner.backend, x.shape, x.dtype, x.device
