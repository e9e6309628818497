"""The contract of a network: what a user's convolution or a layer of torch writes, and what follows."""

import pytest
import torch
from torch import nn

from comparison import assert_close, tensors_of
from elman.config import ModelSettings
from elman.errors import ArgumentError, ConfigError
from elman.layers.rnn import RNN
from elman.models.embedding import Tokens
from elman.models.encoder import Encoder, check_forward, make_network
from elman.models.language_model import LanguageModel
from elman.models.networks.base import Network
from elman.models.networks.rnn import Recurrent
from elman.registry import NETWORKS, register

D, H = 4, 6
LENGTHS = torch.tensor([6, 1, 4, 2])


class Convolution(Network):
    """Padding is zero when it comes, and made zero when it goes: the equation is all there is to write."""

    def __init__(self, input_size, hidden, *, kernel=3, causal):
        super().__init__()
        self.output_size = hidden
        self.shift = (kernel - 1, 0) if causal else (kernel // 2, (kernel - 1) // 2)
        self.map = nn.Conv1d(input_size, hidden, kernel)

    def outputs(self, x, lengths):
        return torch.relu(self.map(nn.functional.pad(x.mT, self.shift)).mT)


class Transformer(Network):
    """A layer of torch's, which is told of padding by a mask."""

    def __init__(self, input_size, hidden, *, heads=2, causal):
        super().__init__()
        self.output_size, self.causal = hidden, causal
        self.up = nn.Linear(input_size, hidden)
        self.layer = nn.TransformerEncoderLayer(hidden, heads, 2 * hidden, dropout=0.0, batch_first=True)

    def outputs(self, x, lengths):
        T = x.shape[1]
        later = torch.ones(T, T, dtype=torch.bool).triu(1) if self.causal else None
        padding = torch.arange(T) >= lengths[:, None]
        return self.layer(self.up(x), src_mask=later, src_key_padding_mask=padding)


class Silent(Network):
    def __init__(self, input_size, hidden):
        super().__init__()
        self.output_size = hidden


KINDS = pytest.mark.parametrize("kind", [Convolution, Transformer])
DIRECTIONS = pytest.mark.parametrize("causal", [True, False])


def made(kind, causal):
    return kind(D, H, causal=causal).double()


def inputs(B=4, T=6):
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def networks(monkeypatch):
    """The registry of networks with these two in it, left as it was."""
    monkeypatch.setattr(NETWORKS, "_added", {})
    register("convolution", Convolution)
    register("transformer", Transformer)
    register("silent", Silent)
    return NETWORKS


def settings(**more):
    return ModelSettings(**({"hidden": H, "layers": 1} | more))


@KINDS
@DIRECTIONS
def test_padding_and_batch_do_not_matter(kind, causal):
    """What stands in the padding, a NaN even, reaches nothing; a row is the same alone."""
    network, x = made(kind, causal), inputs()
    spoilt = x.clone()
    for row, length in enumerate(LENGTHS.tolist()):
        spoilt[row, length:] = float("nan")
    outputs, last, state = network(spoilt, LENGTHS)
    assert (outputs.shape, last.shape) == ((4, 6, H), (4, H))
    assert list(tensors_of(state)) == []
    for row, length in enumerate(LENGTHS.tolist()):
        assert (outputs[row, length:] == 0).all()
        assert torch.equal(last[row], outputs[row, length - 1])
        alone = network(x[row : row + 1, :length])
        assert_close({"y": outputs[row : row + 1, :length]}, {"y": alone.outputs}, 1e-12)
        assert_close({"last": last[row : row + 1]}, {"last": alone.last}, 1e-12)


@KINDS
@DIRECTIONS
def test_gradients_are_those_of_differences_and_none_reaches_padding(kind, causal):
    network, x = made(kind, causal), inputs().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: network(x, LENGTHS)[:2], (x,))
    network(x, LENGTHS).outputs.square().sum().backward()
    for row, length in enumerate(LENGTHS.tolist()):
        assert (x.grad[row, length:] == 0).all()
    assert all(weight.grad.isfinite().all() for weight in network.parameters())


@KINDS
def test_steps_of_a_causal_network_are_the_sequence(kind):
    """Whoever writes no step has one that reads all so far again."""
    network, x = made(kind, True), inputs()
    expected, state = network(x).outputs, None
    for t in range(x.shape[1]):
        y, state = network.step(x[:, t], state)
        assert_close({"y": y}, {"y": expected[:, t]}, 1e-12)
        assert state[0].shape == (4, t + 1, D)
    _, started = network.step(x[:, 0], ())  # what forward gives as the state
    assert torch.equal(started[0], x[:, :1])


