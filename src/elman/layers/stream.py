"""The state of a stream, which remembers the short way to its next step."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter

from elman.recurrence.contract import State, StreamingCell
from elman.recurrence.unroll import streaming_cell
from elman.tensors.memory import check_room, dense
from elman.tensors.tracing import observed

if TYPE_CHECKING:
    from elman.layers.rnn import RNN


class StreamState(tuple[State, ...]):
    """The state after a step, one entry a layer, as ``RNN.step`` returns it where there is a short way.

    It is a tuple like any other state. Besides, it knows that its tensors fit the network that made
    it, so that a following step without gradients need not check and choose again.
    """

    _guard: StreamGuard

    def __reduce__(self) -> tuple[type, tuple[tuple[State, ...]]]:
        return tuple, (tuple(self),)

    def advance(self, network: RNN, x: Tensor) -> tuple[Tensor, StreamState] | None:
        """The next step, or None where the short way is closed."""
        guard = self._guard
        return guard.step(network, x, self) if guard.admits(network, x) and x.is_contiguous() else None


class StreamGuard:
    """Knows for which network, in which mode, and for which input the short way was worked out."""

    def __init__(self, network: RNN, x: Tensor, cells: Sequence[StreamingCell]) -> None:
        self.cells = cells
        self._network = weakref.ref(network)
        self._training, self._backend = network.training, network.backend
        self._regularisers, self._dropout = network.regularisers, network.dropout
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
        if network.regularisers is not self._regularisers or network.dropout != self._dropout:
            return False
        return observed() is None and not torch.is_autocast_enabled("cpu")

    def step(self, network: RNN, x: Tensor, states: Sequence[State]) -> tuple[Tensor, StreamState] | None:
        """One step of all layers for dense tensors that are admitted, or None where a cell has changed."""
        layers = network._modules["cells"]
        assert layers is not None
        news: list[State] = []
        for layer, streaming, state in zip(layers._modules.values(), self.cells, states, strict=True):
            assert layer is not None
            cell: object = layer._modules["0"]
            stepped = streaming.step(x, state) if cell is streaming.cell else None
            if stepped is None:
                return None
            x, new = stepped
            news.append(new)
        after = tuple.__new__(StreamState, news)
        after._guard = self
        return x, after


# The guard of each network's last stream, so that the next one need not work out the same again.
_GUARDS: weakref.WeakKeyDictionary[RNN, StreamGuard] = weakref.WeakKeyDictionary()


def begin_stream(network: RNN, x: Tensor, states: Sequence[State]) -> tuple[Tensor, StreamState] | None:
    """One step without gradients by the short way, from any states that fit; None where there is none."""
    if network.draws_noise or observed() is not None:
        return None
    given = [x, *(field for state in states for field in state)]
    if not all(map(_plain, given)):
        return None
    check_room(*given)
    x, states = dense(x), [type(state)(*map(dense, state)) for state in states]
    guard = _GUARDS.get(network)
    if guard is not None and guard.admits(network, x):
        stepped = guard.step(network, x, states)
        if stepped is not None:
            return stepped
    guard = _work_out(network, x, states)
    if guard is None or not guard.admits(network, x):
        return None
    _GUARDS[network] = guard
    return guard.step(network, x, states)


def _plain(tensor: Tensor) -> bool:
    """Whether a tensor is of the ordinary kind, which can be read by address once it is dense."""
    if type(tensor) is not Tensor and type(tensor) is not Parameter:
        return False
    return tensor.is_cpu and tensor.layout is torch.strided and not tensor._is_zerotensor()


def _work_out(network: RNN, x: Tensor, states: Sequence[State]) -> StreamGuard | None:
    """Find the streaming step of every layer; None where one has none."""
    found, like = [], x
    for cell, state in zip(network.all_cells(), states, strict=True):
        noise = network.regularisers.draw(cell, len(x), 1, x, training=network.training)
        streaming = streaming_cell(cell, like, state, noise=noise, backend=network.backend)
        if streaming is None:
            return None
        found.append(streaming)
        like = x.new_empty(len(x), cell.output_size)
    return StreamGuard(network, x, found)
