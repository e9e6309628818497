"""The sections of settings that tasks are composed of.

A setting that is None is chosen from the data when training starts (``Task.fill_defaults``) and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from elman.config.ranges import Search
from elman.config.values import (
    Count,
    Files,
    NonNegative,
    OneOf,
    Options,
    PartOf,
    Positive,
    Rate,
    ReadIf,
    Seed,
    Share,
    Whole,
    Widths,
)
from elman.registry import (
    CELLS,
    METRICS,
    NETWORKS,
    OPTIMIZERS,
    READERS,
    SCHEDULES,
    STRATEGIES,
    TASKS,
    UNITS,
    PartName,
)

Value = TypeVar("Value")


def setting(default: Value, description: str) -> Value:
    """A field of a section, as the reference shows it."""
    return Field(default, description=description)


class Section(BaseModel):
    """A table of settings; unknown keys are mistakes, and a section does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    def chosen(self, key: str) -> str | None:
        """The part that a setting of this section names, or that is meant where it names none."""
        name: str | None = getattr(self, key)
        return name

    def read_besides(self) -> set[str]:
        """Settings of a part that something else reads, too, whichever part is chosen."""
        return set()


class DataSettings(Section):
    """Where the examples are and how their files are laid out."""

    train: Files = setting(None, "training file, or several; builtin:NAME is a built-in corpus")
    train_target: Files = setting(None, "second, line-aligned training file, or as many")
    dev: Files = setting(None, "validation file, or several; unset: a part of the training data is held out")
    dev_target: Files = setting(None, "second, line-aligned validation file, or as many")
    held_out: Rate = setting(0.1, "share of the training data held out where dev is unset")
    stratified: bool | None = setting(None, "hold out the same share of every label; unset: true")
    columns: dict[str, int | str] | None = setting(None, "which column is what, by number or name")
    delimiter: str | None = setting(None, "tab, comma, space, or one character; unset: by the file's name")
    separator: str | None = setting(None, "what stands between the two sides of a line")
    prefix: str | None = setting(None, "what every line with a separator begins with")
    format: Annotated[str, PartOf(READERS)] | None = setting(
        None, "layout of the files; unset: by the separator or the file's name"
    )
    format_options: Annotated[Options, ReadIf("data.format")] = setting(
        {}, "options of the reader's constructor"
    )
    encoding: str = setting("utf-8", "of the files, as latin-1, cp1252 or utf-16")


class VocabularySettings(Section):
    """From text to tokens."""

    unit: Annotated[str, PartOf(UNITS)] | None = setting(None, "what a token is; unset: chosen for the text")
    unit_options: Options = setting({}, "options of the unit's constructor")
    lowercase: bool | None = setting(
        None, "lower-case everything; unset: where a comparator labels words, else not"
    )
    min_count: Count | None = setting(None, "rarer tokens become <unk>")
    vocabulary_size: Count | None = setting(
        None, "keep this many tokens; for bpe: its number of units; unset: by the size of the text"
    )
    vocabulary: list[str] | None = setting(None, "exactly these tokens, in this order")

    def of_field(self, name: str) -> VocabularySettings:
        """The settings of one field of the task's."""
        return self


class MarkerSettings(Section):
    """The tokens before and after a text, as they are spelt."""

    reserved: ClassVar[tuple[str, ...]] = ("", "<pad>", "<unk>")  # what no marker may be
    start: str = setting("<s>", "the token that stands before a sequence")
    end: str = setting("</s>", "the token that ends a sequence")

    @model_validator(mode="after")
    def _has_two_markers(self) -> Self:
        if self.start == self.end:
            raise ValueError(f"start and end are both {self.start!r}; they must differ")
        for name in ("start", "end"):
            if getattr(self, name) in self.reserved:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, which means something else; take another"
                )
        return self


class TextSettings(VocabularySettings):
    vectors: str | None = setting(None, "pretrained vectors in the word2vec, GloVe or fastText text form")
    tune_vectors: Annotated[bool, ReadIf("text.vectors")] = setting(
        True, "train the pretrained vectors on; false: frozen"
    )


class RecurrentSettings(Section):
    """A recurrent network; every cell fits every task."""

    cell: Annotated[str, PartOf(CELLS)] = setting("lstm", "name of a cell")
    cell_options: Options = setting({}, "options of the cell's constructor")
    hidden: Widths | None = setting(None, "width; a list: one a layer")
    layers: Count | None = setting(None, "stacked layers")
    bidirectional: bool = setting(False, "read in both directions")
    embedding: Whole | None = setting(None, "width of a token; 0: one-hot")
    dropout: Rate | None = setting(None, "between layers and on outputs")
    recurrent_dropout: Rate = setting(0.0, "variational dropout on the recurrent state")
    zoneout: Rate = setting(0.0, "share of state units that keep their old value in a step")
    weight_drop: Rate | None = setting(
        None, "dropout on the recurrent weights; unset: 0, or as the task says"
    )
    initial_state: Annotated[str, OneOf("elman.layers.rnn:INITIAL_STATES")] = setting(
        "zero", "the state before the first token"
    )
    backend: Annotated[
        str, OneOf("elman.recurrence.unroll:BACKENDS", "elman.recurrence.unroll:usable_backends")
    ] = setting("auto", "engine of the recurrence")
    piece: Count = setting(8192, "steps at once of a single, longer text, whose state is carried on")


