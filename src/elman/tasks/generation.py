"""How tasks write sequences: from ``decoding.*`` to the search, and from what it finds to predictions."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from elman.config import DecodingSettings, options_of, strategy_name
from elman.decoding.base import Step, Strategy, decode
from elman.decoding.ensemble import ensemble
from elman.decoding.fixed import FixedStep, StepResult
from elman.decoding.processors import NoRepeat, Prefix, Processor
from elman.decoding.recorded import Recordings
from elman.decoding.results import Hypothesis, SearchResult
from elman.decoding.rows import Nested
from elman.errors import ConfigError, nearest
from elman.registry import STRATEGIES, construct
from elman.tasks import predictions
from elman.tasks.predictions import Alternative, Prediction
from elman.text.fields import TextField
from elman.text.vocabulary import Vocabulary

LONGEST = 200  # tokens, where nothing else is said
DISTRIBUTIONS = 1 << 27  # probabilities of a step that are in memory at a time
STRIDE = 7919  # between the seeds of batches

M = TypeVar("M", bound=nn.Module)


class DecodingStart(NamedTuple):
    """A model that has read a batch of prompts.

    step: gives what comes next. first: (B,) the tokens that it reads first. state: before these tokens.
    fixed: makes the same as a step that can be recorded on a GPU; None: it cannot be.
    """

    step: Step
    first: Tensor
    state: Nested
    fixed: Callable[[], FixedStep] | None = None


class Writer(ABC, Generic[M]):
    """What a task says about its writing: how models begin and end, and how what they find is told.

    field: of what is written. attends: whether models look at a source. goes_on: a prompt and what is written
    are one text. wanted: what a prompt is, where somebody has to give one. together: prompts that are
    answered at once, at most.
    """

    field: TextField
    attends: bool = False
    goes_on: ClassVar[bool] = False
    wanted: ClassVar[str] = "a prompt"
    together: int = 64

    @abstractmethod
    def begin(self, model: M, prompts: Sequence[str]) -> DecodingStart:
        """The model after it has read the prompts."""

    @abstractmethod
    def end_marker(self, settings: DecodingSettings) -> int: ...

    @abstractmethod
    def prediction(self, prompt: str, found: SearchResult, settings: DecodingSettings) -> Prediction:
        """What was found for a prompt."""

    def line_end(self) -> int | None:
        """What a newline is as a token; None: the end marker."""
        return None

    def never(self, settings: DecodingSettings) -> set[int]:
        """Tokens that are not written."""
        return set()

    def batches(self, prompts: Sequence[str], most: int) -> Iterable[Sequence[int]]:
        """Which prompts are answered at once, at most so many, by their numbers; each is in one batch."""
        numbers = range(len(prompts))
        size = min(self.together, most)
        return (numbers[start : start + size] for start in numbers[::size])

    def longest(self, prompts: Sequence[str]) -> int:
        """Tokens that are written for prompts at most, where no setting says it."""
        return LONGEST

    def usual_prompts(self) -> list[str]:
        """What is written from where nobody says it; empty where somebody has to."""
        return []

    def gap(self, before: str, after: str) -> str:
        """What stands between a prompt and the text that goes on from it, in their order, as shown."""
        return ""


Partner = tuple[Writer[Any], nn.Module]  # a model that decides, too, and what writes with it
Partners = Sequence[Partner]


class Generation(Generic[M]):
    """The search of a task that writes; on a GPU, steps are recorded and replayed."""

    def __init__(self, writer: Writer[M], recordings: Recordings | None = None) -> None:
        self.writer = writer
        self.recordings = recordings or Recordings()

    @property
    def vocabulary(self) -> Vocabulary:
        return self.writer.field.vocabulary

    def check(self, settings: DecodingSettings) -> None:
        """Raise for what would otherwise be found at the first sequence that is written."""
        make_strategy(settings).check(settings.n_best)
        tokens = {
            "stop": settings.stop,
            "banned": settings.banned,
            "prefix": self.writer.field.unit.split(settings.prefix),
        }
        ids = {
            name: dict(zip(own, self.token_ids(name, own, settings), strict=True))
            for name, own in tokens.items()
        }
        longest, prefix = settings.max_length or self.writer.longest(()), len(tokens["prefix"])
        for key, length in (("min_length is {}", settings.min_length), ("prefix has {} tokens", prefix)):
            if length > longest:
                raise ConfigError(
                    f"decoding.{key.format(length)}, more than decoding.max_length, which is {longest}"
                )
        end, never = self.writer.end_marker(settings), self.writer.never(settings)
        for token, number in ids["prefix"].items():
            if number in {end, *ids["stop"].values()}:
                raise ConfigError(f"decoding.prefix has {token!r}, which ends a sequence; take it out")
            if number in {*never, *ids["banned"].values()}:
                raise ConfigError(f"decoding.prefix has {token!r}, which may not come; take it out")

    def check_partners(self, partners: Partners) -> None:
        """Other models may decide, too, if they write with the same tokens."""
        own = self.vocabulary
        for number, (writer, _) in enumerate(partners, 2):
            other = writer.field.vocabulary
            if type(writer) is not type(self.writer):
                raise ConfigError(
                    f"model {number} of the ensemble is of another task than the first; take models of one"
                )
            if other.tokens != own.tokens:
                raise ConfigError(
                    f"model {number} of the ensemble writes with {len(other):,} tokens, "
                    f"other than the {len(own):,} of the first; train all on the same data"
                )

    def predict(
        self,
        model: M,
        prompts: Sequence[str],
        settings: DecodingSettings,
        *,
        partners: Partners = (),
        trace: int | None = None,
        keep_shown: bool = True,
    ) -> list[Prediction]:
        """What each prompt becomes, told as the task tells it."""
        found = self.search(model, prompts, settings, partners=partners, trace=trace, keep_shown=keep_shown)
        pairs = zip(prompts, found, strict=True)
        return [self.writer.prediction(prompt, result, settings) for prompt, result in pairs]

    @torch.no_grad()
    def search(
        self,
        model: M,
        prompts: Sequence[str],
        settings: DecodingSettings,
        *,
        partners: Partners = (),
        trace: int | None = None,
        keep_shown: bool = True,
    ) -> list[SearchResult]:
        """What the model and its partners find for each prompt.

        Drawn sequences depend on the seed and on the batch that a prompt stands in.

        Args:
            partners: models that decide together with this one, by the mean of all probabilities.
            trace: keep the search, and so many of the most probable tokens of each step.
            keep_shown: keep what the steps show.
        """
        found: dict[int, SearchResult] = {}
        members: list[Partner] = [(self.writer, model), *partners]
        for batch, numbers in enumerate(self.writer.batches(prompts, self._most(settings))):
            part = [prompts[number] for number in numbers]
            longest = settings.max_length or self.writer.longest(part)
            update = {"seed": settings.seed + STRIDE * batch, "max_length": longest}  # other draws
            starts = [writer.begin(network, part) for writer, network in members]
            results = self._decode(starts, settings.model_copy(update=update), trace, keep_shown)
            found |= zip(numbers, results, strict=True)
        return [found[number] for number in range(len(prompts))]

    def _decode(
        self, starts: Sequence[DecodingStart], settings: DecodingSettings, trace: int | None, keep_shown: bool
    ) -> list[SearchResult]:
        first, end = starts[0], self.writer.end_marker(settings)
        prefix = self.token_ids("prefix", self.writer.field.unit.split(settings.prefix), settings)
        processors: list[Processor] = [NoRepeat(settings.no_repeat)] if settings.no_repeat else []
        processors += [Prefix([prefix] * len(first.first))] if prefix else []
        strategy = make_strategy(settings)
        devices, width = [one.first.device for one in starts], strategy.width(settings.n_best)
        with self.recordings.step([one.fixed for one in starts], devices, width) as recorded:
            begun = joined(starts) if recorded is None else recorded.start(first.first)
            step, tokens, state = begun
            return decode(
                step,
                tokens,
                state,
                strategy,
                end=end,
                stop=set(self.token_ids("stop", settings.stop, settings)) - {end},
                banned={*self.writer.never(settings), *self.token_ids("banned", settings.banned, settings)},
                min_length=settings.min_length,
                max_length=settings.max_length or LONGEST,
                processors=processors,
                n_best=settings.n_best,
                trace=trace,
                keep_shown=keep_shown,
            )

    def _most(self, settings: DecodingSettings) -> int:
        """So many that all distributions of a step, a row for each sequence that is kept, fit into memory."""
        kept = make_strategy(settings).width(settings.n_best)
        return max(1, DISTRIBUTIONS // (kept * len(self.vocabulary)))

    def token_ids(self, name: str, tokens: Iterable[str], settings: DecodingSettings) -> list[int]:
        """The numbers of tokens that a setting names; a newline is the end of a line."""
        newline, found = self.writer.line_end(), []
        for token in tokens:
            if token == "\n" and token not in self.vocabulary:
                found.append(self.writer.end_marker(settings) if newline is None else newline)
            elif token in self.vocabulary:
                found.append(self.vocabulary.id(token))
            else:
                refused = {self.writer.end_marker(settings), *self.writer.never(settings)}
                known = enumerate(self.vocabulary.tokens)
                near = nearest(token, [one for i, one in known if name != "prefix" or i not in refused])
                raise ConfigError(f"decoding.{name} has {token!r}, which the vocabulary lacks; {near}")
        return found


def fixed_step(step: Step, model: nn.Module, state: Nested) -> Callable[[], FixedStep]:
    """What makes a step that can be recorded of one that reads nothing but its arguments and the model."""

    def function(tokens: Tensor, state: Nested, given: Nested) -> StepResult:
        return step(tokens, state)

    return lambda: FixedStep(function, model, state)


def joined(starts: Sequence[DecodingStart]) -> tuple[Step, Tensor, Nested]:
    """One model as it began, or several of them as an ensemble: step function, first tokens and state."""
    step, first, state, _ = starts[0]
    if len(starts) == 1:
        return step, first, state
    return ensemble([one.step for one in starts]), first, tuple(one.state for one in starts)


def make_strategy(settings: DecodingSettings) -> Strategy:
    """The strategy that the settings name, or mean."""
    kind = STRATEGIES.find(strategy_name(settings))
    options = options_of(settings, "strategy")
    made: Strategy = construct(kind, options=options, named="decoding.strategy_options")
    return made


def alternatives(
    found: SearchResult, texts: Iterable[str], settings: DecodingSettings
) -> Sequence[Alternative]:
    """All hypotheses of an example with their texts, where several were asked for."""
    if settings.n_best == 1:
        return ()
    pairs = zip(texts, found.hypotheses, strict=True)
    return [Alternative(text, one.log_probability, one.score) for text, one in pairs]


def steps_of(
    best: Hypothesis, tokens: Sequence[str], first: str, names: Sequence[str]
) -> list[predictions.Step] | None:
    """A traced hypothesis step by step: what was fed, what came out, and what else could have come.

    Args:
        tokens: what came, the end marker included where it did.
        first: what was fed before them.
        names: of all tokens.
    """
    trace = best.trace
    if trace is None:
        return None
    rows = zip([first, *tokens], tokens, trace.log_probabilities, trace.entropies, trace.top, strict=False)
    return [
        predictions.Step(
            t, fed, token, math.exp(value), entropy, [(names[other], math.exp(p)) for other, p in top]
        )
        for t, (fed, token, value, entropy, top) in enumerate(rows, 1)
    ]
