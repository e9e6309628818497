"""What disturbs a network in training: the same on every backend, silent or expected in evaluation."""

import pytest
import torch

from comparison import assert_close, disturb, everything_of, on
from elman import RNN
from elman.errors import ArgumentError

RATES = {
    "dropout": {"dropout": 0.4},
    "input": {"input_dropout": 0.4},
    "layers": {"layer_dropout": 0.4},
    "recurrent": {"recurrent_dropout": 0.4},
    "weights": {"weight_drop": 0.4},
    "zoneout": {"zoneout": 0.4},
    "zoneout of c": {"zoneout": {"c": 0.3}},
    "all": {
        "dropout": 0.2,
        "input_dropout": 0.2,
        "recurrent_dropout": 0.2,
        "weight_drop": 0.2,
        "zoneout": {"h": 0.1, "c": 0.4},
    },
}


def network(cell, **options):
    rnn = RNN(cell, 3, 5, layers=2, bidirectional=True, **options).double()
    disturb(rnn)
    return rnn


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("cell", ["lstm", "sru", "layer_norm_lstm"])
def test_the_kernel_equals_the_loop_for_the_same_seed(cell, rates, training):
    rnn = network(cell, **RATES[rates]).train(training)
    x, lengths = torch.randn(4, 6, 3, dtype=torch.float64), [6, 1, 3, 5]
    for given in (None, lengths):
        assert_close(on("auto", rnn, x, given), on("loop", rnn, x, given), 1e-10)


@pytest.mark.parametrize("rates", ["recurrent", "weights", "zoneout"])
def test_second_derivatives_equal_the_loop(rates):
    rnn, found = network("lstm", **RATES[rates]), {}
    x = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    for backend in ("cpu", "loop"):
        rnn.backend = backend
        torch.manual_seed(3)
        (slope,) = torch.autograd.grad(rnn(x, [3, 2]).outputs.square().sum(), x, create_graph=True)
        second = torch.autograd.grad(slope.square().sum(), [x, *rnn.parameters()])
        found[backend] = {str(i): g for i, g in enumerate(second)}
    assert_close(found["cpu"], found["loop"], 1e-10)


@pytest.mark.parametrize("rates", RATES)
def test_training_draws_anew_and_evaluation_does_not(rates):
    rnn, x = network("lstm", **RATES[rates]), torch.randn(4, 6, 3, dtype=torch.float64)
    one, two = (everything_of(rnn, x, seed=seed) for seed in (1, 2))
    assert not torch.allclose(one["outputs"], two["outputs"])
    rnn.eval()
    assert_close(everything_of(rnn, x, seed=1), everything_of(rnn, x, seed=2), 0.0)
    plain = network("lstm").eval()
    plain.load_state_dict(rnn.state_dict())
    same = torch.allclose(rnn(x).outputs, plain(x).outputs)
    assert same == ("zoneout" not in RATES[rates])


@pytest.mark.parametrize("backend", ["cpu", "loop"])
@pytest.mark.slow
def test_zoneout_keeps_that_many_units_and_evaluates_its_expectation(backend):
    rnn = RNN("elman", 3, 100, zoneout=0.3, backend=backend)
    x, state = torch.randn(40, 1, 3), (torch.full((40, 100), 0.5),)
    kept = rnn(x, state=(state,)).last == 0.5
    assert abs(kept.float().mean() - 0.3) < 0.04
    rnn.eval()
    new = RNN("elman", 3, 100).eval()
    new.load_state_dict(rnn.state_dict())
    expected = 0.3 * state[0] + 0.7 * new(x, state=(state,)).last
    assert_close({"y": rnn(x, state=(state,)).last}, {"y": expected}, 1e-5)


@pytest.mark.slow
def test_the_recurrent_mask_is_one_for_the_whole_sequence():
    """With identity weights a dropped unit stays dropped, and the others are scaled up at every step."""
    rnn = RNN("elman", 1, 500, recurrent_dropout=0.25, cell_options={"activation": "relu", "bias": False})
    with torch.no_grad():
        rnn.cells[0][0].W_h.copy_(torch.eye(500))
        rnn.cells[0][0].W_x.zero_()
    outputs = rnn(torch.zeros(2, 3, 1), state=((torch.ones(2, 500),),)).outputs
    kept = outputs[:, 0] > 0
    assert abs(kept.float().mean() - 0.75) < 0.06
    for t in range(3):
        expected = torch.where(kept, (4 / 3) ** (t + 1), 0.0)
        assert_close({"y": outputs[:, t]}, {"y": expected}, 1e-5)
    assert not torch.equal(kept[0], kept[1])


def test_weight_drop_and_input_dropout_are_drawn_once_a_sequence():
    rnn = RNN("elman", 40, 40, weight_drop=0.5, cell_options={"activation": "relu", "bias": False})
    with torch.no_grad():
        rnn.cells[0][0].W_h.fill_(1.0)
        rnn.cells[0][0].W_x.zero_()
    first = rnn(torch.zeros(3, 1, 40), state=((torch.eye(40)[:3],),)).last
    assert set(first.unique().tolist()) == {0.0, 2.0}
    rnn = RNN("elman", 400, 400, input_dropout=0.5, cell_options={"activation": "relu", "bias": False})
    with torch.no_grad():
        rnn.cells[0][0].W_x.copy_(torch.eye(400))
        rnn.cells[0][0].W_h.zero_()
    outputs = rnn(torch.ones(2, 3, 400)).outputs
    assert (outputs == outputs[:, :1]).all()
    assert abs((outputs > 0).float().mean() - 0.5) < 0.08
    assert outputs.max() == 2.0


def test_layer_dropout_is_drawn_once_a_sequence_between_layers_only():
    options = {"activation": "relu", "bias": False}
    rnn = RNN("elman", 400, 400, layers=2, layer_dropout=0.5, cell_options=options)
    with torch.no_grad():
        for cell in rnn.all_cells():
            cell.W_x.copy_(torch.eye(400))
            cell.W_h.zero_()
    outputs = rnn(torch.ones(2, 3, 400)).outputs
    assert (outputs == outputs[:, :1]).all()
    assert set(outputs.unique().tolist()) == {0.0, 2.0}  # dropped once, by the mask between the layers
    assert abs((outputs > 0).float().mean() - 0.5) < 0.08
    assert not torch.equal(outputs[0], outputs[1])
    with pytest.raises(ArgumentError, match=r"step\(\) in training mode"):
        rnn.step(torch.ones(2, 400))


@pytest.mark.slow
def test_a_step_under_zoneout_equals_the_sequence():
    rnn, x = RNN("lstm", 3, 5, layers=2, zoneout=0.3).eval(), torch.randn(2, 4, 3)
    state = None
    with torch.no_grad():
        for x_t in x.unbind(1):
            y, state = rnn.step(x_t, state)
        assert_close({"y": y}, {"y": rnn(x).last}, 1e-6)
