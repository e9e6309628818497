"""The encoder: the network that the settings name, with dropout around it."""

import pytest
import torch

from elman.config import ModelSettings
from elman.layers.rnn import RNN
from elman.models.encoder import Dropout, Encoder, make_network
from elman.models.networks.bag import Bag
from elman.models.networks.window import Window

x = torch.ones(4, 6, 5)


def settings(**more):
    return ModelSettings(**({"hidden": 8, "layers": 1} | more))


def test_a_locked_mask_is_the_same_at_every_position():
    mask = Dropout(0.5, locked=True)(x)
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(mask, mask[:, :1].expand_as(mask))
    assert not torch.equal(mask[0], mask[1])


def test_a_free_mask_differs_between_positions():
    mask = Dropout(0.5, locked=False)(x)
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    assert not torch.equal(mask, mask[:, :1].expand_as(mask))


@pytest.mark.parametrize("locked", [True, False])
def test_no_dropout_outside_training_or_at_rate_zero(locked):
    assert Dropout(0.5, locked).eval()(x) is x
    assert Dropout(0.0, locked)(x) is x


@pytest.mark.parametrize(
    ("network", "kind"), [("rnn", RNN), ("window", Window), ("bag", Bag)], ids=lambda value: str(value)
)
def test_the_network_that_the_settings_name(network, kind):
    assert isinstance(make_network(5, settings(network=network), causal=True), kind)
    made = Encoder(5, settings(network=network), causal=True).eval()
    outputs, last, state = made(x)
    assert outputs.shape == (4, 6, made.output_size) == (4, 6, 8)
    assert torch.equal(last, outputs[:, -1])
    assert state is not None


@pytest.mark.parametrize("network", ["rnn", "window", "bag"])
def test_step_by_step_is_the_sequence(network):
    made = Encoder(5, settings(network=network, dropout=0.5, input_dropout=0.5), causal=True).eval()
    x = torch.randn(2, 7, 5)
    state, found = None, []
    for t in range(7):
        y, state = made.step(x[:, t], state)
        found.append(y)
    torch.testing.assert_close(torch.stack(found, 1), made(x).outputs, rtol=1e-5, atol=1e-6)


def test_options_reach_the_recurrence():
    network = make_network(
        5,
        settings(
            cell="elman",
            cell_options={"activation": "relu", "bias": False},
            hidden=[4, 6],
            layers=2,
            bidirectional=True,
            dropout=0.1,
            recurrent_dropout=0.2,
            zoneout=0.3,
            weight_drop=0.4,
            initial_state="learned",
            backend="loop",
        ),
        causal=False,
    )
    assert network.hidden_sizes == (4, 6)
    assert network.output_size == 12
    assert (network.dropout, network.backend, network.initial_state) == (0.1, "loop", "learned")
    assert network.cells[0][0].activation == "relu"
    assert network.regularisers == type(network.regularisers)(0.0, 0.2, 0.3, 0.4)


def test_a_comparator_sees_the_future_only_where_it_may():
    x = torch.randn(1, 6, 5)
    later = x.clone()
    later[:, -1] += 1
    for network in ("window", "bag"):
        for causal in (True, False):
            made = make_network(5, settings(network=network, window=3), causal=causal)
            same = torch.equal(made(x).outputs[:, -2], made(later).outputs[:, -2])
            assert same == causal