class NetworkSettings(RecurrentSettings):
    """A recurrent network over tokens; every cell fits every task."""

    input_dropout: Rate | None = setting(None, "on embeddings")
    locked: bool = setting(
        True, "dropout on embeddings and outputs draws one mask a sequence, not one a position"
    )
    token_dropout: Rate | None = setting(None, "share of positions shown as <unk> in training")
    rare_dropout: NonNegative | None = setting(
        None, "α: a token that occurs n times is shown as <unk> in α/(α+n) of the batches"
    )


class ModelSettings(NetworkSettings):
    """The network; every cell fits every task."""

    network: Annotated[str, PartOf(NETWORKS)] = setting(
        "rnn", "what reads the vectors: rnn, or a comparator without recurrence"
    )
    network_options: Options = setting({}, "options of the network's constructor")
    order: Count | None = setting(None, "tokens of the longest n-gram that is counted")
    window: Count | None = setting(None, "tokens that the window sees; unset: 5")

    def read_besides(self) -> set[str]:
        return {"dropout"}  # also on what any network puts out


class TrainingSettings(Section):
    """How the weights are found."""

    epochs: Count | None = setting(None, "passes over the training data, at most")
    max_steps: Count | None = setting(None, "updates, at most")
    minutes: Positive | None = setting(
        None, "time from start to end, by which max_steps and, if need be, narrower layers are chosen"
    )
    batch_size: Count | None = setting(None, "examples in a batch (rows of a stream)")
    batch_tokens: Count | None = setting(None, "tokens in a batch, padding included")
    accumulate: Count = setting(1, "batches whose gradients make one update")
    optimizer: Annotated[str, PartOf(OPTIMIZERS)] | None = setting(
        None,
        "incremental: example by example, W ← W − η ∇ℓ; asgd: averaged SGD; unset: adamw, or as "
        "the task says",
    )
    optimizer_options: Options = setting({}, "options of the optimiser's constructor")
    learning_rate: Positive | None = setting(None, "η")
    momentum: Rate | None = setting(None, "of sgd; unset: 0")
    betas: tuple[Rate, Rate] | None = setting(None, "of adam and adamw; unset: 0.9 and 0.999")
    weight_decay: NonNegative | None = setting(
        None, "on matrices; of all optimisers but incremental; unset: 0"
    )
    schedule: Annotated[str, PartOf(SCHEDULES)] | None = setting(None, "of the learning rate")
    schedule_options: Options = setting({}, "options of the schedule's constructor")
    warmup: Share | None = setting(None, "share of all updates in which the rate rises; unset: 0.05")
    final_rate: Share | None = setting(None, "share of the rate that is left at the end; unset: 0.01")
    decay: Rate | None = setting(None, "factor of the rate at a plateau; unset: 0.5")
    plateau: Whole | None = setting(
        None, "validations without a lower loss that a plateau forgives; unset: 0"
    )
    clip: NonNegative | None = setting(None, "largest norm of the gradient; 0: any")
    reduction: Literal["mean", "sum"] | None = setting(None, "mean over tokens, or the sum of all losses")
    loss: Annotated[str, OneOf("elman.models.losses:LOSSES")] = setting(
        "cross-entropy", "l(δ): −log p, or ½‖δ‖²"
    )
    label_smoothing: Rate = setting(0.0, "share of the target spread over all outcomes")
    regulariser: Literal["none", "l1", "l2"] = setting("none", "R(w): Σ|w| or ½Σw²")
    regularisation: Annotated[NonNegative, ReadIf("training.regulariser", ("l1", "l2"))] = setting(
        0.0, "λ of (λ/n) R(w)"
    )
    averaging: Annotated[str, OneOf("elman.training.averaging:KINDS")] | None = setting(
        None, "average of the weights that is kept"
    )
    average_decay: Annotated[Rate, ReadIf("training.averaging", ("ema",), open=True)] = setting(
        0.999, "of ema"
    )
    metric: Annotated[str, PartOf(METRICS, open=True)] | None = setting(
        None, "what early stopping and best look at; unset: the task's own"
    )
    metric_options: Annotated[Options, ReadIf("training.metric")] = setting(
        {}, "options of the metric's constructor"
    )
    patience: Count | None = setting(None, "validations without improvement before stopping")
    cooldown: Annotated[NonNegative, ReadIf("training.patience", open=True)] | None = setting(
        None,
        "when patience is over, the rest of the schedule is taken in this share of the updates so far; "
        "unset: training stops at once",
    )
    validate_every: Count | None = setting(
        None, "updates between validations; unset: an epoch, at least 300 and at most 2,000"
    )
    tolerance: NonNegative | None = setting(
        None, "converged when 20 passes in a row change the objective by less than this share"
    )
    log_every: Count | None = setting(None, "updates between lines of metrics.jsonl")
    save_seconds: Positive = setting(60.0, "seconds between checkpoints, besides those of validations")
    seed: Seed = setting(1, "of weights, order and dropout")
    device: str = setting("cpu", "cpu or cuda")
    threads: Count | None = setting(
        None, "threads of torch; kept, so that a continued run adds in the same order"
    )
    graphs: Literal["auto", "off"] = setting(
        "auto", "on cuda, updates of a shape that comes again are recorded as CUDA graphs; off: never"
    )
    precision: (
        Annotated[
            str, OneOf("elman.training.precision:PRECISIONS", "elman.training.precision:usable_precisions")
        ]
        | None
    ) = setting(
        None,
        "of matrix products; tf32: on cuda only, 16-bit ones: by autocast; unset: float32, or as the task "
        "says",
    )

    @model_validator(mode="after")
    def _rounds_where_it_can(self) -> TrainingSettings:
        if self.precision == "tf32" and not self.device.startswith("cuda"):
            raise ValueError(
                f"precision 'tf32' is for cuda, and device is {self.device!r}; "
                "set training.device = 'cuda', or training.precision = 'float32'"
            )
        return self


