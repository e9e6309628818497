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
    """The state after a step, one entry a layer, as ``RNN.step`` returns it where there is a short way.

    It is a tuple like any other state. Besides, it knows that its tensors fit the network that made
    it, so that a following step without gradients need not check and choose again.
    """

    _plan: Plan

    def __new__(cls, states: Iterable[Any], owner: Any, x: Tensor, ways: Sequence[Way]) -> Stream:
        stream = super().__new__(cls, states)
        stream._plan = Plan(owner, x, ways)
        return stream

    def __reduce__(self) -> Any:
        return tuple, (tuple(self),)

    def advance(self, owner: Any, x: Tensor) -> tuple[Tensor, Stream] | None:
        """The next step, or None where the long way has to be taken."""
        plan = self._plan
        if not plan.serves(owner, x) or not x.is_contiguous():
            return None
        states = []
        for layer, way, state in zip(owner._modules["cells"]._modules.values(), plan.ways, self, strict=True):
            stepped = way.step(x, state) if layer._modules["0"] is way.cell else None
            if stepped is None:
                return None
            x, new = stepped
            states.append(new)
        after = tuple.__new__(Stream, states)
        after._plan = plan
        return x, after


class Plan:
    """For which network, in which mode, and for which input the short way was worked out."""

    def __init__(self, owner: Any, x: Tensor, ways: Sequence[Way]) -> None:
        self.ways = ways
        self._owner = weakref.ref(owner)
        self._mode = owner.training, owner.backend
        self._regularisers = owner.regularisers
        self._shape, self._dtype = x.shape, x.dtype

    def serves(self, owner: Any, x: Any) -> bool:
        made_by: Any = self._owner()
        if type(x) is not Tensor or made_by is not owner:
            return False
        if x.is_nested or x.layout is not torch.strided:
            return False
        if x.dtype is not self._dtype or not x.is_cpu or x.shape != self._shape:
            return False
        if (owner.training, owner.backend) != self._mode or owner.regularisers is not self._regularisers:
            return False
        return observed() is None and not torch.is_autocast_enabled("cpu")
