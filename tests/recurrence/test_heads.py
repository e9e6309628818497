"""Recurrent weights in heads: every cell, beside the same cell with whole matrices."""

import pytest
import torch
from torch import Tensor, nn, tanh

from comparison import assert_close, disturb, everything_of, map_state, on
from elman import RNN, Cell
from elman.errors import ArgumentError
from elman.recurrence.heads import learn_by_heads, multiply_by_heads, whole_matrix
from elman.registry import CELLS

D, H, HEADS = 3, 6, 2
NOISE = {"recurrent_dropout": 0.4, "zoneout": 0.3}


class Own(Cell):
    """A free-form cell, which multiplies one gate at a time."""

    state, gates = ("h",), ("a", "b")

    def step(self, x, s, product):
        return self.State(tanh(product(s.h, "a", plus=x.a) * torch.sigmoid(x.b + product(s.h, "b"))))


class Spoken(Cell):
    """An option of its own that has the same name."""

    state, gates = ("h",), ("a",)

    def __init__(self, input_size: int, hidden_size: int, *, heads: str = "two") -> None:
        super().__init__(input_size, hidden_size)
        self.spoken = heads

    def R(self, x, h, s):
        return self.State(tanh(x.a + h.a))


CASES = [*CELLS.names(), Own]


def network(cell: object, **options: object) -> RNN:
    torch.manual_seed(1)
    made = RNN(cell, D, H, cell_options={"heads": HEADS}, **options).double()
    disturb(made)
    return made


def made_whole(rnn: RNN) -> RNN:
    """The same network without heads: zeros stand between them."""
    other = RNN(rnn.cell_class, D, H, bidirectional=rnn.bidirectional).double()
    with torch.no_grad():
        for cell, own in zip(other.all_cells(), rnn.all_cells(), strict=True):
            for name, parameter in own.named_parameters():
                count = len(own.Products._fields) if name == "W_h" else 1
                matrix = name == "W_h" or name in own.matrices
                cell.get_parameter(name).copy_(whole_matrix(parameter, count) if matrix else parameter)
    return other


def given(rnn: RNN) -> tuple[Tensor, Tensor, object]:
    torch.manual_seed(2)
    state = map_state(lambda t: 0.3 * torch.randn_like(t), rnn.start(4))
    return torch.randn(4, 7, D).double(), torch.tensor([7, 2, 5, 1]), state


@pytest.mark.parametrize("cell", CASES)
def test_kernels_are_the_loop(cell):
    rnn = network(cell, bidirectional=True)
    inputs = given(rnn)
    assert_close(everything_of(rnn, *inputs), on("loop", rnn, *inputs), 1e-10)


@pytest.mark.parametrize("cell", CASES)
def test_heads_are_a_whole_matrix_with_zeros_between_them(cell):
    rnn = network(cell)
    x, lengths, state = given(rnn)
    torch.testing.assert_close(rnn(x, lengths, state).outputs, made_whole(rnn)(x, lengths, state).outputs)


@pytest.mark.parametrize("cell", ["lstm", "gru_original", "layer_norm_lstm", "sru", Own])
def test_noise_and_weight_drop_reach_heads(cell):
    rnn = network(cell, bidirectional=True, weight_drop=0.3, **NOISE)
    inputs = given(rnn)
    assert_close(everything_of(rnn, *inputs), on("loop", rnn, *inputs), 1e-10)


@pytest.mark.parametrize("cell", ["lstm", "gru_original", Own])
def test_a_stream_is_the_sequence(cell):
    rnn = network(cell).eval()
    x, _, state = given(rnn)
    outputs = rnn(x, state=state).outputs
    with torch.no_grad():
        for t in range(x.shape[1]):
            y, state = rnn.step(x[:, t], state)
            torch.testing.assert_close(y, outputs[:, t])


def test_weights_are_as_many_as_heads_leave():
    cell = CELLS.find("lstm")(D, 12, heads=4)
    assert cell.W_h.shape == (12, 4 * 3)
    assert cell.block("W_h", "z").shape == (12, 3)
    for head in cell.block("W_h", "z").chunk(4):  # each begins orthogonal
        torch.testing.assert_close(head @ head.mT, torch.eye(3))
    assert "heads=4" in repr(cell)


def test_the_gradient_of_heads_is_that_of_the_product():
    weight = torch.randn(6, 4 * 3, dtype=torch.float64, requires_grad=True)
    value, arriving = torch.randn(5, 6).double(), torch.randn(5, 24).double()
    made = multiply_by_heads(value, weight, 4)
    torch.testing.assert_close(made, value @ whole_matrix(weight, 4))
    (expected,) = torch.autograd.grad(made, weight, arriving)
    torch.testing.assert_close(learn_by_heads(value, arriving, 2, torch.mm), expected)


def test_heads_must_divide_the_units():
    with pytest.raises(ArgumentError, match="heads is 4; it must divide the hidden size, 6"):
        RNN("lstm", D, H, cell_options={"heads": 4})
    with pytest.raises(ArgumentError, match="heads"):
        RNN("lstm", D, H, cell_options={"heads": 0})


def test_torch_has_no_heads():
    with pytest.raises(ArgumentError, match="recurrent weights in heads"):
        network("lstm").to_torch()
    assert isinstance(RNN("lstm", D, H, cell_options={"heads": 1}).to_torch(), nn.LSTM)


def test_an_option_of_that_name_stays_its_owners():
    cell = RNN(Spoken, D, H, cell_options={"heads": "many"}).cells[0][0]
    assert (cell.spoken, cell.heads) == ("many", 1)


def test_copies_and_state_dicts_keep_heads(tmp_path):
    rnn, other = network("gru"), network("gru")
    disturb(other)
    other.load_state_dict(rnn.state_dict())
    x, lengths, state = given(rnn)
    torch.save(rnn, tmp_path / "network.pt")
    loaded = torch.load(tmp_path / "network.pt", weights_only=False)
    for one in (other, loaded):
        assert torch.equal(one(x, lengths, state).outputs, rnn(x, lengths, state).outputs)
