"""Between Elman's networks and those of ``torch.nn``, both ways, with equal outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from elman.cells.elman import Elman
from elman.cells.gru import GRU
from elman.cells.lstm import LSTM
from elman.errors import ArgumentError

if TYPE_CHECKING:
    from elman.layers.rnn import RNN

TorchNetwork: TypeAlias = nn.RNN | nn.LSTM | nn.GRU

# Both sides order the gates alike: LSTM i f z(g) o, GRU r z n.


def from_torch(network: type[RNN], module: TorchNetwork) -> RNN:
    """A network with the weights of ``module``; state and input are batch-first here, whatever they were."""
    if not isinstance(module, (nn.RNN, nn.LSTM, nn.GRU)):
        raise ArgumentError(f"from_torch got a {type(module).__name__}; it takes nn.RNN, nn.LSTM or nn.GRU")
    if module.proj_size:
        raise ArgumentError(f"from_torch: proj_size is {module.proj_size}; projections have no counterpart")
    options: dict[str, bool | str] = {"bias": module.bias}
    if isinstance(module, nn.RNN):
        options["activation"] = module.nonlinearity
    rnn = network(
        {"RNN_TANH": Elman, "RNN_RELU": Elman, "LSTM": LSTM, "GRU": GRU}[module.mode],
        module.input_size,
        module.hidden_size,
        layers=module.num_layers,
        bidirectional=module.bidirectional,
        dropout=module.dropout,
        cell_options=options,
    ).to(module.all_weights[0][0])
    with torch.no_grad():
        for cell, (W_x, W_h, *biases) in zip(rnn.all_cells(), module.all_weights, strict=True):
            own = dict(cell.named_parameters())
            own["W_x"].copy_(W_x.t())
            own["W_h"].copy_(W_h.t())
            if biases:
                own["b"].copy_(biases[0] + biases[1])
            if biases and isinstance(cell, GRU):
                cell.block("b", "n").copy_(biases[0].chunk(3)[2])
                own["m"].copy_(biases[1].chunk(3)[2])
    return rnn.train(module.training)


def to_torch(rnn: RNN) -> TorchNetwork:
    kinds: dict[type, Any] = {Elman: nn.RNN, LSTM: nn.LSTM, GRU: nn.GRU}
    if rnn.cell_class not in kinds:
        raise ArgumentError(f"to_torch: torch has no {rnn.cell_class.__name__}; it has elman, lstm and gru")
    cells = rnn.all_cells()
    reasons = {
        "layers of different width": len(set(rnn.hidden_sizes)) > 1,
        "a learned initial state": rnn.initial_state == "learned",
        "the logistic activation": getattr(cells[0], "activation", "") == "logistic",
        "recurrent weights in heads": cells[0].heads > 1,
        "recurrent regularisers": rnn.regularisers.any(rnn.cell_class.state),
    }
    for reason, found in reasons.items():
        if found:
            raise ArgumentError(f"to_torch: {reason} has no counterpart in torch.nn")
    first = cells[0]
    options: dict[str, object] = {"num_layers": rnn.layers, "bidirectional": rnn.bidirectional}
    options |= {"bias": first.bias, "dropout": rnn.dropout if rnn.layers > 1 else 0.0, "batch_first": True}
    options |= {"nonlinearity": first.activation} if rnn.cell_class is Elman else {}
    module: TorchNetwork = kinds[rnn.cell_class](rnn.input_size, rnn.hidden_sizes[0], **options).to(first.W_x)
    with torch.no_grad():
        for cell, (W_x, W_h, *biases) in zip(cells, module.all_weights, strict=True):
            assert cell.W_x is not None
            assert cell.W_h is not None
            W_x.copy_(cell.W_x.t())
            W_h.copy_(cell.W_h.t())
            if cell.b is not None:
                biases[0].copy_(cell.b)
                biases[1].zero_()
            if cell.b is not None and isinstance(cell, GRU):
                biases[1].chunk(3)[2].copy_(cell.m)
    return module.train(rnn.training)
