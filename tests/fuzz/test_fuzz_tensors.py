"""Whatever tensors a caller makes: they are taken as the loop takes plain copies, or refused in words.

Tensors of every layout, type and kind; states and lengths that do not fit; memory that is not there.
"""

from __future__ import annotations

import warnings
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import Entry, fuzz
from torch import Tensor, nn

from elman import RNN
from elman.errors import ShapeError
from elman.layers.bridge import Bridge
from elman.models.crf import CRF

CELLS = ("lstm", "elman", "sru", "layer_norm_lstm")
D, H = 3, 5


class Marked(Tensor):
    pass


def numbers(random: Random, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(random.randrange(1 << 30))
    return torch.randn(shape, generator=generator)


def odd(random: Random, tensor: Tensor) -> Any:
    """The tensor itself three times out of four, else something like it."""
    if random.random() < 0.75:
        return random.choice(PLAIN)(random, tensor)
    return random.choice(STRANGE)(random, tensor)


PLAIN = (  # the same numbers, laid out otherwise
    lambda random, t: t,
    lambda random, t: t.transpose(0, -1).contiguous().transpose(0, -1),
    lambda random, t: torch.stack([t, t], -1)[..., 1],
    lambda random, t: torch.cat([t.flatten(), t.flatten()])[t.numel() :].view(t.shape),
    lambda random, t: t.clone().requires_grad_(),
    lambda random, t: torch._neg_view(-t),
    lambda random, t: nn.Parameter(t.clone()),
    lambda random, t: t.as_subclass(Marked),
)
STRANGE = (
    lambda random, t: t.double(),
    lambda random, t: t.half(),
    lambda random, t: t.to(torch.complex64),
    lambda random, t: t.long(),
    lambda random, t: t > 0,
    lambda random, t: t[..., : random.randrange(t.shape[-1])],
    lambda random, t: t[: random.randrange(t.shape[0] + 1)],
    lambda random, t: t[None],
    lambda random, t: t.flatten(),
    lambda random, t: t.sum(),
    lambda random, t: t.to("meta"),
    lambda random, t: t.to_sparse(),
    lambda random, t: t.to_mkldnn(),
    lambda random, t: torch.nested.nested_tensor(list(t)) if t.dim() > 1 else t[None],
    lambda random, t: torch._efficientzerotensor(t.shape),
    lambda random, t: torch.full_like(t, random.choice([float("nan"), float("inf"), 1e38])),
    lambda random, t: t[:1].expand_as(t),
    lambda random, t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
    lambda random, t: t.detach().numpy(),
    lambda random, t: t.detach().tolist(),
    lambda random, t: random.choice([None, "x", 3, float("nan"), [], (), {}, b"x"]),
)


def lengths(random: Random, B: int, T: int) -> Any:
    right = [random.randint(1, T) for _ in range(B)]
    if random.random() < 0.6:
        kinds = (list, tuple, np.array, torch.tensor, lambda r: torch.tensor(r, dtype=torch.uint8))
        return random.choice((*kinds, lambda r: None))(right)
    wrong = [*right[:-1], random.choice([0, -1, T + 1, 1 << 40, -(1 << 63), 1 << 70, 1.5, None, "2"])]
    values = (wrong, right[:-1], [right], T, "x", torch.tensor(right).float(), torch.tensor(right) > 0)
    more = (torch.tensor(right)[:, None], torch.tensor(right).to("meta"), torch.tensor(right).to_sparse(), {})
    return random.choice((*values, *more))


def network(random: Random) -> RNN:
    torch.manual_seed(random.randrange(1 << 30))
    deep = {"layers": random.choice([1, 2]), "bidirectional": random.random() < 0.4}
    return RNN(random.choice(CELLS), D, H, **deep).train(random.random() < 0.5)


def nested(change: Any, state: Any) -> Any:
    if isinstance(state, Tensor):
        return change(state)
    if not isinstance(state, tuple):
        return state
    parts = [nested(change, part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def plain(value: Any) -> Any:
    """The same numbers as an ordinary tensor."""
    if not isinstance(value, Tensor):
        return value
    if value._is_zerotensor():
        return torch.zeros(value.shape)
    numbers = value.detach().as_subclass(Tensor).resolve_neg().tolist()
    return torch.tensor(numbers, dtype=value.dtype).view(value.shape)


def walk_case(random: Random) -> Any:
    rnn, B, T = network(random), random.randint(1, 4), random.randint(1, 5)
    x = odd(random, numbers(random, B, T, D))
    state = None
    if random.random() < 0.5:
        state = nested(lambda t: odd(random, t), rnn(numbers(random, B, T, D)).state)
        if random.random() < 0.1:
            state = random.choice([state[0], (), list(state), (*state, state[0]), "x", {}])
    return rnn, x, lengths(random, B, T) if random.random() < 0.6 else None, state


def walk(case: Any, folder: Any) -> None:
    rnn, x, ends, state = case
    found = rnn(x, ends, state)
    if isinstance(x, Tensor) and x.is_meta:
        return
    if found.outputs.requires_grad:
        found.outputs.sum().backward()
    rnn.backend = "loop"
    expected = rnn(plain(x), ends, None if state is None else nested(plain, state))
    torch.testing.assert_close(
        plain(found.outputs), plain(expected.outputs), rtol=1e-4, atol=1e-5, equal_nan=True
    )


def step_case(random: Random) -> Any:
    torch.manual_seed(random.randrange(1 << 30))
    rnn, B = RNN(random.choice(CELLS), D, H, layers=random.choice([1, 2])).eval(), random.randint(1, 6)
    with torch.no_grad():
        state = None
        for _ in range(random.randint(0, 2)):
            state = rnn.step(numbers(random, B, D), state)[1]
    if state is not None and random.random() < 0.5:
        field = random.choice(random.choice(state))
        match random.randrange(4):
            case 0:
                field.set_(numbers(random, random.randint(1, 3)))
            case 1:
                field.set_(numbers(random, H, B).t())
            case 2:
                field.untyped_storage().resize_(0)
            case 3:
                state = nested(lambda t: odd(random, t), state)
    return rnn, odd(random, numbers(random, B, D)), state


def step(case: Any, folder: Any) -> None:
    rnn, x, state = case
    if any(map(lost, leaves(state))):
        with torch.no_grad(), pytest.raises(ShapeError):
            rnn.step(x, state)
        return
    with torch.no_grad():
        found = rnn.step(x, state)[0]
        if found.is_meta:
            return
        rnn.backend = "loop"
        expected = rnn.step(plain(x), None if state is None else nested(plain, tuple(state)))[0]
    torch.testing.assert_close(plain(found), plain(expected), rtol=1e-4, atol=1e-5, equal_nan=True)


def lost(t: Tensor) -> bool:
    """Whether it says that it has numbers, and has no memory for them."""
    usual = t.is_cpu and t.layout is torch.strided and not (t.is_nested or t._is_zerotensor())
    return usual and t.untyped_storage().nbytes() < t.numel()


def leaves(state: Any) -> list[Tensor]:
    found: list[Tensor] = []
    if state is not None:
        nested(found.append, tuple(state))
    return [t for t in found if isinstance(t, Tensor)]


def crf_case(random: Random) -> Any:
    B, T = random.randint(1, 3), random.randint(1, 4)
    tags = torch.tensor([[random.randrange(4) for _ in range(T)] for _ in range(B)])
    tags = (
        tags
        if random.random() < 0.7
        else random.choice([tags[:, :-1], tags + 2, tags - 1, tags.float(), "x", None])
    )
    return odd(random, numbers(random, B, T, 4)), tags, lengths(random, B, T)


def crf(case: Any, folder: Any) -> None:
    scores, tags, ends = case
    model = CRF(4)
    model.decode(scores, ends)
    model.marginals(scores, ends)
    model.log_likelihood(scores, tags, ends)


def bridge_case(random: Random) -> Any:
    source, target = RNN("lstm", D, H, layers=2), RNN("gru", D, 4)
    state = nested(lambda t: odd(random, t), source(numbers(random, 2, 3, D)).state)
    return Bridge(source, target, policy="transform"), state


def bridge(case: Any, folder: Any) -> None:
    joined, state = case
    joined(state)


ENTRIES = [
    Entry("a network", walk_case, walk, 300),
    Entry("a step", step_case, step, 400),
    Entry("a random field", crf_case, crf, 150),
    Entry("a bridge", bridge_case, bridge, 100),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_tensors(entry, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has much to say about its own young kinds
        fuzz(entry, tmp_path)
