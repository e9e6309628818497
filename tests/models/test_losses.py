"""Losses against their formulas."""

import math

import pytest
import torch

from comparison import assert_close
from elman.models.losses import output_loss

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 0.0, 0.0], [1.0, 3.0, -2.0]])
TARGETS = torch.tensor([0, 2, 0])


def by_hand(kind, smoothing=0.0, weights=None):
    total = 0.0
    for row, target in zip(LOGITS.tolist(), TARGETS.tolist(), strict=True):
        mass = sum(map(math.exp, row))
        y = [math.exp(value) / mass for value in row]
        q = [(1 - smoothing) * (v == target) + smoothing / 3 for v in range(3)]
        if kind == "squared":
            weight = 1.0 if weights is None else weights[target]
            total += weight * sum((a - b) ** 2 for a, b in zip(y, q, strict=True)) / 2
        else:
            w = [1.0] * 3 if weights is None else weights
            total -= sum(w[v] * q[v] * math.log(y[v]) for v in range(3))
    return total


@pytest.mark.parametrize("kind", ["cross-entropy", "squared"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5]])
def test_against_the_formula(kind, smoothing, weights):
    given = None if weights is None else torch.tensor(weights)
    found = output_loss(LOGITS, TARGETS, kind=kind, smoothing=smoothing, weights=given)
    assert float(found) == pytest.approx(by_hand(kind, smoothing, weights), rel=1e-6)


@pytest.mark.parametrize("kind", ["cross-entropy", "squared"])
def test_gradients_against_finite_differences(kind):
    logits = LOGITS.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: output_loss(x, TARGETS, kind=kind, smoothing=0.1), [logits])


def test_a_sum_over_rows():
    rows = [output_loss(LOGITS[i : i + 1], TARGETS[i : i + 1], kind="squared") for i in range(3)]
    assert_close({"sum": output_loss(LOGITS, TARGETS, kind="squared")}, {"sum": sum(rows)}, 1e-6)
