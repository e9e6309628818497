"""A decoder as one walk gives what the same decoder gives step by step: values and gradients."""

import copy
import itertools
import pickle

import pytest
import torch
from torch import nn

from comparison import assert_close, disturb
from elman.attention.base import Attention
from elman.config import NetworkSettings
from elman.errors import EquationError
from elman.models.embedding import Tokens
from elman.models.seq2seq import Seq2Seq
from elman.recurrence.scores import trace_score
from elman.recurrence.symbols import Graph
from elman.recurrence.walk import walk_by_torch

SCORES = ("dot", "bilinear", "additive", "location")


class Squashed(Attention):
    """score = Σ σ(W h^dec) ⊙ (h^enc)² · w, a user's own: pointwise, and products."""

    def __init__(self, query_size, key_size):
        super().__init__(query_size, key_size)
        self.layer = nn.Linear(query_size, key_size)
        self.w = nn.Parameter(torch.randn(key_size))

    def score(self, query, keys, previous):
        gate = torch.sigmoid(self.layer(query))
        return 0.5 * ((gate[:, :, None] * keys[:, None] ** 2) @ self.w)


class Furthest(Attention):
    """Not pointwise: a distance, taken by a function that equations do not have."""

    def score(self, query, keys, previous):
        return -torch.cdist(query, keys)


def made(cell="lstm", hidden=7, attention="additive", **options):
    decoder = {"cell": cell, "hidden": hidden} | options.pop("decoder", {})
    encoder = NetworkSettings(cell="gru", hidden=4, bidirectional=True)
    model = Seq2Seq(
        Tokens(11, 5), Tokens(13, 6), encoder, NetworkSettings(**decoder), attention=attention, **options
    )
    disturb(model)
    return model.double()


IDS, SOURCES = (torch.arange(18) * 7 % 11).view(3, 6), torch.tensor([4, 6, 1])
PREVIOUS, LENGTHS = (torch.arange(15) * 5 % 13).view(3, 5), torch.tensor([5, 2, 3])


def computed(model, backend, lengths=LENGTHS):
    """Readouts and the gradients of all parameters, by one backend, under the same noise."""
    model.rnn.backend = backend
    torch.manual_seed(3)
    readouts = model(model.read(IDS, SOURCES), PREVIOUS, lengths)
    upstream = torch.linspace(-1, 1, readouts.numel(), dtype=readouts.dtype).view_as(readouts)
    named = dict(model.named_parameters())
    found = torch.autograd.grad((readouts * upstream).sum(), list(named.values()), allow_unused=True)
    zeros = {name: torch.zeros_like(p) for name, p in named.items()}
    gradients = {n: zeros[n] if g is None else g for n, g in zip(named, found, strict=True)}
    return {"readouts": readouts.detach(), **gradients}


def assert_one_walk(model, tolerance=1e-9, **options):
    assert model.decoder.obstacle() is None
    assert_close(computed(model, "cpu", **options), computed(model, "loop", **options), tolerance)


@pytest.mark.parametrize(
    ("attention", "placement", "feeding"), [*itertools.product(SCORES, ("before", "after"), (False, True))]
)
def test_a_walk_equals_the_steps(attention, placement, feeding):
    assert_one_walk(made(attention=attention, placement=placement, feeding=feeding))


@pytest.mark.parametrize("cell", ["gru", "elman", "mgu_original", "peephole_lstm"])
def test_cells_of_one_and_of_several_phases(cell):
    assert_one_walk(made(cell=cell, hidden=[5, 8]))


def test_without_attention_the_readout_is_fed_back():
    assert_one_walk(made(attention="none", feeding=True))
    assert_one_walk(made(attention="none", feeding=True, context="every-step", tied=True))


def test_all_rows_as_long_as_the_longest():
    assert_one_walk(made(), lengths=torch.tensor([5, 5, 5]))


def test_widths_of_many_vectors_and_of_parts_of_one():
    assert_one_walk(made(hidden=[33, 16], attention="location", feeding=True))


