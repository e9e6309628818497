"""The settings of sequence-to-sequence models, and the schedule of teacher forcing."""

from __future__ import annotations

import math
import re
import warnings
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import field_validator, model_validator

from elman.config import (
    Among,
    Around,
    Config,
    Count,
    DecodingSettings,
    EvaluationSettings,
    MarkerSettings,
    ModelSettings,
    Near,
    NetworkSettings,
    NonNegative,
    OneOf,
    Options,
    PartOf,
    Rate,
    ReadIf,
    Section,
    Share,
    TextSettings,
    TrainingSettings,
    Widths,
    setting,
)
from elman.registry import ATTENTIONS, CELLS, METRICS, NETWORKS, UNITS
from elman.text.reading import formats

FLOOR = 0.01  # an exponential never reaches zero: it goes on to this
STEEPNESS = 10.0  # of the inverse sigmoid
PARTS: tuple[Literal["encoder"], Literal["decoder"]] = ("encoder", "decoder")


class SideText(Section):
    """One side, where it differs from text.*"""

    unit: Annotated[str, PartOf(UNITS)] | None = setting(None, "as text.unit")
    unit_options: Options | None = setting(None, "as text.unit_options")
    lowercase: bool | None = setting(None, "as text.lowercase")
    min_count: Count | None = setting(None, "as text.min_count")
    vocabulary_size: Count | None = setting(None, "as text.vocabulary_size")
    vocabulary: list[str] | None = setting(None, "as text.vocabulary")
    vectors: str | None = setting(None, "as text.vectors")
    tune_vectors: bool | None = setting(None, "as text.tune_vectors")
    remove: str | None = setting(
        None, "a regular expression: what it matches is taken out (stress marks, say)"
    )

    @field_validator("remove", "whole", check_fields=False)
    @classmethod
    def _is_an_expression(cls, value: str | None) -> str | None:
        try:
            with warnings.catch_warnings(action="error"):  # of what will mean something else one day
                re.compile(value or "")
        except (re.error, RecursionError, OverflowError, Warning) as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value


class SourceText(SideText):
    """The source, where it differs from text.*"""

    whole: str | None = setting(
        None,
        "a regular expression: what it matches is one token, whatever the unit; unset: features after the "
        "last space (N;ACC;PL) where the unit is character and they come again and again",
    )


class Seq2SeqText(MarkerSettings, TextSettings):
    tune_vectors: Annotated[
        bool, ReadIf("text.vectors", others=("text.source.vectors", "text.target.vectors"))
    ] = setting(True, "train the pretrained vectors on; false: frozen")
    shared: bool | None = setting(None, "one vocabulary for both sides; unset: where they share their script")
    source: SourceText = SourceText()
    target: SideText = SideText()

    def side(self, name: Literal["source", "target"]) -> TextSettings:
        """The settings of one side: its own where it has some."""
        own = getattr(self, name).model_dump(exclude_none=True, exclude={"remove", "whole"})
        return TextSettings(**self.model_dump(include=set(TextSettings.model_fields)) | own)

    def of_field(self, name: str) -> TextSettings:
        return self.side("target" if name == "target" else "source")

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

    cell: Annotated[str, PartOf(CELLS)] | None = setting(None, "as model.cell")
    cell_options: Options | None = setting(None, "as model.cell_options")
    hidden: Widths | None = setting(None, "as model.hidden")
    layers: Count | None = setting(None, "as model.layers")
    bidirectional: bool | None = setting(None, "as model.bidirectional")


class EncoderModel(SideModel):
    """The encoder, where it differs from model.*"""

    network: Annotated[str, PartOf(NETWORKS)] = setting(
        "rnn", "what reads the source: rnn, or a network without recurrence"
    )
    network_options: Options = setting({}, "options of the network's constructor")


class DecoderModel(SideModel):
    """The decoder, where it differs from model.*"""

    bidirectional: bool | None = setting(None, "a decoder goes in one direction: true is an error")

    @field_validator("bidirectional")
    @classmethod
    def _writes_forward(cls, value: bool | None) -> bool | None:
        if value:
            raise ValueError("a decoder goes in one direction; it cannot read what it has not written")
        return value


