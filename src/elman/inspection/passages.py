"""A text on its way through a model: what networks read step by step, and how probable what comes out is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.config import DecodingSettings
from elman.decoding.results import SearchResult
from elman.errors import ArgumentError, nearest
from elman.layers.rnn import RNN
from elman.models.counting import CountedModel
from elman.tasks.base import AnyTask
from elman.tasks.class2seq import Class2Seq
from elman.tasks.classify import Classify
from elman.tasks.examples import device_of
from elman.tasks.generation import Generation
from elman.tasks.lm import Lm
from elman.tasks.predictions import Prediction
from elman.tasks.seq2seq import Seq2Seq
from elman.tasks.tag import Tag
from elman.text.fields import TextField
from elman.text.vocabulary import END, UNKNOWN, Vocabulary

MOST = 500  # tokens that are read or written
GOES_ON = {"word": 12, "character": 40}  # tokens that a language model writes, unless a length is set
TOP = 5  # of the most probable tokens of a step


@dataclass(frozen=True)
class Strand:
    """One network over one sequence, as it is drawn.

    name: as "encoder". path: of the network in its model. tokens: what it reads, step by step. origins: where
    each of them is from: ``text``, ``start``, ``prompt``, ``truth`` or ``own``, what the model wrote itself.
    answers: whether something is predicted after every step.
    """

    name: str
    path: str
    tokens: list[str]
    origins: list[str]
    answers: bool

    def network(self, model: nn.Module) -> nn.Module:
        return model.get_submodule(self.path)


class Passage(ABC):
    """A text, what a model makes of it, and the way there.

    text: what was asked. prediction: what the model says. strands: its networks. inputs: the tokens whose
    vectors come in. outputs: the tokens, tags or label that count as what comes out; ``numbers`` are theirs.
    names: of all that could. search: how a text was found. notes: what a reader has to know.
    """

    strands: list[Strand]
    inputs: list[str]
    outputs: list[str]
    names: Sequence[str]
    numbers: list[int]
    prediction: Prediction
    search: SearchResult | None = None
    given = False  # what comes out was given, not predicted
    multilabel = False

    def __init__(self, task: AnyTask, model: nn.Module, text: str) -> None:
        self.task, self.text = task, text
        self.device = device_of(model)
        self.notes: list[str] = []

    @abstractmethod
    def embed(self, model: Any) -> Tensor:
        """The vectors (1, S, D) of the inputs."""

    @abstractmethod
    def log_probs(self, model: Any, x: Tensor) -> Tensor:
        """(B, T, K) how probable everything is at every output, for vectors (B, S, D)."""

    def vectors(self, model: Any) -> Tensor:
        weight = next(model.parameters())
        return self.embed(model).to(weight.dtype)

    def chosen(self, log_probs: Tensor) -> Tensor:
        """(B, T) those of what comes out."""
        numbers = torch.tensor(self.numbers, device=log_probs.device)
        return log_probs.gather(2, numbers.expand(len(log_probs), -1)[..., None])[..., 0]

    def recurrent(self, model: nn.Module) -> list[tuple[Strand, RNN]]:
        """The strands that are recurrent networks, with these."""
        pairs = ((strand, strand.network(model)) for strand in self.strands)
        return [(strand, network) for strand, network in pairs if isinstance(network, RNN)]

    def changed(self, place: int, token: str | None) -> str:
        """The text with another token at a place, counted from 1; None: without it."""
        tokens = self.asked_tokens()
        if not 1 <= place <= len(tokens):
            raise ArgumentError(f"there is no token {place}; the text has {len(tokens)}, counted from 1")
        tokens[place - 1 : place] = [] if token is None else [token]
        return self.field.join(tokens)

    def asked_tokens(self) -> list[str]:
        """The tokens of the text that was asked, which may be replaced."""
        return list(self.inputs)

    @property
    def field(self) -> TextField:
        """Of the text that is read."""
        return next(iter(self.task.text_fields.values()))

    def _check(self, count: int, what: str = "the text") -> None:
        if not count:
            raise ArgumentError(f"{what} has no token: there is nothing to look at; give one with a word in it")
        if count > MOST:
            raise ArgumentError(f"{what} has {count:,} tokens; a page shows at most {MOST}: give a part of it")


class WordPassage(Passage):
    """Words in; what tagging and classification share."""

    task: Tag | Classify

    def __init__(self, task: Tag | Classify, model: nn.Module, text: str) -> None:
        super().__init__(task, model, text)
        self.inputs = self._split(text)
        self._check(len(self.inputs))
        lower = isinstance(task, Tag) and task.config.text.lowercase
        read = [word.lower() for word in self.inputs] if lower else self.inputs
        self.batch = task.asked_batch([read], self.device)
        self.names = task.labels.names
        origins = ["text"] * len(self.inputs)
        self.strands = [Strand("network", "encoder.network", self.inputs, origins, isinstance(task, Tag))]

    def _split(self, text: str) -> list[str]:
        return [word for word in text.split(" ") if word] if isinstance(self.task, Tag) else self.field.split(text)

    def embed(self, model: Any) -> Tensor:
        vectors: Tensor = model.words(self.batch)
        return vectors

    def _label(self, name: str) -> int:
        if name not in self.names:
            noun = self.task.labels.noun
            raise ArgumentError(f"target is {name!r}, which is no {noun} of training; {nearest(name, self.names)}")
        return list(self.names).index(name)


class TagPassage(WordPassage):
    task: Tag

    def __init__(self, task: Tag, model: Any, text: str, target: str | None) -> None:
        super().__init__(task, model, text)
        [self.prediction] = task.predict(model, [text])
        tags = list(self.prediction.value) if target is None else target.split()
        if len(tags) != len(self.inputs):
            raise ArgumentError(f"target has {len(tags)} tags; the text has {len(self.inputs)} words")
        self.given, self.outputs, self.numbers = target is not None, tags, [self._label(tag) for tag in tags]

    def log_probs(self, model: Any, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        lengths = torch.full((B,), T)
        scores = model.output(model.encoder(x, lengths).outputs)
        if model.crf is not None:
            scores = _log_marginals(model.crf, scores, lengths)
        found: Tensor = (scores / self.task.temperature).log_softmax(-1)
        return found


def _log_marginals(crf: Any, scores: Tensor, lengths: Tensor) -> Tensor:
    """(B, T, K), which may be differentiated: ∂ log p(tags) / ∂ scores is the tags' one-hot − the marginals."""
    tags = torch.tensor(crf.decode(scores.detach(), lengths), device=scores.device)
    with torch.enable_grad():
        known = scores if scores.requires_grad else scores.detach().requires_grad_()
        value = crf.log_likelihood(known, tags, lengths).sum()
        [gradient] = torch.autograd.grad(value, known, create_graph=scores.requires_grad)
    marginals = F.one_hot(tags, scores.shape[-1]).to(gradient.dtype) - gradient
    return marginals.clamp_min(torch.finfo(marginals.dtype).tiny).log()


