"""Gates and states by token, and what their units follow."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from elman.inspection.observation import Observation, Place

Array = NDArray[np.float64]
OPENING, CLOSING = "([{<«“‘", ")]}>»”’"
LEAST = 6  # tokens that a correlation is of, at least


@dataclass(frozen=True, eq=False)
class Strip:
    """One gate or state of one cell: values (T, H), a unit a column.

    kind: ``gate`` or ``state``. follows: of each unit, what its values go along with best (a name of
    ``signals``) and the correlation. order: the units, counted from 0, those first that follow most, by what.
    """

    network: str
    layer: int
    direction: str
    name: str
    kind: str
    place: str
    tokens: list[str]
    values: Array
    follows: list[tuple[str, float]]

    @cached_property
    def order(self) -> list[int]:
        strength: dict[str, float] = {}
        for name, r in self.follows:
            strength[name] = max(strength.get(name, 0.0), abs(r))
        return sorted(range(len(self.follows)), key=lambda unit: _rank(self.follows[unit], strength))

    @property
    def signed(self) -> bool:
        """Are there values outside 0 to 1?"""
        return bool(self.values.size and (self.values.min() < 0 or self.values.max() > 1))


def _rank(found: tuple[str, float], strength: dict[str, float]) -> tuple[float, str, float]:
    name, r = found
    return (-strength[name] if name else 1.0), name, -abs(r)


def strips(seen: Observation) -> list[Strip]:
    """Every named gate and every state of every cell."""
    return [strip for place in seen.places for strip in _strips_of(seen, place)]


def _strips_of(seen: Observation, place: Place) -> list[Strip]:
    strand, track = place.strand, place.track
    chosen = seen.losses.detach().neg().exp().tolist() if strand.answers else None
    outputs = seen.passage.outputs if strand.answers and not seen.passage.search else None
    known = signals(strand.tokens, chosen, outputs)
    gates = (
        {name: torch.cat([step[name] for step in track.gates]) for name in track.gates[0]}
        if track.gates
        else {}
    )
    fields = track.states[0]._fields
    states = {
        name: torch.cat([state[i].flatten(1) for state in track.states]) for i, name in enumerate(fields)
    }
    found = []
    for kind, values in (("gate", gates), ("state", states)):
        for name, rows in values.items():
            array = rows.detach().cpu().numpy().astype(np.float64)
            found.append(
                Strip(
                    strand.name,
                    place.layer,
                    place.direction,
                    name,
                    kind,
                    place.name,
                    strand.tokens,
                    array,
                    followed(array, known),
                )
            )
    return found


def signals(
    tokens: Sequence[str], chances: Sequence[float] | None, outputs: Sequence[str] | None
) -> dict[str, Array]:
    """What a unit may follow, a number a token.

    >>> found = signals(["(", "A", "b", ")"], None, None)
    >>> found["bracket depth"].tolist(), found["capital"].tolist()
    ([1.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0])
    """
    depth, depths = 0, []
    for token in tokens:
        depth = max(0, depth + sum(token.count(c) for c in OPENING) - sum(token.count(c) for c in CLOSING))
        depths.append(float(depth))
    found: dict[str, Sequence[float]] = {
        "position": list(range(len(tokens))),
        "bracket depth": depths,
        "capital": [float(token[:1].isupper()) for token in tokens],
        "digit": [float(any(map(str.isdigit, token))) for token in tokens],
        "punctuation": [
            float(bool(token) and all(unicodedata.category(c)[0] in "PS" for c in token)) for token in tokens
        ],
        "space": [float(token.isspace()) for token in tokens],
        "length": [float(len(token)) for token in tokens],
    }
    if chances is not None:
        found["probability of what comes out"] = list(chances)
    for name in dict.fromkeys(outputs or ()):
        found[f"tag {name}"] = [float(one == name) for one in outputs or ()]
    return {name: np.array(values, dtype=np.float64) for name, values in found.items()}


def followed(values: Array, known: dict[str, Array]) -> list[tuple[str, float]]:
    """Of each unit (a column of values) the signal that it correlates with most, and the correlation."""
    T, H = values.shape
    rows = np.stack(list(known.values()))
    names, usable = np.array(list(known)), rows.std(1) > 0
    if T < LEAST or not usable.any():
        return [("", 0.0)] * H
    a, b = (one - one.mean(0) for one in (values, rows[usable].T))
    scale = np.sqrt((a**2).sum(0))[:, None] * np.sqrt((b**2).sum(0))  # (H, signals)
    r = np.divide(a.T @ b, scale, out=np.zeros_like(scale), where=scale > 1e-12)
    best = np.abs(r).argmax(1)
    return [(str(names[usable][place]), float(r[unit, place])) for unit, place in enumerate(best)]
