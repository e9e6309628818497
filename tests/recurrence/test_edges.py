"""Places where the kernel and the loop could part, or memory could be read that is not theirs."""

import pytest
import torch
from torch import nn

from comparison import assert_close
from elman import RNN, Cell
from elman.cells.lstm import LSTM
from elman.errors import ShapeError
from elman.layers.bridge import Bridge
from elman.layers.dropout import Regularisers


def gradients(rnn, x, lengths=None, **options):
    outputs = rnn(x, lengths).outputs
    inputs = dict(rnn.named_parameters())
    found = torch.autograd.grad(outputs.square().sum(), list(inputs.values()), **options)
    return dict(zip(inputs, found, strict=True))


@pytest.mark.parametrize("cell", ["gru", "sru", "peephole_lstm"])
def test_gradients_that_can_be_differentiated_reach_every_parameter(cell):
    rnn, x = RNN(cell, 3, 5).double(), torch.randn(2, 4, 3, dtype=torch.float64)
    found = []
    for rnn.backend in ("cpu", "loop"):
        found.append(gradients(rnn, x, [4, 2], create_graph=True))
    assert_close(*found, 1e-10)


def test_parameters_given_from_outside():
    rnn, x = RNN("gru", 3, 5), torch.randn(2, 4, 3, requires_grad=True)
    other = {name: p.detach() + 1 for name, p in rnn.named_parameters()}
    found = []
    for rnn.backend in ("cpu", "loop"):
        last = torch.func.functional_call(rnn, other, (x,)).last
        found.append({"d x": torch.autograd.grad(last.sum(), x, create_graph=True)[0]})
    assert_close(*found, 1e-5)


class Narrow(LSTM):
    def project(self, x):
        return super().project(x)[..., : self.hidden_size]


def replaced(name, value):
    def change(rnn):
        setattr(rnn.cells[0][0], name, nn.Parameter(value))

    return change


@pytest.mark.parametrize(
    ("cell", "change", "message"),
    [
        (Narrow, lambda rnn: None, "what project returns has shape .*; the equations need"),
        ("gru", replaced("m", torch.zeros(1)), "m has shape"),
        ("gru", replaced("W_h", torch.zeros(4, 24)), "W_h has shape"),
        ("gru", replaced("W_x", torch.zeros(3, 8)), "W_x has shape"),
        ("gru", replaced("b", torch.zeros(8)), "b has shape"),
    ],
    ids=["project", "vector", "W_h", "W_x", "b"],
)
def test_weights_of_another_shape_never_reach_the_kernel(cell, change, message):
    rnn = RNN(cell, 3, 8, backend="cpu")
    change(rnn)
    with pytest.raises(ShapeError, match=message):
        rnn(torch.randn(6, 4, 3))


@pytest.mark.parametrize("backend", ["cpu", "loop"])
def test_a_cell_of_other_numbers_is_refused(backend):
    with pytest.raises(ShapeError, match=r"x is torch.float32 but the cell is torch.float64"):
        LSTM(3, 5).double()(torch.randn(2, 4, 3), backend=backend)


class LearnedPower(Cell):
    state, gates, vectors = ("h",), ("a",), ("u",)

    def R(self, x, h, s):
        return self.State(h=torch.tanh(x.a + h.a + s.h.abs() ** self.u))


class Singular(Cell):
    state, gates = ("h",), ("a",)

    def R(self, x, h, s):
        return self.State(h=torch.tanh(torch.sqrt(x.a.abs()) + h.a))


@pytest.mark.parametrize("cell", [LearnedPower, Singular])
def test_equations_that_are_singular_at_zero(cell):
    rnn, x = RNN(cell, 3, 5, initial_state="learned").double(), torch.randn(3, 4, 3, dtype=torch.float64)
    found = []
    for rnn.backend in ("cpu", "loop"):
        found.append(gradients(rnn, x, [4, 2, 1]))
    assert all(g.isfinite().all() for g in found[0].values())
    assert_close(*found, 1e-10)


def test_a_bridge_reads_plain_tuples():
    bridge = Bridge(RNN("lstm", 2, 3), RNN("lstm", 2, 3), policy="copy")
    ((h, c),) = bridge(((torch.zeros(1, 3), torch.ones(1, 3)),))
    assert h.eq(0).all()
    assert c.eq(1).all()


def test_a_stream_notices_other_regularisers():
    rnn, x = RNN("lstm", 3, 5).eval(), torch.randn(1, 3)
    with torch.no_grad():
        _, state = rnn.step(x)
        _, state = rnn.step(x, state)
        rnn.regularisers = Regularisers(zoneout=0.5)
        short, long = rnn.step(x, state)[0], rnn.step(x, tuple(state))[0]
    assert torch.equal(short, long)


class MatrixState(Cell):
    state = ("h", "m")

    def initial_state(self, batch_size, like):
        return self.State(like.new_zeros(batch_size, self.hidden_size), like.new_zeros(batch_size, 2, 3))

    def step(self, x, s, product):
        return self.State(h=torch.tanh(s.h + x.sum(-1, keepdim=True)), m=s.m + 1)


def test_zoneout_of_a_state_of_any_shape():
    rnn = RNN(MatrixState, 3, 5, zoneout={"m": 0.5})
    kept = rnn(torch.randn(4, 50, 3)).state[0].m
    assert 0 < kept.min() < kept.max() < 50
