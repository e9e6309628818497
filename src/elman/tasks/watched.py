"""Validation examples that are watched while a network learns: what is fed, what comes out, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from elman.decoding.rows import Nested

WATCHED = 2  # validation examples, the first ones
LONGEST = 24  # tokens of a side that are kept
DIGITS = 2  # of a weight

StepOutput = tuple[Tensor, Nested, Tensor | None]  # log-probabilities, the state after it, attention
StepFunction = Callable[[Tensor, Nested], StepOutput]


@dataclass(frozen=True)
class WatchedExample:
    """One example, step by step (row E3).

    forced: what comes out where the truth before it is fed. free: what comes out where its own output is fed.
    weights: (T, S) where attention looked while the truth was fed, rounded; None without attention.
    """

    source: list[str]
    truth: list[str]
    forced: list[str]
    free: list[str]
    weights: list[list[float]] | None = None

    def as_json(self) -> dict[str, object]:
        found = {name: getattr(self, name) for name in ("source", "truth", "forced", "free")}
        return found | ({} if self.weights is None else {"weights": self.weights})


def watch(
    step: StepFunction,
    state: Nested,
    first: Tensor,
    truth: Tensor,
    *,
    source: Sequence[str],
    names: Sequence[str],
) -> WatchedExample:
    """A network, by its step function, over true tokens (T,); the first step reads ``first`` (1,)."""
    truth = truth[:LONGEST]
    forced, weights = _outputs(step, state, first, truth, own=False)
    free, _ = _outputs(step, state, first, truth, own=True)
    gold, under, alone = ([names[number] for number in one] for one in (truth.tolist(), forced, free))
    return WatchedExample(list(source[:LONGEST]), gold, under, alone, weights or None)


def _outputs(
    step: StepFunction, state: Nested, fed: Tensor, truth: Tensor, *, own: bool
) -> tuple[list[int], list[list[float]]]:
    said: list[Tensor] = []
    looked: list[list[float]] = []
    for gold in truth:
        log_probs, state, weights = step(fed, state)
        said.append(log_probs.argmax(-1))
        fed = said[-1] if own else gold[None]
        if weights is not None:
            looked.append([round(value, DIGITS) for value in weights[0, :LONGEST].double().tolist()])
    return torch.cat(said).tolist(), looked
