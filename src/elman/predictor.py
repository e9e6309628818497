"""The one door to a trained model: ``elman.load(run).predict(texts)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elman.config import changed
from elman.errors import ArgumentError, EmptyError, is_text, shortened
from elman.inspection.alignment import Alignment
from elman.tasks.base import Task
from elman.text.readers import Repairs
from elman.text.units import Unit
from elman.training.run import best_checkpoint, check_code, load_weights, make_task, read_config
from elman.training.sources import Reading
from elman.trust import Trust


class Predictor:
    """A run that is ready for use: its task, its settings, and its model with the best weights."""

    def __init__(self, run: Path, task: Task[Any], model: torch.nn.Module) -> None:
        self.run, self.task, self.model = run, task, model

    @property
    def config(self) -> Any:
        return self.task.config

    def predict(self, texts: Iterable[str], *, details: bool = False, trace: int | None = None) -> list[Any]:
        """One answer a text: a label, a list of tags, a text; with ``details``, a dictionary about it.

        ``trace`` is for models that write: the dictionaries tell every step of it, with so many of the
        most probable tokens, and where attention looked.
        """
        texts = checked(texts, "texts")
        if trace is None:
            found = self.task.predict(self.model, texts)
            return found if details else [one["prediction"] for one in found]
        if not hasattr(self.task, "generate"):
            raise ArgumentError(f"{self.run} is a {self.task.name} model, which writes nothing; no trace")
        traced = self.generate(texts, trace=trace)
        return [{"prediction": one["text"], "line": one["text"], **one} for one in traced]

    def check_attention(self) -> None:
        """A model without attention has no alignment: that is an error."""
        if getattr(self.config.model, "attention", "none") == "none":
            raise ArgumentError(
                f"{self.run} is a {self.task.name} model without attention, so it has no alignment to show; "
                "train seq2seq with model.attention = 'additive'"
            )

    def alignment(self, answer: Mapping[str, Any]) -> Alignment:
        """Which source tokens each output token looked at; ``answer`` is one of ``predict(…, trace=0)``.

        An ensemble looks where its first model looks.
        """
        self.check_attention()
        if "attention" not in answer:
            raise ArgumentError("the answer has no attention; ask predict for it with trace=0")
        source, output = answer["source_tokens"], answer["output_tokens"]
        return Alignment(
            readable(self.task.source.unit, source),  # type: ignore[attr-defined]
            readable(self.task.unit, output),
            np.array(answer["attention"], dtype=np.float32).reshape(len(output), len(source)),
            title=answer["source"],
        )

    def evaluate(self, path: str | Path, target: str | Path | None = None) -> tuple[dict[str, Any], Repairs]:
        """Figures on a file laid out as the training data, or on ``builtin:NAME/test``; and repairs.

        With ``target``, the two are line-aligned files. Losses are those of the model alone, also in an
        ensemble; what is written is the ensemble's.
        """
        path, target = str(path), None if target is None else str(target)
        reading = Reading(self.task, path, target)
        examples = self.task.examples(reading)
        if not len(examples):
            raise EmptyError("no examples", path=path, remedy="give a file laid out as the training data")
        return self.task.evaluate(self.model, examples), reading.repairs

    def score(self, texts: Iterable[str]) -> list[list[tuple[str, float]]]:
        """For each text its tokens, the end marker included, with their natural-log probabilities."""
        self._needs("score")
        return self.task.score(self.model, checked(texts, "texts"))  # type: ignore[attr-defined, no-any-return]

    def generate(self, prompts: Iterable[str], *, trace: int | None = None) -> list[dict[str, Any]]:
        """What each prompt, class or source becomes, as ``decoding.*`` says; ``trace`` is that of predict."""
        self._needs("generate")
        prompts = checked(prompts, "prompts")
        return self.task.generate(self.model, prompts, self.config.decoding, trace)  # type: ignore[attr-defined, no-any-return]

    def _needs(self, method: str) -> None:
        if not hasattr(self.task, method):
            raise ArgumentError(f"{self.run} is a {self.task.name} model, which cannot {method}; use predict")


def load(
    run: str | Path,
    *,
    settings: dict[str, Any] | None = None,
    ensemble: Sequence[str | Path] = (),
    trust_code: bool = False,
) -> Predictor:
    """A trained model from its run folder; ``settings`` are as ``{"decoding.max_length": 50}``.

    ``ensemble`` names other runs of the same task and vocabulary: all of them decide together what is
    written, by the mean of their probabilities. ``trust_code`` lets the runs import the code that they
    name, also where you have not trained with it, and remembers it; without it, that is an error.

    >>> elman.load("runs/names").predict(["Nguyen", "Kowalski"])  # doctest: +SKIP
    ['Vietnamese', 'Polish']
    """
    if isinstance(ensemble, (str, Path)):
        raise ArgumentError(f"ensemble is one run; give a list of them: [{str(ensemble)!r}]")
    run = Path(run)
    trust = Trust(run, everything=trust_code)
    task = make_task(read_config(run, trust))
    checkpoint = best_checkpoint(run)  # first: it vouches for the vocabulary
    task.load(run)
    if settings:
        task.config = changed(task.config, settings)
    check_code(task.config, trust)
    if ensemble:
        if not hasattr(task, "join_partners"):
            raise ArgumentError(
                f"{run} is a {task.name} model, which writes no sequences; only such models make an ensemble"
            )
        partners = [load(one, trust_code=trust_code) for one in ensemble]
        task.join_partners([(one.task, one.model) for one in partners])
    return Predictor(run, task, load_weights(checkpoint, task))


def checked(texts: Iterable[str], name: str) -> list[str]:
    """The texts as a list; one string is none, for its letters would be taken for texts.

    >>> checked(["a", None], "texts")
    Traceback (most recent call last):
    elman.errors.ArgumentError: E101: texts[1] is None; it must be a string
    """
    if isinstance(texts, (str, bytes)):
        raise ArgumentError(f"{name} is one string; give a list of them")
    if not isinstance(texts, Iterable):
        raise ArgumentError(f"{name} is {texts!r}; give a list of strings")
    found = list(texts)
    for number, text in enumerate(found):
        if not isinstance(text, str):
            raise ArgumentError(f"{name}[{number}] is {text!r}; it must be a string")
        if not is_text(text):
            shown = shortened(text)
            raise ArgumentError(f"{name}[{number}] is {shown!r}, which is no text; decode its bytes as UTF-8")
    return found


def readable(unit: Unit, tokens: Iterable[str]) -> list[str]:
    """Each token as the text that it stands for; pieces of a character stay as they are spelt.

    >>> from elman.text.units import make_unit
    >>> readable(make_unit("byte"), ["<0x41>", "<0xC3>"])
    ['A', '<0xC3>']
    """
    texts = ((token, unit.join([token])) for token in tokens)
    return [token if "\N{REPLACEMENT CHARACTER}" in text else text for token, text in texts]
