"""A bridge fits every pair of networks: depth, width, direction and cell."""

import itertools

import pytest
import torch

from comparison import assert_close, tensors_of
from elman import RNN, Cell
from elman.errors import ArgumentError, ElmanError, ShapeError
from elman.layers.bridge import POLICIES, Bridge

NETWORKS = {
    "lstm": ("lstm", 4, {}),
    "deep lstm": ("lstm", (4, 6, 5), {}),
    "both ways": ("lstm", (3, 5), {"bidirectional": True}),
    "gru": ("gru", 8, {}),
    "wide both ways": ("gru", 9, {"bidirectional": True}),
    "sru": ("sru", (2, 2), {}),
}


def made(name):
    cell, widths, options = NETWORKS[name]
    return RNN(cell, 3, widths, **options)


@pytest.mark.parametrize(("source", "target"), [*itertools.product(NETWORKS, NETWORKS)])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_pair(policy, source, target):
    first, second = made(source), made(target)
    bridge = Bridge(first, second, policy=policy)
    state = bridge(first(torch.randn(2, 5, 3)).state)
    outputs = second(torch.randn(2, 4, 3), state=state).outputs
    assert outputs.shape[:2] == (2, 4)
    assert len(bridge.describe()) == second.layers
    outputs.sum().backward()
    reached = any(p.grad is not None and (p.grad != 0).any() for p in first.parameters())
    assert reached == (policy != "zero")
    if policy == "transform":
        assert all((p.grad != 0).any() for p in bridge.parameters())
    else:
        assert not list(bridge.parameters())


def test_copy_of_an_equal_network_is_the_state_itself():
    source, target = made("deep lstm"), made("deep lstm")
    state = source(torch.randn(2, 5, 3)).state
    copied = Bridge(source, target, policy="copy")(state)
    for found, expected in zip(tensors_of(copied), tensors_of(state), strict=True):
        assert_close({"s": found}, {"s": expected}, 0.0)


class Counted(Cell):
    state = ("h", "count", "index")
    gates = ("a",)

    def R(self, x, h, s):
        return self.State(h=torch.tanh(x.a + h.a), count=s.count + 1, index=s.index)


@pytest.mark.slow
def test_copy_where_a_state_is_called_as_something_of_tuples():
    source, target = RNN("lstm", 3, 4), RNN(Counted, 3, 4)
    state = source(torch.randn(2, 5, 3)).state
    (copied,) = Bridge(source, target, policy="copy")(state)
    for field in copied:
        assert_close({"s": field}, {"s": state[0].h}, 0.0)
    (copied,) = Bridge(target, target, policy="copy")(target(torch.randn(2, 5, 3)).state)
    assert (copied.count == 5).all()


def test_copy_by_its_rules():
    state = made("both ways")(torch.randn(2, 5, 3)).state
    forth, back = state[-1]
    for width, expected in {
        10: torch.cat([forth.h, back.h], -1),  # side by side
        5: forth.h + back.h,  # added
        3: (forth.h + back.h)[:, :3],  # the first units
        7: torch.cat([forth.h + back.h, torch.zeros(2, 2)], -1),  # zeros for the rest
    }.items():
        (copied,) = Bridge(made("both ways"), RNN("gru", 3, width), policy="copy")(state)
        assert_close({"h": copied.h}, {"h": expected}, 0.0)
    deeper = Bridge(made("lstm"), RNN("lstm", 3, 4, layers=3), policy="copy")
    single = made("lstm")(torch.randn(2, 5, 3)).state
    assert all(torch.equal(layer.c, single[0].c) for layer in deeper(single))


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(lambda: made("lstm")(torch.randn(2, 5, 3)).state, id="too few layers"),
        pytest.param(lambda: made("sru")(torch.randn(2, 5, 3)).state, id="one direction"),
        pytest.param(lambda: torch.zeros(2, 5), id="tensor"),
        pytest.param(
            lambda: RNN("lstm", 3, (3, 4), bidirectional=True)(torch.randn(2, 5, 3)).state, id="width"
        ),
    ],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_state_of_another_network_is_refused(policy, state):
    bridge = Bridge(made("both ways"), made("gru"), policy=policy)
    with pytest.raises(ShapeError):
        bridge(state())


def test_a_wrong_argument_is_named():
    with pytest.raises(
        ArgumentError, match="policy is 'average'; it must be one of 'copy', 'transform', 'zero'"
    ):
        Bridge(made("lstm"), made("gru"), policy="average")
    with pytest.raises(ElmanError, match="source"):
        Bridge("lstm", made("gru"))