class Seq2SeqModel(NetworkSettings):
    """The two networks; every cell fits, and every start fits every pair of them."""

    bidirectional: bool = setting(True, "the encoder reads in both directions")
    encoder: EncoderModel = EncoderModel()
    decoder: DecoderModel = DecoderModel()
    form: Literal["two", "single", "naive"] = setting(
        "two", "two networks; single: one for source, separator, target; naive: without the separator"
    )
    start: Annotated[str, OneOf("elman.layers.bridge:POLICIES")] | None = setting(
        None, "the decoder's first state: the encoder's last, a network of it, or zero"
    )
    context: Literal["start", "every-step"] = setting(
        "start", "the encoder's last state is known at the start only, or at every step"
    )
    attention: Annotated[str, PartOf(ATTENTIONS, also=("none",))] | None = setting(
        None, "the score of attention, or none"
    )
    attention_options: Annotated[Options, ReadIf("model.attention", open=True)] = setting(
        {}, "options of the score's constructor"
    )
    placement: Annotated[Literal["before", "after"] | None, ReadIf("model.attention", open=True)] = setting(
        None, "the previous state asks and the context enters the new one, or the new state asks"
    )
    input_feeding: bool = setting(False, "the last readout is part of the next input")
    copy_dropout: Rate | None = setting(
        None, "share of the letters of a pair shown as <unk> on both sides, so that it copies unknown ones"
    )
    tied: bool | Literal["all"] | None = setting(
        None, "the output weights are the target's embedding; all: the source's, too"
    )

    @field_validator("encoder", "decoder", mode="before")
    @classmethod
    def _is_a_table(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"a table of settings stands here, not {value!r}; a cell is set by its key cell")
        return value

    @model_validator(mode="before")
    @classmethod
    def _goes_on_forward(cls, data: Any) -> Any:
        """One network reads in the direction in which it writes, unless something else is asked for.

        Runs of earlier versions say ``before``, which was the default, also where nothing looks.
        """
        if isinstance(data, dict) and (data.get("attention"), data.get("placement")) == ("none", "before"):
            data = data | {"placement": None}
        if isinstance(data, dict) and data.get("form", "two") != "two":
            return {"bidirectional": False, **data}
        return data

    @model_validator(mode="after")
    def _fits_together(self) -> Seq2SeqModel:
        if self.tied and self.embedding == 0:
            raise ValueError("a one-hot input (embedding 0) has no embedding to tie")
        if self.form != "two":
            self._is_one_network()
        for side in PARTS if self.form == "two" else ():
            hidden, layers = self.network(side).hidden, self.network(side).layers
            if isinstance(hidden, list) and layers not in (None, len(hidden)):
                raise ValueError(
                    f"the {side} gets {len(hidden)} widths, {hidden}, but {layers} layers; "
                    f"they must agree: set hidden or layers, of model or of model.{side}"
                )
        return self

    def _is_one_network(self) -> None:
        """Row E6: what would make it two is a mistake."""
        wrong: list[str] = [name for name in PARTS if getattr(self, name) != type(getattr(self, name))()]
        wrong += ["attention"] if self.attention not in (None, "none") else []
        wrong += ["start"] if self.start not in (None, "copy") else []
        wrong += ["context"] if self.context != "start" else []
        wrong += ["input_feeding"] if self.input_feeding else []
        wrong += ["bidirectional"] if self.bidirectional else []
        if wrong:
            names = ", ".join(f"model.{name}" for name in wrong)
            raise ValueError(f"form {self.form!r} is one network that goes on; {names} would need two")

    def network(self, side: Literal["encoder", "decoder"]) -> ModelSettings:
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
        return ModelSettings(**shared | own)

    def _layers(self) -> int | None:
        return len(self.hidden) if isinstance(self.hidden, list) else self.layers


class Seq2SeqTraining(TrainingSettings):
    label_smoothing: Rate | None = setting(None, "share of the target spread over all outcomes")  # type: ignore[assignment]
    teacher_forcing: Share | None = setting(
        None, "probability that a step reads the true token, not the decoder's own (at the end)"
    )
    teacher_forcing_schedule: Literal["constant", "linear", "exponential", "inverse-sigmoid"] = setting(
        "constant", "constant, or how the probability falls from 1 to training.teacher_forcing"
    )


class Seq2SeqDecoding(DecodingSettings):
    coverage_penalty: NonNegative | None = setting(
        None, "what beam search takes off for source tokens that attention left out; unset: 0"
    )
    copy_unknown: bool | None = setting(None, "replace <unk> by the source token that attention looks at")


class Seq2SeqEvaluation(EvaluationSettings):
    """How outputs are compared with references."""

    tokenize: Annotated[str, OneOf("elman.metrics.bleu:TOKENIZERS")] = setting(
        "13a", "sacrebleu's tokenizer for BLEU; none for text that is tokenised already"
    )
    metrics: list[Annotated[str, PartOf(METRICS)]] | None = setting(
        None, "metrics besides the task's own; unset: bleu, chrf and, where it is soon computed, ter"
    )


class Seq2SeqSettings(Config):
    usable = {"data.format": partial(formats, "read")}  # noqa: RUF012
    search = {  # noqa: RUF012
        "model.hidden": Around(2),
        "model.embedding": Around(2),
        "model.layers": Among((1, 2)),
        "model.dropout": Near(0.2),
        "model.input_dropout": Near(0.2),
        "training.label_smoothing": Near(0.1),
        "training.learning_rate": Around(3),
        "training.batch_size": Around(2),
    }
    text: Seq2SeqText = Seq2SeqText()
    model: Seq2SeqModel = Seq2SeqModel()
    training: Seq2SeqTraining = Seq2SeqTraining()
    decoding: Seq2SeqDecoding = Seq2SeqDecoding()
    evaluation: Seq2SeqEvaluation = Seq2SeqEvaluation()

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
    p, x = 1.0 if settings.teacher_forcing is None else settings.teacher_forcing, min(1.0, max(0.0, progress))
    if settings.teacher_forcing_schedule == "constant":
        return p
    if settings.teacher_forcing_schedule == "linear":
        return p * x + (1 - x)
    if settings.teacher_forcing_schedule == "exponential":
        return max(p, FLOOR) ** x if x < 1 else p
    low, high, now = (1 / (1 + math.exp(STEEPNESS * (at - 0.5))) for at in (1.0, 0.0, x))
    left = (now - low) / (high - low)
    return p * (1 - left) + left
