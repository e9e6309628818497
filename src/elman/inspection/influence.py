"""Which inputs an answer is owed to: integrated gradients, and what happens where a token is taken away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.inspection.observation import Observation
from elman.inspection.writing_passages import LmPassage

Array = NDArray[np.float64]
POINTS = (8, 16, 32, 64, 128, 256)  # on the way from zeros to the input, until the error is small
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


def _integrated(seen: Observation, first: int) -> tuple[Tensor, float, int]:
    """Attributions (S,), the difference that they share out, and how many points that took."""
    passage, model = seen.passage, seen.quick
    x = passage.vectors(model).detach()

    def value(vectors: Tensor) -> Tensor:
        return passage.chosen(passage.log_probs(model, vectors))[:, first:].double().sum(1)

    with torch.no_grad():
        at_zero, here = value(torch.cat([torch.zeros_like(x), x])).tolist()
    for points in POINTS:
        places, weights = (
            torch.tensor(one, dtype=x.dtype) for one in np.polynomial.legendre.leggauss(points)
        )
        total = torch.zeros_like(x)
        size = max(1, POSITIONS // x.shape[1])
        for some, their in zip(((places + 1) / 2).split(size), (weights / 2).split(size), strict=True):
            with torch.enable_grad():
                vectors = (some.to(x.device)[:, None, None] * x).requires_grad_()
                [gradient] = torch.autograd.grad(value(vectors).sum(), vectors)
            total += (their.to(x.device)[:, None, None] * gradient).sum(0, keepdim=True)
        parts = (total * x)[0].sum(-1)
        if abs(float(parts.sum()) - (here - at_zero)) <= CLOSE * abs(here - at_zero):
            break
    return parts, here - at_zero, points


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
