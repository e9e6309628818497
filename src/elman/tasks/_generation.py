"""What language models and class-to-sequence models share: tokens that come one after the other."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor

from elman.config import DecodingSettings
from elman.decoding.base import Hypothesis, Step, Strategy, decode
from elman.errors import ConfigError, nearest
from elman.registry import STRATEGIES
from elman.text.vocabulary import Vocabulary

LONGEST = 200  # tokens, where nothing else is said


def strategy(settings: DecodingSettings) -> Strategy:
    """The strategy that the settings name; options of its constructor are settings of the same name."""
    kind = STRATEGIES.find(settings.strategy)
    options = [name for name in inspect.signature(kind).parameters if name in type(settings).model_fields]
    made: Strategy = kind(**{name: getattr(settings, name) for name in options})
    return made


def generate(
    step: Step,
    first: Tensor,
    state: Any,
    settings: DecodingSettings,
    vocabulary: Vocabulary,
    *,
    end: int,
    never: tuple[int, ...] = (),
) -> list[Hypothesis]:
    """What follows the first tokens (N,), as ``decoding.*`` says."""
    return decode(
        step,
        first,
        state,
        strategy(settings),
        end=end,
        stop={stop_id(token, vocabulary, end) for token in settings.stop} - {end},
        min_length=settings.min_length,
        max_length=settings.max_length or LONGEST,
        banned=never,
    )


def stop_id(token: str, vocabulary: Vocabulary, end: int) -> int:
    """The number of a token that stops generation; a newline is the end of a line."""
    if token == "\n" and token not in vocabulary:
        return end
    if token not in vocabulary:
        raise ConfigError(
            f"decoding.stop has {token!r}, which the vocabulary lacks; {nearest(token, vocabulary.tokens)}"
        )
    return vocabulary.id(token)
