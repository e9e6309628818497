"""A text's way through a watched model: everything that the parts of an inspection are made of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elman.errors import ArgumentError
from elman.inspection.handover import Handover
from elman.inspection.passages import Passage, Strand
from elman.inspection.watching import Clamp, Track, Watch
from elman.layers.rnn import RNN
from elman.models.seq2seq import Seq2Seq

ARROWS = ("→", "←")


class Place(NamedTuple):
    """A cell in the drawing: one direction of one layer of a network."""

    strand: Strand
    network: RNN
    layer: int  # counted from 1
    direction: str
    track: Track

    @property
    def name(self) -> str:
        layers = f", layer {self.layer}" if self.network.layers > 1 else ""
        arrow = f" {self.direction}" if self.network.bidirectional else ""
        whose = f"{self.strand.name}, " if self.strand.name != "network" else ""
        return f"{whose}{self.network.cell_class.__name__}{layers}{arrow}"


class Observation:
    """A passage through a watched copy of the model, with gradients.

    quick: what answers: the model itself, or a copy of it in which something is clamped.
    """

    def __init__(
        self,
        passage: Passage,
        model: nn.Module,
        clamps: Sequence[Clamp] = (),
        quick: nn.Module | None = None,
    ) -> None:
        self.passage, self.quick = passage, quick or model
        self.watch = Watch(model, clamps)
        self.model = self.watch.model
        self.handover = Handover()
        if isinstance(self.model, Seq2Seq):
            self.handover.watch(self.model)
        with torch.enable_grad():
            self.x = passage.vectors(self.model).detach().requires_grad_()  # (1, S, D)
            self.watch.clear()
            self.log_probs = passage.log_probs(self.model, self.x)  # (1, T, K)
        self.handover.noted = False
        pairs = passage.recurrent(self.model)
        self.places = [
            Place(strand, network, layer, ARROWS[direction], track)
            for strand, network in pairs
            for layer, tracks in enumerate(self.watch.tracks(network, len(strand.tokens)), 1)
            for direction, track in enumerate(tracks)
        ]
        self._check_finite()

    def _check_finite(self) -> None:
        states = (part for place in self.places for state in place.track.states for part in state)
        if self.log_probs.isnan().any() or not all(part.isfinite().all() for part in states):
            raise ArgumentError(
                "what the model makes of this text is not finite: its weights are damaged, or far too large"
            )

    @cached_property
    def chances(self) -> Tensor:
        """(T, K)."""
        return self.log_probs[0].detach().exp()

    @cached_property
    def losses(self) -> Tensor:
        """(T,) −log p of what comes out, with gradients."""
        return -self.passage.chosen(self.log_probs)[0]
