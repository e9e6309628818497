"""A very long sequence, read in pieces with the state carried on: the same function in less memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from elman.recurrence.contract import Noise, RecurrentCell, State, Unrolled
from elman.recurrence.unroll import unroll_layer


def unroll_in_pieces(
    cells: Sequence[RecurrentCell],
    x: Tensor,
    states: Sequence[State | None],
    *,
    noises: Sequence[Noise],
    backend: str,
    piece: int,
) -> Unrolled:
    """What ``unroll_layer`` gives for x (B, T, D) without padding; so many steps are in memory at a time.

    The second direction goes through the pieces from the last to the first. Where gradients are wanted, a
    piece is computed again for them, and all that stays of it are its outputs and the state before it.
    """
    results = []
    for d, (cell, state, noise) in enumerate(zip(cells, states, noises, strict=True)):
        results.append(_direction(cell, x, state, noise, backend, piece, reverse=d == 1))
    outputs, lasts, finals = zip(*results, strict=True)
    one = len(cells) == 1
    return Unrolled(outputs[0] if one else torch.cat(outputs, -1), torch.cat(lasts, -1), finals)


def _direction(
    cell: RecurrentCell,
    x: Tensor,
    state: State | None,
    noise: Noise,
    backend: str,
    piece: int,
    *,
    reverse: bool,
) -> tuple[Tensor, Tensor, Any]:
    starts = range(0, x.shape[1], piece)
    outputs: dict[int, Tensor] = {}
    last = x[:, 0]
    for start in reversed(starts) if reverse else starts:
        place = slice(start, start + piece)
        read = partial(_read, cell, noise=_part(noise, place), backend=backend, reverse=reverse)
        outputs[start], last, state = _kept(read, x[:, place], state)
    return torch.cat([outputs[start] for start in starts], 1), last, state


def _read(
    cell: RecurrentCell, x: Tensor, state: State | None, *, noise: Noise, backend: str, reverse: bool
) -> tuple[Tensor, Tensor, Any]:
    outputs, last, [final] = unroll_layer(
        [cell], x, [state], noises=[noise], backend=backend, reverse=reverse, checked=True
    )
    return outputs, last, final


def _kept(read: Callable[..., Any], x: Tensor, state: State | None) -> Any:
    """A piece; its inside is forgotten and computed again where gradients come back."""
    if not torch.is_grad_enabled():
        return read(x, state)
    return checkpoint(read, x, state, use_reentrant=False, preserve_rng_state=False)


def _part(noise: Noise, place: slice) -> Noise:
    """The noise of some steps; what is drawn once for a sequence stays as it is."""
    drawn = {name: z[:, place] if isinstance(z, Tensor) else z for name, z in noise.zoneout.items()}
    return replace(noise, zoneout=drawn)
