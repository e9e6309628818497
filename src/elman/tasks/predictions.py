"""What a model says about one input, as a typed value; JSON is its rendering."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elman.decoding.results import Node, Stopped
from elman.metrics.spans import Span

Json = dict[str, Any]


class Alternative(NamedTuple):
    """One of several outputs for the same input."""

    text: str
    log_probability: float
    score: float


class Step(NamedTuple):
    """One step of writing: what was fed, what came out, and the most probable tokens with what they had."""

    t: int
    fed: str
    output: str
    probability: float
    entropy: float
    top: Sequence[tuple[str, float]] = ()

    def as_json(self) -> Json:
        top = [{"token": token, "probability": probability} for token, probability in self.top]
        return {name: value for name, value in (self._asdict() | {"top": top}).items() if value != []}


@dataclass(frozen=True)
class Looked:
    """Where attention looked: weights (outputs, sources) between tokens, the end marker among the outputs."""

    source_tokens: list[str]
    output_tokens: list[str]
    attention: NDArray[np.float32] | None = None
    tree: list[Json] | None = None  # of the search: its nodes, with their tokens as text

    def as_json(self) -> Json:
        found: Json = {"source_tokens": self.source_tokens, "output_tokens": self.output_tokens}
        if self.attention is not None:
            found["attention"] = self.attention.tolist()
        return found | ({} if self.tree is None else {"tree": self.tree})


@dataclass(frozen=True)
class Written:
    """How a text was written, token by token.

    log_probability and stopped are None where there was nothing to write from. score is what the strategy
    ranks by, where it is told.
    """

    tokens: list[str]
    log_probability: float | None = None
    stopped: Stopped | None = None
    score: float | None = None
    scored: bool = False
    n_best: Sequence[Alternative] = ()
    steps: list[Step] | None = None
    looked: Looked | None = None

    def as_json(self) -> Json:
        found: Json = {
            "tokens": self.tokens,
            "log_probability": self.log_probability,
            **({"score": self.score} if self.scored else {}),
            "stopped": self.stopped,
        }
        if self.n_best:
            found["n_best"] = [one._asdict() for one in self.n_best]
        if self.looked is not None:
            found |= self.looked.as_json()
        return found | ({} if self.steps is None else {"trace": [step.as_json() for step in self.steps]})


@dataclass(frozen=True)
class Withheld:
    """What a threshold kept back of an answer.

    said: the answer without it. left_out: the label that is not said, or None; of several labels those that
    are not; of each word its tag, or None. count: answers that are kept back, tags of a tagger, of ``total``.
    """

    said: str | list[str]
    left_out: str | list[str] | list[str | None] | None
    count: int
    total: int


@dataclass(frozen=True)
class Prediction:
    """The answer to one input: a label, a list of tags, or a text, and what is known about it.

    value: the answer. asked: the input, and ``role`` what it is called. probabilities: of the labels, or of
    the tags that were given. written: how a text came about. spans: what the tags mean. alternatives: for
    each word its tag and the most probable others. between: what stands between several answers in one line.
    read: how many tokens the input has, and ``unknown``, how many of them training never saw; None where none
    are read. withheld: where a threshold was asked for, what it kept back.

    It reads like the object that is its JSON: ``prediction["probabilities"]``.

    >>> Prediction("Polish", "Kowalski", "text", probabilities={"Polish": 0.9, "Greek": 0.1}).as_json()
    {'prediction': 'Polish', 'text': 'Kowalski', 'probabilities': {'Polish': 0.9, 'Greek': 0.1}}
    """

    value: str | list[str]
    asked: str | list[str]
    role: str
    probabilities: dict[str, float] | list[float] | None = None
    written: Written | None = None
    spans: list[Span] | None = None
    alternatives: list[list[tuple[str, float]]] | None = None
    between: str = " "
    read: int | None = None
    unknown: int = 0
    withheld: Withheld | None = None

    @property
    def unseen(self) -> bool:
        """Has the input tokens, but none that training saw?"""
        return bool(self.read) and self.unknown == self.read

    @property
    def tags(self) -> list[list[tuple[str, float]]] | None:
        """For each word its tag with the probability, and other tags if they are known."""
        if not isinstance(self.value, list) or not isinstance(self.probabilities, list):
            return None
        return self.alternatives or [[one] for one in zip(self.value, self.probabilities, strict=True)]

    @property
    def several(self) -> bool:
        """Is it a set of labels?"""
        return isinstance(self.value, list) and isinstance(self.probabilities, dict)

    @property
    def confidence(self) -> float | None:
        """How probable the answer is; of tags, the least probable one. None where nothing could be asked.

        Of several labels it is the least probable decision, for or against one. What is withheld counts.
        """
        value = self.value if self.withheld is None else self.withheld.said
        if isinstance(self.probabilities, dict):
            if isinstance(value, str):
                return self.probabilities.get(value)
            decided = ((p if name in value else 1 - p) for name, p in self.probabilities.items())
            return min(decided, default=None)
        if self.probabilities is not None:
            return min(self.probabilities, default=None)
        logarithm = None if self.written is None else self.written.log_probability
        return None if logarithm is None else math.exp(logarithm)

    def best(self, most: int) -> list[tuple[str, float]]:
        """So many answers at most, with their probabilities, the most probable first."""
        if isinstance(self.probabilities, dict):
            found = sorted(self.probabilities.items(), key=lambda one: -one[1])[:most]
            unsaid = isinstance(self.value, str) and self.withheld is not None and self.withheld.count
            return [(str(self.value), found[0][1]), *found[1:]] if unsaid else found
        if self.written is not None and self.written.n_best:
            return [(one.text, math.exp(one.log_probability)) for one in self.written.n_best[:most]]
        if self.confidence is None:
            return []
        tags = zip(*(one[:most] for one in self.alternatives or ()), strict=False)
        others = [(" ".join(tag for tag, _ in one), min(chance for _, chance in one)) for one in tags]
        return [(self.line, self.confidence), *others[1:]]

    def placed_spans(self, text: str | None = None) -> list[Json]:
        """The spans of tags as objects: type, text, and from where to where, in words and in characters.

        Characters are those of ``text``, or of the words with a space between them.
        """
        words = list(self.asked)
        text, starts, place = " ".join(words) if text is None else text, [], 0
        for word in words:
            place = text.index(word, place)
            starts.append(place)
            place += len(word)
        found = []
        for span in self.spans or ():
            first, last = starts[span.start], starts[span.end - 1] + len(words[span.end - 1])
            where = {"words": [span.start, span.end], "start": first, "end": last}
            found.append({"type": span.type, "text": text[first:last], **where})
        return found

    @property
    def line(self) -> str:
        """The answer in one line."""
        return self.value if isinstance(self.value, str) else self.between.join(self.value)

    def as_json(self, *, traced: bool = True) -> Json:
        """An object for programs; without what a trace adds to it, if that is not wanted."""
        found: Json = {"prediction": self.value, self.role: self.asked}
        if self.read is not None:
            found |= {"read": self.read, "unknown": self.unknown}
        if self.withheld is not None:
            found["withheld"] = self.withheld.left_out
        if self.probabilities is not None:
            found["probabilities"] = self.probabilities
        if self.spans is not None:
            found["spans"] = self.placed_spans()
        if self.alternatives is not None:
            found["alternatives"] = [
                [{"tag": tag, "probability": chance} for tag, chance in one] for one in self.alternatives
            ]
        if self.written is not None:
            found |= {"text": self.value, **self.written.as_json()}
        if not traced:
            for name in ("trace", "tree", "source_tokens", "output_tokens", "attention"):
                found.pop(name, None)
        return found

    def keys(self) -> Iterator[str]:
        return iter(self.as_json())

    __iter__ = keys

    def __getitem__(self, key: str) -> Any:
        return self.line if key == "line" else self.as_json()[key]

    def __contains__(self, key: object) -> bool:
        return key in self.as_json()


def named_nodes(nodes: Sequence[Node] | None, names: Sequence[str]) -> list[Json] | None:
    """The tree of a search for programs, with the names of its tokens."""
    return None if nodes is None else [node._asdict() | {"token": names[node.token]} for node in nodes]
