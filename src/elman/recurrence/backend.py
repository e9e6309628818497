"""The contract of a backend: what it is called with, why it may refuse, and what all kernels refuse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from elman.recurrence.contract import Noise, RecurrentCell, State, StreamingCell, Unrolled, Weights
from elman.recurrence.phases import Blocks
from elman.recurrence.trace import Equations
from elman.recurrence.walk import Walk, walk_by_torch
from elman.tensors.tracing import extraordinary, own_precision


class LayerCall(NamedTuple):
    """One call of the engine: the directions of a layer over one batch, all checked.

    Of two directions the second reads from the end; with ``reverse`` it is the other way round.
    """

    cells: Sequence[RecurrentCell]
    weights: Sequence[Weights]  # of the cells: a parametrisation computes them, once
    x: Tensor  # (B, T, D)
    states: Sequence[State | None]  # None: zero
    lengths: Tensor | None
    noises: Sequence[Noise]
    reverse: bool
    dtype: torch.dtype  # the weights' own; under autocast x may have another
    tensors: Sequence[Tensor]  # all of these that there are

    def directions(self) -> Sequence[LayerCall]:
        if len(self.cells) == 1:
            return (self,)
        each = enumerate(zip(self.cells, self.weights, self.states, self.noises, strict=True))
        return [
            self._replace(cells=(c,), weights=(w,), states=(s,), noises=(n,), reverse=self.reverse ^ (d == 1))
            for d, (c, w, s, n) in each
        ]


class Refusal(NamedTuple):
    """Why a backend cannot serve a call.

    reason: its first line names the problem, further lines hold details.
    mendable: a user could do something about it, and is told once that a slower way is taken.
    """

    reason: str
    mendable: bool = False


class Backend(ABC):
    """One way to unroll a cell over time."""

    name: ClassVar[str]
    devices: ClassVar[tuple[str, ...]] = ()  # kinds of devices that it is made for; none: all

    def available(self) -> bool:
        """Could it serve any call on this machine?"""
        return True

    @abstractmethod
    def refusal(self, call: LayerCall) -> Refusal | None:
        """Why this backend cannot serve the call, or None. It only looks: nothing is compiled."""

    @abstractmethod
    def run(self, call: LayerCall) -> Unrolled:
        """Outputs, last outputs and the final state of every direction.

        Raises BackendError where only now it turns out that it cannot serve, since a compiler fails, say.
        """

    def walks(self, x: Tensor) -> bool:
        """Whether it serves ``walk`` for tensors like this."""
        return False

    def walk(
        self, equations: Equations, blocks: Blocks, walk: Walk, tensors: Mapping[str, Tensor | None]
    ) -> list[Tensor]:
        """The shown sequences (N, ·) and the final states (B, ·) of a composed step over all of time."""
        return walk_by_torch(equations, blocks, walk, tensors)

    def streaming(self, call: LayerCall) -> StreamingCell | None:
        """A short way for steps like this one, where x is (B, D), or None; it may raise as ``run`` does."""
        return None


class KernelBackend(Backend):
    """A backend that compiles the equations of a cell for some kinds of devices."""

    def refusal(self, call: LayerCall) -> Refusal | None:
        cell, x = call.cells[0], call.x
        if cell.equations is None:
            return Refusal(f"{type(cell).__name__} is a free-form cell, which runs on the plain loop")
        if x.device.type not in self.devices:
            return Refusal(f"the tensors are on {x.device.type}")
        if not x.dtype.is_floating_point:
            return Refusal(f"the tensors are {x.dtype}")
        reason = extraordinary(*call.tensors)
        return self.obstacle(call) if reason is None else Refusal(reason)

    @abstractmethod
    def obstacle(self, call: LayerCall) -> Refusal | None:
        """What is in the way of plain tensors and pointwise equations on such a device."""


def run_directions(
    call: LayerCall, unroll_one: Callable[[LayerCall, Tensor, State], tuple[Tensor, State]]
) -> Unrolled:
    """One direction after the other, in the precision of the weights, since errors add up over time."""
    x = call.x.to(call.dtype)
    outputs, lasts, finals = [], [], []
    with own_precision(call.x):
        for direction in call.directions():
            cell, start = direction.cells[0], direction.states[0]
            own, final = unroll_one(direction, x, start or cell.initial_state(x.shape[0], x))
            outputs.append(own)
            finals.append(final)
            lasts.append(cell.O(final))
    return Unrolled(side_by_side(outputs), side_by_side(lasts), tuple(finals))


def side_by_side(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), -1)
