"""The arguments of RNN, its nested state, learned starts, and what a wrong call is told."""

import pytest
import torch

from comparison import assert_close, disturb, map_state, on, tensors_of
from elman import RNN
from elman.errors import ArgumentError, ElmanError, ShapeError, UnknownNameError

ARGUMENTS = {
    "unknown cell": ({"cell": "ltsm"}, UnknownNameError, "no cell named 'ltsm'; did you mean 'lstm'?"),
    "no cell": ({"cell": 3}, ArgumentError, "cell is 3; it must be a cell's name"),
    "module as cell": ({"cell": torch.nn.LSTM}, ArgumentError, "it must be a cell's name"),
    "input size": (
        {"input_size": 0},
        ArgumentError,
        "input_size is 0; it must be a whole number of at least 1",
    ),
    "input size text": ({"input_size": "3"}, ArgumentError, "input_size is '3'"),
    "hidden size": ({"hidden_size": -1}, ArgumentError, "hidden_size is -1"),
    "hidden size real": ({"hidden_size": 4.0}, ArgumentError, "hidden_size is 4.0"),
    "hidden size none": ({"hidden_size": None}, ArgumentError, "hidden_size is None"),
    "hidden size truth": ({"hidden_size": True}, ArgumentError, "hidden_size is True"),
    "a width": ({"hidden_size": (4, 0)}, ArgumentError, "hidden_size[1] is 0"),
    "no widths": ({"hidden_size": ()}, ArgumentError, "hidden_size has 0 widths"),
    "widths and layers": (
        {"hidden_size": (4, 5), "layers": 3},
        ArgumentError,
        "hidden_size has 2 widths and layers is 3",
    ),
    "layers": ({"layers": 0}, ArgumentError, "layers is 0"),
    "bidirectional": ({"bidirectional": "no"}, ArgumentError, "bidirectional is 'no'"),
    "dropout": (
        {"dropout": 1.0},
        ArgumentError,
        "dropout is 1.0; it must be a probability: 0 or more, below 1",
    ),
    "input dropout": ({"input_dropout": -0.1}, ArgumentError, "input_dropout is -0.1"),
    "recurrent dropout": ({"recurrent_dropout": "a"}, ArgumentError, "recurrent_dropout is 'a'"),
    "weight drop": ({"weight_drop": float("nan")}, ArgumentError, "weight_drop is nan"),
    "zoneout": ({"zoneout": 2}, ArgumentError, "zoneout is 2"),
    "zoneout by name": ({"zoneout": {"c": 1.5}}, ArgumentError, "zoneout['c'] is 1.5"),
    "zoneout state": ({"zoneout": {"d": 0.5}}, ArgumentError, "zoneout names the state 'd'"),
    "option": (
        {"cell_options": {"bais": True}},
        ArgumentError,
        "cell_options has 'bais', unknown to LSTM; did you mean 'bias'?",
    ),
    "options": ({"cell_options": ["bias"]}, ArgumentError, "cell_options"),
    "option bias": ({"cell_options": {"bias": "no"}}, ArgumentError, "bias is 'no'"),
    "option value": ({"cell_options": {"forget_bias": "one"}}, ArgumentError, "forget_bias is 'one'"),
    "initialisation": (
        {"cell_options": {"initialisation": "zero"}},
        ArgumentError,
        "initialisation is 'zero'; it must be one of 'orthogonal', 'uniform'",
    ),
    "initial state": (
        {"initial_state": "ones"},
        ArgumentError,
        "initial_state is 'ones'; it must be one of 'zero', 'learned'",
    ),
    "backend": (
        {"backend": "gpu"},
        ArgumentError,
        "backend is 'gpu'; it must be one of 'auto', 'loop', 'cpu'",
    ),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_a_wrong_argument_is_named_with_its_rule(case):
    changed, kind, message = ARGUMENTS[case]
    with pytest.raises(ElmanError) as caught:
        RNN(**{"cell": "lstm", "input_size": 3, "hidden_size": 4, **changed})
    assert type(caught.value) is kind
    assert message in str(caught.value)


h, c = torch.zeros(2, 4), torch.zeros(2, 4)
INPUTS = {
    "x flat": ({"x": torch.ones(4, 3)}, "x has shape (4, 3); it must be (B, T, 3)"),
    "x wide": ({"x": torch.ones(2, 5, 7)}, "x has shape (2, 5, 7); it must be (B, T, 3)"),
    "x list": ({"x": [[1.0]]}, "x is a list; it must be a tensor"),
    "no rows": ({"x": torch.ones(0, 5, 3)}, "x has shape (0, 5, 3)"),
    "no steps": ({"x": torch.ones(2, 0, 3)}, "x has shape (2, 0, 3)"),
    "x double": ({"x": torch.ones(2, 5, 3).double()}, "x is torch.float64 but the RNN is torch.float32"),
    "x whole": ({"x": torch.ones(2, 5, 3).long()}, "x is torch.int64"),
    "x elsewhere": ({"x": torch.ones(2, 5, 3, device="meta")}, "x is on meta but the RNN is on cpu"),
    "all padding": ({"lengths": [0, 5]}, "lengths[0] is 0; a length is at least 1 and at most the 5 steps"),
    "negative length": ({"lengths": [5, -1]}, "lengths[1] is -1"),
    "too long": ({"lengths": [5, 6]}, "lengths[1] is 6"),
    "one length": ({"lengths": [5]}, "lengths has shape (1); it must be (2)"),
    "a number": ({"lengths": 5}, "lengths has shape (); it must be (2)"),
    "real lengths": ({"lengths": torch.ones(2)}, "lengths is torch.float32; it must hold whole numbers"),
    "a mask": ({"lengths": [True, True]}, "lengths is torch.bool"),
    "text": ({"lengths": "ab"}, "lengths is 'ab'"),
    "state second": ({"lengths": ((h, c),)}, "lengths is a state; give a state by its name"),
    "torch's state second": ({"lengths": (h[None], c[None])}, "lengths is a state"),
    "state tensor": ({"state": h}, "one entry a layer; its form is a tuple of 1 × State(h, c)"),
    "too many layers": ({"state": ((h, c), (h, c))}, "state is not a tuple of 1"),
    "a field too few": ({"state": ((h,),)}, "state[0] is not a State(h, c) of LSTM"),
    "a state too wide": (
        {"state": ((h, torch.zeros(2, 5)),)},
        "state[0].c has shape (2, 5); it must be (2, 4)",
    ),
    "a state too short": ({"state": ((h[:1], c),)}, "state[0].h has shape (1, 4); it must be (2, 4)"),
    "a state missing": ({"state": ((h, None),)}, "state[0].c is a NoneType"),
    "a state of doubles": (
        {"state": ((h, c.double()),)},
        "state[0].c is torch.float64 but x is torch.float32",
    ),
}


@pytest.mark.parametrize("backend", ["auto", "loop"])
@pytest.mark.parametrize("case", INPUTS)
def test_a_wrong_input_is_named_with_its_rule(case, backend):
    changed, message = INPUTS[case]
    rnn = RNN("lstm", 3, 4, backend=backend)
    with pytest.raises(ShapeError) as caught:
        rnn(**{"x": torch.ones(2, 5, 3), **changed})
    assert message in str(caught.value)


def test_a_wrong_step_is_named_with_its_rule():
    with pytest.raises(ArgumentError, match=r"bidirectional RNN has no step\(\)"):
        RNN("lstm", 3, 4, bidirectional=True).step(torch.ones(2, 3))
    with pytest.raises(ShapeError, match=r"x has shape \(2, 5, 3\); it must be \(B, 3\)"):
        RNN("lstm", 3, 4).step(torch.ones(2, 5, 3))
    with pytest.raises(ShapeError, match=r"state\[0\].h has shape \(3, 4\); it must be \(2, 4\)"):
        RNN("lstm", 3, 4).step(torch.ones(2, 3), RNN("lstm", 3, 4).start(3))
    for rate in ("input_dropout", "recurrent_dropout", "weight_drop"):
        rnn = RNN("lstm", 3, 4, **{rate: 0.5})
        with pytest.raises(ArgumentError, match=r"step\(\) in training mode"):
            rnn.step(torch.ones(2, 3))
        rnn.eval().step(torch.ones(2, 3))


@pytest.mark.parametrize("lengths", [[2, 5], (2, 5), torch.tensor([2, 5], dtype=torch.uint8)], ids=repr)
def test_lengths_may_be_any_whole_numbers(lengths):
    rnn, x = RNN("lstm", 3, 4), torch.randn(2, 5, 3)
    assert_close({"y": rnn(x, lengths).last}, {"y": rnn(x, torch.tensor([2, 5])).last}, 0.0)


@pytest.mark.parametrize("both", [False, True])
def test_state_nests_by_layer_and_direction(both):
    rnn = RNN("lstm", 3, (4, 5), bidirectional=both)
    state = rnn(torch.randn(2, 6, 3)).state
    assert len(state) == 2
    for layer, width in zip(state, (4, 5), strict=True):
        directions = layer if both else (layer,)
        assert len(directions) == (2 if both else 1)
        for direction in directions:
            assert direction._fields == ("h", "c")
            assert direction.h.shape == direction.c.shape == (2, width)
    as_lists = [[list(d) for d in layer] if both else list(layer) for layer in state]
    x = torch.randn(2, 3, 3)
    assert_close({"y": rnn(x, state=as_lists).last}, {"y": rnn(x, state=state).last}, 0.0)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "peephole_lstm", "layer_norm_lstm"])
