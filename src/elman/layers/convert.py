"""Between Elman's networks and those of ``torch.nn``, both ways, with equal outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from elman.cells.elman import Elman
from elman.cells.gru import GRU
from elman.cells.lstm import LSTM
from elman.errors import ArgumentError
from elman.layers.rnn import RNN

# Both sides order the gates alike: LSTM i f z(g) o, GRU r z n.


def from_torch(module: nn.RNN | nn.LSTM | nn.GRU) -> RNN:
    """An RNN with the weights of ``module``; state and input are batch-first here, whatever they were."""
    if not isinstance(module, (nn.RNN, nn.LSTM, nn.GRU)):
        raise ArgumentError(f"from_torch got a {type(module).__name__}; it takes nn.RNN, nn.LSTM or nn.GRU")
    if module.proj_size:
        raise ArgumentError(f"from_torch: proj_size is {module.proj_size}; projections have no counterpart")
    options: dict[str, Any] = {"bias": module.bias}
    if isinstance(module, nn.RNN):
        options["activation"] = module.nonlinearity
    rnn = RNN(
        {"RNN_TANH": Elman, "RNN_RELU": Elman, "LSTM": LSTM, "GRU": GRU}[module.mode],
        module.input_size,
        module.hidden_size,
        layers=module.num_layers,
        bidirectional=module.bidirectional,
        dropout=module.dropout,
        cell_options=options,
    ).to(module.all_weights[0][0])
    with torch.no_grad():
        for cell, (W_x, W_h, b_x, b_h) in zip(rnn._all_cells(), _weights(module), strict=True):
            assert cell.W_x is not None
            assert cell.W_h is not None
            cell.W_x.copy_(W_x.t())
            cell.W_h.copy_(W_h.t())
            if cell.b is None or b_x is None or b_h is None:
                continue
            cell.b.copy_(b_x + b_h)
            if isinstance(cell, GRU):
                cell.block("b", "n").copy_(b_x.chunk(3)[2])
                cell.vector_values()[0].copy_(b_h.chunk(3)[2])
    return rnn.train(module.training)


def to_torch(rnn: RNN) -> nn.RNN | nn.LSTM | nn.GRU:
    """A module of torch with the same weights, batch first."""
    kinds: dict[type, Any] = {Elman: nn.RNN, LSTM: nn.LSTM, GRU: nn.GRU}
    if rnn.cell_class not in kinds:
        raise ArgumentError(f"to_torch: torch has no {rnn.cell_class.__name__}; it has elman, lstm and gru")
    cells = rnn._all_cells()
    reasons = {
        "layers of different width": len(set(rnn.hidden_sizes)) > 1,
        "a learned initial state": rnn.initial_state == "learned",
        "the logistic activation": getattr(cells[0], "activation", "") == "logistic",
        "recurrent regularisers": rnn.regularisers.any(rnn.cell_class.state),
    }
    for reason, found in reasons.items():
        if found:
            raise ArgumentError(f"to_torch: {reason} has no counterpart in torch.nn")
    options = {"nonlinearity": cells[0].activation} if rnn.cell_class is Elman else {}
    first = cells[0]
    module: nn.RNN | nn.LSTM | nn.GRU = kinds[rnn.cell_class](
        rnn.input_size,
        rnn.hidden_sizes[0],
        num_layers=rnn.layers,
        bidirectional=rnn.bidirectional,
        bias=first.bias,
        dropout=rnn.dropout if rnn.layers > 1 else 0.0,
        batch_first=True,
        **options,
    ).to(first.W_x)
    with torch.no_grad():
        for cell, (W_x, W_h, b_x, b_h) in zip(cells, _weights(module), strict=True):
            assert cell.W_x is not None
            assert cell.W_h is not None
            W_x.copy_(cell.W_x.t())
            W_h.copy_(cell.W_h.t())
            if cell.b is None or b_x is None or b_h is None:
                continue
            b_x.copy_(cell.b)
            b_h.zero_()
            if isinstance(cell, GRU):
                b_h.chunk(3)[2].copy_(cell.vector_values()[0])
    return module.train(rnn.training)


def _weights(
    module: nn.RNN | nn.LSTM | nn.GRU,
) -> list[tuple[Tensor, Tensor, Tensor | None, Tensor | None]]:
    """W_x, W_h and the two biases of every layer and direction, in our order."""
    found = []
    for layer in range(module.num_layers):
        for suffix in ("", "_reverse") if module.bidirectional else ("",):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            found.append(tuple(getattr(module, f"{name}_l{layer}{suffix}", None) for name in names))
    return found  # type: ignore[return-value]
