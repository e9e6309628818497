"""What a worker does for requests, without HTTP: predictions, completions, looks inside, sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from elman.errors import ArgumentError, ElmanError, StreamError
from elman.inspection.inspection import Question
from elman.inspection.saving import written
from elman.inspection.watching import Clamp
from elman.server import limits
from elman.server.batching import Batcher, BusyError, ModelThread
from elman.server.completing import Writing
from elman.server.metrics import Metrics
from elman.server.runs import ServedRun, check
from elman.server.schemas import CompletionRequest, FeedRequest, InspectRequest
from elman.server.sessions import Session, Sessions
from elman.tasks.lm import Lm

FRESH = 1.0  # seconds for which a pass through all models says that they work


class UnknownModelError(Exception):
    """No run has that name."""


class Service:
    """The runs of a worker, and the thread in which they compute."""

    def __init__(self, runs: Mapping[str, ServedRun], sessions: Sessions) -> None:
        self.runs, self.sessions = runs, sessions
        self.thread, self.metrics = ModelThread(), Metrics()
        self.stopping = False
        self._batchers = {name: Batcher(self._computing(run), self.thread) for name, run in runs.items()}
        self._passed, self._passing, self._writing = 0.0, None, 0

    _passing: asyncio.Task[None] | None

    def run(self, name: str) -> ServedRun:
        found = self.runs.get(name)
        if found is None:
            raise UnknownModelError(name)
        return found

    def predict(self, name: str, texts: list[Any]) -> asyncio.Future[list[bytes]]:
        """A prediction a text, as JSON."""
        batcher = self._batchers.get(name)
        if batcher is None:
            raise UnknownModelError(name)
        return batcher.submit(texts)

    async def feed(self, name: str, owner: str, asked: FeedRequest) -> bytes:
        """What is said after each token of a session's next ones, as JSON."""
        session = self.sessions.find(name, owner)
        tokens = session.stream.cut(asked.text) if asked.text is not None else asked.tokens or []
        if len(tokens) > limits.FED:
            raise ArgumentError(f"{len(tokens):,} tokens; a request feeds at most {limits.FED}")
        self.sessions.check_memory()
        async with session.turn:
            session.check_room(len(tokens))
            alone = session if len(tokens) <= limits.TURN else session.forked()
            steps = await self.read(alone, tokens, asked.top)
            session.become(alone)
            self.sessions.weigh(name)
            return to_json({"position": session.state.position, "steps": steps})

    async def read(self, session: Session, tokens: list[str], top: int = 1) -> list[Any]:
        """What is said after each token; some at a time, so that others have their turn."""
        steps: list[Any] = []
        for start in range(0, len(tokens), limits.TURN):
            steps += await self.thread.run_soon(session.feed, tokens[start : start + limits.TURN], top)
        return steps

    def _computing(self, run: ServedRun) -> Any:
        predictor, rows = run.predictor, self.metrics.rows

        def compute(texts: list[Any]) -> list[Any]:
            rows.observe(len(texts))
            try:
                return [to_json(one.as_json()) for one in predictor.details(texts)]
            except ElmanError as error:
                return [error] if len(texts) == 1 else [compute([text])[0] for text in texts]

        return compute

    def writings(self, asked: CompletionRequest) -> list[Writing]:
        """One for each completion of each prompt."""
        if self._writing >= limits.STREAMS:
            raise BusyError
        run = self.run(asked.model)
        task = run.predictor.task
        if not isinstance(task, Lm):
            raise StreamError(f"{run.name} is a {run.task} model; completions are of language models")
        prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
        stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
        temperature = 1.0 if asked.temperature is None else asked.temperature
        return [
            Writing(
                task,
                run.predictor.model,
                prompt,
                most=asked.max_tokens or 16,
                temperature=temperature if temperature > 1e-4 else 0.0,
                top_p=asked.top_p,
                top_k=asked.top_k,
                stop=stop,
                seed=None if asked.seed is None else asked.seed + place,
            )
            for prompt in prompts
            for place in range(asked.n or 1)
        ]

    @contextmanager
    def written(self) -> Iterator[None]:
        """While one request's completions are being written."""
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1

    def inspect(self, asked: InspectRequest) -> str:
        """As ``elman inspect --json`` prints it; called in a thread of its own."""
        changed = {**placed(asked.replace), **dict.fromkeys(asked.remove)}
        forced = placed(asked.force)
        clamps = [Clamp.read(one) for one in asked.clamp]
        against = [asked.against] if isinstance(asked.against, str) else asked.against
        found = []
        for name in (asked.model, *against):
            predictor = self.run(name).predictor
            found.append((name, predictor.inspect(Question(asked.text, asked.target, parts=asked.parts))))
            if changed or forced or clamps:
                question = Question(asked.text, asked.target, changed, forced, clamps, asked.parts)
                found.append((name, predictor.inspect(question)))
        return written(
            [replace(one, run=name) for name, one in found]
        )  # where a run lies is nobody's business

    def tidy(self) -> None:
        """Sessions end in time, whether or not anybody asks for one."""
        self.sessions.expire()
        self.metrics.sessions.set(len(self.sessions))

    async def ready(self, patience: float = 5.0) -> bool:
        """Whether a real pass through every model, not older than a second, went well."""
        if self.stopping:
            return False
        if time.monotonic() - self._passed < FRESH:
            return True
        if self._passing is None or self._passing.done():
            self._passing = asyncio.create_task(self._pass())
        done, _ = await asyncio.wait([self._passing], timeout=patience)
        return bool(done) and self._passing.exception() is None

    async def _pass(self) -> None:
        for run in self.runs.values():
            await self.thread.run(check, run)
        self._passed = time.monotonic()


def placed(changes: Mapping[str, str]) -> dict[int, str]:
    """Tokens by their places."""
    return {int(place): token for place, token in changes.items()}
