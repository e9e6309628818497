"""Exported models that write: language models, encoders with decoders, and sequences of classes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.errors import ArgumentError, nearest
from elman.runtime.base import Exported, Prediction, field_of
from elman.runtime.search import Hypothesis, Integers, Look, Search, State, rules_of
from elman.text.batches import pad, plan_batches
from elman.text.vocabulary import END, START, UNKNOWN

STRIDE = 7919  # between the seeds of batches


class WritingModel(Exported):
    """What models that write share: batches of prompts, and the search."""

    def __init__(self, folder: Path, said: Mapping[str, Any], threads: int | None) -> None:
        super().__init__(folder, said, threads)
        self.field = field_of(said["field"])

    @abstractmethod
    def begin(self, prompts: Sequence[str]) -> tuple[Any, Integers, State]:
        """The step function, what it reads first, and the state before that."""

    @abstractmethod
    def told(self, prompt: str, found: list[Hypothesis]) -> list[str]:
        """The texts of hypotheses."""

    def lengths(self, prompts: Sequence[str]) -> Integers:
        """Tokens of the prompts, by which they are batched; here they go in their order."""
        return np.ones(len(prompts), np.int64)

    def longest(self, prompts: Sequence[str]) -> int:
        return int(self.said["longest"])

    def sources(self, prompts: Sequence[str]) -> Integers | None:
        return None

    def _written(self, prompts: Sequence[str]) -> list[Prediction]:
        found: dict[int, Prediction] = {}
        size = self.said["together"]
        plan = plan_batches(
            self.lengths(prompts), size=size, tokens=self.said["positions"], seed=0, epoch=0, shuffle=False
        )
        for batch, key in enumerate(plan):
            part = [prompts[i] for i in key]
            rules = rules_of(self.said["rules"], self.longest(part))
            random = np.random.Generator(np.random.PCG64(self.said["seed"] + STRIDE * batch))
            step, first, state = self.begin(part)
            results = Search(rules, len(part), random, self.sources(part)).run(step, first, state)
            for i, prompt, own in zip(key.tolist(), part, results, strict=True):
                texts = self.told(prompt, own)
                pairs = zip(texts, own, strict=True)
                more = [(t, one.log_probability, one.score) for t, one in pairs] if rules.n_best > 1 else ()
                found[i] = Prediction(texts[0], prompt, None, own[0].log_probability, more)
        return [found[i] for i in range(len(prompts))]

    def advance(self, given: Mapping[str, NDArray[Any]]) -> Look:
        """One step of the graph: what it gives by name."""
        names = [one.name for one in self.step.get_outputs()]
        made = dict(zip(names, self.step.run(names, dict(given)), strict=True))
        log_probs, attention = made.pop("log_probabilities"), made.get("weights_after")
        state = {name.removesuffix("_after"): value for name, value in made.items()}
        return log_probs, state, attention


class LanguageModel(WritingModel):
    """Text that goes on from a prompt."""

    task = "lm"

    def _details(self, texts: Sequence[str]) -> list[Prediction]:
        return self._written(texts)

    def begin(self, prompts: Sequence[str]) -> tuple[Any, Integers, State]:
        ids, lengths = pad([np.array(self._before(prompt)) for prompt in prompts])
        names = [one.name for one in self.sequence.get_outputs()]
        made = dict(zip(names, self.sequence.run(names, {"ids": ids, "lengths": lengths}), strict=True))
        rows = np.arange(len(ids))
        known = made.pop("log_probabilities")[rows, lengths - 1]
        state = {name.removesuffix("_after"): value for name, value in made.items()}
        first = True

        def step(tokens: Integers, state: State, examples: Integers) -> Look:
            nonlocal first
            if first:
                first = False
                return known, state, None
            return self.advance({"token": tokens, **state})

        return step, ids[rows, lengths - 1], state

    def told(self, prompt: str, found: list[Hypothesis]) -> list[str]:
        names, end = self.field.vocabulary.tokens, self.field.vocabulary.id(END)
        return [self.field.join(["\n" if t == end else names[t] for t in one.tokens]) for one in found]

    def _before(self, prompt: str) -> list[int]:
        """The start and the tokens of a prompt; in a stream each line follows the end of one."""
        streams = self.said["streams"]
        start = self.field.vocabulary.id(END if streams else START)
        lines = [self.field.ids(line) for line in prompt.split("\n")]
        if not streams:
            return [start, *(token for line in lines for token in line)]
        return [token for line in lines for token in (start, *line)]


class Seq2Seq(WritingModel):
    """What a source becomes."""

    task = "seq2seq"

    def __init__(self, folder: Path, said: Mapping[str, Any], threads: int | None) -> None:
        super().__init__(folder, said, threads)
        self.source = field_of(said["source"])

    @cached_property
    def encoder(self) -> Any:
        return self.session("encoder")

    def _details(self, texts: Sequence[str]) -> list[Prediction]:
        real = [i for i, text in enumerate(texts) if self.source.split(text)]
        found = [Prediction("", text) for text in texts]
        for i, one in zip(real, self._written([texts[i] for i in real]), strict=True):
            found[i] = one
        return found

    def lengths(self, prompts: Sequence[str]) -> Integers:
        return np.array([len(self.source.split(text)) for text in prompts], np.int64)

    def longest(self, prompts: Sequence[str]) -> int:
        sources, targets = self.said["longest_pair"]
        longer = int(self.lengths(prompts).max(initial=0)) / max(1, int(sources))
        return max(int(self.said["longest"]), math.ceil(2 * int(targets) * max(1.0, longer)))

    def sources(self, prompts: Sequence[str]) -> Integers:
        return self.lengths(prompts)

    def begin(self, prompts: Sequence[str]) -> tuple[Any, Integers, State]:
        rows = [np.array(self.source.ids(text)) for text in prompts]
        start = self.field.vocabulary.id(START)
        first = np.full(len(rows), start)
        if self.said["naive"]:
            first = np.array([row[-1] for row in rows])
            rows = [np.concatenate([[start], row[:-1]]) for row in rows]
        ids, lengths = pad(rows)
        names = [one.name for one in self.encoder.get_outputs()]
        made = dict(zip(names, self.encoder.run(names, {"ids": ids, "lengths": lengths}), strict=True))
        needed = {one.name for one in self.step.get_inputs()}
        memory = {"lengths": lengths, **{n: v for n, v in made.items() if n in ("keys", "values", "context")}}
        memory = {name: value for name, value in memory.items() if name in needed}
        state = {n.removesuffix("_after"): v for n, v in made.items() if n.endswith("_after")}
        if "readout" in needed:
            state["readout"] = np.zeros((len(ids), self.said["readout"]), np.float32)
        if "weights" in needed:
            state["weights"] = np.zeros(ids.shape, np.float32)
        kept: tuple[Integers, State] = (np.arange(len(ids)), memory)

        def step(tokens: Integers, state: State, examples: Integers) -> Look:
            nonlocal kept
            if not np.array_equal(kept[0], examples):
                kept = examples, {name: value[examples] for name, value in memory.items()}
            given = {name: value for name, value in state.items() if name in needed}
            return self.advance({"token": tokens, **given, **kept[1]})

        return step, first, state

    def told(self, prompt: str, found: list[Hypothesis]) -> list[str]:
        return [self.field.join(self._tokens(prompt, one)) for one in found]

    def _tokens(self, source: str, one: Hypothesis) -> list[str]:
        """The tokens of an output, copied from the source where they are unknown."""
        names = self.field.vocabulary.tokens
        tokens = [names[token] for token in one.tokens]
        if UNKNOWN in tokens and self.said["copies"] and one.looked is not None:
            words = self.source.split(source, self.field.unit)
            new = [place for place, word in enumerate(words) if word not in self.field.vocabulary]
            places = new or range(len(words))
            for place, (token, looked) in enumerate(zip(tokens, one.looked, strict=False)):
                if token == UNKNOWN:
                    tokens[place] = words[max(places, key=looked.__getitem__)]
        return tokens


class Class2Seq(WritingModel):
    """The sequence of a class."""

    task = "class2seq"

    @cached_property
    def start(self) -> Any:
        return self.session("start")

    def _details(self, texts: Sequence[str]) -> list[Prediction]:
        for text in texts:
            self._vector(text)
        return self._written(texts)

    def begin(self, prompts: Sequence[str]) -> tuple[Any, Integers, State]:
        x = np.stack([self._vector(text) for text in prompts])
        names = [one.name for one in self.start.get_outputs()]
        made = self.start.run(names, {"class": x})
        state = {name.removesuffix("_after"): value for name, value in zip(names, made, strict=True)}
        soft, V, fed = self.said["soft"], len(self.field.vocabulary), "distribution"
        first = np.full(len(x), self.said["start"])
        if soft:
            state[fed] = np.eye(V, dtype=np.float32)[first]

        def step(tokens: Integers, state: State, examples: Integers) -> Look:
            log_probs, after, _ = self.advance(state if soft else {"token": tokens, **state})
            return log_probs, after | ({fed: np.exp(log_probs)} if soft else {}), None

        return step, first, state

    def told(self, prompt: str, found: list[Hypothesis]) -> list[str]:
        names = self.field.vocabulary.tokens
        return [self.field.join([names[token] for token in one.tokens]) for one in found]

    def _vector(self, text: str) -> NDArray[np.float32]:
        """A class as the graph reads it: one-hot, many-hot, or numbers."""
        kind, size, names = self.said["kind"], self.said["size"], self.said["classes"]
        if kind == "vector":
            try:
                numbers = np.array([float(one) for one in text.split()], np.float32)
            except ValueError:
                numbers = np.zeros(0, np.float32)
            if len(numbers) != size or not np.isfinite(numbers).all():
                raise ArgumentError(f"{text!r} is not {size} finite numbers")
            return numbers
        found = np.zeros(size, np.float32)
        index = self.field.vocabulary.index if kind == "token" else {n: i for i, n in enumerate(names)}
        for one in text.split() if kind == "features" else [text]:
            place = index.get(one, index.get(one.lower()) if kind == "token" else None)
            if place is None:
                raise ArgumentError(f"{one!r} is a class that training never saw; {nearest(one, names)}")
            found[place] = 1
        return found
