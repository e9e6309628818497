"""The settings of a tagger."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from pydantic import model_validator

from elman.config import Among, Around, EvaluationSettings, Near, ReadIf, TextSettings, Whole, setting
from elman.tasks.words import WordConfig, WordModel
from elman.text.reading import formats


class TagText(TextSettings):
    unit: Literal["word"] = setting("word", "what a token is: a tag belongs to a word")
    vectors_alone: Annotated[bool, ReadIf("text.vectors")] = setting(
        False, "the pretrained vectors are all that is read of a word, unless letters are asked for"
    )


class TagModel(WordModel):
    crf: bool | None = setting(None, "a CRF over the tags; unset: where the tags are spans")
    span_bias: Annotated[bool | None, ReadIf("model.crf", open=True)] = setting(
        None, "prefer tags of spans as gives the best F1 of the validation data; unset: with a CRF"
    )
    affixes: Whole | None = setting(
        None, "width of the vectors of a word's beginnings, endings and shape, by hash; 0: none"
    )
    shortcut: bool | None = setting(
        None,
        "a linear tagger beside the network: features of the word and its neighbours straight to the tags",
    )


class TagSettings(WordConfig):
    usable = {"data.format": partial(formats, "read_tokens")}  # noqa: RUF012
    search = {  # noqa: RUF012
        "model.hidden": Around(2),
        "model.embedding": Around(2),
        "model.characters": Around(2),
        "model.layers": Among((1, 2)),
        "model.dropout": Near(0.2),
        "model.input_dropout": Near(0.2),
        "training.learning_rate": Around(3),
        "training.batch_size": Around(2),
    }
    text: TagText = TagText()
    model: TagModel = TagModel()
    evaluation: EvaluationSettings = EvaluationSettings()

    @model_validator(mode="after")
    def _has_one_loss(self) -> TagSettings:
        if self.model.crf and (self.training.loss != "cross-entropy" or self.training.label_smoothing):
            raise ValueError(
                "a CRF has its own loss, −log p(tags); training.loss and training.label_smoothing need "
                "model.crf = false"
            )
        return self