@KINDS
@DIRECTIONS
def test_only_a_causal_network_does_not_see_ahead(kind, causal):
    network, x = made(kind, causal), inputs()
    changed = x.clone()
    changed[:, 3:] += torch.randn(D, dtype=x.dtype)
    assert torch.allclose(network(changed).outputs[:, :3], network(x).outputs[:, :3], atol=1e-12) == causal


@pytest.mark.usefixtures("networks")
@pytest.mark.parametrize("name", ["convolution", "transformer"])
def test_a_users_network_stands_in_an_encoder_and_a_language_model(name):
    encoder = Encoder(D, settings(network=name, dropout=0.5), causal=True).eval()
    assert isinstance(encoder.network, NETWORKS.find(name))
    assert encoder.output_size == H
    assert encoder(inputs().float(), LENGTHS).outputs.shape == (4, 6, H)

    model = LanguageModel(Tokens(5, D), settings(network=name), tied=False).eval()
    ids = torch.tensor([[3, 0, 2, 1]])
    expected, state = model.logits(model(ids)[0]).log_softmax(-1), None
    for t in range(4):
        log_probs, state = model.step(ids[:, t], state)
        assert_close({"p": log_probs}, {"p": expected[:, t]}, 1e-5)


@pytest.mark.usefixtures("networks")
def test_options_reach_the_users_constructor():
    network = make_network(D, settings(network="convolution", network_options={"kernel": 5}), causal=True)
    assert network.map.kernel_size == (5,)
    assert network.shift == (4, 0)
    network = make_network(D, settings(network="transformer", hidden=[3, 8]), causal=False)
    assert network.output_size == 8  # it is not stacked: the last of the widths
    assert not network.causal
    with pytest.raises(ArgumentError, match=r"model\.network_options has 'kernle', unknown to Convolution"):
        make_network(D, settings(network="convolution", network_options={"kernle": 5}), causal=True)


@pytest.mark.usefixtures("networks")
def test_the_window_is_a_setting_and_an_option_but_not_both():
    assert make_network(D, settings(network="window"), causal=True).before == 4
    assert make_network(D, settings(network="window", window=3), causal=True).before == 2
    options = {"network": "window", "network_options": {"window": 2}}
    assert make_network(D, settings(**options), causal=True).before == 1
    with pytest.raises(ConfigError, match="network_options has 'window', which is a setting beside it, too"):
        make_network(D, settings(**options, window=3), causal=True)


@pytest.mark.usefixtures("networks")
def test_a_language_model_takes_only_what_promises_to_see_the_past():
    with pytest.raises(ConfigError, match=r"model\.network is 'silent', .* the option causal"):
        LanguageModel(Tokens(5, D), settings(network="silent"), tied=False)
    for name in NETWORKS.names():
        if name != "silent":
            check_forward(settings(network=name))


@pytest.mark.usefixtures("networks")
def test_a_network_that_writes_nothing_says_so():
    network = make_network(D, settings(network="silent"), causal=False)
    with pytest.raises(NotImplementedError, match="Silent writes neither outputs nor forward"):
        network(inputs())


def test_the_recurrent_network_is_an_rnn_with_the_same_weights():
    torch.manual_seed(3)
    plain = RNN("gru", D, [5, 7], bidirectional=True)
    torch.manual_seed(3)
    network = Recurrent(D, [5, 7], cell="gru", bidirectional=True)
    assert isinstance(network, Network)
    assert network.output_size == plain.output_size == 14
    assert network.state_dict().keys() == plain.state_dict().keys()
    x = inputs().float()
    assert torch.equal(network(x, LENGTHS).outputs, plain(x, LENGTHS).outputs)


def test_a_counted_model_has_no_network():
    assert {name for name in NETWORKS.names() if NETWORKS.find(name).counted} == {"ngram"}
    with pytest.raises(NotImplementedError, match="a counted model is made by its task"):
        make_network(D, settings(network="ngram"), causal=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cell": "gru", "layers": 2}, "gru 6 × 2"),
        ({"cell": "lstm", "hidden": [4, 8]}, "lstm 4 + 8"),
        ({"cell": "elman", "bidirectional": True}, "elman 6 × 1, both directions"),
        ({"network": "window"}, "window 6"),
        ({"network": "bag"}, "bag 6"),
        ({"network": "ngram"}, "ngram, counted"),
    ],
)
def test_a_network_in_a_few_words(changes, said):
    chosen = settings(**changes)
    assert NETWORKS.find(chosen.network).summary(chosen.network, chosen) == said
