"""Requests of many clients computed together: what waits is bounded, and nobody waits beyond a deadline."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from elman.server import limits

T = TypeVar("T")


class BusyError(Exception):
    """There is no room, or no time left: come back later."""


class Job:
    """One request: its texts, and what has been found for them."""

    __slots__ = ("deadline", "found", "future", "left", "texts")

    def __init__(self, texts: list[Any], deadline: float, future: asyncio.Future[list[Any]]) -> None:
        self.texts, self.deadline, self.future = texts, deadline, future
        self.found: list[Any] = [None] * len(texts)
        self.left = len(texts)


class ModelThread:
    """The one thread in which models compute for predictions and streams, and one more for long looks."""

    def __init__(self) -> None:
        self._quick = ThreadPoolExecutor(1, thread_name_prefix="elman-model")
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="elman-inspect")
        self._waiting = 0

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """In turn with all batches."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._quick, function, *arguments)

    async def run_soon(self, function: Callable[..., T], *arguments: object) -> T:
        """In turn with all batches, unless the turn comes too late: then nothing is done."""
        return await self.run(timely(function, *arguments))

    async def run_slowly(self, function: Callable[..., T], *arguments: object) -> T:
        """Beside them, with the same bound."""
        if self._waiting >= limits.SLOW:
            raise BusyError
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._slow, timely(function, *arguments))
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._slow.shutdown(wait=False, cancel_futures=True)


def timely(function: Callable[..., T], *arguments: object) -> Callable[[], T]:
    """What does nothing where it is called too late for whoever waits."""
    latest = time.monotonic() + limits.DEADLINE

    def call() -> T:
        if time.monotonic() > latest:
            raise BusyError
        return function(*arguments)

    return call


class Batcher:
    """Texts for one model, in batches of at most 32, which wait at most 5 ms for more.

    A batch waits only as long as there are fewer texts than the last one had: who is alone is served at
    once, and who comes again after each answer finds the others. Long texts make small batches.
    """

    def __init__(
        self,
        compute: Callable[[list[Any]], list[Any]],
        thread: ModelThread,
        *,
        rows: int = limits.ROWS,
        wait: float = limits.WAIT,
        deadline: float = limits.DEADLINE,
    ) -> None:
        """``compute`` answers texts in the model's thread; an answer may be an error, for that text alone."""
        self.compute, self.thread = compute, thread
        self.rows, self.wait, self.deadline = rows, wait, deadline
        self._queue: deque[tuple[Job, int]] = deque()
        self._jobs: deque[Job] = deque()  # in the order of their deadlines, also those that are computed
        self._busy, self._last = False, 1
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None

    def submit(self, texts: list[Any]) -> asyncio.Future[list[Any]]:
        """The answers to come; the number of requests is bounded where they are accepted."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()
        job = Job(texts, loop.time() + self.deadline, future)
        self._queue.extend((job, place) for place in range(len(texts)))
        self._jobs.append(job)
        if self._watch is None:
            self._watch = loop.call_at(job.deadline, self._expire, loop)
        self._look(loop)
        return future

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell those whose time is over."""
        now = loop.time()
        while self._jobs and (self._jobs[0].future.done() or self._jobs[0].deadline <= now):
            job = self._jobs.popleft()
            if not job.future.done():
                job.future.set_exception(BusyError())
        self._watch = None
        if self._jobs:
            self._watch = loop.call_at(self._jobs[0].deadline, self._expire, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start a batch, or wait for more of it."""
        if self._busy or not self._queue:
            return
        if len(self._queue) >= self._last:
            self._start(loop)
        elif self._timer is None:
            self._timer = loop.call_later(self.wait, self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch: list[tuple[Job, int]] = []
        long = 0
        while self._queue and len(batch) < self.rows:
            job, place = self._queue[0]
            length = len(job.texts[place])
            if batch and long + length > limits.TOGETHER:
                break
            self._queue.popleft()
            if job.future.done():  # whoever asked has gone, a text of it failed, or its time is over
                continue
            batch.append((job, place))
            long += length
        if not batch:
            return
        self._busy, self._last = True, len(batch)
        task = loop.create_task(self._run(batch))
        task.add_done_callback(lambda done: done.exception())

    async def _run(self, batch: list[tuple[Job, int]]) -> None:
        try:
            texts = [job.texts[place] for job, place in batch]
            try:
                answers = await self.thread.run(self.compute, texts)
            except Exception as error:  # of the model: everyone who waits for it hears of it
                answers = [error] * len(batch)
            for (job, place), answer in zip(batch, answers, strict=True):
                if job.future.done():
                    continue
                if isinstance(answer, Exception):
                    job.future.set_exception(answer)
                    continue
                job.found[place] = answer
                job.left -= 1
                if not job.left:
                    job.future.set_result(job.found)
        finally:
            self._busy = False
            while self._jobs and self._jobs[0].future.done():
                self._jobs.popleft()
            self._look(asyncio.get_running_loop())
