"""Pooling: every rule by its equation, and padding in none of them."""

import pytest
import torch

from comparison import assert_close
from elman import RNN
from elman.config import ModelSettings
from elman.errors import ArgumentError, ShapeError, UnknownNameError
from elman.models.classifier import Classifier
from elman.models.embedding import WordBatch, Words
from elman.models.poolings.base import Pooling
from elman.recurrence.contract import Unrolled
from elman.registry import POOLINGS

LENGTHS = torch.tensor([5, 1, 3])


def made(kind, width):
    return POOLINGS.find(kind)(width)


def by_hand(kind, pooling, h, last):
    """The rule for one sequence without padding: h (n, width)."""
    if kind == "last":
        return last
    if kind == "mean":
        return h.mean(0)
    if kind == "max":
        return h.max(0).values
    if kind == "mean_max":
        return torch.cat([h.mean(0), h.max(0).values])
    energies = torch.stack(
        [pooling.v.weight[0] @ torch.tanh(pooling.W.weight @ x + pooling.W.bias) for x in h]
    )
    return (energies.softmax(0)[:, None] * h).sum(0)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", POOLINGS.names())
def test_every_rule_by_hand_C2(kind, bidirectional):
    rnn = RNN("lstm", 3, 4, bidirectional=bidirectional)
    pooling = made(kind, rnn.output_size)
    unrolled = rnn(torch.randn(3, 5, 3), LENGTHS)
    found = pooling(unrolled, LENGTHS)
    expected = torch.stack(
        [
            by_hand(kind, pooling, unrolled.outputs[row, :length], unrolled.last[row])
            for row, length in enumerate(LENGTHS.tolist())
        ]
    )
    assert found.shape == (3, pooling.output_size)
    assert_close({"pooled": found}, {"pooled": expected}, 1e-6)


def test_last_is_both_final_states_side_by_side_C2():
    rnn = RNN("gru", 3, 4, bidirectional=True)
    unrolled = rnn(torch.randn(3, 5, 3), LENGTHS)
    forth, back = unrolled.state[0]
    found = made("last", 8)(unrolled, LENGTHS)
    assert_close({"last": found}, {"last": torch.cat([forth.h, back.h], 1)}, 0.0)


@pytest.mark.parametrize("filling", [0.0, 1e9, float("inf"), float("nan")])
@pytest.mark.parametrize("kind", POOLINGS.names())
def test_padding_never_wins(kind, filling):
    pooling = made(kind, 2)
    outputs = -torch.rand(3, 5, 2) - 1  # below the zero that padding usually holds
    outputs[torch.arange(5) >= LENGTHS[:, None]] = filling
    outputs.requires_grad_()
    last = torch.randn(3, 2)
    found = pooling(Unrolled(outputs, last, ()), LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = Unrolled(outputs[row : row + 1, :length], last[row : row + 1], ())
        assert_close({"row": found[row : row + 1]}, {"row": pooling(alone)}, 1e-6)
        assert_close({"row": pooling(alone, [length])}, {"row": pooling(alone)}, 0.0)
    if kind != "last":
        found.sum().backward()
        assert (outputs.grad[torch.arange(5) >= LENGTHS[:, None]] == 0).all()
        assert all(parameter.grad.isfinite().all() for parameter in pooling.parameters())


def test_attention_shows_its_weights():
    pooling = made("attention", 4)
    weights = pooling.weights(torch.randn(3, 5, 4), torch.arange(5) < LENGTHS[:, None])
    assert_close({"sum": weights.sum(1)}, {"sum": torch.ones(3)}, 1e-6)
    assert (weights[torch.arange(5) >= LENGTHS[:, None]] == 0).all()
    assert weights[1].tolist() == [1, 0, 0, 0, 0]
    assert {kind for kind in POOLINGS.names() if hasattr(POOLINGS.find(kind), "weights")} == {"attention"}


def test_only_attention_learns():
    assert {kind for kind in POOLINGS.names() if list(made(kind, 3).parameters())} == {"attention"}


def test_mistakes_are_explained():
    with pytest.raises(UnknownNameError, match="no pooling named 'sum'; Known: attention, last, max, mean"):
        made("sum", 3)
    with pytest.raises(ArgumentError, match="width is 0"):
        made("mean", 0)
    for kind in POOLINGS.names():
        with pytest.raises(ShapeError, match=r"must be \(B, (T, )?3\)"):
            made(kind, 3)(Unrolled(torch.randn(2, 5, 4), torch.randn(2, 4), ()), [5, 5])


class Middle(Pooling):
    """The output in the middle, beside the number of steps; ``scale`` is its option."""

    def __init__(self, width, *, scale=1.0):
        super().__init__(width)
        self.output_size = width + 1
        self.scale = scale

    def pool(self, outputs, real):
        lengths = real.sum(1)
        middle = outputs[torch.arange(len(outputs)), (lengths - 1) // 2]
        return torch.cat([self.scale * middle, lengths[:, None].to(outputs.dtype)], 1)


@pytest.mark.parametrize("filling", [0.0, 1e9, float("nan")])
def test_a_users_pooling_writes_its_rule_alone(filling):
    """Padding is zero and told before it is asked, whatever stands there."""
    outputs = torch.randn(3, 5, 2)
    outputs[torch.arange(5) >= LENGTHS[:, None]] = filling
    found = Middle(2, scale=2.0)(Unrolled(outputs, outputs[:, -1], ()), LENGTHS)
    assert found.shape == (3, 3)
    for row, (length, place) in enumerate(((5, 2), (1, 0), (3, 1))):
        assert found[row].tolist() == [*(2 * outputs[row, place]).tolist(), length]
    with pytest.raises(ShapeError, match=r"must be \(B, T, 2\)"):
        Middle(2)(Unrolled(torch.randn(3, 5, 4), torch.randn(3, 4), ()), LENGTHS)
    with pytest.raises(NotImplementedError, match="Pooling writes no pool"):
        Pooling(2)(Unrolled(outputs, outputs[:, -1], ()), LENGTHS)


def test_a_users_pooling_stands_in_a_classifier(monkeypatch):
    """It is given the width of the network, its options, and decides the width of the head."""
    monkeypatch.setattr(POOLINGS, "_added", {"middle": Middle})
    words = Words(6, 4)
    settings = ModelSettings(cell="gru", hidden=5, layers=1)
    model = Classifier(words, settings, 3, pooling="middle", pooling_options={"scale": 3.0}).eval()
    assert (model.pooling.width, model.pooling.scale) == (5, 3.0)
    assert model.head[-1].in_features == 6
    places = torch.tensor([[1, 2, 3], [4, 0, 0]])
    none = torch.zeros(6, 0, dtype=torch.int64)
    batch = WordBatch(
        torch.arange(6), torch.zeros(6, dtype=torch.int64), none, none[:, 0:0], places, torch.tensor([3, 1])
    )
    alone = WordBatch(*(batch.tokens, batch.vectors, none, none[:, 0:0]), places[1:, :1], torch.tensor([1]))
    assert model(batch).shape == (2, 3)
    torch.testing.assert_close(model(batch)[1:], model(alone))
    with pytest.raises(
        ArgumentError, match=r"model\.pooling_options has 'scael', unknown to Middle; did you"
    ):
        Classifier(words, settings, 3, pooling="middle", pooling_options={"scael": 3.0})
