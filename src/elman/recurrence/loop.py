"""The plain loop: the definition of the recurrence, in torch, differentiable any number of times."""

from typing import Any

import torch
from torch import Tensor

from elman.recurrence.contract import SILENCE, Noise, Product, Walkable
from elman.tensors.rows import length_mask


def walk(
    cell: Walkable, x: Tensor, state: Any, lengths: Tensor | None, *, reverse: bool, noise: Noise
) -> tuple[Tensor, Any]:
    """``s_i = R(s_{i-1}, x_i)``, ``y_i = O(s_i)`` over (B, T, D); the final state comes along.

    Walking backwards needs no reversal by length: the state simply stays as it is until the row's
    last real step is reached.
    """
    states, final = walk_parts(cell, cell.project(x), cell.W_h, state, lengths, reverse=reverse, noise=noise)
    B, T = x.shape[:2]
    rows = cell.State(*(field.flatten(0, 1) for field in states))
    outputs = cell.O(rows).unflatten(0, (B, T))
    if lengths is not None:
        outputs = outputs.where(length_mask(lengths, T)[..., None], outputs.new_zeros(()))
    return outputs, final


def walk_parts(
    cell: Walkable,
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
    steps = parts.unbind(1)
    masks = length_mask(lengths, T).unbind(1) if lengths is not None else None
    history: list[Any] = [None] * T
    for t in reversed(range(T)) if reverse else range(T):
        new = _step(cell, steps[t], state, product, noise, t)
        if masks is not None:
            new = cell.State(*(_where(masks[t], a, b) for a, b in zip(new, state, strict=True)))
        state = history[t] = new
    return cell.State(*(torch.stack(field, 1) for field in zip(*history, strict=True))), state


def _step(cell: Walkable, x: Tensor, state: Any, product: Product, noise: Noise, t: int) -> Any:
    """One step from the input parts (B, ·) of that step."""
    parts: Any = x
    if cell.Inputs is not None:
        parts = cell.Inputs._make(x.split(cell.hidden_size, -1) if x.shape[-1] else ())
    new = cell.step(parts, state, product)
    for name, keep in noise.zoneout.items():
        old, fresh = getattr(state, name), getattr(new, name)
        kept = keep * old + (1 - keep) * fresh if isinstance(keep, float) else old.where(keep[:, t], fresh)
        new = new._replace(**{name: kept})
    return new


class RecurrentProduct:
    """``h W^h`` by gate, with weight drop and variational dropout where the noise holds them."""

    def __init__(self, cell: Walkable, weight: Tensor | None, noise: Noise) -> None:
        self._names, self._width, self._mask = cell.Products, cell.hidden_size, noise.mask
        self._weight = noise.weight if noise.weight is not None else weight

    def __call__(self, h: Tensor, gate: str | None = None) -> Any:
        if self._weight is None:
            return self._names()
        if gate is None:
            return self._names._make(self.joined(h).split(self._width, -1))
        blocks = self._weight.split(self._width, -1)
        return self._masked(h) @ blocks[self._names._fields.index(gate)]

    def joined(self, h: Tensor) -> Tensor:
        assert self._weight is not None
        return self._masked(h) @ self._weight

    def _masked(self, h: Tensor) -> Tensor:
        return h if self._mask is None else h * self._mask


def _where(mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return new.where(mask.view(-1, *(1,) * (new.dim() - 1)), old)
