"""The contract of a task: read, build vocabularies, encode, collate, build a model, loss, evaluate, predict.

Trainer, command line and predictor speak only this contract. A task file defines one class derived from
``Task``, and the settings that are its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elman.config import Config, RecurrentSettings, lookup
from elman.errors import ConfigError, nearest
from elman.metrics.base import Metric, Output
from elman.metrics.calibration import Calibration
from elman.models.networks.base import Network
from elman.registry import METRICS, NETWORKS, construct
from elman.tasks.defaults import filled
from elman.tasks.examples import Examples
from elman.tasks.generation import Generation, Partners
from elman.tasks.predictions import Prediction
from elman.tasks.statistics import Statistics
from elman.tasks.watched import WatchedExample
from elman.text.batches import EpochBatches, Shuffled
from elman.text.fields import State, TextField
from elman.text.files import Repairs
from elman.text.lexicon import Lexicon
from elman.text.reading import read_fields
from elman.text.records import Record, Source
from elman.text.store import Row

M = TypeVar("M", bound=nn.Module)
B = TypeVar("B")

Chances = list[NDArray[np.float64]]  # probabilities of all labels: (K,) of a text, (T, K) of words
Axes = tuple[Sequence[str] | None, ...]  # of a weight: what its rows, and then its columns, stand for
Measures = dict[str, Any]  # of an evaluation: numbers by name, and what else is to be told, as JSON


@dataclass(frozen=True)
class Loss:
    """The sum of the losses of a batch, what was counted, and the state that the next batch starts from."""

    total: Tensor
    count: int  # of losses
    examples: int
    tokens: int  # that were read
    carry: Any = None
    regularisation: Tensor | None = None  # what is minimised besides: a sum as the total, and no part of it


class Scorer(Protocol):
    """A task whose models tell how probable a text is."""

    field: TextField

    def score(self, model: Any, texts: Sequence[str], *, reader: Any = None) -> list[list[tuple[str, float]]]:
        """For each text its tokens and the end marker, with ``log P(token | those before)``.

        ``reader``: an ``AdaptiveReader`` of the model, which reads one text after the other.
        """


class Chooser(Protocol):
    """A task whose models choose among labels."""

    def chances(self, model: Any, texts: Sequence[str]) -> Chances:
        """How probable each of the task's ``label_names`` is for each text, or for each word of it."""

    def evaluate(self, model: Any, examples: Examples, *, threshold: float | None) -> Measures:
        """As of a task; and what is right among answers that are at least so probable, and how many are."""


class Companion(Protocol):
    """What is fitted beside the training of a model, not by its updates."""

    def fit(self, model: Any, examples: Examples) -> None:
        """Once, before the first update, on the training data."""

    def weigh(self, model: Any, examples: Examples) -> None:
        """Before each validation, on its data."""


