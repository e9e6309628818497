"""Nested states are changed tensor by tensor, and padding becomes zero whatever stood there."""

from typing import NamedTuple

import torch
from torch import Tensor

from elman import RNN
from elman.tensors.nested import map_tensors, named_tensors
from elman.tensors.rows import zero_padding


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


def test_every_tensor_is_changed_and_nothing_else():
    one = torch.ones(2)
    nested = {"a": (Pair(one, one + 1), [one + 2]), "b": None, "c": ("text", 4)}
    found = map_tensors(torch.neg, nested)
    assert type(found["a"]) is tuple
    assert type(found["a"][0]) is Pair
    assert type(found["a"][1]) is list
    assert (found["b"], found["c"]) == (None, ("text", 4))
    assert [t[0].item() for t in (*found["a"][0], *found["a"][1])] == [-1, -2, -3]


def test_the_state_of_a_network_keeps_its_names():
    rnn = RNN("lstm", 2, 3, layers=2, bidirectional=True)
    state = rnn(torch.randn(2, 4, 2)).state
    found = map_tensors(torch.detach, state)
    assert not any(field.requires_grad for layer in found for one in layer for field in one)
    assert torch.equal(found[1][0].c, state[1][0].c)
    with torch.no_grad():  # the state of a stream becomes a plain tuple
        _, stream = RNN("gru", 2, 3).eval().step(torch.randn(1, 2))
    assert type(map_tensors(torch.clone, stream)) is tuple


def test_named_tensors_are_named_tuples():
    State = named_tensors("State", ("h", "c"))
    assert State(h=1, c=2) == State._make((1, 2)) == (1, 2)


def test_padding_is_zero_whatever_stood_there():
    x = torch.full((2, 3, 2), torch.nan)
    x[0, :1] = x[1, :3] = 5.0
    found = zero_padding(x, torch.tensor([1, 3]))
    assert found[..., 0].tolist() == [[5, 0, 0], [5, 5, 5]]
    assert zero_padding(x, None) is x
