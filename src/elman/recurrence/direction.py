"""What one direction of a layer reads besides its input: gathered, checked, and replayed by the loop."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elman.errors import ShapeError
from elman.recurrence.contract import Noise, RecurrentCell, State, Weights
from elman.recurrence.heads import whole_matrix
from elman.recurrence.loop import unroll_parts
from elman.recurrence.replay import Replay
from elman.recurrence.trace import Arrivals, Equations
from elman.tensors.rows import fill_padding


class DirectionTensors(NamedTuple):
    """Tensors of one direction; ``flat`` has them in the order in which the operations take them.

    Without ``W_x`` the input is the input parts themselves: the cell has a projection of its own.
    """

    W_x: Tensor | None
    b: Tensor | None
    W_h: Tensor | None
    mask: Tensor | None
    noise: tuple[Tensor, ...]
    vectors: tuple[Tensor, ...]
    matrices: tuple[Tensor, ...]
    initial: tuple[Tensor, ...]  # none: zero

    def flat(self) -> tuple[Tensor | None, ...]:
        return (
            self.W_x,
            self.b,
            self.W_h,
            self.mask,
            *self.noise,
            *self.vectors,
            *self.matrices,
            *self.initial,
        )

    @staticmethod
    def of(equations: Equations, flat: Sequence[Tensor | None]) -> "DirectionTensors":
        """The inverse of ``flat``."""
        W_x, b, W_h, mask, *rest = flat
        given = tuple(tensor for tensor in rest if tensor is not None)
        first = len(equations.noise)
        second = first + len(equations.vectors)
        third = second + len(equations.matrices)
        learned = given[first:second], given[second:third]
        return DirectionTensors(W_x, b, W_h, mask, given[:first], *learned, given[third:])

    @staticmethod
    def gather(
        cell: RecurrentCell,
        weights: Weights,
        state: State | None,
        noise: Noise,
        drawn: Sequence[Tensor],
        *,
        whole: bool,
    ) -> list[Tensor | None]:
        """The tensors of a cell under this noise, flat; ``drawn`` are its masks of zoneout.

        ``whole``: matrices of several heads as they would be without, with zeros between the heads.
        """
        W_x, b, W_h, others = weights
        if noise.matrices:
            others = (*others[: -len(noise.matrices)], *noise.matrices.values())
        if cell.projects_itself:
            W_x = b = None
        W_h = W_h if noise.weight is None else noise.weight
        if whole and cell.heads > 1:
            count = len(cell.learned_matrices())
            others = (*others[: len(others) - count], *map(whole_matrix, others[len(others) - count :]))
            W_h = None if W_h is None else whole_matrix(W_h, len(cell.Products._fields))
        return [W_x, b, W_h, noise.mask, *drawn, *others, *(state or ())]

    def expected(
        self, equations: Equations, B: int, steps: tuple[int, ...], D: int, H: int, heads: int = 1
    ) -> list[tuple[str, Tensor, tuple[int, ...]]]:
        """The tensors that there are, with their names and the shapes that the equations need.

        ``steps`` is the shape of all steps, (N,) or (B, T). A missing weight is an error.
        """
        e = equations
        wide, deep = len(e.inputs) * H, len(e.products) * H // heads
        if (self.W_h is None) != (deep == 0):
            raise ShapeError("W_h is missing, though the equations read recurrent parts")
        names = ["W_x", "b", "W_h", "noise.mask", *["noise.zoneout"] * len(e.noise), *e.vectors, *e.matrices]
        names += [f"state.{name}" for name in e.states if self.initial]
        shapes: list[tuple[int, ...]] = [(D, wide), (wide,), (H, deep), (B, H)]
        shapes += [(*steps, H)] * len(e.noise) + [(H,)] * len(e.vectors) + [(H, H)] * len(e.matrices)
        shapes += [(B, H)] * len(self.initial)
        each = zip(names, self.flat(), shapes, strict=True)
        return [(name, tensor, shape) for name, tensor, shape in each if tensor is not None]


def replay(
    cell: RecurrentCell,
    equations: Equations,
    parts: Tensor,
    tensors: DirectionTensors,
    initial: Sequence[Tensor],
    zoneout: Mapping[str, Tensor | float],
    lengths: Tensor | None,
    reverse: bool,
) -> tuple[State, State]:
    """What kernels compute from the input parts (B, T, ·), by the loop: the equations as they were read."""
    steps, start = Replay(cell, equations, tensors.vectors, tensors.matrices), cell.State(*initial)
    parts = parts if lengths is None else fill_padding(parts, lengths)
    noise = Noise(mask=tensors.mask, zoneout=zoneout)
    return unroll_parts(steps, parts, tensors.W_h, start, lengths, reverse=reverse, noise=noise)


def steps_after(T: int, B: int, lengths: Tensor | None, reverse: bool, device: torch.device) -> Tensor:
    """(B, T): how many steps of its row are taken after this one; at padding it may be negative."""
    t = torch.arange(T, device=device).expand(B, T)
    last = T - 1 if lengths is None else lengths[:, None] - 1
    return t if reverse else last - t


def arrivals_of(gradients: Sequence[Tensor | None], shown: int, states: int) -> Arrivals | None:
    """Which states get a gradient, from those of the shown sequences and of each direction's final state.

    None where that is not the same in both directions.
    """
    there = [gradient is not None for gradient in gradients]
    always = (*there[:shown], *(False,) * (states - shown))
    lasts = {tuple(there[first : first + states]) for first in range(shown, len(there), states)}
    return Arrivals(always, lasts.pop()) if len(lasts) == 1 else None
