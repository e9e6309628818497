"""The best tags of a sentence, and how probable each is, under a CRF: in float64, with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
SMALLEST = 1e-43  # of a marginal whose logarithm is taken


def relative(scores: Floats) -> NDArray[np.float64]:
    """How far each score (T, K) is below the largest of its step."""
    wide = scores.astype(np.float64)
    found: NDArray[np.float64] = wide - wide.max(1, keepdims=True)
    return found


def decode(scores: Floats, start: Floats, transitions: Floats, end: Floats) -> list[int]:
    """The most probable tags of a sentence whose words have these scores (T, K) (Viterbi)."""
    own = relative(scores)
    best, pointers = start + own[0], []
    for score in own[1:]:
        sums = (best - best.max())[:, None] + transitions
        origin = sums.argmax(0)
        pointers.append(origin)
        best = sums[origin, np.arange(len(best))] + score
    path = [int((best + end).argmax())]
    for origin in reversed(pointers):
        path.append(int(origin[path[-1]]))
    return path[::-1]


def marginals(scores: Floats, start: Floats, transitions: Floats, end: Floats) -> NDArray[np.float64]:
    """(T, K) how probable each tag is at each word: forward and backward sums, in logarithms."""
    own, T = relative(scores), len(scores)
    forward, backward = [start + own[0]], [end]
    for t in range(1, T):
        before = forward[-1] - forward[-1].max()
        forward.append(_log_sum(before[:, None] + transitions, 0) + own[t])
        after = backward[-1] + own[T - t]
        backward.append(_log_sum(transitions + (after - after.max())[None], 1))
    both = np.stack(forward) + np.stack(backward[::-1])
    both = np.exp(both - both.max(1, keepdims=True))
    found: NDArray[np.float64] = both / both.sum(1, keepdims=True)
    return found


def _log_sum(values: Floats, axis: int) -> Floats:
    top = values.max(axis)
    with np.errstate(divide="ignore"):
        found: Floats = top + np.log(np.exp(values - np.expand_dims(top, axis)).sum(axis))
    return found
