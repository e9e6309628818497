"""Attention step by step: scores, weights, entropy, and what the context is worth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elman.inspection.observation import Observation
from elman.inspection.writing_passages import Seq2SeqPassage
from elman.models.seq2seq import Seq2Seq

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AttentionSteps:
    """Where the decoder looked, at each of T outputs over S source tokens.

    scores, weights: (T, S), before and after the softmax. entropy: (T,) of the weights, in nats; log S where
    it looks everywhere alike. worth: (T,) log p of what comes out, less what it is where this step's context
    is zeros instead.
    """

    source: list[str]
    outputs: list[str]
    scores: Array
    weights: Array
    entropy: Array
    worth: Array


def attention_steps(seen: Observation) -> AttentionSteps | None:
    """None where the model does not look at a source."""
    looks, passage = seen.handover.looks, seen.passage
    if not looks:
        return None
    scores = torch.cat([look.scores.detach() for look in looks], 1)[0]
    weights = torch.cat([look.weights.detach() for look in looks], 1)[0]
    values = scores, weights, torch.special.entr(weights).sum(-1), _worth(seen)
    return AttentionSteps(passage.inputs, passage.outputs, *(part.cpu().numpy() for part in values))


@torch.no_grad()
def _worth(seen: Observation) -> Tensor:
    """(T,): at every step log p of what comes out, less what it is if this step alone finds nothing."""
    passage, model, handover = seen.passage, seen.model, seen.handover
    assert isinstance(model, Seq2Seq)
    assert isinstance(passage, Seq2SeqPassage)
    source = model.read_vectors(seen.x, torch.tensor([seen.x.shape[1]]))
    state, found = model.begin(source), []
    for token, number in zip(passage.previous[0].split(1), passage.numbers, strict=True):
        handover.blind = True
        without, *_ = model.step(token, state, source)
        handover.blind = False
        log_probs, state, _ = model.step(token, state, source)
        found.append(log_probs[0, number] - without[0, number])
    return torch.stack(found)
