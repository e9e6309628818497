"""Text that a language model writes, piece by piece as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from elman.config import DecodingSettings
from elman.decoding.draws import Urn, make_generator
from elman.decoding.sample import Sample
from elman.tasks.lm import Lm

SLICE = 8  # tokens that are written before others have their turn


class Writing:
    """One completion: what it has written, and the model's state after it.

    >>> writing = Writing(task, model, "the", temperature=0.8)  # doctest: +SKIP
    >>> while writing.finished is None:  # doctest: +SKIP
    ...     print(writing.more(), end="")
    """

    def __init__(
        self,
        task: Lm,
        model: Any,
        prompt: str,
        *,
        most: int = 16,
        temperature: float = 1.0,
        top_p: float | None = None,
        top_k: int | None = None,
        stop: Sequence[str] = (),
        seed: int | None = None,
    ) -> None:
        """Nothing is computed yet; temperature 0 takes the most probable token each time."""
        self.task, self.model, self.prompt, self.most, self.stop = task, model, prompt, most, stop
        self.temperature, self.generator = temperature, make_generator(seed)
        self.sample = Sample(temperature=temperature or 1.0, top_p=top_p, top_k=top_k, seed=0)
        self.tokens: list[int] = []
        self.read = 0  # tokens of the prompt
        self.finished: Literal["stop", "length"] | None = None
        self._begun: Any = None
        self._told = 0  # characters
        settings = DecodingSettings()
        self._end = task.writer.end_marker(settings)
        self._never = sorted(task.writer.never(settings) - {self._end})

    @torch.no_grad()
    def more(self, count: int = SLICE) -> str:
        """What so many more tokens add to the text; what may yet become a stop is held back."""
        if self._begun is None:
            self.read = len(self.task.writer.tokens_before(self.prompt)) - 1
            self._begun = self.task.writer.begin(self.model, [self.prompt])
            self._token, self._state = self._begun.first, self._begun.state
        for _ in range(count):
            if self.finished is None:
                self._step()
        text = self._text()
        found = [place for one in self.stop if (place := text.find(one)) >= 0]
        if found:
            self.finished, text = "stop", text[: min(found)]
        held = 0 if self.finished else max([self._begins(text, one) for one in self.stop], default=0)
        if not self.finished and text.endswith("\ufffd"):  # a letter whose bytes have not all come
            held = max(held, len(text) - len(text.rstrip("\ufffd")))
        told = text[self._told : len(text) - held]
        self._told += len(told)
        return told

    def _step(self) -> None:
        log_probs, self._state, _ = self._begun.step(self._token, self._state)
        log_probs = log_probs.clone()
        log_probs[:, self._never] = -torch.inf
        if self.temperature:
            self._token = Urn(self.sample.distribution(log_probs)).draw(1, self.generator)[:, 0]
        else:
            self._token = log_probs.argmax(1)
        token = int(self._token)
        if token == self._end:
            self.finished = "stop"
            return
        self.tokens.append(token)
        if len(self.tokens) >= self.most:
            self.finished = "length"

    def _text(self) -> str:
        text = self.task.writer.text_of(self.tokens)
        return self.task.writer.gap(self.prompt, text) + text if text else ""

    @staticmethod
    def _begins(text: str, stop: str) -> int:
        """How many characters at the end of a text may be the beginning of a stop."""
        return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
