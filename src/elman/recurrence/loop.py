"""The plain loop: the definition of the recurrence, in torch, differentiable any number of times."""

from typing import Any

import torch
from torch import Tensor

from elman.errors import ShapeError
from elman.recurrence.contract import SILENCE, Noise, Steps, Walkable
from elman.tensors.rows import fill_padding, length_mask


def walk(
    cell: Walkable, x: Tensor, state: Any, lengths: Tensor | None, *, reverse: bool, noise: Noise
) -> tuple[Tensor, Any]:
    """``s_i = R(s_{i-1}, x_i)``, ``y_i = O(s_i)`` over (B, T, D); the final state comes along.

    Walking backwards needs no reversal by length: the state simply stays as it is until the row's
    last real step is reached.
    """
    B, T = x.shape[:2]
    mask = length_mask(lengths, T)[..., None] if lengths is not None else None
    if lengths is not None:
        x = fill_padding(x, lengths)
    states, final = walk_parts(cell, cell.project(x), cell.W_h, state, lengths, reverse=reverse, noise=noise)
    rows = cell.State(*(field.flatten(0, 1) for field in states))
    outputs = cell.O(rows).unflatten(0, (B, T))
    if mask is not None:
        outputs = outputs.where(mask, outputs.new_zeros(()))
    return outputs, final


def walk_parts(
    cell: Steps,
    parts: Tensor,
    weight: Tensor | None,
    state: Any,
    lengths: Tensor | None,
    *,
    reverse: bool = False,
    noise: Noise = SILENCE,
) -> tuple[Any, Any]:
    """The loop from the input parts (B, T, ·) on: the states of all steps (B, T, …), the final state."""
    T = parts.shape[1]
    product = RecurrentProduct(cell, weight, noise)
    steps = _steps(cell, parts)
    step = cell.at_hand().step
    conforms: bool | None = None  # what the first step returns, all return
    masks = length_mask(lengths, T).unbind(1) if lengths is not None else None
    history: list[Any] = [None] * T
    for t in reversed(range(T)) if reverse else range(T):
        new = step(steps[t], state, product)
        if not conforms:
            fitted = _conform(new, state)
            conforms, new = fitted is new, fitted
        if noise.zoneout:
            new = _zone_out(new, state, noise, t)
        if masks is not None:
            new = cell.State(*(_where(masks[t], a, b) for a, b in zip(new, state, strict=True)))
        state = history[t] = new
    return cell.State(*(torch.stack(field, 1) for field in zip(*history, strict=True))), state


def _steps(cell: Steps, parts: Tensor) -> list[Any]:
    """What every step sees of the input: its parts by gate, or itself for a cell without gates."""
    if cell.Inputs is None:
        return list(parts.unbind(1))
    gates = len(cell.Inputs._fields)
    if not gates:
        return [cell.Inputs()] * parts.shape[1]
    by_gate = [part.unbind(1) for part in parts.chunk(gates, -1)]
    return [cell.Inputs._make(step) for step in zip(*by_gate, strict=True)]


def _conform(new: Any, old: Any) -> Any:
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


def _zone_out(new: Any, old: Any, noise: Noise, t: int) -> Any:
    for name, keep in noise.zoneout.items():
        before, fresh = getattr(old, name), getattr(new, name)
        kept = (
            keep * before + (1 - keep) * fresh if isinstance(keep, float) else before.where(keep[:, t], fresh)
        )
        new = new._replace(**{name: kept})
    return new


class RecurrentProduct:
    """``h W^h`` by gate, with weight drop and variational dropout where the noise holds them."""

    def __init__(self, cell: Steps, weight: Tensor | None, noise: Noise) -> None:
        self._make, self._mask = cell.Products._make, noise.mask
        self._weight = noise.weight if noise.weight is not None else weight
        self._count = len(cell.Products._fields)
        blocks = () if self._weight is None else self._weight.chunk(self._count, -1)
        self._blocks = dict(zip(cell.Products._fields, blocks, strict=True))

    def __call__(self, h: Tensor, gate: str | None = None, *, plus: Tensor | None = None) -> Any:
        if gate is None:
            return self._make(self.joined(h).chunk(self._count, -1) if self._blocks else ())
        if self._mask is not None:
            h = h * self._mask
        return h @ self._blocks[gate] if plus is None else torch.addmm(plus, h, self._blocks[gate])

    def joined(self, h: Tensor) -> Tensor:
        assert self._weight is not None
        return (h if self._mask is None else h * self._mask) @ self._weight


def _where(mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return new.where(mask.view(-1, *(1,) * (new.dim() - 1)), old)