@pytest.mark.parametrize(
    "noise",
    [
        {"recurrent_dropout": 0.3, "input_dropout": 0.2},
        {"zoneout": 0.3},
        {"weight_drop": 0.4},
        {"zoneout": 0.2, "recurrent_dropout": 0.3, "weight_drop": 0.2, "input_dropout": 0.2},
    ],
    ids=lambda noise: "+".join(noise),
)
def test_the_noise_of_training(noise):
    model = made(cell="gru", hidden=[6, 5], decoder=noise, feeding=True)
    assert_one_walk(model.train())
    assert_one_walk(model.eval())


def test_a_users_score_of_pointwise_operations_and_products():
    model = made()
    model.attention = Squashed(7, 8).double()
    assert_one_walk(model)


def test_a_score_that_cannot_be_read_goes_step_by_step():
    model = made(hidden=8)
    model.attention = Furthest(8, 8)
    assert "cdist" in model.decoder.obstacle()
    by_itself, by_steps = computed(model, "auto"), computed(model, "loop")
    assert_close(by_itself, by_steps, 1e-12)
    graph = Graph()
    with pytest.raises(EquationError, match="cdist"):
        trace_score(graph, model.attention, model.attention.score, graph.leaf("s", "h", "8"), 8, None)


@pytest.mark.parametrize("attention", ["additive", "location"])
def test_gradients_can_be_differentiated_again(attention):
    model, found = made(attention=attention, feeding=True), {}
    for backend in ("cpu", "loop"):
        model.rnn.backend = backend
        weights = [model.rnn.cells[0][0].W_h, model.attention.v]
        loss = model(model.read(IDS, SOURCES), PREVIOUS, LENGTHS).sin().sum()
        first = torch.autograd.grad(loss, weights, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), weights)
        found[backend] = dict(zip(("W_h", "v"), second, strict=True))
    assert_close(found["cpu"], found["loop"], 1e-8)


def test_the_walk_by_torch_is_the_same_walk(monkeypatch):
    model = made(attention="location", feeding=True)
    expected = computed(model, "cpu")
    from elman.recurrence.cpu.backend import CpuBackend

    monkeypatch.setattr(CpuBackend, "walk", lambda self, *call: walk_by_torch(*call))
    assert_close(computed(model, "cpu"), expected, 1e-9)


def test_a_network_that_is_changed_is_read_anew():
    model = made(cell="elman")
    before = computed(model, "cpu")["readouts"]
    model.rnn.cells[0][0].activation = "relu"
    assert not torch.allclose(computed(model, "cpu")["readouts"], before)
    assert_one_walk(model)


def test_a_model_that_was_used_is_copied_and_kept():
    model = made(attention="location")
    expected = computed(model, "cpu")
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_close(computed(other, "cpu"), expected, 1e-12)


def test_an_attention_that_is_changed_is_read_anew():
    class Scaled(Attention):
        gain = 1.0

        def score(self, query, keys, previous):
            return self.gain * (query @ keys.mT)

    model = made(hidden=8)
    model.attention = Scaled(8, 8)
    before = computed(model, "cpu")["readouts"]
    model.attention.gain = 3.0
    assert not torch.allclose(computed(model, "cpu")["readouts"], before)
    assert_one_walk(model)
    model.attention.register_forward_hook(lambda *call: None)
    assert "hooks" in model.decoder.obstacle()


def test_parameters_may_be_given_for_a_call():
    model = made()
    expected = computed(model, "cpu")["readouts"]
    named = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    source = torch.func.functional_call(Reading(model), {f"model.{n}": p for n, p in named.items()}, ())
    assert_close({"readouts": source}, {"readouts": expected}, 1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_a_compiler_leaves_the_walk_alone():
    model = Reading(made())
    expected = model()
    assert_close({"readouts": torch.compile(model, backend="eager")()}, {"readouts": expected}, 1e-12)


class Reading(nn.Module):
    """A model from its sources to readouts, as one call."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self):
        return self.model(self.model.read(IDS, SOURCES), PREVIOUS, LENGTHS)
