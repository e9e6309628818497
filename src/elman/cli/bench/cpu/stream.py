"""The two sides of a streaming case: one step after the other, the state carried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elman.cli.bench.cpu.cases import Case
from elman.cli.bench.sides import Errors, worst_error
from elman.layers.rnn import RNN

STEPS = 20  # of a stream that are compared

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


def build_stream(case: Case) -> tuple[Step, Step, RNN]:
    """One step of ours and of the peer, (B, D) → (B, H), with the same weights; and our network."""
    module = nn.LSTM(case.H, case.H, batch_first=True).eval()
    rnn = RNN.from_torch(module)
    if case.peer == "nn.LSTM":
        return rnn.step, lambda x, state: _whole_layer(module, x, state), rnn
    cell = nn.LSTMCell(case.H, case.H).eval()
    cell.load_state_dict({name.removesuffix("_l0"): t for name, t in module.state_dict().items()})
    return rnn.step, lambda x, state: _cell(cell, x, state), rnn


def _whole_layer(module: nn.LSTM, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    outputs, state = module(x[:, None], state)
    return outputs[:, 0], state


def _cell(cell: nn.LSTMCell, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    state = cell(x, state)
    return state[0], state


def carry(step: Step, x: Tensor) -> Callable[[], None]:
    """A call makes one step on from where the last one ended."""
    state: Any = None

    def call() -> None:
        nonlocal state
        _, state = step(x, state)

    return call


def compare_stream(case: Case, ours: Step, peer: Step, rnn: RNN) -> Errors:
    """The worst errors in the outputs of a short stream."""
    x = torch.randn(case.B, STEPS, case.H)
    expected = RNN.from_torch(rnn.to_torch()).double()
    expected.backend = "loop"
    ours_y, peer_y = ({"outputs": _walk(step, x)} for step in (ours, peer))
    exact = {"outputs": expected(x.double()).outputs}
    return Errors(worst_error(ours_y, peer_y), worst_error(ours_y, exact), worst_error(peer_y, exact))


def _walk(step: Step, x: Tensor) -> Tensor:
    state, outputs = None, []
    for x_t in x.unbind(1):
        y, state = step(x_t, state)
        outputs.append(y)
    return torch.stack(outputs, 1)
