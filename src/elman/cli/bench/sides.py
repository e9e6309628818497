"""The two sides of a case, ready to run on the same numbers, and how far their results lie apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elman.cells.base import Cell
from elman.cells.elman import Elman
from elman.cells.gru import GRU
from elman.cells.layer_norm_lstm import LayerNormLSTM
from elman.cells.lstm import LSTM
from elman.cells.mgu_original import OriginalMGU
from elman.cells.sru import SRU
from elman.cli.bench.cases import Case
from elman.cli.bench.cells import LOOPS, LSTM_NAMES, UserFourGates, UserLSTM
from elman.layers.rnn import RNN

OURS: dict[str, type[Cell]] = {
    "LSTM": LSTM,
    "GRU": GRU,
    "Elman": Elman,
    "SRU": SRU,
    "layer-norm LSTM": LayerNormLSTM,
    "original MGU": OriginalMGU,
    "user's LSTM": UserLSTM,
    "user's four gates": UserFourGates,
}
PEERS: dict[str, Any] = {
    "nn.LSTM": nn.LSTM,
    "nn.GRU": nn.GRU,
    "nn.RNN": nn.RNN,
    "packed nn.LSTM": nn.LSTM,
}
REFERENCE_NUMBERS = 1 << 20  # B·T·H of the float64 loop; a larger case is compared on its first rows

Values = dict[str, Tensor]


class Side(Protocol):
    """A network that can be run on a batch; states are as it likes them, inputs are batch-first."""

    states: tuple[str, ...]

    def parameters(self) -> dict[str, Tensor]: ...
    def native(self, state: Tensor) -> Tensor:
        """(B, H) in the shape that this side takes."""

    def walk(self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
        """Outputs (B, T, H) and the final state."""

    def translate(self, gradients: Values) -> Values:
        """Gradients of its parameters under Elman's names and in Elman's order."""


class Ours:
    def __init__(self, rnn: RNN) -> None:
        self.rnn, self.states = rnn, rnn.cell_class.state
        self.cell: Any = rnn._all_cells()[0]

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.cell.named_parameters())

    def native(self, state: Tensor) -> Tensor:
        return state

    def walk(self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
        result = self.rnn(x, lengths, (state,))
        return result.outputs, *result.state[0]

    def translate(self, gradients: Values) -> Values:
        return gradients


class PlainLoop:
    """A copy of the cell's weights, walked by a loop of ``cells.py``."""

    def __init__(self, ours: Ours) -> None:
        self.cell, self.states = deepcopy(ours.cell), ours.states
        self.loop = LOOPS[type(self.cell)]

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.cell.named_parameters())

    def native(self, state: Tensor) -> Tensor:
        return state

    def walk(self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
        assert lengths is None
        return self.loop(self.cell, x, state)

    def translate(self, gradients: Values) -> Values:
        return gradients


class Torch:
    """A module of torch; lengths are packed, by torch itself and without sorting beforehand."""

    def __init__(self, module: Any, order: list[int] | None = None) -> None:
        """``order``: where each of our gates lies among those of torch, if not in the same place."""
        self.module, self.order = module, order
        self.states: tuple[str, ...] = ("h", "c") if module.mode == "LSTM" else ("h",)

    def parameters(self) -> dict[str, Tensor]:
        return dict(self.module.named_parameters())

    def native(self, state: Tensor) -> Tensor:
        return state[None].clone()

    def walk(self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None) -> tuple[Tensor, ...]:
        given: Any = x
        if lengths is not None:
            given = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, final = self.module(given, state if len(state) > 1 else state[0])
        if lengths is not None:
            outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
        return outputs, *(final if len(state) > 1 else (final,))

    def translate(self, gradients: Values) -> Values:
        W_x, W_h, b, b_h = (
            self._ordered(gradients[f"{name}_l0"])
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        found = {"W_x": W_x.t(), "W_h": W_h.t(), "b": b}
        return {**found, "m": b_h.chunk(3)[2]} if self.module.mode == "GRU" else found

    def _ordered(self, gates: Tensor) -> Tensor:
        if self.order is None:
            return gates
        blocks = gates.chunk(len(self.order))
        return torch.cat([blocks[place] for place in self.order])


@dataclass(frozen=True)
class Inputs:
    """The numbers that both sides get: a batch, its start, and the gradients that arrive."""

    x: Tensor
    state: Mapping[str, Tensor]
    lengths: Tensor | None
    d_outputs: Tensor
    d_state: Mapping[str, Tensor]

    @staticmethod
    def draw(case: Case) -> Inputs:
        B, T, D, H = case.B, case.T, case.D, case.H
        lengths = None
        if case.padding:
            shortest = max(1, round((1 - 2 * case.padding) * T))  # evenly spread up to T
            lengths = torch.linspace(shortest, T, B).round().long()[torch.randperm(B)]
        draw = {name: torch.randn(B, H) for name in ("h", "c", "d_h", "d_c")}
        return Inputs(
            torch.randn(B, T, D),
            {name: 0.5 * draw[name] for name in ("h", "c")},
            lengths,
            torch.randn(B, T, H),
            {name: draw[f"d_{name}"] for name in ("h", "c")},
        )

    @property
    def real_steps(self) -> int:
        return self.x.shape[0] * self.x.shape[1] if self.lengths is None else int(self.lengths.sum())

    def first_rows(self, rows: int) -> Inputs:
        return self._map(lambda t: t[:rows])

    def double(self) -> Inputs:
        return self._map(lambda t: t.double() if t.is_floating_point() else t)

    def _map(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        return Inputs(
            change(self.x),
            {name: change(t) for name, t in self.state.items()},
            None if self.lengths is None else change(self.lengths),
            change(self.d_outputs),
            {name: change(t) for name, t in self.d_state.items()},
        )


class Run:
    """One side on one batch; calling it runs it once, forward or forward and backward."""

    def __init__(self, side: Side, inputs: Inputs, *, training: bool) -> None:
        self.side, self.training, self.lengths = side, training, inputs.lengths
        self.shape = inputs.d_state["h"].shape
        self.x = inputs.x.clone().requires_grad_(training)
        self.state = tuple(side.native(inputs.state[n]).requires_grad_(training) for n in side.states)
        self.parameters = side.parameters()
        self.leaves = (self.x, *self.state, *self.parameters.values())
        self.arriving = (inputs.d_outputs, *(side.native(inputs.d_state[name]) for name in side.states))

    def __call__(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        if not self.training:
            with torch.inference_mode():
                return self.side.walk(self.x, self.state, self.lengths), ()
        results = self.side.walk(self.x, self.state, self.lengths)
        # A state that no equation reads has the gradient zero: SRU's h.
        return results, torch.autograd.grad(results, self.leaves, self.arriving, materialize_grads=True)

    def values(self) -> Values:
        """Everything that a run computes, under Elman's names and in its shapes."""
        (outputs, *final), gradients = self()
        names = self.side.states
        found = {"outputs": outputs} | {
            name: t.reshape(self.shape) for name, t in zip(names, final, strict=True)
        }
        if gradients:
            d_x, *d_state = gradients[: 1 + len(names)]
            found["d_x"] = d_x
            found |= {f"d_{name}": t.reshape(self.shape) for name, t in zip(names, d_state, strict=True)}
            own = dict(zip(self.parameters, gradients[1 + len(names) :], strict=True))
            found |= {f"d_{name}": t for name, t in self.side.translate(own).items()}
        return {name: t.detach() for name, t in found.items()}


def worst_error(found: Values, expected: Values) -> float:
    """The largest ‖a−b‖ / (‖b‖+1) over all tensors.

    >>> worst_error({"y": torch.tensor([3.0])}, {"y": torch.tensor([1.0])})
    1.0
    """
    assert found.keys() == expected.keys(), f"{sorted(found)} against {sorted(expected)}"

    def errors() -> Iterator[float]:
        for name, b in expected.items():
            a, b = found[name].double(), b.double()
            yield float((a - b).norm() / (b.norm() + 1))

    return max(errors())


def build(case: Case) -> tuple[Ours, Side, bool]:
    """Both sides, and whether they compute the same function (then with the same weights)."""
    kind = OURS[case.ours]
    if case.peer == "Python loop":
        ours = Ours(_shaken(RNN(kind, case.D, case.H)))
        return ours, PlainLoop(ours), True
    module = PEERS[case.peer or ""](case.D, case.H, batch_first=True)
    same = kind is UserLSTM or kind.__name__ == {"RNN": "Elman"}.get(module._get_name(), module._get_name())
    if not same:
        return Ours(_shaken(RNN(kind, case.D, case.H))), Torch(module), False
    if kind is not UserLSTM:
        return Ours(RNN.from_torch(module)), Torch(module), True
    order = [LSTM.gates.index(LSTM_NAMES[gate]) for gate in UserLSTM.gates]
    return Ours(_renamed(RNN.from_torch(module))), Torch(module, order), True


class Errors(NamedTuple):
    """Worst errors: ours against the peer (None where that computes something else) and against the
    float64 loop, and the peer's own against that."""

    peer: float | None
    float64: float
    peer_float64: float | None


def compare(case: Case, ours: Ours, peer: Side | None, inputs: Inputs) -> Errors:
    """Run everything once on the same numbers; the float64 loop on as many rows as it can bear."""
    part = inputs.first_rows(max(1, min(case.B, REFERENCE_NUMBERS // (case.T * case.H))))

    def values(side: Side, inputs: Inputs) -> Values:
        return Run(side, inputs, training=case.mode == "training").values()

    expected = values(reference(ours), part.double())
    exact = worst_error(values(ours, part), expected)
    if peer is None:
        return Errors(None, exact, None)
    beside = worst_error(values(ours, inputs), values(peer, inputs))
    return Errors(beside, exact, worst_error(values(peer, part), expected))


def reference(ours: Ours) -> Ours:
    """The same network as the definition has it: the plain loop in float64."""
    rnn = deepcopy(ours.rnn).double()
    rnn.backend = "loop"
    return Ours(rnn)


def _shaken(rnn: RNN) -> RNN:
    """Fresh weights with some noise, so that no bias, gain or peephole is a plain 0 or 1.

    Gains of layer normalisation are made small: with 1 the network is chaotic, and the rounding of
    float32 grows a thousandfold in 100 steps, whoever computes it.
    """
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            if "gain" in name:
                parameter.mul_(0.3)
            parameter.add_(0.1 * torch.randn_like(parameter) * parameter.shape[0] ** -0.5)
    return rnn


def _renamed(rnn: RNN) -> RNN:
    """A network of the user's cell with the weights of an LSTM."""
    lstm = rnn._all_cells()[0]
    user = RNN(UserLSTM, rnn.input_size, rnn.hidden_sizes[0])
    cell = user._all_cells()[0]
    for gate, name in LSTM_NAMES.items():
        for weights in ("W_x", "W_h", "b"):
            cell.block(weights, gate).copy_(lstm.block(weights, name))
    return user
