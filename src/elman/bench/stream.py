"""The contenders of a streaming case: one step after the other, the state carried."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from elman.bench.cases import Case
from elman.bench.contenders import Ours
from elman.bench.runs import Errors, worst_error
from elman.layers.rnn import RNN

STEPS = 20  # of a stream that are compared

# As a contender nests it; None: before the first step.
StreamState = tuple["StreamState | Tensor", ...] | None
Step = Callable[[Tensor, StreamState], tuple[Tensor, StreamState]]


def build_stream(case: Case) -> tuple[Step, Step, RNN]:
    """One step of ours and of the peer, (B, D) → (B, H), with the same weights; and our network."""
    module = nn.LSTM(case.H, case.H, batch_first=True).eval()
    rnn = RNN.from_torch(module)
    cell = nn.LSTMCell(case.H, case.H).eval()
    cell.load_state_dict({name.removesuffix("_l0"): t for name, t in module.state_dict().items()})

    def whole_layer(x: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        outputs, state = module(x[:, None], state)
        return outputs[:, 0], state

    def one_cell(x: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        h, c = cell(x, state)
        return h, (h, c)

    return rnn.step, whole_layer if case.peer == "nn.LSTM" else one_cell, rnn


def carry(step: Step) -> Callable[[Tensor], Tensor]:
    """A call makes one step on from where the last one ended."""
    state: StreamState = None

    def call(x: Tensor) -> Tensor:
        nonlocal state
        y, state = step(x, state)
        return y

    return call


def compare_stream(case: Case, ours: Step, peer: Step, rnn: RNN) -> Errors:
    x = torch.randn(case.B, STEPS, case.H)
    ours_y, peer_y = ({"outputs": torch.stack([*map(carry(step), x.unbind(1))], 1)} for step in (ours, peer))
    exact = {"outputs": Ours(rnn).reference().rnn(x.double()).outputs}
    return Errors(worst_error(ours_y, peer_y), worst_error(ours_y, exact), worst_error(peer_y, exact))
