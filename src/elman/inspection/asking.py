"""From a task to the way of a text through its models."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from elman.errors import ArgumentError
from elman.inspection.passages import Passage
from elman.inspection.word_passages import ClassifyPassage, TagPassage
from elman.inspection.writing_passages import Class2SeqPassage, LmPassage, Seq2SeqPassage
from elman.models.counting import CountedModel
from elman.tasks.base import AnyTask
from elman.tasks.class2seq import Class2Seq
from elman.tasks.classify import Classify
from elman.tasks.lm import Lm
from elman.tasks.seq2seq import Seq2Seq
from elman.tasks.tag import Tag

PASSAGES: dict[type[AnyTask], Callable[..., Passage]] = {
    Tag: TagPassage,
    Classify: ClassifyPassage,
    Lm: LmPassage,
    Class2Seq: Class2SeqPassage,
    Seq2Seq: Seq2SeqPassage,
}


def passage_of(task: AnyTask, model: nn.Module, text: str, target: str | None = None) -> Passage:
    """The way of a text through a model; ``target`` is what should come out: a label, tags, or a text."""
    kind = next((made for base, made in PASSAGES.items() if isinstance(task, base)), None)
    if kind is None:
        raise ArgumentError(f"{task.config.task} is a task of your own; inspect knows those of Elman")
    if isinstance(model, CountedModel):
        raise ArgumentError("the model is counted: it has no network to look into; train one")
    return kind(task, model, text, target)
