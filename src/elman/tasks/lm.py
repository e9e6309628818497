"""Language models: the next token from those before it; scores and generates text (rows L1–L4)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor, nn

from elman.config import Config, DecodingSettings, ModelSettings, TextSettings
from elman.decoding.base import Hypothesis, SearchResult
from elman.errors import EmptyError
from elman.models.counting import NgramLM
from elman.models.language_model import LanguageModel
from elman.models.losses import layer_loss, output_loss
from elman.tasks._generation import DecodingStart, Generates, n_best, unrolled
from elman.tasks.base import Examples, Loss, Task, tensor, vocabulary_from, vocabulary_of
from elman.tensors.rows import pick, real_rows
from elman.text.batches import Segments, pad, plan_batches
from elman.text.readers import Record, Repairs, Source, read_fields, read_text
from elman.text.vectors import Vectors, coverage, read_vectors, wanted_forms
from elman.text.vocabulary import END, PAD, START, UNKNOWN, Vocabulary

EVALUATION_STEPS = 256  # steps of a stream that evaluation reads at once
VALIDATION_ROWS = 16  # parts of a stream that validation on a GPU reads side by side
VALIDATION_LENGTH = 2000  # steps that such a part has at least


class LmText(TextSettings):
    """From text to tokens."""

    context: Literal["stream", "sentence"] = Field(
        "stream",
        description="read on from line to line with the state carried over, or every line for itself",
    )


class LmModel(ModelSettings):
    """The network; every cell fits every task."""

    tied: bool | None = Field(None, description="the output weights are the embedding")

    @model_validator(mode="after")
    def _reads_forward(self) -> LmModel:
        if self.bidirectional:
            raise ValueError("a language model reads in one direction; it would see what it must predict")
        if self.tied and self.embedding == 0:
            raise ValueError("a one-hot input (embedding 0) has no embedding to tie")
        return self


class LmSettings(Config):
    text: LmText = LmText()
    model: LmModel = LmModel()


class Lm(Task[LmSettings], Generates):
    """``P(w_1 … w_n) = ∏ P(w_i | w_1 … w_{i-1})``, the end marker included."""

    Settings = LmSettings
    metric = "loss"
    roles: ClassVar[tuple[str, ...]] = ("text",)
    vocabulary: Vocabulary

    @property
    def streams(self) -> bool:
        return self.config.text.context == "stream"

    @property
    def start(self) -> int:
        """What stands before the first token: in a stream the end of the line before."""
        return self.vocabulary.id(END if self.streams else START)

    def metrics(self) -> tuple[str, ...]:
        return ("loss", "perplexity", "accuracy")

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        plain = (
            source.columns is None and source.format in (None, "text") and not source.path.endswith(".jsonl")
        )
        for record in read_text(source, repairs) if plain else read_fields(source, ("text",), repairs):
            if record.fields["text"].strip() or self.streams:
                yield record
            else:
                repairs["blank line skipped"] += 1

    def learn(self, records: Iterable[Record]) -> None:
        texts = (record.fields["text"] for record in records)
        self.unit = self.make_unit(training=texts if self.config.text.unit == "bpe" else None)
        counts: Counter[str] = Counter()
        seen = self.statistics
        for record in records:
            tokens = self.unit.split(record.fields["text"])
            counts.update(tokens)
            seen.examples += 1
            seen.tokens += len(tokens) + 1
            seen.losses += len(tokens) + 1
            seen.longest = max(seen.longest, len(tokens) + 1)
        if not counts:
            raise EmptyError(
                "no text to train on", path=self.config.data.train, remedy="give a file with words in it"
            )
        seen.types = len(counts)
        settings = self.config.text
        rare = 2 if settings.unit == "word" and UNKNOWN not in counts else 1
        self.vocabulary = vocabulary_from(settings, counts, self.unit, rare)
        self.counts = [counts[token] for token in self.vocabulary.tokens]
        if settings.vectors:
            vectors = self._read_vectors()
            self.notes.append(coverage(vectors, counts).sentence())
            self.vector_width = vectors.matrix.shape[1]
            self.matrix = vectors.rows(self.vocabulary.tokens[1:])
        known = sum(count for token, count in counts.items() if token in self.vocabulary)
        self.notes.append(
            f"vocabulary: {len(self.vocabulary):,} entries for {len(counts):,} types, "
            f"{known / counts.total():.2%} of tokens"
        )

    def encode(self, records: Iterable[Record]) -> Iterator[dict[str, Sequence[int]]]:
        """The tokens of every line and the end marker; a stream begins with the start marker."""
        end = self.vocabulary.id(END)
        first = [self.start] if self.streams else []
        for record in records:
            yield {"token": [*first, *self.vocabulary.ids(self.unit.split(record.fields["text"])), end]}
            first = []

    def choices(self) -> dict[str, Any]:
        N = max(1, self.statistics.tokens)
        large = self.config.text.unit in ("word", "bpe")  # a large vocabulary: the softmax costs most
        if large:
            hidden, embedding, dropout = (400, 200, 0.4) if N > 300_000 else (128, 64, 0.3)
            truncate, rows, seen = 35, 20, 6_000_000
        else:
            hidden, embedding, dropout = (512, 64, 0.25) if N > 500_000 else (256, 48, 0.2)
            truncate, rows, seen = 64, 16, 10_000_000
        truncate = self.config.training.truncate or truncate
        return {
            "model.order": 5 if large else 7,
            "model.hidden": hidden,
            "model.embedding": embedding,
            "model.tied": large and self.config.model.embedding != 0,
            "model.dropout": dropout,
            "model.input_dropout": dropout / 2 if large else 0.0,
            "model.token_dropout": 0.0,
            "model.rare_dropout": 0.0,
            "training.truncate": truncate,
            "training.batch_size": max(1, min(rows, N // (20 * truncate))) if self.streams else None,
            "training.batch_tokens": None if self.streams or self.config.training.batch_size else 1000,
            "training.learning_rate": 3e-3,
            "training.schedule": "one-cycle",
            "training.averaging": "ema",
            "training.epochs": max(2, min(40, round(seen / N))),
        }

    def losses_of_example(self) -> float:
        """Of a stream the examples are its segments."""
        return self.config.training.truncate or 1 if self.streams else super().losses_of_example()

    def fill_defaults(self) -> None:
        super().fill_defaults()
        self.check_decoding(self.config.decoding)

    def build_model(self) -> nn.Module:
        settings = self.config.model
        if settings.encoder == "ngram":
            return NgramLM(len(self.vocabulary), order=settings.order or 5)
        return LanguageModel(
            len(self.vocabulary),
            settings,
            tied=bool(settings.tied),
            pretrained=self.pretrained(len(self.vocabulary)),
            hiding=self.hiding(self.vocabulary),
            unknown=self.vocabulary.id(UNKNOWN),
        )

    def read_matrix(self) -> NDArray[Any]:
        return self._read_vectors().rows(self.vocabulary.tokens[1:])

    def plan(self, examples: Examples, epoch: int) -> Sequence[Any] | Segments:
        settings = self.config.training
        if self.streams:
            return self._stream(examples, settings.batch_size or 1, settings.truncate or 35)
        return self.shuffled(examples.store.fields["token"].lengths, epoch)

    def collate(self, examples: Examples, key: Any) -> Any:
        """Inputs (B, T), targets (B, T) and lengths (B,); a stream has no padding."""
        if self.streams:
            inputs, targets = key
            return tensor(inputs, self.device), tensor(targets, self.device), None
        rows = [examples.store.fields["token"][i] for i in key]
        return self._sentences(rows)

    def loss(self, model: LanguageModel | NgramLM, batch: Any, carry: Any = None) -> Loss:
        inputs, targets, lengths = batch
        outputs, state = model(inputs, lengths, carry)
        rows, targets = self._flat(outputs, targets, lengths)
        kind, smoothing = self.config.training.loss, self.config.training.label_smoothing
        if isinstance(model, LanguageModel):
            total = layer_loss(*model.layer(rows), targets, kind=kind, smoothing=smoothing)
        else:
            total = output_loss(model.logits(rows), targets, kind=kind, smoothing=smoothing)
        return Loss(total, len(targets), len(inputs), len(targets), detached(state) if self.streams else None)

    def evaluate(self, model: LanguageModel, examples: Examples) -> dict[str, Any]:
        """A stream is one long walk, from its first token to its last."""
        return self._figures(model, self._evaluation(examples))

    def validate(self, model: LanguageModel, examples: Examples) -> dict[str, Any]:
        """On a GPU, a long stream is read as parts side by side, each without what came before it.

        So the loss is a little above that of ``evaluate``, in every validation alike; up to 15 tokens at the
        end, too few for one more step, are not read.
        """
        if self.device.type == "cpu" or not self.streams:
            return self.evaluate(model, examples)
        rows = len(examples.store.fields["token"].values) // VALIDATION_LENGTH
        return self._figures(model, self._evaluation(examples, max(1, min(VALIDATION_ROWS, rows))))

    @torch.no_grad()
    def _figures(self, model: LanguageModel, batches: Iterable[Any]) -> dict[str, Any]:
        """Sums stay on the device until all batches are read."""
        sums = torch.zeros(3, dtype=torch.float64, device=self.device)  # of losses, right ones, unknown ones
        count, hidden = 0, self.vocabulary.id(UNKNOWN)
        state: Any = None
        for inputs, targets, lengths in batches:
            outputs, state = model(inputs, lengths, state if self.streams else None)
            rows, targets = self._flat(outputs, targets, lengths)
            logits = model.logits(rows)
            right, unknown = (logits.argmax(-1) == targets).sum(), (targets == hidden).sum()
            sums += torch.stack([output_loss(logits, targets), right, unknown])
            count += len(targets)
        total, right, unknown = sums.tolist()
        loss = total / count
        figures = {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700)),
            "accuracy": right / count,
            "tokens": count,
            "unknown": unknown / count,  # share of tokens that the vocabulary lacks: they are easy to predict
        }
        if self.config.text.unit in ("character", "byte"):
            figures[f"bits_per_{self.config.text.unit}"] = loss / math.log(2)
        return figures

    @torch.no_grad()
    def score(self, model: LanguageModel, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """For each text its tokens and the end marker, with ``log P(token | those before)`` (row L3)."""
        end = self.vocabulary.id(END)
        split = [self.unit.split(text) for text in texts]
        rows = [np.array([*self.vocabulary.ids(tokens), end]) for tokens in split]
        scored: list[list[tuple[str, float]]] = [[] for _ in texts]
        lengths = np.array([len(row) for row in rows])
        for chosen in plan_batches(lengths, size=None, tokens=4000, seed=0, epoch=0, shuffle=False):
            inputs, targets, real = self._sentences([rows[i] for i in chosen])
            outputs, _ = model(inputs, real)
            outputs, flat = self._flat(outputs, targets, real)
            values = iter(model.logits(outputs).log_softmax(-1).gather(1, flat[:, None])[:, 0].tolist())
            for i in chosen:
                scored[i] = [(token, next(values)) for token in [*split[i], END]]
        return scored

    def generate(
        self,
        model: LanguageModel,
        prompts: Sequence[str],
        settings: DecodingSettings,
        trace: int | None = None,
    ) -> list[dict[str, Any]]:
        """Text that goes on from each prompt (row L4); an empty prompt starts from the beginning."""
        found = self.search(model, prompts, settings, trace=trace)
        return [self._answer(*pair, settings) for pair in zip(prompts, found, strict=True)]

    def begin(self, model: LanguageModel, prompts: Sequence[str]) -> DecodingStart:
        """The prompts are read at once; what follows their last tokens is known before the first step."""
        ids, lengths = (
            tensor(array, self.device)
            for array in pad([np.array(self._beginning(prompt)) for prompt in prompts])
        )
        outputs, after = model(ids, lengths)
        rows = torch.arange(len(ids), device=self.device)
        log_probs = model.logits(outputs[rows, lengths - 1]).log_softmax(-1)

        def step(tokens: Tensor, state: Any) -> tuple[Tensor, Any, Any]:
            hidden, known = state
            if known is not None:
                return known, (hidden, None), None
            log_probs, hidden = model.step(tokens, hidden)
            return log_probs, (hidden, None), None

        return DecodingStart(step, ids[rows, lengths - 1], (after, log_probs))

    def end_marker(self, settings: DecodingSettings) -> int:
        """In a stream of characters a line's end is one more of them: nothing ends it but a stop."""
        endless = self.streams and self.unit.name in ("character", "byte") and "\n" not in settings.stop
        return self.vocabulary.id(PAD if endless else END)

    def line_end(self) -> int:
        return self.vocabulary.id(END)

    def never(self, settings: DecodingSettings) -> set[int]:
        return {self.vocabulary.id(marker) for marker in (PAD, UNKNOWN, START)}

    def predict(self, model: LanguageModel, texts: Sequence[str]) -> list[dict[str, Any]]:
        """How each text goes on, by ``decoding.*``."""
        found = self.generate(model, texts, self.config.decoding)
        return [{"prediction": one["text"], "line": one["text"], **one} for one in found]

    def samples(self, model: LanguageModel, examples: Examples) -> list[str]:
        """Short draws; rules that ask for more than so few tokens can give are left to ``generate``."""
        length = 30 if self.unit.name == "word" else 150
        drawn = self.config.decoding.model_copy(
            update={
                "strategy": "sample",
                "temperature": 0.8,
                "n_best": 1,
                "min_length": 0,
                "no_repeat": 0,
                "max_length": max(length, len(self.unit.split(self.config.decoding.prefix))),
            }
        )
        return [one["text"] for one in self.generate(model, [""], drawn)]

    def tables(self) -> dict[str, Any]:
        return {"tokens": self.vocabulary.tokens, "counts": self.counts, "vector_width": self.vector_width}

    def restore(self, tables: Mapping[str, Any]) -> None:
        self.vocabulary = vocabulary_of(tables, "tokens")
        self.counts = list(tables["counts"])
        self.vector_width = int(tables["vector_width"])

    def batches(self, examples: Examples) -> Iterator[Any]:
        if not self.streams:
            return self._evaluation(examples)
        return (self.collate(examples, key) for key in self._stream(examples, 1, 65_536))

    def _read_vectors(self) -> Vectors:
        return read_vectors(str(self.config.text.vectors), wanted_forms(self.vocabulary.tokens))

    def _stream(self, examples: Examples, rows: int, length: int) -> Segments:
        ids = examples.store.fields["token"].values
        return Segments(ids, min(rows, max(1, len(ids) // 2)), length)

    def _evaluation(self, examples: Examples, rows: int = 1) -> Iterator[Any]:
        if self.streams:
            for key in self._stream(examples, rows, EVALUATION_STEPS):
                yield self.collate(examples, key)
            return
        tokens = examples.store.fields["token"]
        for chosen in plan_batches(tokens.lengths, size=None, tokens=4000, seed=0, epoch=0, shuffle=False):
            yield self.collate(examples, chosen)

    def _beginning(self, prompt: str) -> list[int]:
        """The start and the tokens of a prompt; in a stream its line ends are tokens, too."""
        lines = [self.vocabulary.ids(self.unit.split(line)) for line in prompt.split("\n")]
        if not self.streams:
            return [self.start, *(token for line in lines for token in line)]
        return [token for line in lines for token in (self.start, *line)]  # each line follows the end of one

    def _answer(self, prompt: str, found: SearchResult, settings: DecodingSettings) -> dict[str, Any]:
        best, tokens = found.best, self._tokens(found.best)
        answer: dict[str, Any] = {
            "prompt": prompt,
            "text": self.unit.join(tokens),
            "tokens": tokens,
            "log_probability": best.log_probability,
            "stopped": best.stopped,
        }
        if settings.n_best > 1:
            answer["n_best"] = n_best(found, lambda one: self.unit.join(self._tokens(one)))
        if best.trace is not None:
            names = self.vocabulary.tokens
            out = [*tokens, END] if best.stopped == "end" else tokens
            answer["trace"] = unrolled(best, out, names[self._beginning(prompt)[-1]], names)
        return answer

    def _tokens(self, hypothesis: Hypothesis) -> list[str]:
        names, end = self.vocabulary.tokens, self.vocabulary.id(END)
        return ["\n" if token == end else names[token] for token in hypothesis.tokens]

    def _sentences(self, rows: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
        """Each row and, before it, the same row one step later with the start marker in front.

        Lengths stay with the CPU, which asks for them.
        """
        targets, lengths = pad(rows)
        inputs = np.concatenate([np.full((len(rows), 1), self.start), targets[:, :-1]], 1)
        return tensor(inputs, self.device), tensor(targets, self.device), torch.from_numpy(lengths)

    def _flat(self, outputs: Tensor, targets: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """Outputs (N, ·) and targets (N,) of the real positions."""
        outputs, targets = outputs.flatten(0, 1), targets.flatten()
        if lengths is not None:
            real = real_rows(lengths, len(targets) // len(lengths), targets.device)
            outputs, targets = pick(outputs, real), targets[real]
        return outputs, targets


def detached(state: Any) -> Any:
    """The state as a value: its tensors without their history."""
    if isinstance(state, Tensor):
        return state.detach()
    if hasattr(state, "_fields"):
        return type(state)(*map(detached, state))
    return tuple(map(detached, state))