class ClassifyPassage(WordPassage):
    task: Classify

    def __init__(self, task: Classify, model: Any, text: str, target: str | None) -> None:
        super().__init__(task, model, text)
        [self.prediction] = task.predict(model, [text])
        self.multilabel = task.multilabel
        best = self.prediction.best(1)[0][0]
        self.given, self.outputs = target is not None, [best if target is None else target]
        self.numbers = [self._label(self.outputs[0])]
        if getattr(model, "shortcut", None) is not None:
            self.notes.append(
                "Beside the network there is a linear model of n-grams. The answer and the predictions word by word "
                "are those of both; gates, gradients and influences are those of the network alone."
            )

    def log_probs(self, model: Any, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        lengths = torch.full((B,), T)
        scores = model.head(model.pooling(model.encoder(x, lengths), lengths)) / self.task.temperature
        found: Tensor = F.logsigmoid(scores) if self.multilabel else scores.log_softmax(-1)
        return found[:, None]

    def so_far(self, model: Any) -> list[list[tuple[str, float]]]:
        """What it would say after each token, had the text ended there."""
        texts = [self.field.join(self.inputs[:end]) for end in range(1, len(self.inputs) + 1)]
        return [one.best(TOP) for one in self.task.predict(model, texts)]


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

    @property
    def settings(self) -> DecodingSettings:
        return self.task.config.decoding

    @property
    def generation(self) -> Generation[Any]:
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
                f"The model reads a stream: {END} before the text is the end of the line before it, and the state "
                "before that is the first one."
            )
        unknown = self._vocabulary.index.get(UNKNOWN)
        if unknown in before[1:]:
            self.notes.append(f"{before[1:].count(unknown)} tokens of the text are unknown to the model: {UNKNOWN}.")

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

    def embed(self, model: Any) -> Tensor:
        vectors: Tensor = model.tokens(self.ids)
        return vectors

    def log_probs(self, model: Any, x: Tensor) -> Tensor:
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

    def embed(self, model: Any) -> Tensor:
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

    def log_probs(self, model: Any, x: Tensor) -> Tensor:
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

    def embed(self, model: Any) -> Tensor:
        vectors: Tensor = model.source(self.ids)
        return vectors

    def log_probs(self, model: Any, x: Tensor) -> Tensor:
        B, S, _ = x.shape
        T = self.previous.shape[1]
        source = model.read_vectors(x, torch.full((B,), S))
        readouts = model(source, self.previous.expand(B, -1), None)
        found: Tensor = model.logits(readouts).log_softmax(-1)
        return found.view(B, T, -1)


PASSAGES: dict[type[AnyTask], Any] = {
    Tag: TagPassage,
    Classify: ClassifyPassage,
    Lm: LmPassage,
    Class2Seq: Class2SeqPassage,
    Seq2Seq: Seq2SeqPassage,
}


def passage_of(task: AnyTask, model: nn.Module, text: str, target: str | None = None) -> Passage:
    """The way of a text through a model; ``target`` is what should come out: a label, tags, or a text."""
    kind = next((made for base, made in PASSAGES.items() if isinstance(task, base)), None)
    if kind is None:
        raise ArgumentError(f"{task.config.task} is a task of your own; inspect knows {', '.join(map(str, NAMES))}")
    if isinstance(model, CountedModel):
        raise ArgumentError("the model is counted: it has no network to look into; train one")
    made: Passage = kind(task, model, text, target)
    return made


NAMES = ("lm", "tag", "classify", "seq2seq", "class2seq")
