"""A text on its way through a model: what networks read step by step, and how probable what comes out is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from elman.decoding.results import SearchResult
from elman.errors import ArgumentError
from elman.layers.rnn import RNN
from elman.tasks.base import AnyTask
from elman.tasks.examples import device_of
from elman.tasks.predictions import Prediction
from elman.text.fields import TextField

TaskModel: TypeAlias = Any  # of the task that the passage is of
MOST = 500  # tokens that are read or written
TOP = 5  # of the most probable tokens of a step


@dataclass(frozen=True)
class Strand:
    """One network over one sequence, as it is drawn.

    name: as "encoder". path: of the network in its model. tokens: what it reads, step by step. origins: where
    each of them is from: ``text``, ``start``, ``prompt``, ``truth`` or ``own``, what the model wrote itself.
    answers: whether something is predicted after every step.
    """

    name: str
    path: str
    tokens: list[str]
    origins: list[str]
    answers: bool

    def network(self, model: nn.Module) -> nn.Module:
        return model.get_submodule(self.path)


class Passage(ABC):
    """A text, what a model makes of it, and the way there.

    text: what was asked. prediction: what the model says. strands: its networks. inputs: the tokens whose
    vectors come in. outputs: the tokens, tags or label that count as what comes out; ``numbers`` are theirs.
    names: of all that could. search: how a text was found. notes: what a reader has to know.
    """

    strands: list[Strand]
    inputs: list[str]
    outputs: list[str]
    names: Sequence[str]
    numbers: list[int]
    prediction: Prediction
    search: SearchResult | None = None
    given = False  # what comes out was given, not predicted
    multilabel = False

    def __init__(self, task: AnyTask, model: nn.Module, text: str) -> None:
        self.task, self.text = task, text
        self.device = device_of(model)
        self.notes: list[str] = []

    @abstractmethod
    def embed(self, model: TaskModel) -> Tensor:
        """The vectors (1, S, D) of the inputs."""

    @abstractmethod
    def log_probs(self, model: TaskModel, x: Tensor) -> Tensor:
        """(B, T, K) how probable everything is at every output, for vectors (B, S, D)."""

    def vectors(self, model: TaskModel) -> Tensor:
        weight = next(model.parameters())
        return self.embed(model).to(weight.dtype)

    def chosen(self, log_probs: Tensor) -> Tensor:
        """(B, T) those of what comes out."""
        numbers = torch.tensor(self.numbers, device=log_probs.device)
        return log_probs.gather(2, numbers.expand(len(log_probs), -1)[..., None])[..., 0]

    def recurrent(self, model: nn.Module) -> list[tuple[Strand, RNN]]:
        """The strands that are recurrent networks, with these."""
        pairs = ((strand, strand.network(model)) for strand in self.strands)
        return [(strand, network) for strand, network in pairs if isinstance(network, RNN)]

    def changed(self, place: int, token: str | None) -> str:
        """The text with another token at a place, counted from 1; None: without it."""
        tokens = self.asked_tokens()
        if not 1 <= place <= len(tokens):
            raise ArgumentError(f"there is no token {place}; the text has {len(tokens)}, counted from 1")
        tokens[place - 1 : place] = [] if token is None else [token]
        return self.field.join(tokens)

    def asked_tokens(self) -> list[str]:
        """The tokens of the text that was asked, which may be replaced."""
        return list(self.inputs)

    @property
    def field(self) -> TextField:
        """Of the text that is read."""
        return next(iter(self.task.text_fields.values()))

    def _note_unknown(self, count: int, instead: str = "") -> None:
        """Say how many tokens of the text training never saw; ``instead``: what the model reads for them."""
        if count:
            what = "1 token of the text is" if count == 1 else f"{count} tokens of the text are"
            self.notes.append(f"{what} unknown to the model{instead and f', which reads {instead}'}.")

    def _check(self, count: int, what: str = "the text") -> None:
        if not count:
            raise ArgumentError(
                f"{what} has no token: there is nothing to look at; give one with a word in it"
            )
        if count > MOST:
            raise ArgumentError(
                f"{what} has {count:,} tokens; a page shows at most {MOST}: give a part of it"
            )