def test_a_learned_start_R1(cell, both):
    """It is used, it learns, and a given state replaces it."""
    rnn = RNN(cell, 3, (4, 5), bidirectional=both, initial_state="learned").double()
    disturb(rnn)
    assert len(rnn.starts) == len(list(tensors_of(rnn.start(1))))
    x = torch.randn(3, 4, 3, dtype=torch.float64)
    assert_close(on("auto", rnn, x, [4, 1, 2]), on("loop", rnn, x, [4, 1, 2]), 1e-10)
    learned = on("auto", rnn, x, [4, 1, 2])
    assert all((learned[f"d starts.{i}"] != 0).any() for i in range(len(rnn.starts)))
    given = map_state(lambda t: t.detach(), rnn.start(3))
    assert_close({"y": rnn(x, state=given).last}, {"y": rnn(x).last}, 1e-10)
    zero = map_state(torch.zeros_like, given)
    assert not torch.allclose(rnn(x, state=zero).last, rnn(x).last)
    if not both:
        assert_close({"y": rnn.step(x[:, 0])[0]}, {"y": rnn(x[:, :1]).last}, 1e-10)


def test_the_layer_says_what_it_is():
    rnn = RNN("gru", 3, (4, 5), bidirectional=True)
    assert "GRU, 3 → 4 → 5, bidirectional, backend=auto" in repr(rnn)
    assert (rnn.layers, rnn.directions, rnn.output_size) == (2, 2, 10)


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru", "mgu", "coupled_lstm", "peephole_lstm"])
def test_initialisation(cell):
    """Orthogonal recurrent blocks, zero biases but the forget gate's; or torch's uniform weights."""
    made = RNN(cell, 6, 8).cells[0][0]
    for gate in made.equations.products:
        block = made.block("W_h", gate)
        assert torch.allclose(block @ block.T, torch.eye(8), atol=1e-5)
    for gate in made.equations.inputs:
        forget = gate == "f" and "lstm" in cell
        assert (made.block("b", gate) == (1.0 if forget else 0.0)).all()
    uniform = RNN(cell, 6, 8, cell_options={"initialisation": "uniform"}).cells[0][0]
    assert uniform.W_x.abs().max() <= 8**-0.5
    assert uniform.W_h.unique().numel() > 10


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_short_numbers_by_default(dtype):
    torch.set_default_dtype(dtype)
    try:
        rnn, x = RNN("lstm", 6, 8), torch.randn(2, 3, 6)
    finally:
        torch.set_default_dtype(torch.float32)
    assert rnn(x).outputs.dtype == dtype
    for gate in "ifzo":
        block = rnn.cells[0][0].block("W_h", gate).float()
        assert torch.allclose(block @ block.T, torch.eye(8), atol=0.02)


def test_the_forget_bias_can_be_set():
    cell = RNN("lstm", 3, 4, cell_options={"forget_bias": 2.5}).cells[0][0]
    assert (cell.block("b", "f") == 2.5).all()
