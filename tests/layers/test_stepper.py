"""A stepper is the sequence form, step by step: the same values, gradients and noise."""

import pytest
import torch

from comparison import assert_close, disturb, everything_of
from elman import RNN
from elman.errors import ArgumentError, ShapeError
from elman.layers.stepper import Stepper
from elman.recurrence.contract import Unrolled
from user_cells import Readout

B, T, D = 3, 5, 4
CELLS = ["lstm", "sru", "layer_norm_lstm", Readout]
RATES = {
    "none": {},
    "input": {"input_dropout": 0.4},
    "recurrent": {"recurrent_dropout": 0.4},
    "weights": {"weight_drop": 0.4},
    "zoneout of c": {"zoneout": {"c": 0.5}},
    "inside": {"recurrent_dropout": 0.2, "weight_drop": 0.2, "zoneout": {"h": 0.2, "c": 0.5}},
}


class Stepped:
    """A network that steps over the sequence that it is given."""

    def __init__(self, rnn):
        self.rnn, self.named_parameters = rnn, rnn.named_parameters

    def __call__(self, x, lengths=None, state=None):
        stepper, outputs = Stepper(self.rnn, x[:, 0], steps=x.shape[1]), []
        state = self.rnn.start(len(x)) if state is None else state
        for x_t in x.unbind(1):
            y, state = stepper.step(x_t, state)
            outputs.append(y)
        return Unrolled(torch.stack(outputs, 1), y, state)


def network(cell, hidden, **options):
    rnn = RNN(cell, D, hidden, **options).double()
    disturb(rnn)
    return rnn


def inputs():
    return torch.randn(B, T, D, dtype=torch.float64)


def some_state(rnn):
    """Where such a network may be in the middle of a text."""
    with torch.no_grad():
        return rnn(inputs()).state


@pytest.mark.parametrize("backend", ["auto", "loop"])
@pytest.mark.parametrize("hidden", [5, (5, 3), (4, 4, 6)])
@pytest.mark.parametrize("cell", CELLS)
def test_it_equals_the_sequence_in_values_and_gradients(cell, hidden, backend):
    rnn, x = network(cell, hidden, backend=backend), inputs()
    for state in (None, some_state(rnn)):
        assert_close(everything_of(Stepped(rnn), x, state=state), everything_of(rnn, x, state=state), 1e-10)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rates", RATES)
@pytest.mark.parametrize("cell", ["lstm", "layer_norm_lstm"])
def test_it_has_the_noise_of_a_sequence(cell, rates, training):
    """For the same seed the same is drawn, in training; in evaluation zoneout is its expectation."""
    rnn, x = network(cell, (5, 3), **RATES[rates]).train(training), inputs()
    state = some_state(rnn)
    stepped = everything_of(Stepped(rnn), x, state=state)
    assert_close(stepped, everything_of(rnn, x, state=state), 1e-10)
    another = everything_of(Stepped(rnn), x, state=state, seed=5)
    assert torch.equal(stepped["outputs"], another["outputs"]) == (not training or rates == "none")


def test_a_learned_start_gets_its_gradient():
    rnn, x = network("lstm", (5, 3), initial_state="learned"), inputs()
    stepped = everything_of(Stepped(rnn), x)
    assert_close(stepped, everything_of(rnn, x), 1e-10)
    assert all((gradient != 0).any() for name, gradient in stepped.items() if name.startswith("d starts"))


def linear(size, **options):
    """Two layers of h_t = W_x x_t without memory, both the identity: what comes out shows the masks."""
    rnn = RNN("elman", size, (size, size), cell_options={"activation": "relu", "bias": False}, **options)
    with torch.no_grad():
        for layer in rnn.cells:
            layer[0].W_x.copy_(torch.eye(size))
            layer[0].W_h.zero_()
    return rnn


def outputs_of(rnn, x):
    return Stepped(rnn)(x).outputs


def test_dropout_between_layers_is_drawn_anew_at_every_step():
    rnn, x = linear(200, dropout=0.25), torch.ones(2, 6, 200)
    outputs = outputs_of(rnn, x)
    kept = outputs > 0
    assert_close({"y": outputs}, {"y": kept * (4 / 3)}, 1e-6)  # drawn once, between the two layers
    assert abs(kept.float().mean() - 0.75) < 0.05
    for t in range(1, 6):
        assert not torch.equal(kept[:, t], kept[:, t - 1])
    assert torch.equal(outputs_of(rnn.eval(), x), x)


