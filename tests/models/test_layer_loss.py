"""The output layer and its loss in one go: the same numbers as one after the other."""

import pytest
import torch
from torch.nn import functional as F

from elman.models import losses
from elman.models.losses import ROWS, layer_loss, output_loss


def drawn(N, R=5, V=9, dtype=torch.float64):
    torch.manual_seed(N)
    tensors = (torch.randn(N, R), torch.randn(V, R), torch.randn(V))
    layer = [one.to(dtype).requires_grad_() for one in tensors]
    return layer, torch.randint(0, V, (N,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("N", [1, 7, ROWS, 2 * ROWS + 3])
def test_it_equals_the_layer_and_the_loss(N, smoothing):
    layer, targets = drawn(N)
    both = [
        layer_loss(*layer, targets, smoothing=smoothing),
        output_loss(F.linear(*layer), targets, smoothing=smoothing),
    ]
    torch.testing.assert_close(*both)
    gradients = [torch.autograd.grad(0.3 * loss, layer) for loss in both]
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


def test_its_gradient_is_the_slope():
    layer, targets = drawn(4)
    assert torch.autograd.gradcheck(lambda *given: layer_loss(*given, targets, smoothing=0.2), layer)


def test_what_has_no_short_way_takes_the_long_one():
    layer, targets = drawn(6, dtype=torch.float32)
    squared = layer_loss(*layer, targets, kind="squared", smoothing=0.1)
    expected = output_loss(F.linear(*layer), targets, kind="squared", smoothing=0.1)
    torch.testing.assert_close(squared, expected)
    with torch.autocast("cpu", torch.bfloat16):
        rough = layer_loss(*layer, targets)
    torch.testing.assert_close(rough, output_loss(F.linear(*layer), targets), rtol=0.05, atol=0.05)
    with torch.no_grad():
        assert not layer_loss(*layer, targets).requires_grad


def test_a_frozen_layer_gets_no_gradient():
    layer, targets = drawn(6)
    frozen = [layer[0], layer[1].detach(), layer[2]]
    layer_loss(*frozen, targets).backward()
    assert layer[1].grad is None
    assert layer[0].grad is not None


@pytest.mark.parametrize("kind", ["cross-entropy", "squared"])
def test_more_logits_than_memory_should_hold_come_in_parts(kind, monkeypatch):
    layer, targets = drawn(23, dtype=torch.float32)
    found, expected = [], []
    for LOGITS, results in ((45, found), (1 << 28, expected)):
        monkeypatch.setattr(losses, "LOGITS", LOGITS)
        with torch.autocast("cpu", torch.bfloat16):
            loss = layer_loss(*layer, targets, kind=kind, smoothing=0.1)
        results += [loss, *torch.autograd.grad(loss, layer)]
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)


def test_chunks_are_for_the_cpu_alone(monkeypatch):
    """On a GPU the layer is one product of all rows; a device without memory stands in for it."""
    monkeypatch.setattr(losses, "extraordinary", lambda *tensors: None)
    monkeypatch.setattr(losses._SoftmaxLoss, "apply", lambda *given: pytest.fail("rows go in chunks"))
    shapes = ((5, 3), (4, 3), (4,))
    layer = [torch.empty(*shape, device="meta", requires_grad=True) for shape in shapes]
    targets = torch.empty(5, dtype=torch.long, device="meta")
    assert layer_loss(*layer, targets).shape == ()
