"""The runs that a server has: a table made at start, from which every request takes its model by name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elman.errors import ArgumentError, ElmanError, StreamError
from elman.inspection.saving import PARTS
from elman.models.counting import CountedModel
from elman.models.networks.rnn import Recurrent
from elman.predictor import Predictor, load
from elman.tasks.streaming import Stream

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class ServedRun:
    """A run under the name that requests call it by."""

    name: str
    predictor: Predictor

    @property
    def task(self) -> str:
        return self.predictor.config.task

    @cached_property
    def stream(self) -> Stream | StreamError:
        """What reads with it as a text comes, or why nothing does."""
        try:
            return self.predictor.stream()
        except StreamError as error:
            return error

    @cached_property
    def parts(self) -> list[str]:
        """The parts of an inspection that have a meaning for it."""
        model, task = self.predictor.model, self.predictor.task
        if isinstance(model, CountedModel):
            return []
        generation, recurrent = task.generation, any(isinstance(one, Recurrent) for one in model.modules())
        without = set() if recurrent else {"gates", "gradients"}
        without |= set() if generation is not None and generation.writer.attends else {"attention"}
        without |= set() if generation is not None else {"beam"}
        return [part for part in PARTS if part not in without]

    @cached_property
    def described(self) -> dict[str, Any]:
        """Metadata for people and programs, in the shape of OpenAI's list with more beside it."""
        task = self.predictor.task
        unit = next(iter(task.text_fields.values())).unit.grain if task.text_fields else "word"
        return {
            "id": self.name,
            "object": "model",
            "created": 0,
            "owned_by": "elman",
            "task": self.task,
            "summary": task.describe(self.predictor.model)[0],
            "streams": isinstance(self.stream, Stream),
            "labels": task.label_names,
            "parts": self.parts,
            "unit": unit,
        }


def parse_names(runs: Sequence[str]) -> dict[str, Path]:
    """``NAME=RUN``, or a run that is called as its folder; each name once.

    >>> parse_names(["runs/names", "old=runs/names-1"])
    {'names': PosixPath('runs/names'), 'old': PosixPath('runs/names-1')}
    """
    found: dict[str, Path] = {}
    for one in runs:
        name, sign, place = one.partition("=")
        path = Path(place if sign else one)
        name = name if sign else path.resolve().name
        if not NAME.fullmatch(name) or name in (".", ".."):
            raise ArgumentError(
                f"{name!r} is no name for a model: up to 64 letters, digits, dots, dashes and underscores; "
                f"say NAME={path}"
            )
        if name in found:
            raise ArgumentError(f"two runs are called {name!r}; say NAME={path} for one of them")
        found[name] = path
    return found


def open_runs(
    runs: Mapping[str, Path], *, device: str = "cpu", threads: int | None = None, trust_code: bool = False
) -> dict[str, ServedRun]:
    """All runs, loaded; each is asked once, so that what is compiled is there before the first request."""
    table = {}
    for name, path in runs.items():
        predictor = load(path, device=device, threads=threads, trust_code=trust_code)
        predictor.model.eval()
        table[name] = ServedRun(name, predictor)
        check(table[name])
    return table


def check(run: ServedRun) -> None:
    """A real pass through the model."""
    task = run.predictor.task
    usual = [] if task.generation is None else task.generation.writer.usual_prompts()[:1]
    text = (task.label_names or ["a"])[0] if run.task == "class2seq" else (usual or ["a"])[0]
    try:
        if task.generation is None:
            run.predictor.predict([text])
        else:
            task.generation.writer.begin(run.predictor.model, [text])
    except ElmanError as error:
        raise ArgumentError(f"{run.name} cannot answer {text!r}: {error}") from error
