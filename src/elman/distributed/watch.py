"""Who notices that a worker is gone, stands still or is slow: a thread of every worker."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import _exit as end
from typing import NoReturn

from torch.distributed.distributed_c10d import Store

from elman.distributed.place import LOST, SUPERVISOR

PERIOD = 2.0  # seconds between two signs of life
SILENCE = 25.0  # without one, after which a worker is lost
SLOW = 40.0  # seconds for which others wait for a worker in the midst of an update


class Watch(threading.Thread):
    """Gives signs of life, looks for those of others, and ends this process when one is lost.

    The first worker looks after all others, these look after the first. A worker that validates, reads or
    saves may take its time; one that computes an update may not keep the others waiting for long.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        super().__init__(daemon=True, name="watch")
        self.store, self.rank = store, rank
        self.others = range(1, size) if rank == 0 else range(1)
        self.ended = threading.Event()
        self.exchanges = 0  # that this worker has come to
        self.waiting: float | None = None  # since when
        self.updating: float | None = None  # since when
        self.took = 0.0  # the last update, up to its exchange
        self._beats: dict[int, tuple[bytes, float]] = {}  # the last sign of life of each, and when it came

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Inside, others are waited for."""
        now = time.monotonic()
        if self.updating is not None:
            self.took = now - self.updating
        self.exchanges, self.waiting = self.exchanges + 1, now
        try:
            yield
        finally:
            self.waiting = None

    @contextmanager
    def update(self) -> Iterator[None]:
        """Inside, others may count on this worker."""
        self.updating = time.monotonic()
        try:
            yield
        finally:
            self.updating = None

    def run(self) -> None:
        begun, number = time.monotonic(), 0
        self._beats = dict.fromkeys(self.others, (b"", begun))
        while not self.ended.wait(PERIOD):
            number += 1
            try:
                state = f"{number} {self.exchanges} {int(self.updating is not None)}"
                with deadline(SILENCE, "the first worker gave no answer"):
                    self.store.set(f"beat {self.rank}", state)
                    for other in self.others:
                        self._look_at(other)
            except RuntimeError as error:
                if not self.ended.is_set():
                    lost(f"the first worker cannot be reached: {first_line(error)}")

    def _look_at(self, other: int) -> None:
        name, now = f"beat {other}", time.monotonic()
        beat: bytes = self.store.get(name) if self.store.check([name]) else b""
        before, since = self._beats[other]
        if beat != before:
            self._beats[other] = beat, now
        elif now - since > SILENCE and not self.ended.is_set():
            lost(f"worker {other} gave no sign of life for {now - since:.0f} seconds")
        if beat and self.waiting is not None:
            _, exchanges, updating = map(int, beat.split())
            waited = now - self.waiting
            if updating and exchanges < self.exchanges and waited > SLOW + self.took:
                lost(f"worker {other} is slow: the others have waited for {waited:.0f} seconds")


@contextmanager
def deadline(seconds: float, reason: str) -> Iterator[None]:
    """Inside, for no longer than so many seconds: else this worker is lost."""
    timer = threading.Timer(seconds, lost, [f"{reason} for {seconds:.0f} seconds"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]


def lost(reason: str) -> NoReturn:
    """End at once, as a kill would: the last checkpoint is sound, and this update is nobody's any more."""
    print(f"elman: {reason}; this worker ends", file=sys.stderr, flush=True)
    end(LOST)


def end_with_supervisor() -> None:
    """Let this process not outlive the one that started it, where that is a supervisor of ours."""
    supervisor = int(os.environ.get(SUPERVISOR, "0"))

    def look() -> None:
        while os.getppid() == supervisor:
            time.sleep(1.0)
        end(LOST)

    if supervisor:
        threading.Thread(target=look, daemon=True, name="supervisor").start()
