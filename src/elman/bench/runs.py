"""Contenders on the same numbers, and how far their results lie apart."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from elman.bench.cases import Case
from elman.bench.contenders import DTYPES, Contender, Pair, Values
from elman.tensors.nested import map_tensors

COMPARED = 4  # rows: two at the beginning of the batch and two at its end


class Inputs(NamedTuple):
    """The numbers that all contenders get: a batch, the gradients that arrive, and a start; empty: zero."""

    x: Tensor
    lengths: Tensor | None
    d_outputs: Tensor
    state: Values
    d_state: Values


def draw(case: Case, device: str = "cpu") -> Inputs:
    """A batch and the gradients that arrive; on the CPU with a start, on CUDA with the longest rows first.

    The rows that are compared are drawn before the others, so that errors of all batch sizes are those of the
    same rows.
    """
    B, T, H = case.B, case.T, case.H
    random = torch.Generator(device).manual_seed(2)
    states = ("h", "c") if case.started else ()
    shapes = [(T, H), (T, H * (2 if case.bidirectional else 1)), *[(H,)] * (2 * len(states))]

    def rows(count: int) -> list[Tensor]:
        return [torch.randn(count, *shape, generator=random, device=device) for shape in shapes]

    compared, others = rows(min(B, COMPARED)), rows(max(0, B - COMPARED))
    x, d_outputs, *drawn = (
        torch.cat([mine[: COMPARED // 2], other, mine[COMPARED // 2 :]]).to(DTYPES[case.precision])
        for mine, other in zip(compared, others, strict=True)
    )
    start = {name: 0.5 * t for name, t in zip(states, drawn[::2], strict=True)}
    return Inputs(x, _lengths(case), d_outputs, start, dict(zip(states, drawn[1::2], strict=True)))


def _lengths(case: Case) -> Tensor | None:
    """Evenly spread up to T, so that the case has its padding."""
    if not case.padding:
        return None
    shortest = max(1, round((1 - 2 * case.padding) * case.T))
    lengths = torch.linspace(case.T, shortest, case.B).round().long()
    order = torch.Generator().manual_seed(3)
    return lengths if case.precision else lengths[torch.randperm(case.B, generator=order)]


class Run:
    """One contender on one batch; calling it runs it once, forward or forward and backward."""

    def __init__(self, contender: Contender, inputs: Inputs, *, training: bool) -> None:
        self.contender, self.training, self.lengths = contender, training, inputs.lengths
        self.names = tuple(name for name in contender.states if name in inputs.state)
        self.x = contender.turned(inputs.x).clone().requires_grad_(training)
        self.state = tuple(contender.native(inputs.state[n]).requires_grad_(training) for n in self.names)
        self.parameters = dict(contender.network.named_parameters())
        self.leaves = (self.x, *self.state, *self.parameters.values())
        d_state = (contender.native(inputs.d_state[name]) for name in self.names)
        self.arriving = (contender.turned(inputs.d_outputs), *d_state)

    def __call__(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        if not self.training:
            with torch.inference_mode():
                return self.forward(), ()
        results = self.forward()
        # A state that no equation reads has the gradient zero: SRU's h.
        return results, torch.autograd.grad(results, self.leaves, self.arriving, materialize_grads=True)

    def forward(self) -> tuple[Tensor, ...]:
        return self.contender.unroll(self.x, self.state, self.lengths)

    def values(self) -> Values:
        """Everything that a run computes, under Elman's names and in its shapes."""
        (outputs, *final), gradients = self()
        found = {"outputs": self.contender.turned(outputs), **self._states("", final)}
        if gradients:
            count = 1 + len(self.names)
            d_x, *d_state = gradients[:count]
            found |= {"d_x": self.contender.turned(d_x), **self._states("d_", d_state)}
            own = dict(zip(self.parameters, gradients[count:], strict=True))
            found |= {f"d_{name}": t for name, t in self.contender.translate(own).items()}
        return {name: t.detach() for name, t in found.items()}

    def _states(self, prefix: str, found: list[Tensor]) -> Values:
        """(B, H) each, whatever this contender makes of it."""
        flat = (t.reshape(-1, t.shape[-1]) for t in found)
        return {f"{prefix}{name}": t for name, t in zip(self.names, flat, strict=True)}


def worst_error(found: Values, expected: Values) -> float:
    """The largest ‖a−b‖ / (‖b‖+1) over all tensors; what is not a number is infinitely far.

    >>> worst_error({"y": torch.tensor([3.0])}, {"y": torch.tensor([1.0])})
    1.0
    """
    assert found.keys() == expected.keys(), f"{sorted(found)} against {sorted(expected)}"
    pairs = [(found[name].double(), b.double()) for name, b in expected.items()]
    errors = [float((a - b).norm() / (b.norm() + 1)) for a, b in pairs]
    return math.inf if any(map(math.isnan, errors)) else max(errors)


class Errors(NamedTuple):
    """Worst errors: ours against the peer (None where that computes something else, or in short numbers)
    and against the float64 loop, and the peer's own against that."""

    peer: float | None
    float64: float
    peer_float64: float | None


def compare(case: Case, pair: Pair, inputs: Inputs) -> Errors:
    """Both contenders, in their precision, against the float64 loop and against each other.

    The loop runs over a few rows only. There gradients arrive at these alone, so that those of the
    weights come from them; all other rows are computed as well.
    """
    which = [b for b in range(case.B) if b < COMPARED // 2 or b >= case.B - COMPARED // 2]

    def alone(t: Tensor) -> Tensor:
        return torch.zeros_like(t).index_copy(0, torch.tensor(which, device=t.device), t[which])

    def values(contender: Contender, given: Inputs) -> Values:
        return Run(contender, given, training=case.mode != "inference").values()

    def error(contender: Contender) -> float:
        found = values(contender, part)  # of which gradients arrive at these rows alone
        shared = {name: t if name.startswith("d_cells") else t[which] for name, t in found.items()}
        return worst_error(shared, {name: expected[name] for name in shared})

    part = inputs._replace(d_outputs=alone(inputs.d_outputs), d_state=map_tensors(alone, inputs.d_state))
    few = map_tensors(lambda t: t[which].double() if t.is_floating_point() else t[which], inputs)
    expected = values(pair.ours.reference(), few)
    ours = error(pair.ours)
    if not math.isfinite(ours):
        raise ArithmeticError("results are not finite")
    if not pair.same:
        return Errors(None, ours, None)
    if case.precision:
        return Errors(None, ours, error(pair.peer))
    found, beside = values(pair.ours, inputs), values(pair.peer, inputs)
    both = {name: found[name] for name in beside}  # not all peers tell the gradients of their weights
    return Errors(worst_error(both, beside), ours, error(pair.peer))
