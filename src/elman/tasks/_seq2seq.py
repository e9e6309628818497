"""The settings of sequence-to-sequence models, and the schedule of teacher forcing."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from elman.config import (
    Config,
    Count,
    NetworkSettings,
    Part,
    Section,
    Share,
    TextSettings,
    TrainingSettings,
    Widths,
)
from elman.errors import ElmanError
from elman.registry import ATTENTIONS, PartName

FLOOR = 0.01  # an exponential never reaches zero: it goes on to this
STEEPNESS = 10.0  # of the inverse sigmoid
NETWORKS: tuple[Literal["encoder"], Literal["decoder"]] = ("encoder", "decoder")


class SideText(Section):
    """One side, where it differs from text.*"""

    unit: Literal["word", "character", "byte", "bpe"] | None = Field(None, description="as text.unit")
    lowercase: bool | None = Field(None, description="as text.lowercase")
    min_count: Count | None = Field(None, description="as text.min_count")
    vocabulary_size: Count | None = Field(None, description="as text.vocabulary_size")
    vocabulary: list[str] | None = Field(None, description="as text.vocabulary")
    vectors: str | None = Field(None, description="as text.vectors")
    tune_vectors: bool | None = Field(None, description="as text.tune_vectors")
    remove: str | None = Field(
        None, description="a regular expression: what it matches is taken out (stress marks, say)"
    )

    @field_validator("remove")
    @classmethod
    def _is_an_expression(cls, value: str | None) -> str | None:
        try:
            with warnings.catch_warnings(action="error"):  # of what will mean something else one day
                re.compile(value or "")
        except (re.error, RecursionError, OverflowError, Warning) as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value


class Seq2SeqText(TextSettings):
    """From text to tokens."""

    shared: bool = Field(False, description="one vocabulary for both sides")
    source: SideText = SideText()
    target: SideText = SideText()

    def side(self, name: Literal["source", "target"]) -> TextSettings:
        """The settings of one side: its own where it has some."""
        own = getattr(self, name).model_dump(exclude_none=True, exclude={"remove"})
        return TextSettings(**self.model_dump(include=set(TextSettings.model_fields)) | own)

    @property
    def alike(self) -> bool:
        """Whether one vocabulary could serve both sides."""
        return self.side("source") == self.side("target")

    @model_validator(mode="after")
    def _shares_what_is_equal(self) -> Seq2SeqText:
        if self.shared and not self.alike:
            raise ValueError(
                "text.shared is one vocabulary, so both sides need the same unit and case; "
                "text.source and text.target may differ in remove alone"
            )
        return self


class SideModel(Section):
    """One of the two networks, where it differs from model.*"""

    cell: Part | None = Field(None, description="as model.cell")
    cell_options: dict[str, Any] | None = Field(None, description="as model.cell_options")
    hidden: Widths | None = Field(None, description="as model.hidden")
    layers: Count | None = Field(None, description="as model.layers")
    bidirectional: bool | None = Field(None, description="as model.bidirectional")


class DecoderModel(SideModel):
    """The decoder, where it differs from model.*"""

    bidirectional: bool | None = Field(None, description="a decoder goes in one direction: true is an error")

    @field_validator("bidirectional")
    @classmethod
    def _writes_forward(cls, value: bool | None) -> bool | None:
        if value:
            raise ValueError("a decoder goes in one direction; it cannot read what it has not written")
        return value


class Seq2SeqModel(NetworkSettings):
    """The two networks; every cell fits, and every start fits every pair of them."""

    bidirectional: bool = Field(True, description="the encoder reads in both directions")
    encoder: SideModel = SideModel()
    decoder: DecoderModel = DecoderModel()
    form: Literal["two", "single", "naive"] = Field(
        "two",
        description="two networks; single: one for source, separator, target; naive: without the separator",
    )
    start: Literal["copy", "transform", "zero"] | None = Field(
        None, description="the decoder's first state: the encoder's last, a network of it, or zero"
    )
    context: Literal["start", "every-step"] = Field(
        "start", description="the encoder's last state is known at the start only, or at every step"
    )
    attention: Part | None = Field(
        None, description="none, dot, bilinear, additive, location, or file.py:Class"
    )
    attention_options: dict[str, Any] = Field({}, description="options of the score's constructor")
    placement: Literal["before", "after"] = Field(
        "before",
        description="the previous state asks and the context enters the new one, or the new state asks",
    )
    input_feeding: bool = Field(False, description="the last readout is part of the next input")
    tied: bool | Literal["all"] | None = Field(
        None, description="the output weights are the target's embedding; all: the source's, too"
    )

    @field_validator("encoder", "decoder", mode="before")
    @classmethod
    def _is_a_table(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"a table of settings stands here, not {value!r}; a cell is set by its key cell")
        return value

    @field_validator("attention")
    @classmethod
    def _knows_the_score(cls, value: PartName | None) -> PartName | None:
        """What a run names in code is looked at when it is needed, not where its settings are read."""
        if value not in (None, "none") and not (value.of_code and value.trust):
            try:
                ATTENTIONS.find(value)
            except ElmanError as error:
                raise ValueError(f"{error.args[0]}; none is no attention") from None
        return value

    @model_validator(mode="before")
    @classmethod
    def _goes_on_forward(cls, data: Any) -> Any:
        """One network reads in the direction in which it writes, unless something else is asked for."""
        if isinstance(data, dict) and data.get("form", "two") != "two":
            return {"bidirectional": False, **data}
        return data

    @model_validator(mode="after")
    def _fits_together(self) -> Seq2SeqModel:
        if self.tied and self.embedding == 0:
            raise ValueError("a one-hot input (embedding 0) has no embedding to tie")
        if self.form != "two":
            self._is_one_network()
        for side in NETWORKS if self.form == "two" else ():
            hidden, layers = self.network(side).hidden, self.network(side).layers
            if isinstance(hidden, list) and layers not in (None, len(hidden)):
                raise ValueError(
                    f"the {side} gets {len(hidden)} widths, {hidden}, but {layers} layers; "
                    f"they must agree: set hidden or layers, of model or of model.{side}"
                )
        return self

    def _is_one_network(self) -> None:
        """Row E6: what would make it two is a mistake."""
        wrong: list[str] = [name for name in NETWORKS if getattr(self, name) != type(getattr(self, name))()]
        wrong += ["attention"] if self.attention not in (None, "none") else []
        wrong += ["start"] if self.start not in (None, "copy") else []
        wrong += ["context"] if self.context != "start" else []
        wrong += ["input_feeding"] if self.input_feeding else []
        wrong += ["bidirectional"] if self.bidirectional else []
        if wrong:
            names = ", ".join(f"model.{name}" for name in wrong)
            raise ValueError(f"form {self.form!r} is one network that goes on; {names} would need two")

    def network(self, side: Literal["encoder", "decoder"]) -> NetworkSettings:
        """The settings of one of the two networks."""
        own = getattr(self, side).model_dump(exclude_none=True)
        shared = self.model_dump(include=set(NetworkSettings.model_fields))
        if "hidden" in own and "layers" not in own:
            shared["layers"] = None if isinstance(own["hidden"], list) else self._layers()
        if own.get("cell", self.cell) != self.cell:
            shared["cell_options"] = {}  # of another cell
        if self.form != "two" or side == "decoder":
            shared["bidirectional"] = False
        if side == "decoder":
            shared["initial_state"] = "zero"  # model.start says where it begins
        return NetworkSettings(**shared | own)

    def _layers(self) -> int | None:
        return len(self.hidden) if isinstance(self.hidden, list) else self.layers


class Seq2SeqTraining(TrainingSettings):
    """How the weights are found."""

    teacher_forcing: Share = Field(
        1.0, description="probability that a step reads the true token, not the decoder's own (at the end)"
    )
    teacher_forcing_schedule: Literal["constant", "linear", "exponential", "inverse-sigmoid"] = Field(
        "constant", description="constant, or how the probability falls from 1 to training.teacher_forcing"
    )


class EvaluationSettings(Section):
    """How outputs are compared with references."""

    tokenize: Literal["13a", "none", "intl", "char", "zh"] = Field(
        "13a", description="sacrebleu's tokenizer for BLEU; none for text that is tokenised already"
    )
    metrics: list[Literal["bleu", "chrf", "ter"]] | None = Field(
        None,
        description="what sacrebleu is asked for; unset: all three, ter only where it can be computed soon",
    )


class Seq2SeqSettings(Config):
    text: Seq2SeqText = Seq2SeqText()
    model: Seq2SeqModel = Seq2SeqModel()
    training: Seq2SeqTraining = Seq2SeqTraining()
    evaluation: EvaluationSettings = EvaluationSettings()

    @model_validator(mode="after")
    def _one_network_reads_one_vocabulary(self) -> Seq2SeqSettings:
        if self.model.form != "two" and not self.text.alike:
            raise ValueError(
                f"model.form {self.model.form!r} is one network with one vocabulary, "
                "so both sides of text need the same unit and case; "
                "text.source and text.target may differ in remove alone"
            )
        return self

    @model_validator(mode="after")
    def _ties_what_is_shared(self) -> Seq2SeqSettings:
        if self.model.tied == "all" and self.model.form == "two" and not self.text.shared:
            raise ValueError("model.tied 'all' needs one vocabulary for both sides; set text.shared = true")
        return self


def forcing(settings: Seq2SeqTraining, progress: float) -> float:
    """The probability that a token is the true one after this share of all updates (row E3).

    All schedules but ``constant`` begin at 1 and end at ``teacher_forcing``.

    >>> half = Seq2SeqTraining(teacher_forcing=0.5, teacher_forcing_schedule="linear")
    >>> [forcing(half, progress) for progress in (0.0, 0.5, 1.0)]
    [1.0, 0.75, 0.5]
    """
    p, x = settings.teacher_forcing, min(1.0, max(0.0, progress))
    if settings.teacher_forcing_schedule == "constant":
        return p
    if settings.teacher_forcing_schedule == "linear":
        return p * x + (1 - x)
    if settings.teacher_forcing_schedule == "exponential":
        return max(p, FLOOR) ** x if x < 1 else p
    low, high, now = (1 / (1 + math.exp(STEEPNESS * (at - 0.5))) for at in (1.0, 0.0, x))
    left = (now - low) / (high - low)
    return p * (1 - left) + left