class Task(ABC, Generic[M, B]):
    """One kind of job, composed of fields, a batch ``B``, a model ``M``, a loss and metrics.

    It knows its settings and, once its vocabularies are built, what a text is as numbers; it has no weights.

    watched: gives the same few validation examples at every validation, step by step; most tasks have none.
    text_fields: fields whose unit may have learned something, by their names in the run's files.
    generation, scorer, chooser: what its models can do besides, if they can.
    companion: what is fitted beside their training, if anything is.
    calibration: what makes the probabilities of labels right, if it is known; ``calibrated`` gives it.
    axes: tells, by their names, the weights of its models whose rows or columns stand for tokens or labels.
    unrecordable: why its updates cannot be recorded as CUDA graphs, if they cannot.
    reader: modules of its models by their names: what makes vectors of tokens, and the network that reads
        these. Another task's models may start from the weights of both.

    >>> from elman.tasks.tag import Tag, TagSettings
    >>> Tag(TagSettings(task="tag")).generation is None  # it writes nothing
    True
    """

    Settings: ClassVar[type[Config]] = Config
    roles: ClassVar[tuple[str, ...]] = ()
    measured: ClassVar[tuple[str, ...]] = ()  # encoded fields whose lengths make up batches
    positions = 4000  # of a batch in use, padding counted
    together: int | None = None  # and examples of it, at most
    listed: ClassVar[bool] = False  # an example is a list of words, not one text
    holds_out: ClassVar[bool] = True  # a part of the training file serves as validation data
    stratum: ClassVar[str | None] = None  # the role of labels: of each, the same share is held out
    buckets: ClassVar[bool] = False  # its batches are as ``buckets.BucketedBatch`` says
    parted = False  # an example is read, counted and encoded without looking at another
    held_out_block = 1  # examples that stay together when some are held out
    reader: ClassVar[tuple[str, str] | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.buckets = vars(cls).get("buckets", False)  # with a loss of its own, a class says it anew
        cls.parted = vars(cls).get("parted", False)  # and so with a way of its own to read

    def __init__(self, config: Config) -> None:
        self.config = config
        self.text_fields: Mapping[str, TextField] = {}
        self.watched: Callable[[M, Examples], list[WatchedExample]] = _none_watched
        self.generation: Generation[M] | None = None
        self.scorer: Scorer | None = None
        self.chooser: Chooser | None = None
        self.companion: Companion | None = None
        self.calibration: Calibration | None = None
        self.axes: Callable[[], dict[str, Axes]] = dict
        self.unrecordable: str | None = None

    # From files to numbers

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        """The examples of a file as text, one by one, with a field for each of the task's roles."""
        return read_fields(source, self.roles, repairs)

    @abstractmethod
    def build_vocabularies(self, records: Iterable[Record]) -> Statistics:
        """A first pass over the training data: count, then make the vocabularies."""

    @abstractmethod
    def encode(self, records: Iterable[Record], lexicon: Lexicon | None) -> Iterator[Row]:
        """Examples as numbers, by field."""

    def lexicon(self) -> Lexicon | None:
        """A new list of distinct words, where examples keep them as they are written."""
        return None

    # Choices that depend on the data

    @abstractmethod
    def choices(self, statistics: Statistics) -> dict[str, Any]:
        """Values for settings that the user left open."""

    def fill_defaults(self, statistics: Statistics) -> None:
        """Fill the open settings."""
        self.config = filled(self.config, self.choices(statistics), statistics)
        if self.generation is not None:
            self.generation.check(lookup(self.config, "decoding"))
        metric = self.config.training.metric
        if metric is not None and not is_part(metric) and metric not in self.metrics():
            raise ConfigError(f"training.metric is {metric!r}; {nearest(metric, self.metrics())}")

    @abstractmethod
    def metrics(self) -> dict[str, bool]:
        """The numbers that ``evaluate`` gives, the task's own first, and whether a higher one is better."""

    # The network

    @abstractmethod
    def build_model(self, *, fresh: bool = False) -> M:
        """A model; ``fresh``: it also takes what weights have from outside, such as pretrained vectors."""

    def describe(self, model: M) -> list[str]:
        """The network in a line, and what else a user should see before it is trained."""
        return [describe_network(self.config.model)]

    def epoch(self, examples: Examples, epoch: int) -> EpochBatches:
        """The batches of an epoch in an order that its number and the seed decide: keys for ``collate``.

        Incremental descent keeps one order, so that its convergence test compares equal passes.
        """
        settings = self.config.training
        return Shuffled(
            examples.lengths(*self.measured),
            size=settings.batch_size,
            tokens=settings.batch_tokens,
            seed=settings.seed,
            epoch=0 if settings.optimizer == "incremental" else epoch,
            among=self._learned_from(examples),
        )

    def _learned_from(self, examples: Examples) -> NDArray[np.int64] | None:
        """Which examples an epoch has, where not all of them."""
        return None

    @abstractmethod
    def collate(self, examples: Examples, key: Any, device: torch.device) -> B:
        """One batch as tensors."""

    def evaluation_batches(self, examples: Examples, device: torch.device) -> Iterator[B]:
        """Every example once, short ones first: what is evaluated, and what a counted model is fitted to."""
        keys = examples.in_order(*self.measured, tokens=self.positions, size=self.together)
        return (self.collate(examples, key, device) for key in keys)

    @abstractmethod
    def loss(self, model: M, batch: B, *, carry: Any = None, progress: float = 1.0) -> Loss:
        """The loss of a batch; ``progress`` is the share of all updates that is done."""

    # What a model is worth and says

    @abstractmethod
    def evaluate(
        self, model: M, examples: Examples, *, quick: bool = False, partners: Partners = ()
    ) -> Measures:
        """Numbers by name, plus details; ``quick`` during training, where some may be left out.

        There ``calibration`` may be among the details: a ``Calibration`` as JSON, fitted to these examples.
        """

    @abstractmethod
    def predict(
        self, model: M, texts: Sequence[str], *, partners: Partners = (), trace: int | None = None
    ) -> list[Prediction]:
        """A prediction for each text; a task that writes traces its steps where asked."""

    @property
    def label_names(self) -> list[str] | None:
        """The labels, tags or classes that training saw, where it has any."""
        return None

    def samples(self, model: M, examples: Examples) -> list[str]:
        """A few outputs to look at during training."""
        return []

    def reconfigured(self, config: Config) -> Self:
        """The same task with other settings, of which the text is read in the same way."""
        other = copy(self)
        other.config = config
        for name in ("scorer", "chooser"):
            if getattr(self, name) is self:
                setattr(other, name, other)
        return other

    # What was learned from the text

    @abstractmethod
    def state(self) -> State:
        """The vocabularies as JSON."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""


AnyTask = Task[Any, Any]


def _none_watched(model: object, examples: Examples) -> list[WatchedExample]:
    return []


def calibrated(task: AnyTask, calibration: Calibration | None) -> AnyTask:
    """The same task, whose probabilities of labels are set right as a calibration says."""
    other = task.reconfigured(task.config)
    other.calibration = calibration
    return other


class Judges:
    """The metrics that settings name besides a task's own; each example is shown to all of them."""

    def __init__(self, config: Config, names: Iterable[str] = (), **options: Any) -> None:
        """``names`` are metrics of the registry; each gets those of the options that it takes."""
        chosen = config.training.metric
        names = dict.fromkeys([*names, *([chosen] if chosen is not None and is_part(chosen) else [])])
        self.metrics: list[Metric] = []
        for name in names:
            known, own = METRICS.options(name), config.training.metric_options if name == chosen else {}
            given = {key: value for key, value in options.items() if key in known} | own
            self.metrics.append(construct(METRICS.find(name), options=given, named="training.metric_options"))

    def add(self, output: Output, references: Sequence[Output]) -> None:
        for metric in self.metrics:
            metric.add(output, references)

    def values(self) -> Measures:
        return {metric.name: metric.value() for metric in self.metrics}


def is_part(metric: str) -> bool:
    """Does a name mean a metric of the registry or of a user's file?"""
    return ":" in metric or metric in METRICS.names()


def chosen_metric(task: AnyTask) -> tuple[str, bool]:
    """What early stopping and best look at, and whether a higher value is better."""
    said, own = task.config.training.metric, task.metrics()
    if said is None:
        return next(iter(own.items()))
    if said in own:
        return said, own[said]
    kind: type[Metric] = METRICS.find(said)
    return kind.name, kind.higher_is_better


def network_kind(model: RecurrentSettings) -> type[Network]:
    """The class of the network that settings of a model name."""
    kind: type[Network] = NETWORKS.find(lookup(model, "network"))
    return kind


def describe_network(model: RecurrentSettings) -> str:
    """The network that settings name, in a few words."""
    return network_kind(model).summary(lookup(model, "network"), model)
