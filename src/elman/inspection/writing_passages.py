"""The way of a text through a model that writes: language models, class to sequence, sequence to sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from elman.config import DecodingSettings
from elman.errors import ArgumentError
from elman.inspection.passages import MOST, TOP, Passage, Strand, TaskModel
from elman.tasks.class2seq import Class2Seq
from elman.tasks.generation import Generation
from elman.tasks.lm import Lm
from elman.tasks.seq2seq import Seq2Seq
from elman.text.fields import TextField
from elman.text.vocabulary import UNKNOWN, Vocabulary

GOES_ON = {"word": 12, "character": 40}  # tokens that a language model writes, unless a length is set


class WritingPassage(Passage):
    """A text is written; ``before`` are the numbers of what is read before the first written token."""

    task: Lm | Class2Seq | Seq2Seq

    def _write(self, model: nn.Module, target: str | None) -> None:
        """Search, and take what was found, or what was given, as what comes out."""
        writer, settings = self.generation.writer, self.settings
        [self.search] = self.generation.search(model, [self.text], settings, trace=TOP)
        self.prediction = writer.prediction(self.text, self.search, settings)
        end = writer.end_marker(settings)
        if target is None:
            best = self.search.best
            self.numbers = [*best.tokens, *([end] if best.stopped == "end" else [])]
        else:
            self.given, own = True, writer.field.ids(target)
            self._check(len(own), "target")
            self.numbers = [*own, end]
        self._check(len(self.numbers), "what is written")
        self.names = self._vocabulary.tokens
        self.outputs = [self.names[number] for number in self.numbers]

    def forced(self, place: int, token: str) -> str:
        """What is written up to a place, counted from 1, with this token there."""
        assert self.search is not None
        tokens = [self.names[number] for number in self.search.best.tokens]
        if not 1 <= place <= len(tokens) + 1:
            raise ArgumentError(f"no token {place} is written; there are {len(tokens)}, counted from 1")
        return self.generation.writer.field.join([*tokens[: place - 1], token])

    @property
    def settings(self) -> DecodingSettings:
        return self.task.config.decoding

    @property
    def generation(self) -> Generation[TaskModel]:
        assert self.task.generation is not None
        return self.task.generation

    @property
    def _vocabulary(self) -> Vocabulary:
        return self.generation.vocabulary

    @property
    def _fed(self) -> str:
        return "truth" if self.given else "own"

    def _ids(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor([list(numbers)], device=self.device)


class LmPassage(WritingPassage):
    task: Lm

    def __init__(self, task: Lm, model: nn.Module, text: str, target: str | None) -> None:
        super().__init__(task, model, text)
        before = self.generation.writer.tokens_before(text)  # type: ignore[attr-defined]
        self.prompt = len(before) - 1
        if self.prompt > MOST:
            self._check(self.prompt)
        self._write(model, target)
        read = [*before, *self.numbers[:-1]]
        self.numbers = [*before[1:], *self.numbers]
        self.inputs, self.outputs = ([self.names[number] for number in one] for one in (read, self.numbers))
        self.ids = self._ids(read)
        more = len(read) - len(before)
        origins = ["start", *["prompt"] * (len(before) - 1), *[self._fed] * more]
        self.strands = [Strand("network", "encoder.network", self.inputs, origins, True)]
        if task.streams:
            self.notes.append(
                f"The model reads a stream: {task.field.end} before the text is the end of the line before "
                "it, and the state before that is the first one."
            )
        self._note_unknown(_unknown(self._vocabulary, before[1:]), UNKNOWN)

    @property
    def settings(self) -> DecodingSettings:
        given = self.task.config.decoding
        if given.max_length is not None:
            return given
        usual = GOES_ON.get(self.task.field.unit.grain, 12)
        longest = max(usual, given.min_length, len(self.task.field.unit.split(given.prefix)))
        return given.model_copy(update={"max_length": longest})

    def asked_tokens(self) -> list[str]:
        return self.field.split(self.text)

    def embed(self, model: TaskModel) -> Tensor:
        vectors: Tensor = model.tokens(self.ids)
        return vectors

    def log_probs(self, model: TaskModel, x: Tensor) -> Tensor:
        found: Tensor = model.logits(model.encoder(x).outputs).log_softmax(-1)
        return found


class Class2SeqPassage(WritingPassage):
    task: Class2Seq

    def __init__(self, task: Class2Seq, model: nn.Module, text: str, target: str | None) -> None:
        super().__init__(task, model, text)
        self.x = task.classes.vectors(task.classes.keys([text]), self.device)
        self._write(model, target)
        start = self._vocabulary.index[task.config.text.start]
        self.ids = self._ids([start, *self.numbers[:-1]])
        self.inputs = [self.names[number] for number in self.ids[0].tolist()]
        origins = ["start", *[self._fed] * (len(self.inputs) - 1)]
        self.strands = [Strand("network", "rnn", self.inputs, origins, True)]
        self.soft = task.config.model.feedback == "soft" and not self.given
        if self.soft:
            self.notes.append("Not a token is fed back but the whole softmax (model.feedback = soft).")

    def asked_tokens(self) -> list[str]:
        return self.text.split(" ")

    def embed(self, model: TaskModel) -> Tensor:
        vectors: Tensor = model.embedding(self.ids)
        if not self.soft:
            return vectors
        weight, fed = model.embedding.weight, [vectors[:, 0]]
        state = model.start(self.x.to(vectors.dtype))
        with torch.no_grad():
            for _ in self.inputs[1:]:
                y, state = model.rnn.step(fed[-1], state)
                p = model.output(y).softmax(-1)
                fed.append(p if weight is None else p @ weight)
        return torch.stack(fed, 1)

    def log_probs(self, model: TaskModel, x: Tensor) -> Tensor:
        start = model.start(self.x.to(x.dtype).expand(len(x), -1))
        found: Tensor = model.output(model.rnn(x, None, start).outputs).log_softmax(-1)
        return found


class Seq2SeqPassage(WritingPassage):
    task: Seq2Seq

    def __init__(self, task: Seq2Seq, model: nn.Module, text: str, target: str | None) -> None:
        super().__init__(task, model, text)
        words = task.source.split(text)
        self._check(len(words))
        self._write(model, target)
        [source], first = task.writer.first_tokens([np.array(task.source.ids(text))])
        self.ids = self._ids(source.tolist())
        self.previous = self._ids([int(first[0]), *self.numbers[:-1]])
        self.inputs = [self.task.source.vocabulary.tokens[n] for n in source.tolist()]
        self._note_unknown(_unknown(task.source.vocabulary, source.tolist()), UNKNOWN)
        if len(words) == len(self.inputs) and not task.writer.naive:
            self.inputs = words  # as they are written, also where the vocabulary lacks them
        fed = [self.names[number] for number in self.previous[0].tolist()]
        origins = ["start", *[self._fed] * (len(fed) - 1)]
        self.words = words
        joint = task.config.model.form != "two"
        self.strands = [
            Strand("encoder", "encoder.network", self.inputs, ["text"] * len(self.inputs), False),
            Strand("decoder", "encoder.network" if joint else "_rnn", fed, origins, True),
        ]
        if joint:
            self.notes.append("One network reads and writes: what is called encoder and decoder is the same.")

    @property
    def field(self) -> TextField:
        return self.task.source

    def asked_tokens(self) -> list[str]:
        return list(self.words)

    def embed(self, model: TaskModel) -> Tensor:
        vectors: Tensor = model.source(self.ids)
        return vectors

    def log_probs(self, model: TaskModel, x: Tensor) -> Tensor:
        B, S, _ = x.shape
        T = self.previous.shape[1]
        source = model.read_vectors(x, torch.full((B,), S))
        readouts = model(source, self.previous.expand(B, -1), None)
        found: Tensor = model.logits(readouts).log_softmax(-1)
        return found.view(B, T, -1)


def _unknown(vocabulary: Vocabulary, numbers: Sequence[int]) -> int:
    """How many of the tokens are <unk>."""
    return list(numbers).count(vocabulary.index.get(UNKNOWN, -1))
