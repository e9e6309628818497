"""The plain loop: the definition of the recurrence, in torch, differentiable any number of times."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from elman.errors import EquationError, ShapeError, nearest
from elman.recurrence.backend import Backend, LayerCall, run_directions
from elman.recurrence.contract import NO_NOISE, LoopCell, Noise, Parts, State, Unrolled
from elman.recurrence.heads import count_heads, multiply_by_heads
from elman.tensors.nested import named_tensors
from elman.tensors.rows import fill_padding, length_mask, zero_padding


class LoopBackend(Backend):
    """Any cell on any device, by torch's own operations; it never refuses."""

    name = "loop"

    def refusal(self, call: LayerCall) -> None:
        return None

    def run(self, call: LayerCall) -> Unrolled:
        return run_directions(call, unroll_direction)


def unroll_direction(call: LayerCall, x: Tensor, state: State) -> tuple[Tensor, State]:
    """``s_i = R(s_{i-1}, x_i)``, ``y_i = O(s_i)`` over (B, T, D); the final state comes along.

    The other direction needs no reversal by length: the state simply stays as it is until the row's
    last real step is reached.
    """
    cell, lengths = call.cells[0], call.lengths
    x = x if lengths is None else fill_padding(x, lengths)
    parts, noise = cell.project(x), call.noises[0]
    states, final = unroll_parts(cell, parts, cell.W_h, state, lengths, reverse=call.reverse, noise=noise)
    rows = cell.State(*(field.flatten(0, 1) for field in states))
    return zero_padding(cell.O(rows).unflatten(0, x.shape[:2]), lengths), final


def unroll_parts(
    cell: LoopCell,
    parts: Tensor,
    weight: Tensor | None,
    state: State,
    lengths: Tensor | None,
    *,
    reverse: bool = False,
    noise: Noise = NO_NOISE,
) -> tuple[State, State]:
    """The loop from the input parts (B, T, ·) on: the states of all steps (B, T, …), the final state."""
    T = parts.shape[1]
    product = RecurrentProduct(cell, weight, noise)
    steps = _steps(cell, parts)
    step = cell.at_hand(product.matrices(cell.learned_matrices())).step
    conforms: bool | None = None  # what the first step returns, all return
    masks = length_mask(lengths, T).unbind(1) if lengths is not None else None
    history = [state] * T
    for t in reversed(range(T)) if reverse else range(T):
        new = step(steps[t], state, product)
        if not conforms:
            fitted = _conform(new, state)
            conforms, new = fitted is new, fitted
        if noise.zoneout:
            new = _zone_out(new, state, noise, t)
        if masks is not None:
            real = [masks[t].view(-1, *(1,) * (field.dim() - 1)) for field in new]
            new = cell.State(*map(torch.where, real, new, state))
        state = history[t] = new
    return cell.State(*(torch.stack(field, 1) for field in zip(*history, strict=True))), state


def _steps(cell: LoopCell, parts: Tensor) -> Sequence[Tensor | Parts]:
    """What every step sees of the input: its parts by gate, or itself for a cell without gates."""
    if cell.Inputs is None:
        return list(parts.unbind(1))
    gates = len(cell.Inputs._fields)
    if not gates:
        return [cell.Inputs()] * parts.shape[1]
    by_gate = [part.unbind(1) for part in parts.chunk(gates, -1)]
    return [cell.Inputs._make(step) for step in zip(*by_gate, strict=True)]


def _conform(new: State, old: State) -> State:
    """The new state in the shape and type of the old one: a step may return a number or a vector."""
    for name, value, before in zip(new._fields, new, old, strict=True):
        if type(value) is not Tensor or value.dtype != before.dtype or value.shape != before.shape:
            value = torch.as_tensor(value, dtype=before.dtype, device=before.device)
            try:
                new = new._replace(**{name: value.expand_as(before)})
            except RuntimeError:
                raise ShapeError(
                    f"step gives state {name!r} the shape {tuple(value.shape)}, not {tuple(before.shape)}"
                ) from None
    return new


def _zone_out(new: State, old: State, noise: Noise, t: int) -> State:
    for name, keep in noise.zoneout.items():
        a, b = getattr(old, name), getattr(new, name)
        kept = a.where(keep[:, t], b) if isinstance(keep, Tensor) else keep * a + (1 - keep) * b
        new = new._replace(**{name: kept})
    return new


class RecurrentProduct:
    """``h W^h`` by gate, with weight drop and variational dropout where the noise holds them."""

    def __init__(self, cell: LoopCell, weight: Tensor | None, noise: Noise) -> None:
        self._make, self._mask, self._dropped = cell.Products._make, noise.mask, noise.matrices
        self._weight = noise.weight if noise.weight is not None else weight
        self._count = len(cell.Products._fields)
        blocks = () if self._weight is None else self._weight.chunk(self._count, -1)
        self._blocks = dict(zip(cell.Products._fields, blocks, strict=True))

    def __call__(self, h: Tensor, gate: str | None = None, *, plus: Tensor | None = None) -> Any:
        if gate is None:
            return self._make(self.joined(h).chunk(self._count, -1) if self._blocks else ())
        if self._mask is not None:
            h = h * self._mask
        block = self._blocks[gate]
        if plus is not None and count_heads(block) == 1:
            return torch.addmm(plus, h, block)
        found = multiply_by_heads(h, block)
        return found if plus is None else plus + found

    def matrices(self, own: Mapping[str, Tensor]) -> dict[str, Callable[[Tensor], Tensor]]:
        """By name, what multiplies a value by one of the cell's matrices."""
        return {name: partial(self._multiply, self._dropped.get(name, own[name])) for name in own}

    def _multiply(self, matrix: Tensor, value: Tensor) -> Tensor:
        return multiply_by_heads(value if self._mask is None else value * self._mask, matrix)

    def joined(self, h: Tensor) -> Tensor:
        assert self._weight is not None
        return multiply_by_heads(h if self._mask is None else h * self._mask, self._weight, self._count)


class RehearsedProduct:
    """A product of zeros that notes which gates were asked for."""

    def __init__(self, gates: tuple[str, ...], zero: Tensor) -> None:
        self.gates, self.zero = gates, zero
        self.asked: set[str] = set()

    def __call__(self, h: Tensor, gate: str | None = None, *, plus: Tensor | None = None) -> Any:
        if gate is not None and gate not in self.gates:
            raise EquationError(f"product(…, {gate!r}): no such gate; {nearest(gate, self.gates)}")
        self.asked.update(self.gates if gate is None else (gate,))
        return named_tensors("h", self.gates)(*[self.zero] * len(self.gates)) if gate is None else self.zero

    def joined(self, h: Tensor) -> Tensor:
        self.asked.update(self.gates)
        return self.zero.repeat(1, len(self.gates))
