"""An alignment says which source tokens each output token attended to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elman.errors import ArgumentError, ShapeError


@dataclass(frozen=True, eq=False)
class Alignment:
    """The attention weights of one prediction: ``weights[i, j]`` is what output i gave to source j.

    >>> found = Alignment(["das", "Haus"], ["the", "house", "</s>"], np.array([[1, 0], [0, 1], [0.5, 0.5]]))
    >>> found.weights.shape
    (3, 2)
    """

    source: list[str]
    output: list[str]
    weights: NDArray[np.floating]  # (T, S)
    title: str = ""

    def __post_init__(self) -> None:
        T, S = len(self.output), len(self.source)
        if np.shape(self.weights) != (T, S):
            raise ShapeError(
                f"weights has shape {np.shape(self.weights)}; {T} output tokens and {S} source tokens "
                f"need ({T}, {S}): a row for every output token"
            )
        sums = np.sum(self.weights, axis=1, dtype=float)
        wrong = np.flatnonzero(~(np.abs(sums - 1) < 0.01) | (np.asarray(self.weights) < 0).any(axis=1))
        if len(wrong):
            raise ArgumentError(
                f"weights: row {wrong[0]} has the sum {sums[wrong[0]]:.4g} and the smallest value "
                f"{np.min(self.weights[wrong[0]], initial=0):.4g}; a row must sum to 1 with nothing below 0"
            )
