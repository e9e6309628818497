"""Weights that a cell of an earlier version had in one tensor load into the cell as it is now."""

import pytest
import torch
from torch import sigmoid, tanh
from torch.nn.functional import layer_norm

from comparison import disturb
from elman import RNN


def layer_norm_lstm(weights, x, h, c):
    """The step of the earlier version; one gain for all gates."""
    H = h.shape[-1]
    rows = layer_norm(x @ weights["W_x"], (4 * H,), weights["gain_x"], weights["b"], 1e-5)
    rows = rows + layer_norm(h @ weights["W_h"], (4 * H,), weights["gain_h"], None, 1e-5)
    i, f, o = sigmoid(rows[:, : 3 * H]).chunk(3, -1)
    c = f * c + i * tanh(rows[:, 3 * H :])
    return o * tanh(layer_norm(c, (H,), weights["gain_c"], weights["shift_c"], 1e-5)), c


def mgu_original(weights, x, h, c):
    """The step of the earlier version; both matrices in one."""
    H = h.shape[-1]
    x_f, x_z = (x @ weights["W_x"] + weights["b"]).chunk(2, -1)
    f = sigmoid(x_f + h @ weights["W_h"][:, :H])
    z = tanh(x_z + (f * h) @ weights["W_h"][:, H:])
    return h + f * (z - h), c


JOINED = {
    "layer_norm_lstm": (layer_norm_lstm, "gain_h", ("gain_i", "gain_f", "gain_o", "gain_z")),
    "mgu_original": (mgu_original, "W_h", ("W_h", "U")),
}


def joined(state_dict, whole, parts):
    """A state dict in the form of the earlier version."""
    cells = [name.removesuffix(parts[0]) for name in state_dict if name.endswith(f".{parts[0]}")]
    old = {name: t for name, t in state_dict.items() if name.rpartition(".")[2] not in parts}
    return old | {
        f"{cell}{whole}": torch.cat([state_dict[f"{cell}{p}"] for p in parts], -1) for cell in cells
    }


@pytest.mark.parametrize("cell", JOINED)
def test_weights_of_an_earlier_version(cell):
    _, whole, parts = JOINED[cell]
    rnn = RNN(cell, 3, 5, layers=2, bidirectional=True).double()
    disturb(rnn)
    old = joined(rnn.state_dict(), whole, parts)
    other = RNN(cell, 3, 5, layers=2, bidirectional=True).double()
    given = dict(old)
    other.load_state_dict(given)
    assert given.keys() == old.keys()
    for name, weight in rnn.state_dict().items():
        assert torch.equal(other.state_dict()[name], weight)
    short = {name: t[..., :-1] if name.endswith(f".{whole}") else t for name, t in old.items()}
    with pytest.raises(RuntimeError, match=whole):
        other.load_state_dict(short)


@pytest.mark.parametrize("cell", JOINED)
def test_they_compute_what_they_computed(cell):
    step, whole, parts = JOINED[cell]
    one = RNN(cell, 3, 5).double()
    disturb(one)
    weights = {n.rpartition(".")[2]: t for n, t in joined(one.state_dict(), whole, parts).items()}
    x, outputs = torch.randn(2, 6, 3, dtype=torch.float64), []
    h = c = torch.zeros(2, 5, dtype=torch.float64)
    for x_t in x.unbind(1):
        h, c = step(weights, x_t, h, c)
        outputs.append(h)
    torch.testing.assert_close(one(x).outputs, torch.stack(outputs, 1), rtol=1e-10, atol=1e-12)
