"""A model that reads as a text comes, token by token: its state is a value, what it says a prediction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from elman.errors import StreamError
from elman.models.classifier import Classifier
from elman.models.counting import CountedModel
from elman.models.tagger import Tagger
from elman.recurrence.contract import Unrolled
from elman.tasks.base import AnyTask
from elman.tasks.classify import Classify
from elman.tasks.examples import Examples, device_of
from elman.tasks.lm import Lm
from elman.tasks.tag import Tag
from elman.tasks.words import asked_batch
from elman.text.vocabulary import END

Json = dict[str, Any]
TOP = 5  # probable tokens, tags or classes that a step tells
REMEMBERED = 20_000  # words whose vectors are kept


class StreamState(NamedTuple):
    """Where a stream stands; a step makes another one and leaves this as it is.

    position: tokens that were read. hidden: the network's state. kept: what else the next step needs.
    recent: the last tokens, where more than one of them counts.
    """

    position: int = 0
    hidden: Any = None
    kept: Any = None
    recent: tuple[str, ...] = ()


class Stream(ABC):
    """Reads one token after the other; after each, it says what the model would say of the text so far.

    >>> stream, state = elman.load("runs/tagger").stream(), StreamState()  # doctest: +SKIP
    >>> for token in stream.cut("the dog"):  # doctest: +SKIP
    ...     said, state = stream.read(token, state)
    """

    says: ClassVar[str]  # what a step's prediction is: a tag, a class, or the next token

    def __init__(self, task: AnyTask, model: nn.Module) -> None:
        self.task, self.model = task, model
        self.device = device_of(model)

    @abstractmethod
    def cut(self, text: str) -> list[str]:
        """The tokens of a piece of text, each of which is read by itself."""

    @abstractmethod
    def step(self, token: str, state: StreamState) -> tuple[Tensor, StreamState]:
        """Probabilities (K,) after one more token, and the state then."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """What the probabilities are of."""

    @torch.no_grad()
    def read(self, token: str, state: StreamState, *, top: int = TOP) -> tuple[Json, StreamState]:
        """What is said after one more token, with the most probable alternatives, and the state then."""
        chances, after = self.step(token, state)
        values, places = chances.topk(min(top, len(chances)))
        names = self.names
        found = [
            {self.says: names[k], "probability": p}
            for k, p in zip(places.tolist(), values.tolist(), strict=True)
        ]
        return {"token": token, "position": after.position, **found[0], "top": found}, after


class WordStream(Stream):
    """What reads words: their vectors are kept, since a word has the same one wherever it stands."""

    task: Any
    model: Any

    def __init__(self, task: Tag | Classify, model: Tagger | Classifier) -> None:
        super().__init__(task, model)
        ngrams = model.words.ngrams
        self.window = 1 if ngrams is None else len(ngrams.tables) + 1
        self._vectors: dict[tuple[str, ...], Tensor] = {}

    @property
    def names(self) -> list[str]:
        names: list[str] = self.task.label_names
        return names

    def vector(self, words: tuple[str, ...]) -> Tensor:
        """(1, D) of the last of some words, which stand side by side."""
        found = self._vectors.get(words)
        if found is None:
            batch = asked_batch(self.task, [words], self.device)
            found = self.model.words(batch)[:, -1].contiguous()
            if len(self._vectors) >= REMEMBERED:
                self._vectors.clear()
            self._vectors[words] = found
        return found

    def advance(self, token: str, state: StreamState) -> tuple[Tensor, Any, tuple[str, ...]]:
        """The network's output (1, H) and state after one more token; and the last tokens then."""
        recent = (*state.recent, token)
        y, hidden = self.model.encoder.step(self.vector(recent[-self.window :]), state.hidden)
        return y, hidden, recent


