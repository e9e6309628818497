"""The contract of a task: read → collate → build_model → loss → evaluate → predict.

Trainer, command line and predictor speak only this contract. A task file defines one class derived from
``Task``, and the settings that are its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elman.config import Config, NetworkSettings, TextSettings, changed, to_toml
from elman.errors import ConfigError, RunError, nearest
from elman.models.embedding import Pretrained, RareTokenDropout
from elman.tensors.transfer import moved
from elman.text.batches import Segments, plan_batches
from elman.text.files import write_text
from elman.text.lexicon import Lexicon
from elman.text.readers import Record, Repairs, Source
from elman.text.sealed import parsed, read_plain
from elman.text.store import Store
from elman.text.units import Unit, make_unit, unit_from_json
from elman.text.vocabulary import MARKERS, UNKNOWN, Vocabulary

FORMAT = 1
LARGEST = 50_000  # entries of a vocabulary whose size is not set
INCREMENTAL = {  # row G2: example by example, plain steps, the summed loss
    "training.batch_size": 1,
    "training.batch_tokens": None,
    "training.schedule": "constant",
    "training.averaging": "none",
    "training.clip": 0.0,
    "training.reduction": "sum",
}
DISTORTING = ("momentum", "weight_decay")
FASTEST = 0.1  # learning rate of incremental descent where an example has few losses
SHARED = (
    0.5  # where it has many: this much divided by their number, for they are summed and nothing is clipped
)
DROPOUTS = tuple(f"model.{name}" for name in ("dropout", "input_dropout", "token_dropout", "rare_dropout"))


@dataclass
class Examples:
    """Encoded examples: their numbers, and the words of a lexicon where the task keeps one."""

    store: Store
    words: list[str] = field(default_factory=list)
    lexicon: Lexicon | None = None

    @classmethod
    def in_memory(cls, rows: Iterable[Any], lexicon: Lexicon) -> Examples:
        """Examples in memory whose words the lexicon has numbered."""
        return cls(Store.in_memory(rows), lexicon.words, lexicon)

    def __len__(self) -> int:
        return len(self.store)


@dataclass(frozen=True)
class Loss:
    """The sum of the losses of a batch, what was counted, and the state that the next batch starts from."""

    total: Tensor
    count: int  # of losses
    examples: int
    tokens: int  # that were read
    carry: Any = None


@dataclass
class Statistics:
    """What a first pass over the training data saw."""

    examples: int = 0
    tokens: int = 0
    types: int = 0
    longest: int = 0
    losses: int = 0  # of all examples: one a label, or one a token that is predicted


C = TypeVar("C", bound=Config)


class Task(Generic[C]):
    """One kind of job. ``tables`` are what it learned from the text (vocabularies); weights are not here."""

    Settings: ClassVar[type[Config]] = Config
    metric: ClassVar[str] = "loss"
    roles: ClassVar[tuple[str, ...]] = ()
    holds_out: ClassVar[bool] = True

    def __init__(self, config: C) -> None:
        self.config = config
        self.statistics = Statistics()
        self.unit: Unit = make_unit("word")
        self.notes: list[str] = []  # what a user should know about the data: coverage, sizes
        self.device = torch.device("cpu")
        self.progress = 0.0  # share of all updates that is done, for what changes during training
        self.counts: list[int] = []  # how often each token of the vocabulary occurs in the training data
        self.vector_width = 0
        self.matrix: NDArray[np.float32] | None = None  # pretrained vectors, between learn and initialise

    @property
    def name(self) -> str:
        return self.config.task

    # From files to numbers

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        """The examples of a file as text, one by one."""
        raise NotImplementedError

    def learn(self, records: Iterable[Record]) -> None:
        """A first pass over the training data: count, then make the vocabularies."""
        raise NotImplementedError

    def meet(self, records: Iterable[Record]) -> None:
        """Labels of held-out examples, which come from the same file; their words stay unknown."""

    def encode(self, records: Iterable[Record]) -> Iterator[dict[str, Sequence[int]]]:
        """Examples as numbers."""
        raise NotImplementedError

    def examples(self, records: Iterable[Record], folder: Path | None = None, key: str = "") -> Examples:
        """Encoded examples: in memory, or in a cache folder that is used again if its key fits."""
        if folder is None:
            return Examples(Store.in_memory(self.encode(records)))
        store = Store.open(folder, key)
        return Examples(store or Store.write(folder, self.encode(records), key))

    # Choices that depend on the data

    def choices(self) -> dict[str, Any]:
        """Settings for those that the user left open; called after ``learn``."""
        raise NotImplementedError

    def fill_defaults(self) -> None:
        """Fill the open settings."""
        hidden = self.config.model.hidden
        usual = {
            "model.layers": len(hidden) if isinstance(hidden, list) else 1,
            "training.clip": 1.0,
            "training.reduction": "mean",
        } | self.choices()
        if (lookup(self.config, "training.optimizer") or usual.get("training.optimizer")) == "incremental":
            self._check_incremental()
            usual |= {"training.learning_rate": None} if "training.optimizer" not in usual else {}
            usual |= INCREMENTAL | dict.fromkeys(DROPOUTS, 0.0) | {"training.tolerance": 0.003}
        if self.config.training.optimizer == "asgd":
            usual["training.averaging"] = "tail"
        if self.config.training.max_steps is not None:
            usual.pop("training.epochs", None)  # the number of updates says it all
        opened = {key: value for key, value in usual.items() if lookup(self.config, key) is None}
        self.config = changed(self.config, opened)
        if self.config.training.learning_rate is None:
            rate = min(FASTEST, SHARED / self.losses_of_example())
            self.config = changed(self.config, {"training.learning_rate": float(f"{rate:.2g}")})
        metric = self.config.training.metric
        if metric is not None and metric not in self.metrics():
            raise ConfigError(f"training.metric is {metric!r}; {nearest(metric, self.metrics())}")

    def losses_of_example(self) -> float:
        """How many losses are summed for an update of incremental descent, in the mean."""
        return max(1.0, self.statistics.losses / max(1, self.statistics.examples))

    def _check_incremental(self) -> None:
        """Incremental descent is one thing exactly; a setting that would change it is a mistake (row G2)."""
        wrong = [key for key, value in INCREMENTAL.items() if lookup(self.config, key) not in (None, value)]
        wrong += ["training.accumulate"] if self.config.training.accumulate != 1 else []
        wrong += [f"training.{name}" for name in DISTORTING if getattr(self.config.training, name)]
        if wrong:
            raise ConfigError(
                f"training.optimizer is 'incremental': one example, one plain step of the summed loss; "
                f"{', '.join(wrong)} would make it something else. Remove it, or take optimizer = 'sgd'"
            )

    def metrics(self) -> tuple[str, ...]:
        """Names of the figures that ``evaluate`` gives."""
        return ("loss", "accuracy")

    def chosen_metric(self) -> str:
        return self.config.training.metric or self.metric

    def rank(self, figures: Mapping[str, Any]) -> tuple[float, float]:
        """What makes one validation better: the chosen metric, then the loss; greater is better."""
        value = float(figures[self.chosen_metric()])
        falling = self.chosen_metric() in ("loss", "perplexity", "error_rate")
        return -value if falling else value, -float(figures["loss"])

    # The network

    def networks(self) -> list[NetworkSettings]:
        """The settings of the recurrent networks, in the order in which they work."""
        return [self.config.model]

    def build_model(self) -> nn.Module:
        raise NotImplementedError

    def initialise(self, model: nn.Module) -> None:
        """What fresh weights take from outside: pretrained vectors."""
        for module in model.modules():
            if isinstance(module, Pretrained):
                module.fill(self.read_matrix() if self.matrix is None else self.matrix)
        self.matrix = None

    def read_matrix(self) -> NDArray[Any]:
        """The pretrained vectors of the known words: a run that is continued has learned its words before."""
        raise NotImplementedError

    def hiding(self, vocabulary: Vocabulary) -> RareTokenDropout | None:
        """What shows rare tokens as unknown in training, if the settings ask for it."""
        strength = self.config.model.rare_dropout
        return RareTokenDropout(strength, self.counts, vocabulary.id(UNKNOWN)) if strength else None

    def pretrained(self, rows: int) -> Pretrained | None:
        """The table of pretrained vectors, if the settings name a file of them."""
        if not self.config.text.vectors:
            return None
        return Pretrained(rows, self.vector_width, tuned=self.config.text.tune_vectors)

    def plan(self, examples: Examples, epoch: int) -> Sequence[Any] | Segments:
        """The batches of an epoch in order: keys that ``collate`` understands."""
        raise NotImplementedError

    def shuffled(self, lengths: NDArray[np.int64], epoch: int) -> list[NDArray[np.int64]]:
        """Batches of examples of these lengths, in an order that seed and epoch decide.

        Incremental descent keeps one order, so that its convergence test compares equal passes.
        """
        settings = self.config.training
        return plan_batches(
            lengths,
            size=settings.batch_size,
            tokens=settings.batch_tokens,
            seed=settings.seed,
            epoch=0 if settings.optimizer == "incremental" else epoch,
            shuffle=True,
        )

    def collate(self, examples: Examples, key: Any) -> Any:
        """One batch as tensors."""
        raise NotImplementedError

    def batches(self, examples: Examples) -> Iterator[Any]:
        """Every example once, in a fixed order: what a counted model is fitted to."""
        raise NotImplementedError

    def loss(self, model: Any, batch: Any, carry: Any = None) -> Loss:
        raise NotImplementedError

    def evaluate(self, model: Any, examples: Examples) -> dict[str, Any]:
        """Flat figures, plus details."""
        raise NotImplementedError

    def predict(self, model: Any, texts: Sequence[str]) -> list[dict[str, Any]]:
        """A dictionary for each text: ``prediction`` is the answer, ``line`` its one-line form."""
        raise NotImplementedError

    def validate(self, model: Any, examples: Examples) -> dict[str, Any]:
        """Figures during training; a task whose evaluation takes long gives fewer of them here."""
        return self.evaluate(model, examples)

    def describe(self, model: Any) -> list[str]:
        """What else a user should see of the network before it is trained: how its parts fit together."""
        return []

    def samples(self, model: Any, examples: Examples) -> list[str]:
        """A few outputs to look at during training."""
        return []

    # What was learned from the text

    def tables(self) -> dict[str, Any]:
        """The vocabularies as JSON."""
        raise NotImplementedError

    def restore(self, tables: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def save(self, run: Path) -> None:
        """``vocabulary.json``, and ``tokenizer.json`` where the unit has learned something itself."""
        for name, text in self._learned_files().items():
            write_text(run / name, text)

    def _learned_files(self) -> dict[str, str]:
        files = {"vocabulary.json": {"format": FORMAT, "task": self.name, **self.tables()}}
        if learned := self.tokenizers():
            files["tokenizer.json"] = learned
        return {
            name: json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
            for name, content in files.items()
        }

    def encoding(self) -> str:
        """The SHA-256 of what decides how text becomes numbers: settings, and what was learned."""
        sections = (self.config.data, self.config.text, self.config.model)
        parts = [self.name, *map(to_toml, sections), *self._learned_files().values()]
        return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()

    def load(self, run: Path) -> None:
        """What ``save`` wrote, checked."""
        tables = read_json(run / "vocabulary.json")
        if tables.get("format") != FORMAT:
            raise RunError(
                f"{run / 'vocabulary.json'}: format {tables.get('format')!r}; this version reads {FORMAT}"
            )
        if tables.get("task") != self.name:
            raise RunError(
                f"{run / 'vocabulary.json'} is of the task {tables.get('task')!r}, the run is a "
                f"{self.name} model; restore the file or train again"
            )
        try:
            self.load_units(run)
            self.restore(tables)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"{run / 'vocabulary.json'} does not hold what a {self.name} model needs "
                f"({type(error).__name__}: {error}); restore the file or train again"
            ) from None

    def tokenizers(self) -> dict[str, Any]:
        """Units that have learned something, as JSON; empty where none has."""
        return self.unit.to_json() if self.unit.name == "bpe" else {}

    def load_units(self, run: Path) -> None:
        learned = self.config.text.unit == "bpe"
        self.unit = self.make_unit(read_json(run / "tokenizer.json") if learned else None)

    def make_unit(self, saved: dict[str, Any] | None = None, training: Iterable[str] | None = None) -> Unit:
        settings = self.config.text
        if saved is not None:
            return unit_from_json(saved)
        return make_unit(
            settings.unit,
            lowercase=settings.lowercase,
            size=settings.vocabulary_size or 8000,
            training=training,
        )


def vocabulary_from(settings: TextSettings, counts: Mapping[str, int], unit: Unit, rare: int) -> Vocabulary:
    """The vocabulary that the settings ask for, of tokens that occur so often; unset, rarer ones are out."""
    if settings.vocabulary:
        return Vocabulary([*MARKERS, *(token for token in settings.vocabulary if token not in MARKERS)])
    return Vocabulary.build(
        counts,
        min_count=settings.min_count or rare,
        size=settings.vocabulary_size or LARGEST if settings.unit != "bpe" else None,
        alphabet=unit.alphabet(),
    )


def vocabulary_of(table: Mapping[str, Any], name: str) -> Vocabulary:
    return Vocabulary.from_json({"tokens": table[name]})


def lookup(config: Config, key: str) -> Any:
    """The value of a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def read_json(path: Path) -> dict[str, Any]:
    """An object from a file of a run; anything else is a damaged run."""
    try:
        return parsed(read_plain(path))
    except FileNotFoundError:
        raise RunError(f"{path} is missing; restore the file or train again") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}; restore the file or train again") from None


def tensor(array: NDArray[Any], device: torch.device | str) -> Tensor:
    """The numbers of an array on the device."""
    return moved(torch.from_numpy(np.ascontiguousarray(array)), torch.device(device))
