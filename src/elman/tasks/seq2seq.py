"""Sequence to sequence: one text in, another of a different length out, aligned (rows E1–E8, A1–A6)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elman.config import DecodingSettings, NetworkSettings
from elman.decoding.base import Hypothesis, SearchResult
from elman.errors import ColumnError, ConfigError, EmptyError
from elman.metrics.sequences import METRICS, SequenceScores, quickly_edited, translation_scores
from elman.models import seq2seq as models
from elman.models.losses import layer_loss, output_loss
from elman.tasks._generation import DecodingStart, Generates, n_best, unrolled
from elman.tasks._seq2seq import Seq2SeqSettings, forcing
from elman.tasks._sides import Side
from elman.tasks.base import Examples, Loss, Task, read_json, tensor
from elman.tensors.rows import real_rows
from elman.text.batches import pad, plan_batches
from elman.text.readers import Record, Repairs, Source, read_fields
from elman.text.units import unit_from_json
from elman.text.vocabulary import END, PAD, START, UNKNOWN, Vocabulary

SIDES: tuple[Literal["source"], Literal["target"]] = ("source", "target")
SMALL = 5_000  # pairs, below which they are seen more often:
UPDATES = 4_000  # for about so many updates
TOGETHER = 128  # texts that are decoded at once
DECODED = 16_000  # and positions of these, at most
POSITIONS = 8_000  # positions of a batch in evaluation
LOGITS = 2**26  # and numbers that come out for them, which is a few times 256 MB


class Seq2Seq(Task[Seq2SeqSettings], Generates):
    """Source in, target out."""

    Settings = Seq2SeqSettings
    metric = "error_rate"
    roles: ClassVar[tuple[str, ...]] = ("source", "target")

    def __init__(self, config: Seq2SeqSettings) -> None:
        super().__init__(config)
        self.sides = {name: Side(config.text.side(name), getattr(config.text, name).remove) for name in SIDES}
        self.longest = 0  # tokens of the longest target in training, with the end marker

    @property
    def source(self) -> Side:
        return self.sides["source"]

    @property
    def target(self) -> Side:
        return self.sides["target"]

    @property
    def shared(self) -> bool:
        """One network cannot read two vocabularies."""
        return self.config.text.shared or self.config.model.form != "two"

    def metrics(self) -> tuple[str, ...]:
        names = ("loss", "accuracy", "exact_match", "error_rate")
        return names + (("bleu",) if "bleu" in self._translation_metrics() else ())

    def _translation_metrics(self) -> Sequence[str]:
        wanted = self.config.evaluation.metrics
        return METRICS if wanted is None else wanted

    # From files to numbers

    def read(self, source: Source, repairs: Repairs) -> Iterator[Record]:
        try:
            yield from read_fields(source, self.roles, repairs)
        except ColumnError as error:
            if source.target is None and self.config.data.train_target is not None:
                error.remedy = "training read two files: name the second one, with --target or --dev-target"
            raise

    def learn(self, records: Iterable[Record]) -> None:
        self._make_units(records)
        counts = {name: Counter[str]() for name in SIDES}
        seen = self.statistics
        for record in records:
            lengths = []
            for name in SIDES:
                tokens = self._split(record, name)
                counts[name].update(tokens)
                lengths.append(len(tokens))
            seen.examples += 1
            seen.tokens += sum(lengths) + 1
            seen.losses += lengths[1] + 1
            seen.longest = max(seen.longest, lengths[1] + 1)
        self.longest = seen.longest
        if markers := [marker for marker in (START, END, PAD) if counts["target"][marker]]:
            self.notes.append(
                f"target: the texts hold {', '.join(markers)}, which no output has: Elman sets its markers "
                "itself; text.target.remove takes those out"
            )
        seen.types = len(counts["source"] + counts["target"])
        if self.shared:
            both = counts["source"] + counts["target"]
            counts = dict.fromkeys(SIDES, both)
        for name in SIDES[:1] if self.shared else SIDES:
            self.sides[name].learn(counts[name], self.notes, "both sides" if self.shared else name)
        if self.shared:
            self.target.share(self.source)
        self.target.counts[self.target.vocabulary.id(END)] = seen.examples
        self.unit = self.target.unit

    def encode(self, records: Iterable[Record]) -> Iterator[dict[str, Any]]:
        """Tokens of both sides, and both texts: a source as it stands, a target as a reference should."""
        end = self.target.vocabulary.id(END)
        for record in records:
            source, target = (self._split(record, name) for name in SIDES)
            yield {
                "source": self.source.vocabulary.ids(source),
                "target": [*self.target.vocabulary.ids(target), end],
                "source_text": packed(record.fields["source"]),
                "target_text": packed(self.target.reference(record.fields["target"])),
            }

    def choices(self) -> dict[str, Any]:
        N = max(1, self.statistics.examples)
        two = self.config.model.form == "two"
        attention = self.config.model.attention or ("additive" if two else "none")
        large = max(len(side.vocabulary) for side in self.sides.values()) > 1000
        return {
            "model.hidden": 256,
            "model.embedding": 256 if large else 64,
            "model.dropout": 0.3 if large else 0.2,
            "model.input_dropout": 0.3 if large else 0.0,
            "model.token_dropout": 0.0,
            "model.rare_dropout": 0.1,
            "model.attention": attention,
            "model.start": "transform" if two else "copy",
            "model.tied": large and self.config.model.embedding != 0,
            "training.batch_size": None if self.config.training.batch_tokens else usual_batch(N),
            "training.learning_rate": 2e-3,
            "training.schedule": "one-cycle",
            "training.averaging": "ema",
            "training.epochs": usual_epochs(N, large=large),
            "decoding.max_length": max(50, 2 * self.statistics.longest),
            "decoding.copy_unknown": attention != "none"
            and self.source.unit.name == self.target.unit.name == "word",
        }

    def fill_defaults(self) -> None:
        super().fill_defaults()
        self.check_decoding(self.config.decoding)

    def check_decoding(self, settings: DecodingSettings) -> None:
        super().check_decoding(settings)
        if settings.coverage_penalty and self.config.model.attention == "none":
            raise ConfigError(
                f"decoding.coverage_penalty is {settings.coverage_penalty}, but without attention nothing is "
                "covered; set it to 0, or model.attention"
            )

    # The network

    def networks(self) -> list[NetworkSettings]:
        model = self.config.model
        two = model.form == "two"
        return [model.network("encoder"), *([model.network("decoder")] if two else [])]

    def build_model(self) -> nn.Module:
        settings = self.config.model
        two = settings.form == "two"
        source, target = (
            self.sides[name].embedding(
                settings.embedding or 0,
                rare_dropout=(settings.rare_dropout or 0.0) if name == "source" else 0.0,
                token_dropout=settings.token_dropout or 0.0,
            )
            for name in SIDES
        )
        joint = not two or settings.tied == "all"
        return models.Seq2Seq(
            source,
            None if joint else target,
            settings.network("encoder"),
            settings.network("decoder") if two else None,
            start=settings.start or "transform",
            context=settings.context,
            attention=settings.attention or "none",
            attention_options=settings.attention_options,
            placement=settings.placement,
            feeding=settings.input_feeding,
            tied=bool(settings.tied),
        )

    def initialise(self, model: nn.Module) -> None:
        assert isinstance(model, models.Seq2Seq)
        n = torch.tensor(self.target.counts) + 0.1  # markers that never come
        with torch.no_grad():
            model.bias.copy_((n / n.sum()).log())  # frequencies need not be learned
        self.source.fill(model.source)
        if model.target is not model.source:
            self.target.fill(model.target)

    def describe(self, model: models.Seq2Seq) -> list[str]:
        return model.describe()

    def plan(self, examples: Examples, epoch: int) -> Sequence[Any]:
        return self.shuffled(pair_lengths(examples), epoch)

    def collate(self, examples: Examples, key: Any) -> Any:
        """Sources (B, S) and their lengths (B,); previous tokens, targets (B, T) and their lengths (B,).

        Lengths stay with the CPU, which asks for them.
        """
        fields = examples.store.fields
        sources, first = self._beginnings([fields["source"][i] for i in key])
        ids, source_lengths = pad(sources)
        targets, lengths = pad([fields["target"][i] for i in key])
        previous = np.concatenate([first[:, None], targets[:, :-1]], 1)
        return (
            tensor(ids, self.device),
            torch.from_numpy(source_lengths),
            tensor(previous, self.device),
            tensor(targets, self.device),
            torch.from_numpy(lengths),
        )

    def loss(self, model: models.Seq2Seq, batch: Any, carry: Any = None) -> Loss:
        ids, source_lengths, previous, targets, lengths = batch
        settings = self.config.training
        source = model.read(ids, source_lengths)
        gold = targets.flatten()[real_rows(lengths, targets.shape[1], targets.device)]
        p, smoothing = forcing(settings, self.progress), settings.label_smoothing
        if p < 1:
            truth = torch.rand(previous.shape, device=previous.device) < p
            logits = model.mixed(source, previous, lengths, truth)
            total = output_loss(logits, gold, kind=settings.loss, smoothing=smoothing)
        else:
            layer = model(source, previous, lengths), model.output_weight, model.bias
            total = layer_loss(*layer, gold, kind=settings.loss, smoothing=smoothing)
        return Loss(total, len(gold), len(ids), len(gold) + int(source_lengths.sum()))

    # Figures

    @torch.no_grad()
    def evaluate(self, model: models.Seq2Seq, examples: Examples) -> dict[str, Any]:
        """Losses with the truth fed and with its own outputs fed; and what is written, against references.

        A source that occurs more than once has several references; it is written once.
        """
        return self._figures(model, examples, self.config.decoding, self._translation_metrics())

    @torch.no_grad()
    def validate(self, model: models.Seq2Seq, examples: Examples) -> dict[str, Any]:
        """The same, decoded quickly; of sacrebleu BLEU alone."""
        metrics = [name for name in self._translation_metrics() if name == "bleu"]
        return self._figures(model, examples, self._quick(), metrics)

    def _quick(self) -> DecodingSettings:
        """Greedy decoding, not much longer than anything in training."""
        given = self.config.decoding
        length = max(self.longest + 10, given.min_length, len(self.unit.split(given.prefix)))
        length = min(length, given.max_length or length)
        return given.model_copy(update={"strategy": "greedy", "n_best": 1, "max_length": length})

    def predict(self, model: models.Seq2Seq, texts: Sequence[str]) -> list[dict[str, Any]]:
        return self.generate(model, texts, self.config.decoding)

    def generate(
        self,
        model: models.Seq2Seq,
        prompts: Sequence[str],
        settings: DecodingSettings,
        trace: int | None = None,
    ) -> list[dict[str, Any]]:
        """What each source becomes; a source without a token, for a partner too, becomes nothing."""
        readers = [task.source for task in (self, *(task for task, _ in self.partners))]
        real = [i for i, text in enumerate(prompts) if all(reader.split(text) for reader in readers)]
        shown = trace is not None or self._copies(settings)
        found = self.search(
            model, [prompts[number] for number in real], settings, trace=trace, keep_shown=shown
        )
        nothing: dict[str, Any] = {"prediction": "", "line": "", "text": "", "tokens": []}
        nothing |= dict.fromkeys(("log_probability", "score", "stopped"))
        answers = [nothing | {"source": text} for text in prompts]
        for number, one in zip(real, found, strict=True):
            answers[number] = self._answer(prompts[number], one, settings)
        return answers

    def begin(self, model: models.Seq2Seq, prompts: Sequence[str]) -> DecodingStart:
        """Sources, none of them empty, read and ready for the first token."""
        rows = [np.array(self.source.vocabulary.ids(self.source.split(text))) for text in prompts]
        sources, first = self._beginnings(rows)
        ids, ends = pad(sources)
        lengths = tensor(ends, self.device)
        source = model.read(tensor(ids, self.device), torch.from_numpy(ends))
        asked = models.ActiveSources(source)

        def step(tokens: Tensor, now: models.DecoderState) -> tuple[Tensor, Any, Any]:
            examples = now.examples
            left, rows = asked.at(examples)
            log_probs, after, weights = model.step(tokens, now._replace(examples=rows), left)
            after = after._replace(examples=examples)
            if weights is None:
                return log_probs, after, None
            return log_probs, after, {"attention": weights, "source_length": lengths[examples]}

        return DecodingStart(step, tensor(first, self.device), model.begin(source))

    @property
    def output_vocabulary(self) -> Vocabulary:
        return self.target.vocabulary

    def end_marker(self, settings: DecodingSettings) -> int:
        return self.target.vocabulary.id(END)

    def never(self, settings: DecodingSettings) -> set[int]:
        markers = (PAD, START) if self._copies(settings) else (PAD, START, UNKNOWN)
        return set(self.target.vocabulary.ids(markers))

    def together(self, prompts: Sequence[str], most: int) -> Iterable[Sequence[int]]:
        """Sources of about the same length, which end at about the same time."""
        lengths = np.array([len(self.source.split(text)) for text in prompts], dtype=np.int64)
        plan = plan_batches(lengths, size=min(TOGETHER, most), tokens=DECODED, seed=0, epoch=0, shuffle=False)
        return (batch.tolist() for batch in plan)

    def samples(self, model: models.Seq2Seq, examples: Examples) -> list[str]:
        shown = []
        sources, golds = (
            [unpacked(examples.store.fields[f"{name}_text"][i]) for i in range(min(3, len(examples)))]
            for name in SIDES
        )
        found = self.generate(model, sources, self._quick())
        for source, gold, one in zip(sources, golds, found, strict=True):
            wrong = "" if self._compared(one["text"]) == self._compared(gold) else f" ✗ {gold[:60]}"
            shown.append(f"{source[:60]} → {one['text'][:60]}{wrong}")
        return shown

    # What was learned from the text

    def tables(self) -> dict[str, Any]:
        sides = SIDES[:1] if self.shared else SIDES
        return {name: self.sides[name].tables() for name in sides} | {"longest": self.longest}

    def restore(self, tables: Mapping[str, Any]) -> None:
        for name in SIDES[:1] if self.shared else SIDES:
            self.sides[name].restore(tables[name])
        if self.shared:
            self.target.share(self.source)
        self.unit, self.longest = self.target.unit, int(tables["longest"])

    def tokenizers(self) -> dict[str, Any]:
        return {name: side.unit.to_json() for name, side in self.sides.items() if side.unit.name == "bpe"}

    def load_units(self, run: Path) -> None:
        learned = any(side.settings.unit == "bpe" for side in self.sides.values())
        saved = read_json(run / "tokenizer.json") if learned else {}
        for name, side in self.sides.items():
            side.unit = unit_from_json(saved[name]) if side.settings.unit == "bpe" else side.plain_unit()

    def _make_units(self, records: Iterable[Record]) -> None:
        """Byte-pair encoding learns from its side, or from both where they share it."""
        for name, side in self.sides.items():
            read = SIDES if self.shared else (name,)
            if side.settings.unit != "bpe":
                side.unit = side.plain_unit()
            elif self.shared and name == "target":
                side.unit = self.source.unit
            else:
                side.learn_unit(
                    self.sides[one].clean(record.fields[one]) for record in records for one in read
                )

    def _split(self, record: Record, side: Literal["source", "target"]) -> list[str]:
        tokens = self.sides[side].split(record.fields[side])
        if not tokens:
            raise record.error(EmptyError, f"{side} has no token", field=side, remedy="take the pair out")
        return tokens

    def _beginnings(self, rows: Sequence[NDArray[Any]]) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """What the encoder reads of each source, and what the decoder reads first (B,).

        That is the start marker, which for a single network separates source and target. The naive form has
        no separator: it goes on from the last token of the source.
        """
        start = self.target.vocabulary.id(START)
        if self.config.model.form != "naive":
            return list(rows), np.full(len(rows), start)
        return [np.concatenate([[start], row[:-1]]) for row in rows], np.array([row[-1] for row in rows])

    def _copies(self, settings: DecodingSettings) -> bool:
        """Is an unknown word replaced by the word of the source that attention looks at?"""
        words = self.source.unit.name == self.target.unit.name == "word"
        return bool(settings.copy_unknown) and words and self.config.model.attention != "none"

    def _answer(self, source: str, found: SearchResult, settings: DecodingSettings) -> dict[str, Any]:
        best = found.best
        tokens = self._tokens(source, best, settings)
        text = self.unit.join(tokens)
        answer: dict[str, Any] = {
            "prediction": text,
            "line": text,
            "text": text,
            "source": source,
            "tokens": tokens,
            "log_probability": best.log_probability,
            "score": best.score,
            "stopped": best.stopped,
        }
        if settings.n_best > 1:
            answer["n_best"] = n_best(found, lambda one: self.unit.join(self._tokens(source, one, settings)))
        return answer | (self._traced(source, tokens, found) if best.trace is not None else {})

    def _tokens(self, source: str, hypothesis: Hypothesis, settings: DecodingSettings) -> list[str]:
        """The tokens of an output, copied from the source where they are unknown."""
        names = self.target.vocabulary.tokens
        tokens = [names[token] for token in hypothesis.tokens]
        if UNKNOWN in tokens and self._copies(settings) and hypothesis.shown is not None:
            words = self.target.unit.split(self.source.clean(source))  # in the target's case
            for place, (token, shown) in enumerate(zip(tokens, hypothesis.shown, strict=False)):
                if token == UNKNOWN:
                    tokens[place] = words[int(shown["attention"][: len(words)].argmax())]
        return tokens

    def _traced(self, source: str, tokens: list[str], found: SearchResult) -> dict[str, Any]:
        """Step by step: where attention looked, what else could have come, and the whole search."""
        best, names = found.best, self.target.vocabulary.tokens
        words = self.source.split(source)
        out = [*tokens, END] if best.stopped == "end" else tokens
        first = words[-1] if self.config.model.form == "naive" else START
        trace = unrolled(best, out, first, names)
        for step, token in zip(trace[1:], best.tokens, strict=False):
            step["fed"] = names[token]  # the network reads <unk> where a word was copied
        result = {"source_tokens": words, "output_tokens": out, "trace": trace}
        if best.shown is not None:
            result["attention"] = [row["attention"][: len(words)].tolist() for row in best.shown]
        if found.tree is not None:
            result["tree"] = [node._asdict() | {"token": names[node.token]} for node in found.tree]
        return result

    def _figures(
        self, model: models.Seq2Seq, examples: Examples, decoding: DecodingSettings, metrics: Sequence[str]
    ) -> dict[str, Any]:
        figures = self._losses(model, examples)
        sources, references = self._references(examples)
        outputs = [one["text"] for one in self.generate(model, sources, decoding)]
        scores, split = SequenceScores(), self._compared
        for source, output, gold in zip(sources, outputs, references, strict=True):
            length = len(self.source.split(source))
            scores.add(split(output), [split(text) for text in gold], source_length=length)
        figures |= scores.as_json()
        settings, notes = self.config.evaluation, []
        if settings.metrics is None and "ter" in metrics and not quickly_edited(references):
            metrics = [name for name in metrics if name != "ter"]
            notes = ['ter is left out: it takes long here; evaluation.metrics=["ter"] asks for it']
        if metrics:
            figures |= translation_scores(outputs, references, tokenize=settings.tokenize, metrics=metrics)
            figures["notes"] = [*figures["notes"], *notes]
        return figures | {"sources": len(sources), "examples": len(examples)}

    def _compared(self, text: str) -> list[str]:
        """What an error rate counts: characters, or words; pieces of words are no unit of anybody's."""
        if self.unit.name not in ("bpe", "byte"):
            return self.unit.split(text)
        return (text.lower() if self.unit.lowercase else text).split()

    def _references(self, examples: Examples) -> tuple[list[str], list[list[str]]]:
        """The different sources in the order in which they come, and the targets of each."""
        found: dict[str, tuple[str, list[str]]] = {}
        for i in range(len(examples)):
            source, target = (unpacked(examples.store.fields[f"{name}_text"][i]) for name in SIDES)
            found.setdefault(self.source.clean(source), (source, []))[1].append(target)
        return [source for source, _ in found.values()], [targets for _, targets in found.values()]

    def _losses(self, model: models.Seq2Seq, examples: Examples) -> dict[str, Any]:
        """Means over all target tokens: with the truth fed, and with the model's own outputs fed."""
        loss = own_loss = 0.0
        right = tokens = 0
        lengths = pair_lengths(examples)
        most = max(1, min(POSITIONS, LOGITS // len(self.target.vocabulary)))
        for key in plan_batches(lengths, size=None, tokens=most, seed=0, epoch=0, shuffle=False):
            ids, source_lengths, previous, targets, lengths = self.collate(examples, key)
            source = model.read(ids, source_lengths)
            gold = targets.flatten()[real_rows(lengths, targets.shape[1], targets.device)]
            logits = model.logits(model(source, previous, lengths))
            own = model.mixed(source, previous, lengths, torch.zeros_like(previous, dtype=torch.bool))
            loss += float(output_loss(logits, gold))
            own_loss += float(output_loss(own, gold))
            right += int((logits.argmax(-1) == gold).sum())
            tokens += len(gold)
        return {
            "loss": loss / tokens,
            "perplexity": math.exp(min(loss / tokens, 700)),
            "accuracy": right / tokens,
            "exposure_gap": (own_loss - loss) / tokens,
            "tokens": tokens,
        }


def usual_batch(N: int) -> int:
    """Pairs of a batch: small files have small ones, so that there are enough updates."""
    return min(64, max(8, N // 64))


def usual_epochs(N: int, *, large: bool) -> int:
    """So many that the network sees enough: few of a large file, hundreds of a small one.

    >>> [usual_epochs(N, large=False) for N in (100, 1_000, 10_000, 100_000)]
    [320, 60, 40, 6]
    """
    if N < SMALL:
        return min(400, max(40, UPDATES * usual_batch(N) // N))
    return max(2, min(40, round((300_000 if large else 600_000) / N)))


def pair_lengths(examples: Examples) -> NDArray[np.int64]:
    """Tokens of both sides of every pair: what sorts and measures batches."""
    fields = examples.store.fields
    return fields["source"].lengths + fields["target"].lengths


def packed(text: str) -> NDArray[np.int32]:
    """The bytes of a text, four to a number.

    >>> unpacked(packed("déjà vu"))
    'déjà vu'
    """
    data = text.encode()
    return np.frombuffer(data + bytes(-len(data) % 4), dtype=np.int32)


def unpacked(numbers: NDArray[np.int32]) -> str:
    return np.ascontiguousarray(numbers, dtype=np.int32).tobytes().rstrip(b"\0").decode()
