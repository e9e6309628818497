"""The two sides of a case: ours beside a module of torch, or beside a plain loop of the same cell."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from elman.cells.base import Cell
from elman.cells.elman import Elman
from elman.cells.gru import GRU
from elman.cells.layer_norm_lstm import LayerNormLSTM
from elman.cells.lstm import LSTM
from elman.cells.mgu_original import OriginalMGU
from elman.cells.sru import SRU
from elman.cli.bench.cells import LOOPS, LSTM_NAMES, UserFourGates, UserLSTM
from elman.cli.bench.cpu.cases import Case
from elman.cli.bench.sides import Errors, Inputs, Ours, Run, Side, Torch, Values, reference, worst_error
from elman.layers.rnn import RNN

OURS: dict[str, type[Cell]] = {
    "LSTM": LSTM,
    "GRU": GRU,
    "Elman": Elman,
    "SRU": SRU,
    "layer-norm LSTM": LayerNormLSTM,
    "original MGU": OriginalMGU,
    "user's LSTM": UserLSTM,
    "user's four gates": UserFourGates,
}
PEERS: dict[str, Any] = {
    "nn.LSTM": nn.LSTM,
    "nn.GRU": nn.GRU,
    "nn.RNN": nn.RNN,
    "packed nn.LSTM": nn.LSTM,
}
REFERENCE_NUMBERS = 1 << 20  # B·T·H of the float64 loop; a larger case is compared on its first rows


def draw(case: Case) -> Inputs:
    """A batch of this size, its start and the gradients that arrive."""
    B, T, H = case.B, case.T, case.H
    lengths = None
    if case.padding:
        shortest = max(1, round((1 - 2 * case.padding) * T))  # evenly spread up to T
        lengths = torch.linspace(shortest, T, B).round().long()[torch.randperm(B)]
    drawn = {name: torch.randn(B, H) for name in ("h", "c", "d_h", "d_c")}
    return Inputs(
        torch.randn(B, T, H),
        lengths,
        torch.randn(B, T, H),
        {name: 0.5 * drawn[name] for name in ("h", "c")},
        {name: drawn[f"d_{name}"] for name in ("h", "c")},
    )


class PlainLoop(Ours):
    """A copy of the cell's weights, walked by a loop of ``cells.py``."""

    def __init__(self, ours: Ours) -> None:
        super().__init__(deepcopy(ours.rnn))
        self.loop = LOOPS[type(self.cell)]

    def walk(self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
        assert lengths is None
        return self.loop(self.cell, x, state)


def build(case: Case) -> tuple[Ours, Side, bool]:
    """Both sides, and whether they compute the same function (then with the same weights)."""
    kind = OURS[case.ours]
    if case.peer == "Python loop":
        ours = Ours(_shaken(RNN(kind, case.H, case.H)))
        return ours, PlainLoop(ours), True
    module = PEERS[case.peer or ""](case.H, case.H, batch_first=True)
    same = kind is UserLSTM or kind.__name__ == {"RNN": "Elman"}.get(module._get_name(), module._get_name())
    if not same:
        return Ours(_shaken(RNN(kind, case.H, case.H))), Torch(module), False
    if kind is not UserLSTM:
        return Ours(RNN.from_torch(module)), Torch(module), True
    order = [LSTM.gates.index(LSTM_NAMES[gate]) for gate in UserLSTM.gates]
    return Ours(_renamed(RNN.from_torch(module))), Torch(module, order), True


def compare(case: Case, ours: Ours, peer: Side | None, inputs: Inputs) -> Errors:
    """Run everything once on the same numbers; the float64 loop on as many rows as it can bear."""
    part = inputs.rows(slice(max(1, min(case.B, REFERENCE_NUMBERS // (case.T * case.H)))))

    def values(side: Side, inputs: Inputs) -> Values:
        return Run(side, inputs, training=case.mode == "training").values()

    expected = values(reference(ours), part.to(torch.float64))
    exact = worst_error(values(ours, part), expected)
    if peer is None:
        return Errors(None, exact, None)
    beside = worst_error(values(ours, inputs), values(peer, inputs))
    return Errors(beside, exact, worst_error(values(peer, part), expected))


def _shaken(rnn: RNN) -> RNN:
    """Fresh weights with some noise, so that no bias, gain or peephole is a plain 0 or 1.

    Gains of layer normalisation are made small: with 1 the network is chaotic, and the rounding of
    float32 grows a thousandfold in 100 steps, whoever computes it.
    """
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            if "gain" in name:
                parameter.mul_(0.3)
            parameter.add_(0.1 * torch.randn_like(parameter) * parameter.shape[0] ** -0.5)
    return rnn


def _renamed(rnn: RNN) -> RNN:
    """A network of the user's cell with the weights of an LSTM."""
    lstm = rnn._all_cells()[0]
    user = RNN(UserLSTM, rnn.input_size, rnn.hidden_sizes[0])
    cell = user._all_cells()[0]
    for gate, name in LSTM_NAMES.items():
        for weights in ("W_x", "W_h", "b"):
            cell.block(weights, gate).copy_(lstm.block(weights, name))
    return user
