"""The network unrolled: what enters at every step, what leaves, and what was probable."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from elman.inspection.observation import Observation
from elman.inspection.passages import TOP
from elman.inspection.word_passages import ClassifyPassage
from elman.models.generator import Generator
from elman.models.seq2seq import Seq2Seq

Top = list[tuple[str, float]]


@dataclass(frozen=True)
class UnrolledStep:
    """t, counted from 1; token: what is read, and from where; output: what counts as what comes out.

    own: what the model itself found most probable. sizes: the length of each layer's state (its first entry,
    by direction) after the step. top: the most probable, best first.
    """

    t: int
    token: str
    origin: str
    output: str | None
    probability: float | None
    own: str | None
    top: Top
    sizes: list[list[float]]


@dataclass(frozen=True)
class UnrolledNetwork:
    """One network: its cell, its widths from the first layer up, where it starts, and its steps."""

    name: str
    cell: str
    widths: list[int]
    directions: int
    start: str
    steps: list[UnrolledStep]


def unroll(seen: Observation) -> list[UnrolledNetwork]:
    """All networks of the passage, in the order in which they read."""
    passage, networks = seen.passage, []
    count = min(TOP, seen.chances.shape[1])
    best = [
        list(zip(*pair, strict=True))
        for pair in zip(*(part.tolist() for part in seen.chances.topk(count)), strict=True)
    ]
    tops: list[Top] = [[(passage.names[number], chance) for chance, number in row] for row in best]
    chosen = seen.losses.detach().neg().exp().tolist()
    for strand in passage.strands:
        places = [place for place in seen.places if place.strand is strand]
        network = places[0].network if places else None
        directions = network.directions if network is not None else 1
        norms = [
            [float(torch.linalg.vector_norm(state[0].detach())) for state in place.track.states]
            for place in places
        ]
        layers = [norms[first : first + directions] for first in range(0, len(norms), directions)]
        so_far = passage.so_far(seen.quick) if isinstance(passage, ClassifyPassage) else []
        steps = []
        for t, (token, origin) in enumerate(zip(strand.tokens, strand.origins, strict=True)):
            top = tops[t] if strand.answers else so_far[t] if so_far else []
            last = isinstance(passage, ClassifyPassage) and t + 1 == len(strand.tokens)
            output = passage.outputs[t] if strand.answers else passage.outputs[0] if last else None
            chance = chosen[t] if strand.answers else dict(top).get(str(output)) if last else None
            sizes = [[row[t] for row in layer] for layer in layers]
            own = top[0][0] if top else None
            steps.append(UnrolledStep(t + 1, token, origin, output, chance, own, top, sizes))
        cell, widths = (network.cell_class.__name__, list(network.hidden_sizes)) if network else ("", [])
        networks.append(
            UnrolledNetwork(strand.name, cell, widths, directions, _start(seen, strand.name), steps)
        )
    return networks


def _start(seen: Observation, name: str) -> str:
    """Where a network's first state is from, in words."""
    model = seen.model
    if isinstance(model, Generator):
        return f"σ(W x) of the class {seen.passage.text}"
    if isinstance(model, Seq2Seq) and name == "decoder":
        policy = model.bridge.policy
        return "zeros" if policy == "zero" else f"what the encoder hands over, by {policy}"
    learned = any(place.network.initial_state == "learned" for place in seen.places)
    return "a learned state" if learned else "zeros"
