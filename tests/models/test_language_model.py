"""The language model against its equations."""

import pytest
import torch

from comparison import assert_close
from elman.config import ModelSettings
from elman.models.embedding import Pretrained, RareTokenDropout, Tokens
from elman.models.language_model import LanguageModel, activity

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


def test_activity_is_what_the_formulas_say():
    """AR: α of the mean square of what dropout leaves; TAR: β of that of the change, over real steps."""
    raw, dropped = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    expected = 0.0
    for b in range(2):
        for t in range(3):
            expected += 2.0 * (dropped[b, t] ** 2).sum() / 4
            if t < 2:
                expected += 0.5 * ((raw[b, t] - raw[b, t + 1]) ** 2).sum() / 4
    found = activity(raw, dropped, None, ar=2.0, tar=0.5)
    assert_close({"r": found}, {"r": expected}, 1e-5)
    real = torch.tensor([[True, True, True], [True, False, False]])
    apart = [activity(raw[:1], dropped[:1], None, ar=2.0, tar=0.5)]
    apart.append(activity(raw[1:, :1], dropped[1:, :1], None, ar=2.0, tar=0.5))
    assert_close({"r": activity(raw, dropped, real, ar=2.0, tar=0.5)}, {"r": sum(apart)}, 1e-5)


def test_the_gradient_of_activity_is_that_of_finite_differences():
    raw = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.randint(0, 2, (2, 1, 4)).double() * 2
    real = torch.tensor([[True, True, True], [True, True, False]])

    def penalty(h):
        return activity(h, h * mask, real, ar=2.0, tar=1.0)

    # float() in it rounds: the slope of a mean of squares is exact, its differences are coarse
    assert torch.autograd.gradcheck(penalty, (raw,), eps=1e-2, atol=1e-3)


def test_activations_are_the_outputs_with_and_without_dropout():
    model = model_of(dropout=0.5)
    raw, dropped, state = model.activations(IDS)
    outputs, other = model(IDS)
    assert torch.equal(raw, outputs)
    assert torch.equal(dropped, outputs)
    assert torch.equal(state[0].h, other[0].h)
    model.train()
    raw, dropped, _ = model.activations(IDS)
    assert not torch.equal(raw, dropped)
    kept = dropped != 0
    assert_close({"h": dropped[kept]}, {"h": 2 * raw[kept]}, 1e-6)


def test_a_dropped_word_is_zero_wherever_it_stands():
    tokens = Tokens(500, 3, embedding_dropout=0.25)
    ids = torch.arange(500).repeat(2, 1)
    plain = tokens.embedding(ids)
    vectors = tokens(ids)
    kept = (vectors != 0).any(-1)
    assert torch.equal(kept[0], kept[1])
    assert abs(kept.float().mean() - 0.75) < 0.08
    assert_close({"e": vectors[kept]}, {"e": plain[kept] / 0.75}, 1e-6)
    assert torch.equal(tokens.eval()(ids), plain)
