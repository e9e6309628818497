"""The network that starts from a class, against the lectures' equations."""

import pytest
import torch

from comparison import assert_close
from elman.config import ModelSettings
from elman.models.generator import Generator

P, V, H = 3, 6, 4
X = torch.tensor([[0.0, 1.0, 0.0]])
C = torch.tensor([[4, 0, 3, 5]])  # the tokens that are fed


def made(**more):
    usual = {"cell": "elman", "cell_options": {"activation": "logistic", "bias": False}, "embedding": 0}
    return Generator(P, V, ModelSettings(**({"hidden": H, "layers": 1} | usual | more)))


def written_out(model, x, tokens):
    """y^h(0) = σ(W^i x); y^h(t) = σ(W^h [y^h(t-1); y(t-1)]); y(t) = softmax(W^o y^h(t))."""
    cell = model.rnn.cells[0][0]
    W_i, W_o = model.starts[0].weight, model.output.weight
    W_h = torch.cat([cell.W_h, cell.W_x]).T  # (H, H + V)
    y_h = torch.sigmoid(W_i @ x)
    outputs = []
    for token in tokens:
        y = torch.zeros(V)
        y[token] = 1
        y_h = torch.sigmoid(W_h @ torch.cat([y_h, y]))
        outputs.append(torch.softmax(W_o @ y_h, -1))
    return torch.stack(outputs)


def test_the_equations_written_out_G1():
    model = made()
    logits = model(X, C, torch.tensor([4]))
    expected = written_out(model, X[0], C[0])
    assert_close({"y": logits[0].softmax(-1)}, {"y": expected}, 1e-6)
    weights = list(model.parameters())
    found = torch.autograd.grad(logits.softmax(-1).square().sum(), weights)
    wanted = torch.autograd.grad(expected.square().sum(), weights)
    for one, other in zip(found, wanted, strict=True):
        assert_close({"gradient": one}, {"gradient": other}, 1e-5)


def test_there_are_no_biases_G1():
    shapes = {name: tuple(weight.shape) for name, weight in made().named_parameters()}
    assert sorted(shapes.values()) == sorted([(H, P), (V, H), (H, H), (V, H)])


@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
@pytest.mark.parametrize("hidden", [H, [3, 5]])
def test_every_cell_starts_from_the_class(cell, hidden):
    model = made(cell=cell, cell_options={}, hidden=hidden, layers=None)
    state = model.start(X)
    for layer, first in zip(state, model.starts, strict=True):
        assert_close({"h": layer[0]}, {"h": torch.sigmoid(first(X))}, 0.0)
        assert all((rest == 0).all() for rest in layer[1:])
    other = model.start(torch.tensor([[1.0, 0.0, 0.0]]))
    assert not torch.equal(state[0][0], other[0][0])


def test_steps_are_the_sequence():
    model = made(cell="lstm", cell_options={})
    expected = model(X, C, torch.tensor([4])).log_softmax(-1)
    state, found = model.start(X), []
    for t in range(4):
        log_probs, state = model.step(C[:, t], state)
        found.append(log_probs)
    assert_close({"p": torch.stack(found, 1)}, {"p": expected}, 1e-5)


@pytest.mark.parametrize("embedding", [0, 5])
def test_a_distribution_may_be_fed(embedding):
    """One that is sure of a token is that token; others mix the embeddings."""
    model = made(embedding=embedding)
    state = model.start(X)
    sure = torch.zeros(1, V)
    sure[0, 2] = 1
    assert_close({"p": model.step(sure, state)[0]}, {"p": model.step(torch.tensor([2]), state)[0]}, 1e-6)
    half = torch.full((1, V), 1 / V)
    assert not torch.allclose(model.step(half, state)[0], model.step(sure, state)[0])
