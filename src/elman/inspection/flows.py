"""The gradient through time in a trained model: ``‖∂J_t/∂s_k‖`` for every output t and every state k."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.inspection.gradients import one_thread
from elman.inspection.observation import Observation, Place
from elman.inspection.reach import GradientReach
from elman.inspection.spectral import largest_singular_values
from elman.inspection.word_passages import ClassifyPassage

Array = NDArray[np.float64]
TOGETHER = 64  # losses that are carried back at once, by all cores


@dataclass(frozen=True, eq=False)
class Flow:
    """What the losses say to the states of one cell.

    matrix: (T, k) the length of ∂J_t/∂s_k, s the whole state of the cell. spectral: (k,) the largest singular
    value of ∂s_k/∂s_{k-1}, with s_{k-1} the state that was read before. curve: the median over the losses, by
    how many steps back. half_life: steps in which it is halved, at the rate; None where it is not.
    """

    network: str
    layer: int
    direction: str
    place: str
    tokens: list[str]
    outputs: list[str]
    matrix: Array
    spectral: Array
    curve: Array
    rate: float
    half_life: float | None
    verdict: str
    sentence: str
    reach: GradientReach = field(metadata={"shown": False})


def flows(seen: Observation) -> list[Flow]:
    """Of every cell, what reaches it; the last layer of the last network first."""
    cores = torch.get_num_threads()
    with torch.inference_mode(False), torch.enable_grad(), one_thread():
        matrices = gradient_matrices(seen, cores)
        return [_flow(seen, place, matrix) for place, matrix in zip(seen.places, matrices, strict=True)][::-1]


def gradient_matrices(seen: Observation, cores: int = 1) -> list[Tensor]:
    """(T, k) for every place. Every core carries losses of its own back, and waits for no other."""
    fields = [[*state] for place in seen.places for state in place.track.states]
    states = [part for one in fields for part in one]
    read = [place.track.states for place in seen.places if not place.strand.answers]
    far = sum(len(state) for states in read for state in states) if seen.handover.source else 0

    def squared(some: Tensor) -> Tensor:
        nothing = some.new_zeros(len(some))
        found = seen.handover.pulled(some, states[:far], states[far:])
        return torch.stack([nothing if one is None else _squared(one) for one in found], 1)

    with ThreadPoolExecutor(cores) as pool:
        squares = list(pool.map(squared, seen.losses.split(max(1, TOGETHER // cores))[::-1]))[::-1]
    sizes = [len(one) for one in fields]
    per_state = torch.stack([part.sum(1) for part in torch.cat(squares).split(sizes, 1)], 1).sqrt()
    return list(per_state.split([len(place.track.states) for place in seen.places], 1))


def _squared(gradient: Tensor) -> Tensor:
    return gradient.flatten(1).square().sum(1)


def _flow(seen: Observation, place: Place, matrix: Tensor) -> Flow:
    T, K = matrix.shape
    backward = place.direction == "←"
    own = torch.arange(T) if place.strand.answers else torch.full((T,), K - 1)
    if isinstance(seen.passage, ClassifyPassage):
        own = torch.tensor([K - 1])
    if backward:  # read from the end: what was the first step is the last
        own = K - 1 - own if place.strand.answers else own
    chain = matrix.flip(1) if backward else matrix
    distance = own[:, None] - torch.arange(K)
    norms = chain.cpu().where(distance >= 0, math.nan)
    reach = GradientReach(place.name, norms, norms, norms, distance, own)
    rate = reach.rate("loss")
    half = math.log(0.5) / math.log(rate) if 0 < rate < 1 else None
    return Flow(
        place.strand.name,
        place.layer,
        place.direction,
        place.name,
        place.strand.tokens,
        seen.passage.outputs,
        matrix.detach().cpu().numpy(),
        step_norms(place).cpu().numpy(),
        reach.curve("loss").numpy(),
        rate,
        half,
        reach.verdict("loss"),
        reach.sentence("loss"),
        reach,
    )


def step_norms(place: Place) -> Tensor:
    """(K,) the largest singular value of ∂s_k/∂s_{k-1}, the input fixed; all steps side by side as rows."""
    cell = place.network.all_cells()[(place.layer - 1) * place.network.directions + (place.direction == "←")]
    track, order = place.track, slice(None, None, -1 if place.direction == "←" else 1)
    assert track.start is not None
    before = [track.start, *track.states[order][:-1]]  # as they were read
    old = [torch.cat([state[i].detach() for state in before]).requires_grad_() for i in range(len(before[0]))]
    x = torch.cat([one.detach() for one in track.inputs[order]])
    noise = place.network.regularisers.draw(cell, len(x), 1, x, training=False)
    found = largest_singular_values(old, [*cell(x[:, None], cell.State(*old), noise=noise).state])
    return found.flip(0) if place.direction == "←" else found
