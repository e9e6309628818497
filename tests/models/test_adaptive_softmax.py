"""The adaptive softmax against torch's, and as the output of a language model."""

import pytest
import torch
from torch.nn import functional as F

from comparison import assert_close
from elman.config import ModelSettings
from elman.models.adaptive_softmax import AdaptiveSoftmax, cluster_names, cutoffs
from elman.models.embedding import Tokens
from elman.models.language_model import LanguageModel
from elman.models.losses import NO_TARGET


@pytest.mark.parametrize(("H", "V"), [(16, 200), (3, 8), (1, 5), (32, 1000)])
def test_probabilities_sum_to_one_and_losses_are_theirs(H, V):
    softmax, outputs = AdaptiveSoftmax(H, V), torch.randn(3, 4, H)
    log_probs = softmax(outputs)
    assert log_probs.shape == (3, 4, V)
    assert_close({"sum": log_probs.exp().sum(-1)}, {"sum": torch.ones(3, 4)}, 1e-5)
    targets = torch.randint(V, (12,))
    loss = softmax.loss(outputs.flatten(0, 1), targets)
    assert_close(
        {"loss": loss}, {"loss": F.nll_loss(log_probs.flatten(0, 1), targets, reduction="sum")}, 1e-5
    )


def test_losses_and_gradients_are_those_of_torch():
    softmax, outputs, targets = AdaptiveSoftmax(16, 300), torch.randn(50, 16), torch.randint(300, (50,))
    found = torch.autograd.grad(softmax.loss(outputs, targets), list(softmax.parameters()))
    peer = -softmax.softmax(outputs, targets).output.sum()
    expected = torch.autograd.grad(peer, list(softmax.parameters()))
    for mine, theirs in zip(found, expected, strict=True):
        assert_close({"gradient": mine}, {"gradient": theirs}, 1e-5)


def test_padding_has_no_loss_and_a_gpu_sees_all_rows(monkeypatch):
    softmax, outputs = AdaptiveSoftmax(16, 300), torch.randn(6, 16)
    targets = torch.tensor([3, NO_TARGET, 299, 40, NO_TARGET, 0])
    real = targets != NO_TARGET
    expected = softmax.loss(outputs[real], targets[real])
    assert_close({"loss": softmax.loss(outputs, targets)}, {"loss": expected}, 1e-5)
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    assert_close({"loss": softmax.loss(outputs, targets)}, {"loss": expected}, 1e-5)
    nowhere = torch.full((6,), NO_TARGET)
    assert softmax.loss(outputs, nowhere).item() == 0.0


def test_a_language_model_with_it():
    settings = ModelSettings(cell="gru", hidden=8, layers=1, embedding=4)
    model = LanguageModel(Tokens(60, 4), settings, tied=False, adaptive=True).eval()
    ids = torch.randint(60, (2, 5))
    outputs, _ = model(ids)
    logits = model.logits(outputs)
    assert_close({"p": logits.log_softmax(-1)}, {"p": logits}, 1e-5)
    rows, targets = outputs.flatten(0, 1), torch.randint(60, (10,))
    for kind, smoothing in (("cross-entropy", 0.0), ("cross-entropy", 0.1), ("squared", 0.0)):
        loss = model.loss(rows, targets, kind=kind, smoothing=smoothing, every=True)
        assert torch.isfinite(loss)
    log_probs, _ = model.step(ids[:, 0])
    assert_close({"p": log_probs}, {"p": logits[:, 0]}, 1e-5)


def test_rows_of_its_weights_have_names():
    tokens = [str(number) for number in range(300)]
    names, weights = cluster_names(tokens), dict(AdaptiveSoftmax(16, 300).named_parameters())
    for key, own in names.items():
        assert len(own) == len(weights[key])
    ends = cutoffs(300)
    assert names["softmax.head.weight"][: ends[0]] == tokens[: ends[0]]
    assert sum(map(len, names.values())) == 302
