"""Class to sequence: a class in, a sequence out, token by token (rows G1–G3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from elman.config import Config, DecodingSettings, ModelSettings, Part, TextSettings, TrainingSettings
from elman.decoding.base import Hypothesis, SearchResult
from elman.errors import EmptyError, LabelError, SyntaxProblem, nearest
from elman.models.counting import NgramGenerator
from elman.models.generator import Generator
from elman.models.losses import output_loss
from elman.tasks._generation import DecodingStart, Generates, n_best, unrolled
from elman.tasks.base import Examples, Loss, Task, tensor, vocabulary_of
from elman.tensors.rows import pick, real_rows
from elman.text.batches import pad, plan_batches
from elman.text.readers import Record, Repairs, Source, read_fields
from elman.text.vocabulary import UNKNOWN, Vocabulary

UNUSED = ("input_dropout", "token_dropout", "rare_dropout")
SMALL = 50  # up to so many examples the lectures' network and incremental descent are the default


class Class2SeqText(TextSettings):
    """From text to tokens."""

    start: str = Field("<s>", description="the token that stands before a sequence")
    end: str = Field("</s>", description="the token that ends a sequence")
    classes: Literal["class", "features", "vector"] = Field(
        "class", description="the first column is one class, features apart by spaces (many-hot), or numbers"
    )

    @model_validator(mode="after")
    def _has_no_vectors(self) -> Class2SeqText:
        if self.vectors is not None:
            raise ValueError("class2seq takes no pretrained vectors; remove text.vectors")
        if self.start == self.end:
            raise ValueError(f"start and end are both {self.start!r}; they must differ")
        return self


class Class2SeqModel(ModelSettings):
    """The network; every cell fits every task."""

    cell: Part | None = Field(None, description="name of a cell; unset: elman for few examples, else lstm")  # type: ignore[assignment]
    cell_options: dict[str, Any] | None = Field(None, description="options of the cell's constructor")  # type: ignore[assignment]
    feedback: Literal["hard", "soft"] = Field(
        "hard", description="generation feeds back the argmax as a one-hot vector, or the softmax itself"
    )

    @model_validator(mode="after")
    def _reads_forward(self) -> Class2SeqModel:
        if self.bidirectional:
            raise ValueError("a generator goes in one direction; it cannot read what it has not written")
        unused = [name for name in UNUSED if getattr(self, name)]
        if unused:
            raise ValueError(f"class2seq has no use for {', '.join(unused)}")
        if self.encoder not in ("rnn", "ngram"):
            raise ValueError("class2seq starts a recurrent state; there is no comparator without one")
        return self


class Class2SeqTraining(TrainingSettings):
    """How the weights are found."""

    optimizer: Literal["adam", "adamw", "sgd", "asgd", "incremental"] | None = Field(  # type: ignore[assignment]
        None,
        description="incremental: example by example, W ← W − η ∇ℓ; unset: so for few examples, else adamw",
    )


class Class2SeqSettings(Config):
    text: Class2SeqText = Class2SeqText()
    model: Class2SeqModel = Class2SeqModel()
    training: Class2SeqTraining = Class2SeqTraining()


class Class2Seq(Task[Class2SeqSettings], Generates):
    """``y^h(0) = σ(W^i x)``, then a token at a time until the end marker."""

    Settings = Class2SeqSettings
    metric = "exact_match"
    roles: ClassVar[tuple[str, ...]] = ("class", "sequence")
    holds_out = False
    vocabulary: Vocabulary
    classes: Vocabulary
    width: int

    @property
    def start(self) -> int:
        return self.vocabulary.index[self.config.text.start]

    @property
    def end(self) -> int:
        return self.vocabulary.index[self.config.text.end]

    def metrics(self) -> tuple[str, ...]:
        return ("loss", "accuracy", "exact_match")

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        return read_fields(source, self.roles, repairs)

    def learn(self, records: Iterable[Record]) -> None:
        texts = (record.fields["sequence"] for record in records)
        self.unit = self.make_unit(training=texts if self.config.text.unit == "bpe" else None)
        counts, classes, seen = Counter[str](), Counter[str](), self.statistics
        for record in records:
            tokens = self.unit.split(record.fields["sequence"])
            if not tokens:
                raise record.error(
                    EmptyError, "a sequence without a token", field="sequence", remedy="remove the line"
                )
            counts.update(tokens)
            classes.update(self._features(record))
            seen.examples += 1
            seen.tokens += len(tokens) + 1
            seen.losses += len(tokens) + 1
            seen.longest = max(seen.longest, len(tokens) + 1)
        seen.types = len(counts)
        settings = self.config.text
        built = Vocabulary.build(
            counts,
            min_count=settings.min_count or 1,
            size=settings.vocabulary_size if settings.unit != "bpe" else None,
            markers=False,
            alphabet=self.unit.alphabet(),
        ).tokens
        given = settings.vocabulary or [*(t for t in built if t != UNKNOWN), UNKNOWN]
        markers = [marker for marker in (settings.start, settings.end) if marker not in given]
        self.vocabulary = Vocabulary([*given, *markers])
        self.classes = Vocabulary.build(classes, markers=False)
        self.notes.append(f"vocabulary: {len(self.vocabulary):,} entries; {len(self.classes)} classes")

    def encode(self, records: Iterable[Record]) -> Iterator[dict[str, Sequence[int]]]:
        for record in records:
            yield {"class": self._class(record), "token": [*self._tokens(record), self.end]}

    def choices(self) -> dict[str, Any]:
        few = self.statistics.examples <= SMALL
        cell = self.config.model.cell or ("elman" if few else "lstm")
        optimizer = self.config.training.optimizer or ("incremental" if few else "adamw")
        one_by_one = optimizer == "incremental"
        rate = 2.0 if self.config.training.loss == "squared" else 0.5
        return {
            "model.order": 5,
            "model.cell": cell,
            "model.cell_options": {"activation": "logistic", "bias": False} if cell == "elman" else {},
            "model.hidden": 32 if few else 128,
            "model.embedding": 0 if len(self.vocabulary) <= 500 else 64,
            "model.dropout": 0.0,
            "training.optimizer": optimizer,
            "training.batch_size": 1 if one_by_one else 32,
            "training.learning_rate": (rate if few else None) if one_by_one else 3e-3,
            "training.schedule": "constant" if one_by_one else "one-cycle",
            "training.averaging": "none" if one_by_one else "ema",
            "decoding.max_length": max(50, 2 * self.statistics.longest),
            "training.tolerance": 0.003 if one_by_one else 0.0,
            "training.epochs": max(
                5, min(2000, round((6_000 if one_by_one else 150_000) / self.statistics.examples))
            ),
        }

    def fill_defaults(self) -> None:
        super().fill_defaults()
        self.check_decoding(self.config.decoding)

    def build_model(self) -> nn.Module:
        P = len(self.classes) if self.config.text.classes != "vector" else self.width
        if self.config.model.encoder == "ngram":
            return NgramGenerator(P, len(self.vocabulary), order=self.config.model.order or 5)
        return Generator(P, len(self.vocabulary), self.config.model)

    def plan(self, examples: Examples, epoch: int) -> Sequence[Any]:
        return self.shuffled(examples.store.fields["token"].lengths, epoch)

    def collate(self, examples: Examples, key: Any) -> Any:
        """Class vectors (B, P), previous tokens (B, T), tokens (B, T) and, with the CPU, lengths (B,)."""
        tokens, lengths = pad([examples.store.fields["token"][i] for i in key])
        previous = np.concatenate([np.full((len(tokens), 1), self.start), tokens[:, :-1]], 1)
        x = self._vectors([examples.store.fields["class"][i] for i in key])
        return x, tensor(previous, self.device), tensor(tokens, self.device), torch.from_numpy(lengths)

    def batches(self, examples: Examples) -> Iterator[Any]:
        lengths = examples.store.fields["token"].lengths
        plan = plan_batches(lengths, size=None, tokens=4000, seed=0, epoch=0, shuffle=False)
        return (self.collate(examples, key) for key in plan)

    def loss(self, model: Generator, batch: Any, carry: Any = None) -> Loss:
        settings = self.config.training
        logits, targets = self._outputs(model, batch)
        total = output_loss(logits, targets, kind=settings.loss, smoothing=settings.label_smoothing)
        return Loss(total, len(targets), len(batch[0]), len(targets))

    @torch.no_grad()
    def evaluate(self, model: Generator, examples: Examples) -> dict[str, Any]:
        """Loss with the truth fed; and what is generated, against the nearest sequence that the class has.

        Sequences of unequal length are compared with the shorter one continued by end markers.
        """
        loss, tokens = 0.0, 0
        for key in plan_batches(
            examples.store.fields["token"].lengths, size=None, tokens=4000, seed=0, epoch=0, shuffle=False
        ):
            logits, targets = self._outputs(model, self.collate(examples, key))
            loss += float(output_loss(logits, targets))
            tokens += len(targets)
        references: dict[tuple[int, ...], list[list[int]]] = defaultdict(list)
        for i in range(len(examples)):
            references[tuple(examples.store.fields["class"][i].tolist())].append(
                examples.store.fields["token"][i].tolist()
            )
        found = self._generate(model, list(references), self.config.decoding)
        right = total = exact = 0
        for sequences, one in zip(references.values(), found, strict=True):
            best = max(
                (agreement(one, gold, self.end) for gold in sequences), key=lambda pair: pair[0] / pair[1]
            )
            right, total, exact = right + best[0], total + best[1], exact + (best[0] == best[1])
        figures = {"loss": loss / tokens, "accuracy": right / total, "exact_match": exact / len(references)}
        return figures | {"tokens": tokens, "classes": len(references)}

    def predict(self, model: Generator, texts: Sequence[str]) -> list[dict[str, Any]]:
        return self.generate(model, texts, self.config.decoding)

    def generate(
        self,
        model: Generator,
        prompts: Sequence[str],
        settings: DecodingSettings,
        trace: int | None = None,
    ) -> list[dict[str, Any]]:
        """The sequence of each class, with its unrolling (row G3): what was fed, what came out."""
        self._keys(prompts)  # a mistake is named with its number among all prompts
        found = self.search(model, prompts, settings, trace=trace or 0)
        return [self._answer(*pair, settings) for pair in zip(prompts, found, strict=True)]

    def begin(self, model: Generator, prompts: Sequence[str]) -> DecodingStart:
        x = self._vectors(self._keys(prompts))
        soft = self.config.model.feedback == "soft"

        def step(tokens: Tensor, state: Any) -> tuple[Tensor, Any, Any]:
            hidden, fed = state
            log_probs, hidden = model.step(tokens if fed is None else fed, hidden)
            return log_probs, (hidden, log_probs.exp() if soft else None), None

        return DecodingStart(
            step, torch.full((len(x),), self.start, device=self.device), (model.start(x), None)
        )

    def end_marker(self, settings: DecodingSettings) -> int:
        return self.end

    def never(self, settings: DecodingSettings) -> set[int]:
        return {self.start} | ({self.vocabulary.index[UNKNOWN]} if UNKNOWN in self.vocabulary else set())

    def samples(self, model: Generator, examples: Examples) -> list[str]:
        if self.config.text.classes == "vector":
            return []
        found = self.predict(model, self.classes.tokens[:3])
        return [f"{one['class']} → {one['text']}" for one in found]

    def tables(self) -> dict[str, Any]:
        return {
            "tokens": self.vocabulary.tokens,
            "classes": self.classes.tokens,
            "width": getattr(self, "width", 0),
        }

    def restore(self, tables: Mapping[str, Any]) -> None:
        self.vocabulary = vocabulary_of(tables, "tokens")
        self.classes = vocabulary_of(tables, "classes")
        self.width = int(tables["width"])

    def _outputs(self, model: Generator, batch: Any) -> tuple[Tensor, Tensor]:
        x, previous, tokens, lengths = batch
        logits = model(x, previous, lengths)
        real = real_rows(lengths, tokens.shape[1], tokens.device)
        return pick(logits.flatten(0, 1), real), tokens.flatten()[real]

    def _generate(self, model: Generator, keys: list[Any], settings: DecodingSettings) -> list[list[int]]:
        best = [one.best for one in self.search(model, [self._prompt(key) for key in keys], settings)]
        return [[*one.tokens, self.end] if one.stopped == "end" else one.tokens for one in best]

    def _answer(self, prompt: str, found: SearchResult, settings: DecodingSettings) -> dict[str, Any]:
        best, names = found.best, self.vocabulary.tokens

        def join(hypothesis: Hypothesis) -> str:
            return self.unit.join([names[token] for token in hypothesis.tokens])

        text = join(best)
        out = [names[token] for token in best.tokens] + [self.config.text.end] * (best.stopped == "end")
        answer: dict[str, Any] = {
            "prediction": text,
            "line": text,
            "class": prompt,
            "text": text,
            "tokens": out,
            "log_probability": best.log_probability,
            "stopped": best.stopped,
        }
        if settings.n_best > 1:
            answer["n_best"] = n_best(found, join)
        return answer | {"trace": unrolled(best, out, self.config.text.start, names)}

    def _vectors(self, keys: Sequence[Any]) -> Tensor:
        """Class vectors (B, P): one-hot, many-hot, or numbers (kept as the bits of float32)."""
        if self.config.text.classes == "vector":
            return tensor(np.array(keys, dtype=np.int32).view(np.float32), self.device)
        x = np.zeros((len(keys), len(self.classes)), dtype=np.float32)
        for row, key in enumerate(keys):
            x[row, list(key)] = 1
        return tensor(x, self.device)

    def _features(self, record: Record) -> list[str]:
        text: str = record.fields["class"]
        if self.config.text.classes == "class":
            return [text]
        names = text.split()
        if self.config.text.classes == "vector":
            self._numbers(record)
            return []
        return names

    def _class(self, record: Record) -> list[int]:
        if self.config.text.classes == "vector":
            return np.array(self._numbers(record), dtype=np.float32).view(np.int32).tolist()  # type: ignore[no-any-return]
        names = self._features(record)
        for name in names:
            if name not in self.classes:
                raise record.error(
                    LabelError,
                    "a class that training never saw",
                    field="class",
                    text=name,
                    remedy=nearest(name, self.classes.tokens),
                )
        return sorted({*self.classes.ids(names)})  # a class is a vector: the order of its features is nothing

    def _keys(self, prompts: Sequence[str]) -> list[list[int]]:
        return [self._class(Record({"class": text}, "input", n)) for n, text in enumerate(prompts, 1)]

    def _prompt(self, key: Sequence[int]) -> str:
        """The text of a class that ``_class`` gives the key of."""
        if self.config.text.classes == "vector":
            numbers: list[float] = np.array(key, dtype=np.int32).view(np.float32).tolist()
            return " ".join(map(repr, numbers))
        return " ".join(self.classes.tokens[place] for place in key)

    def _numbers(self, record: Record) -> list[float]:
        try:
            numbers = [float(number) for number in record.fields["class"].split()]
        except ValueError:
            numbers = []
        width = getattr(self, "width", 0) or len(numbers)
        largest = float(np.finfo(np.float32).max)  # as a float32, more would be infinite
        if not numbers or len(numbers) != width or not all(abs(number) <= largest for number in numbers):
            raise record.error(
                SyntaxProblem,
                f"not {width or 'some'} finite numbers",
                field="class",
                remedy="give one vector a line",
            )
        self.width = width
        return numbers

    def _tokens(self, record: Record) -> list[int]:
        tokens = self.unit.split(record.fields["sequence"])
        for token in tokens:
            if token not in self.vocabulary and UNKNOWN not in self.vocabulary:
                raise record.error(
                    LabelError,
                    "a token outside the vocabulary",
                    field="sequence",
                    text=token,
                    remedy=nearest(token, self.vocabulary.tokens),
                )
        return self.vocabulary.ids(tokens)


def agreement(found: Sequence[int], gold: Sequence[int], end: int) -> tuple[int, int]:
    """(equal positions, all positions), the shorter sequence read as continued with end markers (row G2).

    >>> agreement([4, 5, 9], [4, 6, 7, 9], end=9)
    (2, 4)
    """
    n = max(len(found), len(gold))
    pairs = zip([*found, *[end] * (n - len(found))], [*gold, *[end] * (n - len(gold))], strict=True)
    return sum(a == b for a, b in pairs), n
