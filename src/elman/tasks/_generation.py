"""What tasks share that write sequences: from ``decoding.*`` to the search, and from it to answers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from elman.config import DecodingSettings
from elman.decoding.base import Hypothesis, SearchResult, Step, Strategy, decode
from elman.decoding.ensemble import ensemble
from elman.decoding.processors import NoRepeat, Prefix, Processor
from elman.errors import ConfigError, nearest
from elman.registry import STRATEGIES
from elman.text.units import Unit, make_unit
from elman.text.vocabulary import Vocabulary

LONGEST = 200  # tokens, where nothing else is said
TOGETHER = 64  # prompts that are answered at once
DISTRIBUTIONS = 1 << 27  # probabilities of a step that are in memory at a time
STRIDE = 7919  # between the seeds of batches


@dataclass(frozen=True)
class DecodingStart:
    """A model that has read a batch of prompts.

    step: gives what comes next. first: (B,) the tokens that it reads first. state: before these tokens.
    """

    step: Step
    first: Tensor
    state: Any


def strategy(settings: DecodingSettings) -> Strategy:
    """The strategy that the settings name; options of its constructor are settings of the same name."""
    kind = STRATEGIES.find(strategy_name(settings))
    options = {
        name: getattr(settings, name)
        for name in inspect.signature(kind).parameters
        if name in type(settings).model_fields
    }
    try:
        made: Strategy = kind(**{name: value for name, value in options.items() if value is not None})
    except TypeError as error:
        raise ConfigError(
            f"decoding.strategy {settings.strategy!r}: {error}; options of a strategy need a default, "
            "or the name of a setting of decoding.*"
        ) from None
    return made


def strategy_name(settings: DecodingSettings) -> str:
    """The strategy that is meant, where none is named.

    >>> strategy_name(DecodingSettings(beam=4)), strategy_name(DecodingSettings(top_k=9))
    ('beam', 'sample')
    """
    if settings.strategy is not None:
        return settings.strategy
    if (settings.beam or 1) > 1:
        return "beam"
    drawn = (settings.temperature, settings.top_k, settings.top_p)
    return "sample" if any(value is not None for value in drawn) else "greedy"


def generate(
    beginnings: Sequence[DecodingStart],
    settings: DecodingSettings,
    vocabulary: Vocabulary,
    *,
    end: int,
    never: Iterable[int] = (),
    newline: int | None = None,
    unit: Unit | None = None,
    trace: int | None = None,
    keep_shown: bool = True,
) -> list[SearchResult]:
    """What follows the prompts, as ``decoding.*`` says; several beginnings are models that decide together.

    Drawn sequences depend on the seed and on the batch that a prompt stands in.

    Args:
        vocabulary: of what is generated.
        end: the end marker.
        never: tokens that never come.
        newline: what a line's end is as a token, where the vocabulary has none; unset: the end marker.
        unit: cuts ``decoding.prefix``; unset: words.
        trace: keep the search, and so many of the most probable tokens of each step.
        keep_shown: keep what the steps show.
    """
    line_end = end if newline is None else newline

    def ids(name: str, tokens: Iterable[str]) -> list[int]:
        return [token_id(f"decoding.{name}", token, vocabulary, line_end) for token in tokens]

    first = beginnings[0]
    alone = len(beginnings) == 1
    prefix = ids("prefix", (unit or make_unit("word")).split(settings.prefix))
    processors: list[Processor] = [NoRepeat(settings.no_repeat)] if settings.no_repeat else []
    processors += [Prefix([prefix] * len(first.first))] if prefix else []
    return decode(
        first.step if alone else ensemble([one.step for one in beginnings]),
        first.first,
        first.state if alone else tuple(one.state for one in beginnings),
        strategy(settings),
        end=end,
        stop=set(ids("stop", settings.stop)) - {end},
        banned={*never, *ids("banned", settings.banned)},
        min_length=settings.min_length,
        max_length=settings.max_length or LONGEST,
        processors=processors,
        n_best=settings.n_best,
        trace=trace,
        keep_shown=keep_shown,
    )


def token_id(key: str, token: str, vocabulary: Vocabulary, newline: int) -> int:
    """The number of a token that a setting names; a newline is the end of a line."""
    if token == "\n" and token not in vocabulary:
        return newline
    if token not in vocabulary:
        raise ConfigError(
            f"{key} has {token!r}, which the vocabulary lacks; {nearest(token, vocabulary.tokens)}"
        )
    return vocabulary.id(token)


class Generates:
    """A task that writes sequences: it says how its models begin and end, and how what they find is told.

    partners: other tasks of the same kind and their models, which decide together with this one's.
    """

    unit: Unit
    vocabulary: Vocabulary
    partners: Sequence[tuple[Any, Any]] = ()

    @property
    def output_vocabulary(self) -> Vocabulary:
        """Of what is written."""
        return self.vocabulary

    def begin(self, model: Any, prompts: Sequence[str]) -> DecodingStart:
        """The model after it has read the prompts."""
        raise NotImplementedError

    def end_marker(self, settings: DecodingSettings) -> int:
        raise NotImplementedError

    def line_end(self) -> int | None:
        """What a newline is as a token; None: the end marker."""
        return None

    def never(self, settings: DecodingSettings) -> set[int]:
        """Tokens that are not written."""
        return set()

    def together(self, prompts: Sequence[str], most: int) -> Iterable[Sequence[int]]:
        """Which prompts are answered at once, at most so many, by their numbers; each is in one batch."""
        numbers = range(len(prompts))
        size = min(TOGETHER, most)
        return (numbers[start : start + size] for start in numbers[::size])

    def most_together(self, settings: DecodingSettings) -> int:
        """So many that all distributions of a step, a row for each sequence that is kept, fit into memory."""
        kept = strategy(settings).width(settings.n_best)
        return max(1, DISTRIBUTIONS // (kept * len(self.output_vocabulary)))

    def check_decoding(self, settings: DecodingSettings) -> None:
        """Raise for what would otherwise be found at the first sequence that is written."""
        strategy(settings).check(settings.n_best)
        vocabulary = self.output_vocabulary
        names = {"stop": settings.stop, "banned": settings.banned, "prefix": self.unit.split(settings.prefix)}
        end, newline = self.end_marker(settings), self.line_end()
        newline = end if newline is None else newline
        ids = {
            name: {one: token_id(f"decoding.{name}", one, vocabulary, newline) for one in tokens}
            for name, tokens in names.items()
        }
        longest = settings.max_length or LONGEST
        if settings.min_length > longest:
            raise ConfigError(
                f"decoding.min_length is {settings.min_length}, more than decoding.max_length, "
                f"which is {longest}"
            )
        if len(names["prefix"]) > longest:
            raise ConfigError(
                f"decoding.prefix has {len(names['prefix'])} tokens, more than decoding.max_length, "
                f"which is {longest}"
            )
        for token, number in ids["prefix"].items():
            if number in {end, *ids["stop"].values()}:
                raise ConfigError(f"decoding.prefix has {token!r}, which ends a sequence; take it out")
            if number in {*self.never(settings), *ids["banned"].values()}:
                raise ConfigError(f"decoding.prefix has {token!r}, which may not come; take it out")

    def join_partners(self, partners: Sequence[tuple[Any, Any]]) -> None:
        """Let other tasks and their models decide, too: by the mean of all probabilities."""
        own = self.output_vocabulary
        for number, (task, _) in enumerate(partners, 2):
            if type(task) is not type(self):
                raise ConfigError(
                    f"model {number} of the ensemble is a {type(task).__name__}, the first a "
                    f"{type(self).__name__}; take models of one task"
                )
            if task.output_vocabulary.tokens != own.tokens:
                raise ConfigError(
                    f"model {number} of the ensemble writes with {len(task.output_vocabulary):,} tokens, "
                    f"other than the {len(own):,} of the first; train all on the same data"
                )
        self.partners = list(partners)

    @torch.no_grad()
    def search(
        self,
        model: Any,
        prompts: Sequence[str],
        settings: DecodingSettings,
        *,
        trace: int | None = None,
        keep_shown: bool = True,
    ) -> list[SearchResult]:
        """What the model and its partners find for each prompt."""
        found: dict[int, SearchResult] = {}
        seed = settings.seed
        for batch, numbers in enumerate(self.together(prompts, self.most_together(settings))):
            part = [prompts[number] for number in numbers]
            settings = settings.model_copy(update={"seed": seed + STRIDE * batch})  # other draws
            answers = generate(
                [task.begin(network, part) for task, network in [(self, model), *self.partners]],
                settings,
                self.output_vocabulary,
                end=self.end_marker(settings),
                never=self.never(settings),
                newline=self.line_end(),
                unit=self.unit,
                trace=trace,
                keep_shown=keep_shown,
            )
            found |= zip(numbers, answers, strict=True)
        return [found[number] for number in range(len(prompts))]


def n_best(found: SearchResult, join: Callable[[Hypothesis], str]) -> list[dict[str, Any]]:
    """All hypotheses of an example for people and programs; ``join`` makes a text of one."""
    return [
        {"text": join(one), "log_probability": one.log_probability, "score": one.score}
        for one in found.hypotheses
    ]


def unrolled(
    best: Hypothesis, tokens: Sequence[str], first: str, names: Sequence[str]
) -> list[dict[str, Any]]:
    """A traced hypothesis step by step: what was fed, what came out, and what else could have come.

    Args:
        tokens: what came, the end marker included where it did.
        first: what was fed before them.
        names: of all tokens.
    """
    trace = best.trace
    assert trace is not None
    steps = []
    for t, (fed, token, value, entropy, top) in enumerate(
        zip([first, *tokens], tokens, trace.log_probabilities, trace.entropies, trace.top, strict=False), 1
    ):
        step = {"t": t, "fed": fed, "output": token, "probability": math.exp(value), "entropy": entropy}
        others = [{"token": names[other], "probability": math.exp(p)} for other, p in top]
        steps.append(step | ({"top": others} if others else {}))
    return steps
