"""What tests compare: a network's values and all its gradients, by name, from one backend or another."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from elman import RNN

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

Named = dict[str, Tensor]


def distance(a: Tensor, b: Tensor) -> float:
    """‖a−b‖/(‖b‖+1); NaN where either holds one."""
    a, b = a.detach(), b.detach()
    return float((a - b).norm() / (b.norm() + 1))


def assert_close(found: Named, expected: Named, tolerance: float) -> None:
    """All tensors of the same names, shapes and types, each within the tolerance."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].shape, found[name].dtype) == (value.shape, value.dtype), name
    errors = {name: distance(found[name].detach(), value.detach()) for name, value in expected.items()}
    wrong = {name: error for name, error in errors.items() if not error <= tolerance}
    assert not wrong, f"more than {tolerance} apart: {wrong}"


def tensors_of(state: Any) -> Iterator[Tensor]:
    """The tensors of a nested state, in order."""
    if isinstance(state, Tensor):
        yield state
    else:
        for part in state:
            yield from tensors_of(part)


def map_state(function: Any, state: Any) -> Any:
    """The same nesting with every tensor replaced."""
    if isinstance(state, Tensor):
        return function(state)
    parts = [map_state(function, part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def values_of(rnn: RNN, x: Tensor, lengths: Any = None, state: Any = None) -> Named:
    outputs, last, final = rnn(x, lengths, state)
    return {"outputs": outputs, "last": last, **{f"final {i}": t for i, t in enumerate(tensors_of(final))}}


def everything_of(rnn: RNN, x: Tensor, lengths: Any = None, state: Any = None, seed: int = 0) -> Named:
    """Values, and the gradients of x, the given state and every parameter under a random upstream one."""
    x = x.detach().clone().requires_grad_()
    if state is not None:
        state = map_state(lambda t: t.detach().clone().requires_grad_(), state)
    torch.manual_seed(seed)  # what regularisers draw
    values = values_of(rnn, x, lengths, state)
    leaves = {"d x": x, **{f"d {name}": p for name, p in rnn.named_parameters() if p.requires_grad}}
    leaves |= {f"d start {i}": t for i, t in enumerate(tensors_of(state or ()))}
    upstream = torch.Generator().manual_seed(2)
    weights = [
        torch.randn(v.shape, generator=upstream, dtype=torch.float64).to(v.dtype) for v in values.values()
    ]
    pairs = [(v, w) for v, w in zip(values.values(), weights, strict=True) if v.requires_grad]
    gradients = torch.autograd.grad(
        [v for v, _ in pairs], list(leaves.values()), [w for _, w in pairs], allow_unused=True
    )
    found = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
    }
    return {**{name: v.detach() for name, v in values.items()}, **found}


def on(backend: str, rnn: RNN, *args: Any, **kwargs: Any) -> Named:
    """``everything_of`` the network, on this backend."""
    before, rnn.backend = rnn.backend, backend
    try:
        return everything_of(rnn, *args, **kwargs)
    finally:
        rnn.backend = before


def disturb(module: nn.Module, scale: float = 0.3) -> None:
    """No weight stays at a special value: biases and vectors start at zero.

    Matrices change little: a chaotic network would amplify rounding errors beyond any tolerance.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            size = scale if parameter.dim() < 2 else scale / parameter.shape[0] ** 0.5
            parameter += size * torch.randn_like(parameter)


def quantise(module: nn.Module) -> None:
    """Weights in quarters: sums of products are then exact, in whatever order they are made."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_((parameter * 4).round() / 4)


def random_lengths(B: int, T: int, rng: random.Random) -> Tensor:
    return torch.tensor([rng.randint(1, T) for _ in range(B)])


def python(code: str, timeout: float = 600, **environment: str) -> str:
    """What a fresh interpreter prints; it must end well, and warnings are errors in it too."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
