"""Commands of elman as processes, several at a time, each with its share of the cores or a GPU."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

import torch

from elman.cores import cores

PAUSE = 0.02  # seconds between two looks at the processes

K = TypeVar("K")


class Ended(NamedTuple, Generic[K]):
    """A command that is over: who it was for, its exit code, and how long it took."""

    key: K
    code: int
    seconds: float


class Processes(Generic[K]):
    """At most ``at_once`` commands; leaving it, by whatever way, stops those that run and waits for them.

    Within it, SIGTERM is what Ctrl-C is: a ``KeyboardInterrupt``.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self._active: dict[int, tuple[K, subprocess.Popen[bytes], float]] = {}

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGTERM, _interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, process, _ in self._active.values():
            process.terminate()
        for _, process, _ in self._active.values():
            process.wait()
        signal.signal(signal.SIGTERM, self._before)

    @property
    def active(self) -> list[K]:
        return [key for key, _, _ in self._active.values()]

    @property
    def free(self) -> bool:
        return len(self._active) < self.at_once

    def start(self, key: K, said: Sequence[str], log: Path, out: Path | None = None) -> None:
        """``elman`` with these words; what it says goes on at the end of ``log``, its data into ``out``."""
        slot = min({*range(self.at_once)} - {*self._active})
        environment = os.environ | {"OMP_NUM_THREADS": str(threads_of(self.at_once))}
        if gpus := torch.cuda.device_count():
            environment["CUDA_VISIBLE_DEVICES"] = str(slot % gpus)
        log.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as files:
            errors = files.enter_context(open(log, "ab"))
            told = errors if out is None else files.enter_context(open(out, "wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", "elman", *said],
                stdout=told,
                stderr=errors,
                env=environment,
                start_new_session=True,  # Ctrl-C is told to this process alone, which stops the others
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # there are no threads here
            )
        self._active[slot] = key, process, time.monotonic()

    def ended(self) -> Iterator[Ended[K]]:
        """Wait a moment; those that are over since the last look."""
        time.sleep(PAUSE)
        for slot, (key, process, began) in [*self._active.items()]:
            if (code := process.poll()) is not None:
                del self._active[slot]
                yield Ended(key, code, time.monotonic() - began)

    def stop(self, key: K) -> None:
        """Ask for the end of a command; a training saves itself, and is among those that ``ended`` then."""
        for one, process, _ in self._active.values():
            if one == key:
                process.terminate()


def threads_of(at_once: int) -> int:
    """The threads of one of so many processes."""
    return max(1, cores() // at_once)


def last_words(log: Path) -> str:
    """The last line that a command said."""
    lines = log.read_text("utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
    return lines[-1]


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _end_with_parent() -> None:
    """Let a process be told to stop when the one that began it is killed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
