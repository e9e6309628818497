"""What has no counterpart in torch is refused; what has one keeps its type, mode and dropout."""

import pytest
import torch
from torch import nn

from comparison import assert_close, disturb
from elman import RNN
from elman.errors import ArgumentError

REFUSED = {
    "cell": (RNN("mgu", 3, 4), "torch has no MGU; it has elman, lstm and gru"),
    "widths": (RNN("lstm", 3, (4, 5)), "layers of different width"),
    "start": (RNN("lstm", 3, 4, initial_state="learned"), "a learned initial state"),
    "logistic": (RNN("elman", 3, 4, cell_options={"activation": "logistic"}), "the logistic activation"),
    "zoneout": (RNN("lstm", 3, 4, zoneout=0.1), "recurrent regularisers"),
    "weight drop": (RNN("lstm", 3, 4, weight_drop=0.1), "recurrent regularisers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_to_torch_refuses(case):
    rnn, message = REFUSED[case]
    with pytest.raises(ArgumentError) as caught:
        rnn.to_torch()
    assert f"to_torch: {message}" in str(caught.value)


def test_a_rate_of_zero_is_no_regulariser():
    assert isinstance(RNN("lstm", 3, 4, zoneout={"h": 0.0}).to_torch(), nn.LSTM)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.LSTM(3, 4, proj_size=2), "proj_size is 2; projections have no counterpart"),
        (nn.Linear(3, 4), "from_torch got a Linear; it takes nn.RNN, nn.LSTM or nn.GRU"),
        (nn.LSTMCell(3, 4), "from_torch got a LSTMCell"),
        (None, "from_torch got a NoneType"),
    ],
)
def test_from_torch_refuses(module, message):
    with pytest.raises(ArgumentError) as caught:
        RNN.from_torch(module)
    assert message in str(caught.value)


@pytest.mark.parametrize("make", [nn.RNN, nn.LSTM, nn.GRU])
def test_type_mode_and_dropout_are_kept(make):
    module = make(3, 4, num_layers=2, dropout=0.3, batch_first=False).double().eval()
    rnn = RNN.from_torch(module)
    assert (rnn.dropout, rnn.training, next(rnn.parameters()).dtype) == (0.3, False, torch.float64)
    back = rnn.to_torch()
    assert (back.dropout, back.training, back.batch_first) == (0.3, False, True)
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    expected = module(x.transpose(0, 1))[0].transpose(0, 1)
    assert_close({"ours": rnn(x).outputs, "back": back(x)[0]}, {"ours": expected, "back": expected}, 1e-10)
    assert rnn.train().training
    disturb(rnn, 1.0)
    assert_close({"y": module(x.transpose(0, 1))[0].transpose(0, 1)}, {"y": expected}, 0.0)


def test_dropout_of_a_single_layer_needs_no_warning_from_torch():
    assert RNN("lstm", 3, 4, dropout=0.5).to_torch().num_layers == 1
