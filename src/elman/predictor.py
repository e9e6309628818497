"""The one door to a trained model: ``elman.load(run).predict(texts)``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from elman.config import changed
from elman.errors import ArgumentError, EmptyError
from elman.tasks.base import Task
from elman.text.readers import Repairs
from elman.training.run import load_weights, make_task, read_config
from elman.training.sources import Reading


class Predictor:
    """A run that is ready for use: its task, its settings, and its model with the best weights."""

    def __init__(self, run: Path, task: Task[Any], model: torch.nn.Module) -> None:
        self.run, self.task, self.model = run, task, model

    @property
    def config(self) -> Any:
        return self.task.config

    def predict(self, texts: Iterable[str], *, details: bool = False) -> list[Any]:
        """One answer a text: a label, a list of tags, a text; with ``details``, a dictionary about it."""
        if isinstance(texts, str):
            raise ArgumentError("texts is one string; give a list of them")
        found = self.task.predict(self.model, list(texts))
        return found if details else [one["prediction"] for one in found]

    def evaluate(self, path: str, target: str | None = None) -> tuple[dict[str, Any], Repairs]:
        """Figures on a file laid out as the training data, or on ``builtin:NAME/test``; and repairs."""
        reading = Reading(self.task, path, target)
        examples = self.task.examples(reading)
        if not len(examples):
            raise EmptyError("no examples", path=path, remedy="give a file laid out as the training data")
        return self.task.evaluate(self.model, examples), reading.repairs

    def score(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """For each text its tokens, the end marker included, with their natural-log probabilities."""
        self._needs("score")
        return self.task.score(self.model, texts)  # type: ignore[attr-defined, no-any-return]

    def generate(self, prompts: Sequence[str]) -> list[dict[str, Any]]:
        """A continuation of each prompt, or the sequence of each class, as ``decoding.*`` says."""
        self._needs("generate")
        return self.task.generate(self.model, prompts, self.config.decoding)  # type: ignore[attr-defined, no-any-return]

    def _needs(self, method: str) -> None:
        if not hasattr(self.task, method):
            raise ArgumentError(f"{self.run} is a {self.task.name} model, which cannot {method}; use predict")


def load(run: str | Path, *, settings: dict[str, Any] | None = None) -> Predictor:
    """A trained model from its run folder; ``settings`` are as ``{"decoding.max_length": 50}``.

    >>> elman.load("runs/names").predict(["Nguyen", "Kowalski"])  # doctest: +SKIP
    ['Vietnamese', 'Polish']
    """
    run = Path(run)
    task = make_task(read_config(run))
    task.load(run)
    if settings:
        task.config = changed(task.config, settings)
    return Predictor(run, task, load_weights(run, task))
