"""A session of training: what the loop yields becomes log lines, checkpoints and events for observers."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from elman.errors import RunError, RunExistsError
from elman.text import files
from elman.training.checkpoint import Checkpoint, checkpoint_name, point, prune, save_checkpoint
from elman.training.loop import Trainer, Update, count_parameters

Observer = Callable[[dict[str, Any]], None]

LOCK = ".lock"  # in the folder of a run; held while a process trains there
MOMENT = 0.5  # seconds


class Interrupted(Exception):
    """Training was stopped by a signal and saved."""

    def __init__(self, number: int, update: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} after update {update}; saved")
        self.exit_code = 128 + number


class Session:
    """Turns what the loop yields into lines of the log, checkpoints and events for observers."""

    def __init__(
        self, run: Path, trainer: Trainer, observers: list[Observer], checkpoint: Checkpoint | None
    ) -> None:
        self.run, self.trainer, self.observers = run, trainer, observers
        self.resumed = checkpoint is not None
        self.before = 0.0 if checkpoint is None else checkpoint.state["time"]["seconds"]
        self.last = None if checkpoint is None else checkpoint_name(trainer.position.update)
        self.began = self.saved = self.marked = time.perf_counter()
        self.reading = self.working = 0.0
        self.log = (run / "metrics.jsonl").open("ab", buffering=0)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *problem: object) -> None:
        self.log.close()

    @property
    def seconds(self) -> float:
        """Of training so far, in all sessions."""
        return self.before + time.perf_counter() - self.began

    def start(self) -> None:
        """The opening line; a continued log has it, but the observers of this session have not seen it."""
        event = self._start_event()
        if not self.resumed:
            self.note(event)
            return
        resumed = {"resumed_at": self.trainer.position.update, "time": {"seconds": self.before}}
        for observer in self.observers:
            observer(event | resumed)

    def _start_event(self) -> dict[str, Any]:
        trainer, task = self.trainer, self.trainer.task
        return {
            "event": "start",
            "update": 0,
            "task": task.name,
            "parameters": count_parameters(trainer.model),
            "examples": len(trainer.examples),
            "tokens": task.statistics.tokens,
            "dev_examples": len(trainer.dev),
            "updates": trainer.total,
            "metric": task.chosen_metric(),
            "notes": task.notes,
            "time": {"date": time.strftime("%Y-%m-%d %H:%M:%S")},
        }

    def take(self, event: Any) -> None:
        trainer = self.trainer
        if isinstance(event, Update):
            self.reading += event.data_seconds
            self.working += event.seconds
            if trainer.position.update % trainer.log_every == 0:
                self._log_update(event)
            if time.perf_counter() - self.saved >= trainer.settings.save_seconds:
                self.save()
            return
        scalars = {name: value for name, value in event.figures.items() if isinstance(value, (int, float))}
        self.note(
            {
                "event": "validation",
                "update": trainer.position.update,
                "epoch": trainer.epochs(),
                **scalars,
                "improved": event.improved,
                "samples": event.samples,
                "time": {"seconds": self.seconds, "validation_seconds": event.seconds},
            }
        )
        self.save(best=event.improved)

    def note(self, event: dict[str, Any]) -> None:
        """One line of the log; and every observer is told."""
        line = (json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n").encode()
        with explained(self.run / "metrics.jsonl"):
            if self.log.write(line) != len(line):  # the disk had room for a part of it
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for observer in self.observers:
            observer(event)

    def save(self, *, best: bool = False) -> None:
        """A checkpoint that knows how long the log was; older ones go, but for best and the one before."""
        with explained(self.run / "metrics.jsonl"):
            os.fsync(self.log.fileno())
        trainer = self.trainer
        name = checkpoint_name(trainer.position.update)
        snapshot = trainer.snapshot()
        snapshot["state"] |= {"log_bytes": self.log.tell(), "time": {"seconds": self.seconds}}
        save_checkpoint(self.run, name, **snapshot)
        point(self.run, "last", name)
        if best:
            point(self.run, "best", name)
        if name != self.last:  # else the one before is still the one before
            prune(self.run, {name, *([self.last] if self.last else [])})
            self.last = name
        self.saved = time.perf_counter()

    def end(self) -> dict[str, Any]:
        """The closing line."""
        now = self.trainer.position
        event = {
            "event": "end",
            "update": now.update,
            "reason": now.finished,
            "best_update": now.best_update,
            "best": now.best,
            "metric": self.trainer.task.chosen_metric(),
            "time": {"seconds": self.seconds},
        }
        self.note(event)
        return event

    def _log_update(self, event: Update) -> None:
        trainer = self.trainer
        now = time.perf_counter()
        loss, norm, count = trainer.cut_log()
        clock = {
            "seconds": self.seconds,
            "tokens_per_second": count / max(1e-9, now - self.marked),
            "data_share": self.reading / max(1e-9, self.working),
        }
        self.reading = self.working = 0.0
        self.marked = now
        self.note(
            {
                "event": "update",
                "update": trainer.position.update,
                "epoch": trainer.epochs(),
                "loss": loss,
                "rate": event.rate,
                "gradient_norm": norm,
                "tokens": count,
                "time": clock,
            }
        )


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """No second process trains in this folder; the lock goes with the process, however it ends."""
    path = run / LOCK
    with explained(path):
        lock = path.open("w")
    with lock:
        with explained(path):
            taken = _taken(lock)
        if not taken:
            raise RunExistsError(f"another process is training {run}; wait for it, or name another folder")
        yield


def _taken(lock: IO[str]) -> bool:
    """Is the lock ours now? Who only looks whether it may begin has it for a moment, and is waited for."""
    import fcntl  # Windows has none: there a trained run can be used

    end = time.monotonic() + MOMENT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(MOMENT / 20)
        else:
            return True


@contextmanager
def signals() -> Iterator[list[int]]:
    """Signals that ask to stop, noted instead of obeyed; a second Ctrl-C is obeyed."""
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_of(log: Path) -> dict[str, Any] | None:
    """The closing line of the log, if it has one; a part of it, which a full disk leaves, is none."""
    last = log.read_bytes().rstrip(b"\n").rsplit(b"\n", 1)[-1] if log.is_file() else b""
    if not last.startswith(b'{"event": "end"'):
        return None
    try:
        event: dict[str, Any] = json.loads(last)
    except ValueError:
        return None
    return event


def cut(log: Path, size: int) -> None:
    """Drop what was logged after the checkpoint."""
    with explained(log), log.open("r+b") as file:
        if file.seek(0, os.SEEK_END) < size:
            raise RunError(f"{log} is shorter than at its checkpoint; restore it")
        file.truncate(size)
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """The whole text on the disk, or an error about the run."""
    with explained(path):
        files.write_text(path, text)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """A disk that is full or fails is an error about this file."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from error
