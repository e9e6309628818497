"""Which inputs an answer is owed to: integrated gradients, and what happens where a token is taken away."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.inspection.observation import Observation
from elman.inspection.writing_passages import LmPassage

Array = NDArray[np.float64]
POINTS = 8  # on a piece of the way from zeros to the input
MOST_POINTS = 256  # on all pieces together
CLOSE = 0.01  # share of the difference that the influences may miss
POSITIONS = 8192  # vectors that go through the model at once
ROWS = 40  # times that a part of the text is taken away; of a longer text, several tokens together


@dataclass(frozen=True, eq=False)
class Influence:
    """What the log-probability of the answer owes to each input token.

    of: the answer, in words. attributions: (S,) integrated gradients (Sundararajan et al. 2017) from vectors
    of zeros. difference: log p of the answer, less that of zeros; the attributions should sum to it, and
    ``error`` is by how much they miss it, ``points`` with so many points. occlusion: (T, S) how much less
    probable (in nats) each output is where the vector of a token is zeros; ``together`` so many tokens at a
    time.
    """

    of: str
    tokens: list[str]
    outputs: list[str]
    attributions: Array
    difference: float
    error: float
    points: int
    occlusion: Array
    together: int


def influence(seen: Observation) -> Influence:
    passage = seen.passage
    first = passage.prompt if isinstance(passage, LmPassage) else 0
    words = passage.outputs[first:]
    given = "what was given" if passage.given else "the answer"
    parts, difference, points = _integrated(seen, first)
    error = float(parts.sum()) - difference
    return Influence(
        f"log p of {given}, {' '.join(words)}",
        passage.inputs,
        passage.outputs,
        parts.cpu().numpy(),
        difference,
        error,
        points,
        occlusion(seen).cpu().numpy(),
        -(-len(passage.inputs) // ROWS),
    )


class Piece(NamedTuple):
    """A piece of the way from zeros to the input: where it begins and ends, what its points say that each
    token is worth on it (S,), and by how much these miss what the answer gains on it."""

    start: float
    end: float
    parts: Tensor
    miss: float


def _integrated(seen: Observation, first: int) -> tuple[Tensor, float, int]:
    """Attributions (S,), the difference that they share out, and how many points that took.

    What the answer gains on a piece of the way is known, so a piece whose points miss it is halved: where
    the answer turns suddenly, points lie close together.
    """
    passage = seen.passage
    model = copy.deepcopy(seen.quick).requires_grad_(False)  # what weights would learn is not asked
    x = passage.vectors(model).detach()
    at, weights = (torch.tensor(one) / 2 for one in np.polynomial.legendre.leggauss(POINTS))

    def value(vectors: Tensor) -> Tensor:
        return passage.chosen(passage.log_probs(model, vectors))[:, first:].double().sum(1)

    def on_the_way(shares: list[float]) -> Iterator[Tensor]:
        places = torch.tensor(shares, dtype=x.dtype, device=x.device)
        return (some[:, None, None] * x for some in places.split(max(1, POSITIONS // x.shape[1])))

    def examined(ends: list[tuple[float, float]]) -> list[Piece]:
        gradients, found = [], []
        inside = [(end + start) / 2 + (end - start) * place for start, end in ends for place in at.tolist()]
        with torch.enable_grad():
            for vectors in on_the_way(inside):
                vectors.requires_grad_()
                [gradient] = torch.autograd.grad(value(vectors).sum(), vectors)
                gradients.append((gradient * x).double().sum(-1))  # (points, S)
        with torch.no_grad():
            values = torch.cat([value(v) for v in on_the_way([share for pair in ends for share in pair])])
        pairs = zip(ends, torch.cat(gradients).split(POINTS), values.split(2), strict=True)
        for (start, end), slopes, (before, after) in pairs:
            parts = (end - start) * (weights.to(x.device)[:, None] * slopes).sum(0)
            found.append(Piece(start, end, parts, float(parts.sum()) - float(after - before)))
        return found

    with torch.no_grad():
        at_zero, here = value(torch.cat([torch.zeros_like(x), x])).tolist()
    pieces, points, enough = examined([(0.0, 1.0)]), POINTS, CLOSE * abs(here - at_zero)
    while sum(abs(piece.miss) for piece in pieces) > enough and points + 2 * POINTS <= MOST_POINTS:
        pieces.sort(key=lambda piece: -abs(piece.miss))
        poor = sum(abs(piece.miss) > enough / len(pieces) for piece in pieces)
        poor = min(max(1, poor), (MOST_POINTS - points) // (2 * POINTS))
        middles = [(piece.start, (piece.start + piece.end) / 2, piece.end) for piece in pieces[:poor]]
        halves = [pair for start, middle, end in middles for pair in ((start, middle), (middle, end))]
        pieces, points = [*pieces[poor:], *examined(halves)], points + POINTS * len(halves)
    return torch.stack([piece.parts for piece in pieces]).sum(0), here - at_zero, points


@torch.no_grad()
def occlusion(seen: Observation) -> Tensor:
    """(T, S): log p of each output, less what it is where the vector of a token is zeros."""
    passage, model = seen.passage, seen.quick
    x = passage.vectors(model)
    S, together = x.shape[1], -(-x.shape[1] // ROWS)
    group = torch.arange(S, device=x.device) // together
    kept = group != torch.arange(int(group[-1]) + 1, device=x.device)[:, None]  # (groups, S)
    rows = torch.cat([x, x * kept[..., None]]).split(max(1, POSITIONS // S))
    whole, *hidden = torch.cat([passage.chosen(passage.log_probs(model, row)) for row in rows])
    found: Tensor = (whole - torch.stack(hidden))[group].T
    return found