def test_dropout_of_the_input_keeps_its_mask_over_all_steps():
    rnn, x = linear(200, input_dropout=0.5), torch.ones(2, 6, 200)
    outputs = outputs_of(rnn, x)
    assert (outputs == outputs[:, :1]).all()
    assert set(outputs.unique().tolist()) == {0.0, 4.0}  # a mask for each of the two layers
    assert abs((outputs > 0).float().mean() - 0.25) < 0.08
    assert not torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs_of(rnn.eval(), x), x)


@pytest.mark.slow
def test_zoneout_is_drawn_anew_at_every_step():
    rnn = RNN("elman", 1, 300, zoneout=0.3, cell_options={"activation": "relu", "bias": False})
    with torch.no_grad():
        rnn.cells[0][0].W_x.fill_(1.0)
        rnn.cells[0][0].W_h.zero_()
    x = torch.arange(1.0, 6.0)[None, :, None]  # a unit shows when it was last renewed
    outputs = outputs_of(rnn, x)[0]
    renewed = outputs == x[0]
    assert abs((~renewed).float().mean() - 0.3) < 0.05
    before = torch.cat([torch.zeros(1, 300), outputs[:-1]])
    assert_close({"y": outputs}, {"y": torch.where(renewed, x[0], before)}, 0.0)
    assert not torch.equal(renewed[1], renewed[2])


def test_a_stepper_may_stop_early_and_state_is_a_value():
    """Continuing twice from one state gives the same twice, but for the noise of later steps."""
    rnn, x = network("gru", 5).eval(), inputs()
    stepper, state = Stepper(rnn, x[:, 0], steps=9), rnn.start(B)
    _, state = stepper.step(x[:, 0], state)
    kept = state[0].h.clone()
    first, _ = stepper.step(x[:, 1], state)
    again, _ = stepper.step(x[:, 1], state)
    assert torch.equal(first, again)
    assert torch.equal(state[0].h, kept)


def test_it_keeps_the_precision_of_the_weights_under_autocast():
    rnn, x = RNN("gru", D, (5, 3)), torch.randn(B, T, D)
    state = rnn(x).state
    lower = tuple(type(layer)(*(field.bfloat16() for field in layer)) for layer in state)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stepped = Stepped(rnn)(x.bfloat16(), state=lower)
        expected = rnn(x.bfloat16(), state=lower)
    assert stepped.outputs.dtype == torch.float32
    assert_close({"y": stepped.outputs}, {"y": expected.outputs}, 1e-6)


def test_its_masks_are_exact_under_autocast():
    rnn = RNN("gru", D, 5, input_dropout=0.3, recurrent_dropout=0.3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stepper = Stepper(rnn, torch.zeros(B, D, dtype=torch.bfloat16), steps=T)
    for mask in (stepper.masks[0], stepper.noises[0].mask):
        assert torch.isin(mask, torch.tensor([0.0, 1 / 0.7])).all()


def test_what_cannot_be_stepped_is_refused():
    with pytest.raises(ArgumentError, match="a bidirectional RNN has no Stepper"):
        Stepper(RNN("gru", 3, 5, bidirectional=True), torch.zeros(2, 3), steps=4)


@pytest.mark.parametrize("zoneout", [0.0, 0.5])
def test_a_step_too_many_is_refused(zoneout):
    rnn = RNN("gru", 3, 5, zoneout=zoneout)
    stepper, state = Stepper(rnn, torch.zeros(2, 3), steps=2), rnn.start(2)
    for _ in range(2):
        _, state = stepper.step(torch.zeros(2, 3), state)
    with pytest.raises(ArgumentError, match="all 2 steps are taken"):
        stepper.step(torch.zeros(2, 3), state)


@pytest.mark.parametrize(
    ("x", "state", "message"),
    [
        pytest.param(torch.zeros(2, 4), None, "x has shape", id="width"),
        pytest.param(torch.zeros(2, 3, dtype=torch.float64), None, "x is torch.float64", id="type"),
        pytest.param(torch.zeros(2, 3), (), "state is not a tuple of 1", id="no layer"),
        pytest.param(torch.zeros(2, 3), ((torch.zeros(2, 4),),), r"state\[0\].h has shape", id="state"),
        pytest.param(torch.zeros(3, 3), ((torch.zeros(2, 5),),), r"state\[0\].h has shape", id="rows"),
    ],
)
def test_what_does_not_fit_is_named(x, state, message):
    stepper = Stepper(RNN("gru", 3, 5), torch.zeros(2, 3), steps=2)
    with pytest.raises(ShapeError, match=message):
        stepper.step(x, state)
