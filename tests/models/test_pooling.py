"""Pooling: every rule by its equation, and padding in none of them."""

import pytest
import torch

from comparison import assert_close
from elman import RNN
from elman.errors import ArgumentError, ShapeError
from elman.models.pooling import POOLINGS, Pooling
from elman.recurrence.contract import Unrolled

LENGTHS = torch.tensor([5, 1, 3])


def by_hand(pooling, h, last):
    """The rule for one sequence without padding: h (n, width)."""
    if pooling.kind == "last":
        return last
    if pooling.kind == "mean":
        return h.mean(0)
    if pooling.kind == "max":
        return h.max(0).values
    energies = torch.stack(
        [pooling.v.weight[0] @ torch.tanh(pooling.W.weight @ x + pooling.W.bias) for x in h]
    )
    return (energies.softmax(0)[:, None] * h).sum(0)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", POOLINGS)
def test_every_rule_by_hand_C2(kind, bidirectional):
    rnn = RNN("lstm", 3, 4, bidirectional=bidirectional)
    pooling = Pooling(kind, rnn.output_size)
    unrolled = rnn(torch.randn(3, 5, 3), LENGTHS)
    found = pooling(unrolled, LENGTHS)
    expected = torch.stack(
        [
            by_hand(pooling, unrolled.outputs[row, :length], unrolled.last[row])
            for row, length in enumerate(LENGTHS.tolist())
        ]
    )
    assert found.shape == (3, pooling.output_size)
    assert_close({"pooled": found}, {"pooled": expected}, 1e-6)


def test_last_is_both_final_states_side_by_side_C2():
    rnn = RNN("gru", 3, 4, bidirectional=True)
    unrolled = rnn(torch.randn(3, 5, 3), LENGTHS)
    forth, back = unrolled.state[0]
    found = Pooling("last", 8)(unrolled, LENGTHS)
    assert_close({"last": found}, {"last": torch.cat([forth.h, back.h], 1)}, 0.0)


@pytest.mark.parametrize("filling", [0.0, 1e9, float("inf"), float("nan")])
@pytest.mark.parametrize("kind", POOLINGS)
def test_padding_never_wins(kind, filling):
    pooling = Pooling(kind, 2)
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
    pooling = Pooling("attention", 4)
    weights = pooling.weights(torch.randn(3, 5, 4), LENGTHS)
    assert_close({"sum": weights.sum(1)}, {"sum": torch.ones(3)}, 1e-6)
    assert (weights[torch.arange(5) >= LENGTHS[:, None]] == 0).all()
    assert weights[1].tolist() == [1, 0, 0, 0, 0]
    with pytest.raises(ArgumentError, match="pooling 'mean' has no weights"):
        Pooling("mean", 4).weights(torch.randn(3, 5, 4), LENGTHS)


def test_only_attention_learns():
    assert {kind for kind in POOLINGS if list(Pooling(kind, 3).parameters())} == {"attention"}


def test_mistakes_are_explained():
    with pytest.raises(ArgumentError, match="pooling is 'sum'; it must be one of 'last', 'mean'"):
        Pooling("sum", 3)
    with pytest.raises(ArgumentError, match="width is 0"):
        Pooling("mean", 0)
    for kind in POOLINGS:
        with pytest.raises(ShapeError, match=r"must be \(B, (T, )?3\)"):
            Pooling(kind, 3)(Unrolled(torch.randn(2, 5, 4), torch.randn(2, 4), ()), [5, 5])
