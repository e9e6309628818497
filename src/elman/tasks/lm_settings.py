"""The settings of language models."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import model_validator

from elman.config import (
    Among,
    Around,
    Config,
    Count,
    DecodingSettings,
    MarkerSettings,
    ModelSettings,
    Near,
    NonNegative,
    Positive,
    Rate,
    ReadIf,
    Section,
    Share,
    TextSettings,
    TrainingSettings,
    setting,
)
from elman.text.reading import formats


class LmText(MarkerSettings, TextSettings):
    start: Annotated[str, ReadIf("text.context", ("sentence",))] = setting(
        "<s>", "the token that stands before a sequence; a stream has the end of the line before"
    )
    context: Literal["stream", "sentence"] = setting(
        "stream", "read on from line to line with the state carried over, or every line for itself"
    )
    reversed: bool = setting(
        False, "read every line from its end: each token from those after it; with text.context = sentence"
    )

    @model_validator(mode="before")
    @classmethod
    def _takes_lines_alone(cls, data: Any) -> Any:
        """Lines that are read from their ends do not go on in one another."""
        if isinstance(data, dict) and data.get("reversed") is True:
            if data.get("context", "sentence") != "sentence":
                raise ValueError("text.reversed reads every line for itself; set text.context = 'sentence'")
            return {"context": "sentence", **data}
        return data


class LmModel(ModelSettings):
    layer_dropout: Rate | None = setting(
        None, "between layers, one mask a sequence; unset: model.dropout, drawn at every position"
    )
    embedding_dropout: Rate | None = setting(
        None, "share of the vocabulary whose vectors are zero for a batch; unset: 0"
    )
    tied: bool | None = setting(None, "the output weights are the embedding")
    adaptive_softmax: bool | None = setting(
        None, "rare tokens are chosen in two steps, by narrower weights; unset: for more than 50,000"
    )

    @model_validator(mode="after")
    def _reads_forward(self) -> LmModel:
        if self.bidirectional:
            raise ValueError("a language model reads in one direction; it would see what it must predict")
        if self.tied and self.embedding == 0:
            raise ValueError("a one-hot input (embedding 0) has no embedding to tie")
        if self.tied and self.adaptive_softmax:
            raise ValueError("an adaptive softmax has weights of its own; set model.tied = false")
        return self


class LmTraining(TrainingSettings):
    truncate: Annotated[Count | None, ReadIf("text.context", ("stream",))] = setting(
        None, "steps of truncated backpropagation in a stream"
    )
    vary_truncate: Annotated[bool | None, ReadIf("text.context", ("stream",))] = setting(
        None, "segments of a stream are longer and shorter, cut elsewhere in every epoch; unset: false"
    )
    activation_regularisation: NonNegative | None = setting(
        None, "α of α mean((m ⊙ h)²) for outputs h under their dropout m (AR); unset: 0"
    )
    temporal_regularisation: NonNegative | None = setting(
        None, "β of β mean((h_t − h_{t+1})²) for outputs h (TAR); unset: 0"
    )


class LmEvaluation(Section):
    """What a trained model may learn from a text while it is evaluated or scored."""

    dynamic: bool = setting(False, "learn from each part of the text after it was predicted")
    dynamic_rate: Annotated[Positive, ReadIf("evaluation.dynamic")] = setting(
        1e-3, "learning rate of dynamic evaluation, in root mean squares of the gradient"
    )
    dynamic_decay: Annotated[Share, ReadIf("evaluation.dynamic")] = setting(
        0.005, "how far weights go back to the trained ones at each update of dynamic evaluation"
    )
    dynamic_steps: Annotated[Count, ReadIf("evaluation.dynamic")] = setting(
        10, "tokens between two updates of dynamic evaluation"
    )
    cache: bool = setting(False, "tokens that came lately after a similar output are more probable")
    cache_size: Annotated[Count, ReadIf("evaluation.cache")] = setting(1000, "tokens that the cache keeps")
    cache_weight: Annotated[Rate, ReadIf("evaluation.cache")] = setting(
        0.1, "λ: share of the probability that the cache gives"
    )
    cache_sharpness: Annotated[NonNegative, ReadIf("evaluation.cache")] = setting(
        8.0, "θ of exp(θ h · h_i / mean ‖h‖²), by which the cache compares outputs"
    )


class LmSettings(Config):
    usable = {"data.format": partial(formats, "read", paired=False)}  # noqa: RUF012
    search = {  # noqa: RUF012
        "model.hidden": Around(2),
        "model.embedding": Around(2),
        "model.layers": Among((1, 2)),
        "model.dropout": Near(0.2),
        "model.input_dropout": Near(0.2),
        "training.learning_rate": Around(3),
        "training.batch_size": Around(2),
        "training.truncate": Around(2),
    }
    text: LmText = LmText()
    model: LmModel = LmModel()
    training: LmTraining = LmTraining()
    decoding: DecodingSettings = DecodingSettings()
    evaluation: LmEvaluation = LmEvaluation()
