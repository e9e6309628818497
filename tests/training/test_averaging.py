"""Averages are those of their equations, leave the model as it was, and resume bit for bit."""

import json

import pytest
import torch
from torch import nn

from elman.errors import ArgumentError, RunError
from elman.training.averaging import KINDS, Averaging


class Model(nn.Module):
    """A matrix, a weight in half precision, and a buffer."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(3, 4))
        self.short = nn.Parameter(torch.randn(5).to(torch.bfloat16))
        self.register_buffer("seen", torch.zeros(2))


def walk(model, averaging, updates, start=None):
    """Random steps, known by their numbers; the weights after each."""
    path = []
    for update in updates:
        if update == start:
            averaging.start()
        generator = torch.Generator().manual_seed(update)
        with torch.no_grad():
            for weight in model.parameters():
                weight += torch.randn(weight.shape, generator=generator).to(weight.dtype)
            model.seen += 1
        averaging.update(model)
        path.append({name: weight.detach().clone() for name, weight in model.named_parameters()})
    return path


def bits(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_none_does_nothing():
    model, averaging = Model(), Averaging("none")
    averaging.start()
    walk(model, averaging, range(3))
    before = bits(model)
    with averaging.applied(model):
        assert_same(bits(model), before)
    assert averaging.tensors() == {}


def test_tail_is_the_mean_since_the_start():
    model, averaging = Model(), Averaging("tail")
    path = walk(model, averaging, range(10), start=4)
    averaging.start()  # a second time changes nothing
    assert averaging.count == 6
    for name, average in averaging.tensors().items():
        expected = torch.stack([weights[name].float() for weights in path[4:]]).mean(0)
        torch.testing.assert_close(average, expected, atol=1e-6, rtol=0)


def test_tail_before_its_start_is_the_weights_themselves():
    model, averaging = Model(), Averaging("tail")
    walk(model, averaging, range(3))
    before = bits(model)
    with averaging.applied(model):
        assert_same(bits(model), before)


@pytest.mark.parametrize("decay", [0.0, 0.3, 0.999])
def test_ema_by_its_equation(decay):
    model, averaging = Model(), Averaging("ema", decay=decay)
    path = walk(model, averaging, range(20))
    for name, average in averaging.tensors().items():
        expected = path[0][name].double()
        for n, weights in enumerate(path[1:], 1):
            effective = min(decay, (1 + n) / (10 + n))
            expected = effective * expected + (1 - effective) * weights[name].double()
        torch.testing.assert_close(average, expected.float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["ema", "tail"])
def test_applied_swaps_and_swaps_back(kind):
    model, averaging = Model(), Averaging(kind)
    walk(model, averaging, range(5), start=0)
    with torch.no_grad():  # what a careless way back would lose
        model.matrix[0, 0], model.matrix[0, 1] = -0.0, float("nan")
    before, places = bits(model), [weight.data_ptr() for weight in model.parameters()]
    averages = {name: tensor.clone() for name, tensor in averaging.tensors().items()}
    with averaging.applied(model):
        for name, weight in model.named_parameters():
            assert torch.equal(weight, averages[name].to(weight.dtype))
        assert torch.equal(model.seen, before["seen"])
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor.contiguous().view(torch.uint8), before[name].view(torch.uint8))
    assert places == [weight.data_ptr() for weight in model.parameters()]
    assert_same(averaging.tensors(), averages)


def fail_inside(averaging, model):
    with averaging.applied(model):
        raise KeyboardInterrupt


def test_an_interruption_inside_gives_the_weights_back():
    model, averaging = Model(), Averaging("ema")
    walk(model, averaging, range(5))
    before = bits(model)
    with pytest.raises(KeyboardInterrupt):
        fail_inside(averaging, model)
    assert_same(bits(model), before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [2, 7, 20])
def test_resumed_is_undisturbed(kind, start):
    torch.manual_seed(3)
    straight, whole = Model(), Averaging(kind)
    torch.manual_seed(3)
    model, averaging = Model(), Averaging(kind)
    walk(straight, whole, range(10), start=start)
    walk(model, averaging, range(5), start=start)

    resumed = Averaging(kind)
    tensors, state = averaging.tensors(), json.loads(json.dumps(averaging.state_dict()))
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    resumed.load_tensors(model, tensors, state)
    walk(model, resumed, range(5, 10), start=start)
    assert_same(resumed.tensors(), whole.tensors())
    assert resumed.state_dict() == whole.state_dict()
    assert_same(tensors, kept)


def test_what_does_not_fit_is_refused():
    model, averaging = Model(), Averaging("ema")
    walk(model, averaging, range(2))
    tensors, state = averaging.tensors(), averaging.state_dict()
    with pytest.raises(RunError, match="has averaging 'ema', the settings say 'tail'"):
        Averaging("tail").load_tensors(model, tensors, state)
    with pytest.raises(RunError, match="the average of 'matrix' has shape None"):
        Averaging("ema").load_tensors(model, {"short": tensors["short"]}, state)
    with pytest.raises(RunError, match=r"'matrix' has shape \(2,\), its weight \(3, 4\)"):
        Averaging("ema").load_tensors(model, tensors | {"matrix": torch.zeros(2)}, state)
    with pytest.raises(ArgumentError, match="averaging is 'swa'; it must be one of 'none', 'ema', 'tail'"):
        Averaging("swa")
    with pytest.raises(ArgumentError, match="decay is 1"):
        Averaging("ema", decay=1.0)
