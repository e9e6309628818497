"""Rows R1–R9 of docs/mathematics.md, each against equations that were written here without the code."""

import pytest
import torch
from torch import sigmoid, tanh
from torch.nn.functional import layer_norm

from comparison import assert_close, disturb, map_state, values_of
from elman import RNN
from elman.cells.hard_gate import write

B, T, D, H = 3, 5, 4, 6


def gate(cell, name, x, h):
    """x W^x + h W^h + b of one gate, where those exist."""
    total = x @ cell.block("W_x", name) + h @ cell.block("W_h", name)
    return total + cell.block("b", name) if cell.bias else total


def elman(g):
    def step(p, x, s):
        return (g(gate(p, "a", x, s[0])),)

    return step


def lstm(p, x, s):
    h, c = s
    i, f, o = (sigmoid(gate(p, name, x, h)) for name in "ifo")
    c = f * c + i * tanh(gate(p, "z", x, h))
    return o * tanh(c), c


def gru(p, x, s):
    (h,) = s
    r, z = sigmoid(gate(p, "r", x, h)), sigmoid(gate(p, "z", x, h))
    inner = h @ p.block("W_h", "n") + (p.m if p.bias else 0)
    n = tanh(x @ p.block("W_x", "n") + (p.block("b", "n") if p.bias else 0) + r * inner)
    return ((1 - z) * n + z * h,)


def peephole_lstm(p, x, s):
    h, c = s
    i, f = sigmoid(gate(p, "i", x, h) + p.p_i * c), sigmoid(gate(p, "f", x, h) + p.p_f * c)
    c = f * c + i * tanh(gate(p, "z", x, h))
    return sigmoid(gate(p, "o", x, h) + p.p_o * c) * tanh(c), c


def coupled_lstm(p, x, s):
    h, c = s
    f = sigmoid(gate(p, "f", x, h))
    c = f * c + (1 - f) * tanh(gate(p, "z", x, h))
    return sigmoid(gate(p, "o", x, h)) * tanh(c), c


def layer_norm_lstm(p, x, s):
    h, c = s
    wide, gain = (4 * H,), torch.cat([p.gain_i, p.gain_f, p.gain_o, p.gain_z])
    a = layer_norm(x @ p.W_x, wide, p.gain_x) + layer_norm(h @ p.W_h, wide, gain)
    i, f, o, z = (a + p.b if p.bias else a).chunk(4, -1)
    c = sigmoid(f) * c + sigmoid(i) * tanh(z)
    return sigmoid(o) * tanh(layer_norm(c, (H,), p.gain_c, p.shift_c)), c


def mgu(p, x, s):
    (h,) = s
    f = sigmoid(gate(p, "f", x, h))
    z = tanh(gate(p, "z", x, torch.zeros_like(h)) + f * (h @ p.block("W_h", "z")))
    return ((1 - f) * h + f * z,)


def mgu_original(p, x, s):
    (h,) = s
    f = sigmoid(gate(p, "f", x, h))
    z = tanh(x @ p.block("W_x", "z") + (p.block("b", "z") if p.bias else 0) + (f * h) @ p.U)
    return ((1 - f) * h + f * z,)


def sru(p, x, s):
    _, c = s
    parts = {name: x @ p.block("W_x", name) + (p.block("b", name) if p.bias else 0) for name in "frzk"}
    f, r = sigmoid(parts["f"] + p.v_f * c), sigmoid(parts["r"] + p.v_r * c)
    c = f * c + (1 - f) * parts["z"]
    return r * c + (1 - r) * parts["k"], c


def hard_gate(p, x, s):
    (s,) = s
    g = (gate(p, "g", x, s) > 0).long()
    value = x @ p.block("W_x", "v") + (p.block("b", "v") if p.bias else 0)
    return (g * value + (1 + g) % 2 * s,)


def unrolled(step, cell, x, state):
    """s_i = R(s_{i-1}, x_i), y_i = s_i[0]: nothing but a loop."""
    outputs = []
    for x_t in x.unbind(1):
        state = step(cell, x_t, state)
        outputs.append(state[0])
    return {
        "outputs": torch.stack(outputs, 1),
        "last": outputs[-1],
        **{f"final {i}": t for i, t in enumerate(state)},
    }


@pytest.fixture(params=["cpu", "loop"])
def backend(request):
    return request.param


def check(name, step, backend, bias=True, **options):
    rnn = RNN(name, D, H, backend=backend, cell_options={"bias": bias, **options}).double()
    disturb(rnn)
    x = torch.randn(B, T, D, dtype=torch.float64)
    state = map_state(torch.randn_like, rnn.start(B))
    assert_close(values_of(rnn, x, state=state), unrolled(step, rnn.cells[0][0], x, state[0]), 1e-10)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["tanh", "relu", "logistic"])
@pytest.mark.slow
def test_elman_network_R6(name, bias, backend):
    g = {"tanh": tanh, "relu": torch.relu, "logistic": sigmoid}[name]
    check("elman", elman(g), backend, bias, activation=name)


def test_hard_gate_worked_example_R7():
    g, x, s = torch.tensor([0, 1, 0]), torch.tensor([10, 11, 12]), torch.tensor([8, 9, 3])
    assert write(g, x, s).tolist() == [8, 11, 3]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.slow
