"""The state of a stream, which remembers the short way to its next step."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from elman.recurrence.contract import State, StreamingCell
from elman.tensors.tracing import observed

if TYPE_CHECKING:
    from elman.layers.rnn import RNN


class StreamState(tuple[State, ...]):
    """The state after a step, one entry a layer, as ``RNN.step`` returns it where there is a short way.

    It is a tuple like any other state. Besides, it knows that its tensors fit the network that made
    it, so that a following step without gradients need not check and choose again.
    """

    _guard: StreamGuard

    def __new__(
        cls, states: Iterable[State], network: RNN, x: Tensor, cells: Sequence[StreamingCell]
    ) -> StreamState:
        stream = super().__new__(cls, states)
        stream._guard = StreamGuard(network, x, cells)
        return stream

    def __reduce__(self) -> tuple[type, tuple[tuple[State, ...]]]:
        return tuple, (tuple(self),)

    def advance(self, network: RNN, x: Tensor) -> tuple[Tensor, StreamState] | None:
        """The next step, or None where the short way is closed."""
        guard = self._guard
        if not guard.admits(network, x) or not x.is_contiguous():
            return None
        layers = network._modules["cells"]
        assert layers is not None
        states: list[State] = []
        for layer, streaming, state in zip(layers._modules.values(), guard.cells, self, strict=True):
            assert layer is not None
            cell: object = layer._modules["0"]
            stepped = streaming.step(x, state) if cell is streaming.cell else None
            if stepped is None:
                return None
            x, new = stepped
            states.append(new)
        after = tuple.__new__(StreamState, states)
        after._guard = guard
        return x, after


class StreamGuard:
    """Knows for which network, in which mode, and for which input the short way was worked out."""

    def __init__(self, network: RNN, x: Tensor, cells: Sequence[StreamingCell]) -> None:
        self.cells = cells
        self._network = weakref.ref(network)
        self._training, self._backend = network.training, network.backend
        self._regularisers = network.regularisers
        self._shape, self._dtype = x.shape, x.dtype

    def admits(self, network: RNN, x: Tensor) -> bool:
        """Tell whether network and input are still those that the short way was worked out for."""
        if type(x) is not Tensor or self._network() is not network:
            return False
        if x.is_nested or x.layout is not torch.strided:
            return False
        if x.dtype is not self._dtype or not x.is_cpu or x.shape != self._shape:
            return False
        if network.training is not self._training or network.backend != self._backend:
            return False
        if network.regularisers is not self._regularisers:
            return False
        return observed() is None and not torch.is_autocast_enabled("cpu")
