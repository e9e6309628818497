"""The language model against its equations."""

import pytest
import torch

from comparison import assert_close
from elman.config import ModelSettings
from elman.models.embedding import Pretrained, RareTokenDropout, Tokens
from elman.models.language_model import LanguageModel

IDS = torch.tensor([[3, 0, 2, 1]])


def model_of(*, tied=False, pretrained=None, rare_dropout=None, **more):
    settings = ModelSettings(**({"cell": "elman", "hidden": 4, "layers": 1, "embedding": 4} | more))
    tokens = Tokens(5, settings.embedding, pretrained=pretrained, rare_dropout=rare_dropout)
    return LanguageModel(tokens, settings, tied=tied).eval()


@pytest.mark.parametrize("tied", [True, False])
def test_the_equations_written_out_L1(tied):
    """e_t = E x_t; h_t = tanh(e_t W_x + h_{t-1} W_h + b); softmax(U h_t + b)."""
    model = model_of(tied=tied)
    cell = model.encoder.network.cells[0][0]
    E = model.tokens.embedding.weight
    U = E if tied else model.weight
    h = torch.zeros(1, 4)
    expected = []
    for token in IDS[0]:
        h = torch.tanh(E[token] @ cell.W_x + h @ cell.W_h + cell.b)
        expected.append((h @ U.T + model.bias).log_softmax(-1))
    outputs, _ = model(IDS)
    found = model.logits(outputs).log_softmax(-1)[0]
    assert_close({"p": found}, {"p": torch.cat(expected)}, 1e-5)


@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
def test_one_hot_equals_an_embedding_with_the_identity_L1(cell):
    one_hot, embedded = model_of(cell=cell, embedding=0), model_of(cell=cell, embedding=5)
    weights = one_hot.state_dict()
    embedded.load_state_dict(weights | {"tokens.embedding.weight": torch.eye(5)})
    assert "tokens.embedding.weight" not in weights
    found = [model.logits(model(IDS)[0]) for model in (one_hot, embedded)]
    assert_close({"p": found[0]}, {"p": found[1]}, 1e-6)


def test_tied_weights_are_one_tensor():
    model = model_of(tied=True)
    assert model.weight is None
    assert "weight" not in model.state_dict()
    assert model.bridge is None
    bridged = model_of(tied=True, hidden=7)
    assert (bridged.bridge.in_features, bridged.bridge.out_features) == (7, 4)
    assert bridged.logits(bridged(IDS)[0]).shape == (1, 4, 5)


def test_steps_are_the_sequence():
    model = model_of(cell="lstm", pretrained=Pretrained(5, 3, tuned=True))
    outputs, last = model(IDS)
    expected = model.logits(outputs).log_softmax(-1)
    state, found = None, []
    for t in range(4):
        log_probs, state = model.step(IDS[:, t], state)
        found.append(log_probs)
    assert_close({"p": torch.stack(found, 1)}, {"p": expected}, 1e-5)
    assert_close({"h": state[0].h}, {"h": last[0].h}, 1e-5)


def test_a_state_continues():
    model = model_of(cell="gru")
    whole, _ = model(IDS)
    first, state = model(IDS[:, :2])
    second, _ = model(IDS[:, 2:], None, state)
    assert_close({"y": torch.cat([first, second], 1)}, {"y": whole}, 1e-6)


def test_hiding_only_in_training():
    model = model_of(rare_dropout=RareTokenDropout(0.99, [0, 0, 1, 1, 1], unknown=1))
    assert torch.equal(model(IDS)[0], model(IDS)[0])
    model.train()
    assert any(not torch.equal(model(IDS)[0], model(IDS)[0]) for _ in range(20))
