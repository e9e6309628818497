"""The settings of classification."""

from typing import Annotated, Literal

from pydantic import Field

from elman.config import (
    Among,
    Around,
    DataSettings,
    EvaluationSettings,
    Near,
    Options,
    PartOf,
    ReadIf,
    TrainingSettings,
    Whole,
    setting,
)
from elman.registry import POOLINGS
from elman.tasks.words import WordConfig, WordModel


class ClassifyData(DataSettings):
    labels_separator: str | None = Field(
        None, min_length=1, description="what stands between the labels of a text that has several, as |"
    )


class ClassifyModel(WordModel):
    ngrams: int | None = Field(
        None, ge=1, description="each token also brings the n-grams that end with it, up to this n"
    )
    pooling: Annotated[str, PartOf(POOLINGS)] | None = setting(None, "the last output, or all outputs pooled")
    pooling_options: Options = setting({}, "options of the pooling's constructor")
    head: Whole = setting(0, "width of a hidden layer between pooling and softmax; 0: none")
    shortcut: Annotated[bool | None, ReadIf("model.network", ("rnn",))] = setting(
        None, "a linear model of n-grams beside the network; unset: where a text has one label"
    )
    multilabel: bool | None = setting(
        None, "any number of labels a text, each by a sigmoid; unset: where some text has not exactly one"
    )


class ClassifyTraining(TrainingSettings):
    class_weights: Literal["none", "balanced"] = setting(
        "none", "balanced: a rare class counts as much as a frequent one"
    )
    repeats: Annotated[Literal["all", "once"] | None, ReadIf("training.loss", ("cross-entropy",))] = setting(
        None, "a text that occurs again is learned from each time, or once, while labels stay as frequent"
    )


class ClassifyEvaluation(EvaluationSettings):
    threshold: Annotated[float, Field(gt=0, lt=1), ReadIf("model.multilabel", (True,), open=True)] = setting(
        0.5, "how probable each of several labels is at least"
    )


class ClassifySettings(WordConfig):
    search = {  # noqa: RUF012
        "model.hidden": Around(2),
        "model.embedding": Around(2),
        "model.layers": Among((1, 2)),
        "model.pooling": Among(("max", "mean", "last")),
        "model.dropout": Near(0.2),
        "model.input_dropout": Near(0.2),
        "training.learning_rate": Around(3),
        "training.batch_size": Around(2),
    }
    data: ClassifyData = ClassifyData()
    model: ClassifyModel = ClassifyModel()
    training: ClassifyTraining = ClassifyTraining()
    evaluation: ClassifyEvaluation = ClassifyEvaluation()