def test_hard_gate_R7(bias, backend):
    check("hard_gate", hard_gate, backend, bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.slow
def test_lstm_R8(bias, backend):
    check("lstm", lstm, backend, bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("step", [gru, peephole_lstm, coupled_lstm, mgu, sru, layer_norm_lstm, mgu_original])
@pytest.mark.slow
def test_cells_beyond_the_lectures_R9(step, bias, backend):
    check(step.__name__, step, backend, bias)


def test_the_start_is_zero_unless_given_R1(backend):
    rnn = RNN("lstm", D, H, backend=backend)
    x = torch.randn(B, T, D)
    assert all((t == 0).all() for t in rnn.start(B)[0])
    assert_close(values_of(rnn, x), values_of(rnn, x, state=rnn.start(B)), 0.0)
    one, two = values_of(rnn, x), values_of(rnn, x, state=map_state(torch.ones_like, rnn.start(B)))
    assert not torch.allclose(one["last"], two["last"])


def test_a_sequence_in_two_halves_is_the_sequence_R1(backend):
    rnn = RNN("gru", D, H, layers=2, backend=backend)
    x = torch.randn(B, T, D)
    first = rnn(x[:, :2])
    second = rnn(x[:, 2:], state=first.state)
    whole = rnn(x)
    assert_close(
        {"outputs": torch.cat([first.outputs, second.outputs], 1), "last": second.last},
        {"outputs": whole.outputs, "last": whole.last},
        1e-6,
    )


@pytest.mark.parametrize("both", [False, True])
def test_acceptor_is_the_last_output_R2(both, backend):
    rnn = RNN("lstm", D, H, bidirectional=both, backend=backend)
    lengths = torch.tensor([2, 5, 1])
    outputs, last, _ = rnn(torch.randn(B, T, D), lengths)
    assert_close({"y": last[:, :H]}, {"y": outputs[torch.arange(B), lengths - 1, :H]}, 0.0)
    if both:
        assert_close({"y": last[:, H:]}, {"y": outputs[:, 0, H:]}, 0.0)


def test_the_loss_on_the_last_output_reaches_all_real_steps_R2(backend):
    rnn = RNN("lstm", D, H, backend=backend)
    x = torch.randn(B, T, D, requires_grad=True)
    rnn(x, [2, 5, 1]).last.sum().backward()
    assert ((x.grad != 0).all(-1)).tolist() == [[t < n for t in range(T)] for n in (2, 5, 1)]


@pytest.mark.slow
def test_transducer_loss_is_the_sum_over_positions_R3(backend):
    """The gradient of the sum is the sum of the gradients of the positions."""
    rnn = RNN("gru", D, H, backend=backend).double()
    x = torch.randn(B, T, D, dtype=torch.float64)
    target = torch.randn(B, T, H, dtype=torch.float64)
    parameters = list(rnn.parameters())

    def gradients(positions):
        loss = (rnn(x).outputs - target)[:, positions].square().sum()
        return torch.autograd.grad(loss, parameters)

    summed = [sum(parts) for parts in zip(*(gradients([t]) for t in range(T)), strict=True)]
    together = gradients(slice(None))
    assert_close(dict(enumerate(together)), dict(enumerate(summed)), 1e-10)


@pytest.mark.slow
def test_bidirectional_is_two_networks_R4(backend):
    """Each row by itself, turned round by hand."""
    rnn = RNN("lstm", D, H, bidirectional=True, backend=backend).double()
    forth, back = (RNN("lstm", D, H).double() for _ in range(2))
    forth.cells[0][0], back.cells[0][0] = rnn.cells[0]
    x, lengths = torch.randn(B, T, D, dtype=torch.float64), [5, 1, 3]
    outputs, last, state = rnn(x, lengths)
    for row, n in enumerate(lengths):
        real = x[row : row + 1, :n]
        one, two = forth(real), back(real.flip(1))
        expected = torch.cat([one.outputs, two.outputs.flip(1)], -1)
        assert_close(
            {"y": outputs[row, :n], "last": last[row], "c": state[0][1].c[row]},
            {"y": expected[0], "last": torch.cat([one.last, two.last], -1)[0], "c": two.state[0].c[0]},
            1e-10,
        )
    assert (outputs[1, 1:] == 0).all()
    assert (outputs[2, 3:] == 0).all()


def test_stacked_networks_of_different_widths_R5(backend):
    rnn = RNN("gru", D, (7, 2, 5), backend=backend).double()
    x, lengths = torch.randn(B, T, D, dtype=torch.float64), [5, 1, 3]
    expected, states = x, []
    for depth, (width, H) in enumerate([(D, 7), (7, 2), (2, 5)]):
        layer = RNN("gru", width, H).double()
        layer.cells[0] = rnn.cells[depth]
        expected, last, (state,) = layer(expected, lengths)
        states.append(state)
    outputs, found, state = rnn(x, lengths)
    assert [s.h.shape[-1] for s in state] == [7, 2, 5]
    assert_close({"y": outputs, "last": found}, {"y": expected, "last": last}, 1e-10)
    assert_close(dict(enumerate(s.h for s in state)), dict(enumerate(s.h for s in states)), 1e-10)
