"""The two sides of a case, ready to run on the same numbers, and how far their results lie apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elman.layers.rnn import RNN

Values = dict[str, Tensor]


class Side(Protocol):
    """A network that can be run on a batch; sequences and states are laid out as it likes them."""

    states: tuple[str, ...]

    def parameters(self) -> dict[str, Tensor]: ...
    def native(self, state: Tensor) -> Tensor:
        """(B, H) in the shape that this side takes."""

    def turned(self, sequence: Tensor) -> Tensor:
        """(B, T, ·) as this side takes and gives it; turned again, it is as before."""

    def walk(self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
        """Outputs and the final state, if it was given one to start from; else outputs alone."""

    def translate(self, gradients: Values) -> Values:
        """Gradients of its parameters under Elman's names and in Elman's order."""


class Ours:
    """A state may be given where there is one layer in one direction."""

    def __init__(self, rnn: RNN) -> None:
        self.rnn, self.states = rnn, rnn.cell_class.state
        self.cell: Any = rnn._all_cells()[0]

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.rnn.named_parameters())

    def native(self, state: Tensor) -> Tensor:
        return state

    def turned(self, sequence: Tensor) -> Tensor:
        return sequence

    def walk(self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
        result = self.rnn(x, lengths, (state,) if state else None)
        return result.outputs, *(result.state[0] if state else ())

    def translate(self, gradients: Values) -> Values:
        return gradients


class Torch:
    """A module of torch; lengths are packed, by torch itself."""

    def __init__(self, module: Any, order: list[int] | None = None, *, in_order: bool = False) -> None:
        """
        Args:
            order: where each of our gates lies among those of torch, if not in the same place.
            in_order: rows come with the longest first, as packing likes it.
        """
        self.module, self.order, self.in_order = module, order, in_order
        self.states: tuple[str, ...] = ("h", "c") if module.mode == "LSTM" else ("h",)

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.module.named_parameters())

    def native(self, state: Tensor) -> Tensor:
        return state[None].clone()

    def turned(self, sequence: Tensor) -> Tensor:
        return sequence if self.module.batch_first else sequence.transpose(0, 1).contiguous()

    def walk(self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
        given: Any = x
        batch_first = self.module.batch_first
        if lengths is not None:
            given = pack_padded_sequence(x, lengths, batch_first, enforce_sorted=self.in_order)
        outputs, final = self.module(given, (state if len(state) > 1 else state[0]) if state else None)
        if lengths is not None:
            T = x.shape[1 if batch_first else 0]
            outputs, _ = pad_packed_sequence(outputs, batch_first, total_length=T)
        if not state:
            return (outputs,)
        return outputs, *(final if len(state) > 1 else (final,))

    def translate(self, gradients: Values) -> Values:
        found: Values = {}
        for layer in range(self.module.num_layers):
            for direction in range(2 if self.module.bidirectional else 1):
                W_x, W_h, b, b_h = (
                    self._ordered(gradients[f"{name}_l{layer}{'_reverse' if direction else ''}"])
                    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                )
                own = {"W_x": W_x.t(), "W_h": W_h.t(), "b": b}
                if self.module.mode == "GRU":
                    own["m"] = b_h.chunk(3)[2]
                found |= {f"cells.{layer}.{direction}.{name}": t for name, t in own.items()}
        return found

    def _ordered(self, gates: Tensor) -> Tensor:
        if self.order is None:
            return gates
        blocks = gates.chunk(len(self.order))
        return torch.cat([blocks[place] for place in self.order])


@dataclass(frozen=True)
class Inputs:
    """The numbers that both sides get: a batch, the gradients that arrive, and a start; none: zero."""

    x: Tensor
    lengths: Tensor | None
    d_outputs: Tensor
    state: Mapping[str, Tensor] = field(default_factory=dict)
    d_state: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def real_steps(self) -> int:
        return self.x.shape[0] * self.x.shape[1] if self.lengths is None else int(self.lengths.sum())

    def rows(self, which: slice | list[int]) -> Inputs:
        return self._map(lambda t: t[which])

    def to(self, dtype: torch.dtype, device: str | None = None) -> Inputs:
        """Numbers of this type on this device (None: where they are); lengths stay on the CPU."""
        return self._map(lambda t: t.to(device or t.device, dtype) if t.is_floating_point() else t)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        return Inputs(
            change(self.x),
            None if self.lengths is None else change(self.lengths),
            change(self.d_outputs),
            {name: change(t) for name, t in self.state.items()},
            {name: change(t) for name, t in self.d_state.items()},
        )


class Run:
    """One side on one batch; calling it runs it once, forward or forward and backward."""

    def __init__(self, side: Side, inputs: Inputs, *, training: bool) -> None:
        self.side, self.training, self.lengths = side, training, inputs.lengths
        self.names = tuple(name for name in side.states if name in inputs.state)
        self.x = side.turned(inputs.x).clone().requires_grad_(training)
        self.state = tuple(side.native(inputs.state[n]).requires_grad_(training) for n in self.names)
        self.parameters = side.parameters()
        self.leaves = (self.x, *self.state, *self.parameters.values())
        d_state = (side.native(inputs.d_state[name]) for name in self.names)
        self.arriving = (side.turned(inputs.d_outputs), *d_state)

    def __call__(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        if not self.training:
            with torch.inference_mode():
                return self.forward(), ()
        results = self.forward()
        # A state that no equation reads has the gradient zero: SRU's h.
        return results, torch.autograd.grad(results, self.leaves, self.arriving, materialize_grads=True)

    def forward(self) -> tuple[Tensor, ...]:
        return self.side.walk(self.x, self.state, self.lengths)

    def values(self) -> Values:
        """Everything that a run computes, under Elman's names and in its shapes."""
        (outputs, *final), gradients = self()
        found = {"outputs": self.side.turned(outputs)}
        found |= {name: self._flat(t) for name, t in zip(self.names, final, strict=True)}
        if gradients:
            count = 1 + len(self.names)
            d_x, *d_state = gradients[:count]
            found["d_x"] = self.side.turned(d_x)
            found |= {f"d_{name}": self._flat(t) for name, t in zip(self.names, d_state, strict=True)}
            own = dict(zip(self.parameters, gradients[count:], strict=True))
            found |= {f"d_{name}": t for name, t in self.side.translate(own).items()}
        return {name: t.detach() for name, t in found.items()}

    @staticmethod
    def _flat(state: Tensor) -> Tensor:
        """(B, H), whatever this side makes of it."""
        return state.reshape(-1, state.shape[-1])


def worst_error(found: Values, expected: Values) -> float:
    """The largest ‖a−b‖ / (‖b‖+1) over all tensors; what is not a number is infinitely far.

    >>> worst_error({"y": torch.tensor([3.0])}, {"y": torch.tensor([1.0])})
    1.0
    """
    assert found.keys() == expected.keys(), f"{sorted(found)} against {sorted(expected)}"

    def errors() -> Iterator[float]:
        for name, b in expected.items():
            a, b = found[name].double(), b.double()
            error = float((a - b).norm() / (b.norm() + 1))
            yield math.inf if math.isnan(error) else error

    return max(errors())


class Errors(NamedTuple):
    """Worst errors: ours against the peer (None where that computes something else) and against the
    float64 loop, and the peer's own against that."""

    peer: float | None
    float64: float
    peer_float64: float | None


def reference(ours: Ours) -> Ours:
    """The same network as the definition has it: the plain loop in float64."""
    rnn = deepcopy(ours.rnn).double()
    rnn.backend = "loop"
    return Ours(rnn)