class DecodingSettings(Section):
    """How sequences are generated."""

    strategy: Annotated[str, PartOf(STRATEGIES)] | None = setting(
        None,
        "greedy, beam, sample or diverse; unset: sample if temperature, top_k or top_p is set, beam if "
        "beam is above 1, else greedy",
    )
    strategy_options: Annotated[Options, ReadIf("decoding.strategy")] = setting(
        {}, "options of the strategy's constructor"
    )
    beam: Count | None = setting(None, "sequences that beam search keeps; unset: 5")
    temperature: Positive | None = setting(None, "of drawing: below 1 bolder towards the probable; unset: 1")
    top_k: Count | None = setting(None, "draw among this many")
    top_p: Annotated[float, Field(gt=0, le=1)] | None = setting(
        None, "draw among the likeliest that make this share"
    )
    min_length: Whole = setting(0, "tokens before the end marker may come")
    max_length: Count | None = setting(None, "tokens at most")
    length_penalty: NonNegative | None = setting(
        None, "α of log p / length^α, by which beam search ranks; 0: log p itself; unset: 1"
    )
    n_best: Count = setting(1, "sequences of each example; greedy has one")
    no_repeat: Whole = setting(0, "length of the n-grams that may come only once; 0: any may repeat")
    banned: list[str] = setting([], "tokens that never come")
    prefix: str = setting("", "text that the output begins with")
    stop: list[str] = setting([], "tokens that end the sequence")
    seed: Seed = setting(1, "of drawing")

    def chosen(self, key: str) -> str | None:
        return strategy_name(self) if key == "strategy" else super().chosen(key)

    @property
    def draws(self) -> bool:
        """Whether something is set that only drawing reads."""
        return any(value is not None for value in (self.temperature, self.top_k, self.top_p))

    def read_besides(self) -> set[str]:
        # A beam of several models has nothing to draw, and may be given a seed; a beam of one is greedy, and
        # one that is yet to be chosen decides the strategy.
        return {"seed", "beam"} if self.strategy is None and (self.beam or 1) == 1 else {"seed"}


class EvaluationSettings(Section):
    """What outputs are judged by."""

    metrics: list[Annotated[str, PartOf(METRICS)]] | None = setting(None, "metrics besides the task's own")


class Config(Section):
    """All settings of a run; a task replaces sections by its own, and adds those that it alone has."""

    usable: ClassVar[Mapping[str, Callable[[], Collection[str]]]] = {}  # parts by key, where not all fit

    search: ClassVar[Search] = {}  # what elman tune tries of settings that nobody said

    task: Annotated[str, PartOf(TASKS)] = Field(description="lm, tag, classify, seq2seq or class2seq")
    data: DataSettings = DataSettings()
    text: VocabularySettings = TextSettings()
    model: RecurrentSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()


def strategy_name(settings: DecodingSettings) -> str:
    """The strategy that is meant, where none is named.

    >>> strategy_name(DecodingSettings(beam=4)), strategy_name(DecodingSettings(beam=4, top_k=9))
    ('beam', 'sample')
    """
    if settings.strategy is not None:
        return settings.strategy
    if settings.draws:
        return "sample"
    return "beam" if (settings.beam or 1) > 1 else "greedy"


def part_names(config: Section, prefix: str = "") -> Iterator[tuple[str, PartName]]:
    """The settings that name a part, by their dotted keys; one of a list has its number after it."""
    for name, value in config:
        if isinstance(value, Section):
            yield from part_names(value, f"{prefix}{name}.")
        for number, one in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(one, PartName):
                yield f"{prefix}{name}" + (f".{number}" if isinstance(value, list) else ""), one
