"""Tokens that a model takes for similar, and maps of words and of states in two dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from elman.inspection.observation import Observation
from elman.models.embedding import Embedding, Tokens, Words

NEAREST = 6
MAPPED = 150  # tokens of the vocabulary that a map of words shows beside those of the text


@dataclass(frozen=True)
class Point:
    """A word or a state on a map; ``here``: it belongs to the text that is looked at."""

    label: str
    x: float
    y: float
    here: bool
    note: str = ""


@dataclass(frozen=True)
class Neighbours:
    """nearest: of each token of the text, the most similar ones with the cosine of their vectors.

    words, states: maps by the two principal components of vectors, and of the top layer's states; of the
    variation they keep the ``shares``.
    """

    nearest: dict[str, list[tuple[str, float]]]
    words: list[Point]
    states: list[Point]
    word_shares: list[float]
    state_shares: list[float]


def neighbours(seen: Observation, others: list[Observation] | None = None) -> Neighbours:
    """Of the tokens of a passage; ``others`` are passages whose states lie on the map of states, too."""
    known = embedding_of(seen)
    nearest: dict[str, list[tuple[str, float]]] = {}
    words: list[Point] = []
    word_shares: list[float] = []
    if known is not None:
        names, E = known
        index = {name: place for place, name in enumerate(names)}
        tokens = [token for token in dict.fromkeys(seen.passage.inputs) if token in index]
        unit = torch.nn.functional.normalize(E, dim=1)
        for token in tokens:
            similar = unit @ unit[index[token]]
            similar[index[token]] = -2.0
            best = similar.topk(min(NEAREST, len(names) - 1))
            nearest[token] = [
                (names[place], value) for value, place in zip(*(one.tolist() for one in best), strict=True)
            ]
        shown = list(dict.fromkeys([*(index[token] for token in tokens), *range(min(MAPPED, len(names)))]))
        places, word_shares = principal_plane(E[shown])
        words = [
            Point(names[place], x, y, names[place] in nearest)
            for place, (x, y) in zip(shown, places.tolist(), strict=True)
        ]
    states, state_shares = state_map([seen, *(others or [])])
    return Neighbours(nearest, words, states, word_shares, state_shares)


def embedding_of(seen: Observation) -> tuple[list[str], Tensor] | None:
    """The tokens that the passage may read, and their learned vectors; None where they have none."""
    model = seen.model
    holder = next(
        (one for name in ("words", "tokens", "source") if (one := getattr(model, name, None)) is not None),
        model,
    )
    found = getattr(holder, "embedding", None)
    if not isinstance(found, Embedding) or found.weight is None:
        return None
    if isinstance(holder, (Words, Tokens)) or holder is model:
        return list(seen.passage.field.vocabulary.tokens), found.weight.detach()
    return None


def state_map(passages: list[Observation]) -> tuple[list[Point], list[float]]:
    """The first state of the top layer after every token, of all passages on one map."""
    rows, points = [], []
    for number, seen in enumerate(passages):
        if not seen.places:
            continue
        top = [place for place in seen.places if place.layer == place.network.layers]
        for strand in dict.fromkeys(place.strand.name for place in top):
            own = [place for place in top if place.strand.name == strand]
            for t, token in enumerate(own[0].strand.tokens):
                rows.append(torch.cat([place.track.states[t][0].detach().flatten() for place in own]))
                points.append((token, number == 0, f"{strand}, t = {t + 1}"))
        if len({len(row) for row in rows}) > 1:  # networks of other widths do not lie on one map
            keep = len(rows[0])
            points = [point for point, row in zip(points, rows, strict=True) if len(row) == keep]
            rows = [row for row in rows if len(row) == keep]
    if len(rows) < 3:
        return [], []
    places, shares = principal_plane(torch.stack(rows))
    pairs = zip(points, places.tolist(), strict=True)
    return [Point(label, x, y, here, note) for (label, here, note), (x, y) in pairs], shares


def principal_plane(rows: Tensor) -> tuple[Tensor, list[float]]:
    """The rows (N, E) by their two principal components (N, 2), and the shares of the variance these keep.

    The largest number of each component is positive, so that the same rows give the same map.
    """
    centred = rows - rows.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    axes = vectors.flip(1)[:, :2]  # (E, 2), or fewer
    axes = torch.nn.functional.pad(axes, (0, 2 - axes.shape[1]))
    largest = axes.abs().argmax(0)
    signs = axes.gather(0, largest[None]).sign()
    shares = (values.flip(0)[:2] / values.sum().clamp_min(1e-300)).tolist()
    return centred @ (axes * signs.where(signs != 0, 1.0)), shares