class TagStream(WordStream):
    """The tag of each word, as of a text that ends with it; with a CRF, by its forward sums."""

    says = "tag"

    def __init__(self, task: Tag, model: Tagger) -> None:
        super().__init__(task, model)
        if model.crf is not None and model.shortcut is not None:
            raise StreamError(
                "the run has a CRF over a linear tagger that looks ahead; train with model.shortcut=false"
            )
        self.crf = None if model.crf is None else model.crf.constrained()

    def cut(self, text: str) -> list[str]:
        return text.split()

    def step(self, token: str, state: StreamState) -> tuple[Tensor, StreamState]:
        model = self.model
        token = token.lower() if self.task.config.text.lowercase else token
        y, hidden, recent = self.advance(token, state)
        scores: Tensor = model.output(y)
        recent = recent[-3:] if model.shortcut is not None else ()
        if model.shortcut is not None:
            linear = model.shortcut(asked_batch(self.task, [recent], self.device))[:, -1]
            scores = scores + model.shortcut.share * (linear - scores)
        kept = None
        if self.crf is not None:
            start, transitions, end = self.crf
            own = (scores - scores.amax(1, keepdim=True)).double()
            kept = own + (
                start if state.kept is None else (state.kept[:, :, None] + transitions).logsumexp(1)
            )
            kept = kept - kept.amax(1, keepdim=True)
            scores = (kept + end).log_softmax(1)
        chances = (scores[0] / self.task.temperature).softmax(0)
        return chances, StreamState(state.position + 1, hidden, kept, recent)


class ClassifyStream(WordStream):
    """The class of the text so far."""

    says = "label"

    def __init__(self, task: Classify, model: Classifier) -> None:
        super().__init__(task, model)
        self.pooling = task.config.model.pooling or "last"

    def cut(self, text: str) -> list[str]:
        found: list[str] = self.task.words.text.split(text)
        return found

    def step(self, token: str, state: StreamState) -> tuple[Tensor, StreamState]:
        task, model = self.task, self.model
        y, hidden, recent = self.advance(token, state)
        outputs = y[:, None]
        if self.pooling != "last" and state.kept is not None:
            outputs = torch.cat([state.kept, outputs], 1)
            if self.pooling == "max":
                outputs = outputs.amax(1, keepdim=True)
            elif self.pooling == "mean":
                outputs = outputs.sum(1, keepdim=True)
        seen = outputs / (state.position + 1) if self.pooling == "mean" else outputs
        scores: Tensor = model.head(model.pooling(Unrolled(seen, y, ())))
        if model.shortcut is not None:
            grams = task.beside.ngrams(Examples.asked([recent], task.lexicon()), [0])
            scores = model.shortcut.mix(scores, grams)
        probable = scores[0] / task.temperature
        chances = probable.sigmoid() if task.multilabel else probable.softmax(0)
        recent = (
            recent if model.shortcut is not None else recent[1 - self.window :] if self.window > 1 else ()
        )
        return chances, StreamState(state.position + 1, hidden, outputs, recent)


class LmStream(Stream):
    """What comes next, and how probable that is."""

    says = "next"
    task: Any
    model: Any

    def __init__(self, task: Lm, model: nn.Module) -> None:
        super().__init__(task, model)
        self._names = ["\n" if name == END else name for name in task.field.vocabulary.tokens]

    @property
    def names(self) -> list[str]:
        return self._names

    def cut(self, text: str) -> list[str]:
        """Each line is cut by itself; between two lines there is the end of one."""
        lines = [self.task.field.split(line) for line in text.split("\n")]
        return [token for place, line in enumerate(lines) for token in (*(["\n"] if place else []), *line)]

    def step(self, token: str, state: StreamState) -> tuple[Tensor, StreamState]:
        vocabulary, hidden = self.task.field.vocabulary, state.hidden
        if not state.position:
            _, hidden = self.model.step(torch.tensor([self.task.start], device=self.device), None)
        [number] = vocabulary.ids([END if token == "\n" and token not in vocabulary else token])
        logarithms, hidden = self.model.step(torch.tensor([number], device=self.device), hidden)
        return logarithms[0].exp(), StreamState(state.position + 1, hidden)


def stream_of(task: AnyTask, model: nn.Module) -> Stream:
    """What reads with a model token by token; an error, with what helps, where none can."""
    name = task.config.task
    if isinstance(task, (Tag, Classify)):
        if isinstance(model, CountedModel):
            raise StreamError("the run is counted: it keeps no state of a text; train a recurrent network")
        if task.config.model.bidirectional and task.config.model.network == "rnn":
            raise StreamError(
                "the run reads in both directions, so it begins at the end of a text; "
                "train with model.bidirectional=false"
            )
        return TagStream(task, model) if isinstance(task, Tag) else ClassifyStream(task, model)  # type: ignore[arg-type]
    if isinstance(task, Lm):
        return LmStream(task, model)
    raise StreamError(f"{name} answers whole texts; use predict")
