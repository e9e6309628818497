"""Networks without recurrence obey the contract of those that have one."""

import pytest
import torch

from comparison import assert_close, tensors_of
from elman.models.networks.bag import Bag
from elman.models.networks.window import Window

D, H = 3, 5
LENGTHS = torch.tensor([6, 1, 4, 2])


def made(kind, causal):
    torch.manual_seed(1)
    network = Bag(D, H, causal=causal) if kind == "bag" else Window(D, H, window=int(kind[-1]), causal=causal)
    return network.double()


def inputs(B=4, T=6):
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def values(network, x, lengths=None, state=None):
    outputs, last, final = network(x, lengths, state)
    return {"outputs": outputs, "last": last, **{f"state {i}": t for i, t in enumerate(tensors_of(final))}}


KINDS = pytest.mark.parametrize("kind", ["window 1", "window 2", "window 5", "bag"])
DIRECTIONS = pytest.mark.parametrize("causal", [True, False])


@KINDS
@DIRECTIONS
def test_shapes_L6(kind, causal):
    network = made(kind, causal)
    found = values(network, inputs(), LENGTHS)
    assert found["outputs"].shape == (4, 6, H)
    assert found["last"].shape == (4, H)
    assert network.output_size == H


@KINDS
@DIRECTIONS
def test_padding_and_batch_do_not_matter(kind, causal):
    """What stands in the padding, a NaN even, reaches nothing; a row is the same alone."""
    network, x = made(kind, causal), inputs()
    spoilt = x.clone()
    for row, length in enumerate(LENGTHS.tolist()):
        spoilt[row, length:] = float("nan")
    found = values(network, spoilt, LENGTHS)
    assert_close(found, values(network, x, LENGTHS), 0.0)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = values(network, x[row : row + 1, :length])
        here = {name: value[row : row + 1] for name, value in found.items()}
        assert (here["outputs"][:, length:] == 0).all()
        assert_close({**here, "outputs": here["outputs"][:, :length]}, alone, 1e-12)


@KINDS
def test_step_is_sequence(kind):
    network, x = made(kind, True), inputs()
    expected, state = values(network, x), None
    for t in range(x.shape[1]):
        y, state = network.step(x[:, t], state)
        assert_close({"y": y}, {"y": expected["outputs"][:, t]}, 1e-12)
    for n, tensor in enumerate(tensors_of(state)):
        assert_close({"state": tensor}, {"state": expected[f"state {n}"]}, 1e-12)


@KINDS
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_the_state_goes_over_segments(kind, cut):
    network, x = made(kind, True), inputs()
    first, _, state = network(x[:, :cut])
    later = values(network, x[:, cut:], None, state)
    whole = values(network, x)
    assert_close({**later, "outputs": torch.cat([first, later["outputs"]], 1)}, whole, 1e-12)


@KINDS
def test_the_state_of_short_rows_goes_over_segments(kind):
    network, x = made(kind, True), inputs()
    _, _, state = network(x, LENGTHS)
    after = network(inputs(4, 2), None, state).last
    for row, length in enumerate(LENGTHS.tolist()):
        joined = torch.cat([x[row : row + 1, :length], inputs(4, 2)[row : row + 1]], 1)
        assert_close({"last": after[row : row + 1]}, {"last": network(joined).last}, 1e-12)


@KINDS
@DIRECTIONS
def test_gradients_are_those_of_differences_and_finite(kind, causal):
    network, x = made(kind, causal), inputs().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: network(x, LENGTHS)[:2], (x,))
    outputs, last, _ = network(x, LENGTHS)
    (outputs.sum() + last.sum()).backward()
    for name, weight in network.named_parameters():
        assert torch.isfinite(weight.grad).all(), name
        assert (weight.grad != 0).any(), name
    assert torch.isfinite(x.grad).all()
    for row, length in enumerate(LENGTHS.tolist()):
        assert (x.grad[row, length:] == 0).all()
        assert (x.grad[row, :length] != 0).any()


@KINDS
def test_causal_networks_do_not_see_ahead(kind):
    network, x = made(kind, True), inputs()
    changed = x.clone()
    changed[:, 3:] += 1
    assert_close({"y": network(changed).outputs[:, :3]}, {"y": network(x).outputs[:, :3]}, 0.0)


@pytest.mark.parametrize(
    ("window", "causal", "seen"), [(3, True, [2, 3, 4]), (3, False, [3, 4, 5]), (1, False, [4])]
)
def test_a_window_sees_what_it_says(window, causal, seen):
    network, x = made(f"window {window}", causal), inputs(1, 8).requires_grad_()
    network(x).outputs[0, 4].sum().backward()
    assert (x.grad[0].abs().sum(-1) > 0).nonzero().flatten().tolist() == seen


def test_a_window_is_a_linear_map_of_its_inputs():
    network, x = made("window 2", True), inputs(1, 3)
    before = torch.cat([torch.zeros(1, 1, D, dtype=x.dtype), x[:, :-1]], 1)
    expected = torch.tanh(torch.cat([before, x], -1) @ network.map.weight.T + network.map.bias)
    assert_close({"y": network(x).outputs}, {"y": expected}, 1e-12)


def test_a_bag_forgets_the_order():
    network, x = made("bag", True), inputs()
    turned = x[:, [4, 2, 0, 3, 1, 5]]
    assert_close({"y": network(turned).last}, {"y": network(x).last}, 1e-12)
    expected = torch.tanh(x.mean(1) @ network.bag.weight.T + network.bag.bias)
    assert_close({"y": network(x).last}, {"y": expected}, 1e-12)
    both, own = made("bag", False), network.double()
    assert both.own is not None
    assert own.own is None
    whole = x.mean(1) @ both.bag.weight.T + both.bag.bias
    assert_close({"y": both(x).last}, {"y": torch.tanh(whole)}, 1e-12)
    position = torch.tanh(whole[:, None] + x @ both.own.weight.T)
    assert_close({"y": both(x).outputs}, {"y": position}, 1e-12)
