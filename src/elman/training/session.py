"""A session of training: what the loop yields becomes log lines, checkpoints and events for observers."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elman.errors import RunError, RunExistsError
from elman.storage import files
from elman.storage.files import explained, open_own, read_plain
from elman.storage.locks import take_lock
from elman.storage.sealed import described
from elman.tasks.statistics import Statistics
from elman.training.checkpoint import Checkpoint, checkpoint_name, point, prune, save_checkpoint
from elman.training.folder import LOCK
from elman.training.loop import Trainer, count_parameters
from elman.training.position import Position, Update
from elman.training.ties import ties

Observer = Callable[[dict[str, Any]], None]

MOMENT = 0.5  # seconds; who only looks whether it may begin has the lock for less


class Interrupted(Exception):
    """Training was stopped by a signal and saved."""

    def __init__(self, number: int, update: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} after update {update}; saved")
        self.number, self.exit_code = number, 128 + number


class Session:
    """Turns what the loop yields into lines of the log, checkpoints and events for observers."""

    def __init__(
        self,
        run: Path,
        trainer: Trainer,
        observers: list[Observer],
        checkpoint: Checkpoint | None,
        statistics: Statistics,
        origins: Sequence[str] = (),
    ) -> None:
        self.run, self.trainer, self.observers = run, trainer, observers
        self.statistics, self.origins = statistics, origins
        self.resumed = checkpoint is not None
        self.before = 0.0 if checkpoint is None else checkpoint.state["time"]["seconds"]
        self.last = None if checkpoint is None else checkpoint_name(trainer.position.update)
        self.began = self.saved = self.marked = time.perf_counter()
        self.reading = self.working = 0.0
        log = run / "metrics.jsonl"
        with explained(log):
            self.logged = hashlib.sha256(read_plain(log))
            self.log = open_own(log, "a")
            self.ties = ties(run)

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
            "task": task.config.task,
            "parameters": count_parameters(trainer.model),
            "examples": len(trainer.examples),
            "tokens": self.statistics.tokens,
            "dev_examples": len(trainer.dev),
            "updates": trainer.total,
            "graphs": trainer.recorded.summary,
            "metric": trainer.metric,
            "notes": self.statistics.notes,
            **({"from": [*self.origins]} if self.origins else {}),
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
        scalars = {name: value for name, value in event.measures.items() if isinstance(value, (int, float))}
        self.note(
            {
                "event": "validation",
                "update": trainer.position.update,
                "epoch": trainer.epochs(),
                **scalars,
                "improved": event.improved,
                "samples": event.samples,
                **({"watched": [one.as_json() for one in event.watched]} if event.watched else {}),
                "time": {"seconds": self.seconds, "validation_seconds": event.seconds},
            }
        )
        self.save(best=event.improved)

    def note(self, event: dict[str, Any]) -> None:
        """One line of the log; and every observer is told."""
        line = line_of(event)
        with explained(self.run / "metrics.jsonl"):
            if self.log.write(line) != len(line):  # the disk had room for a part of it
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.logged.update(line)
        for observer in self.observers:
            observer(event)

    def save(self, *, best: bool = False) -> None:
        """A checkpoint that knows run and log; older ones go, but for best and the one before."""
        with explained(self.run / "metrics.jsonl"):
            os.fsync(self.log.fileno())
        trainer = self.trainer
        name = checkpoint_name(trainer.position.update)
        snapshot = trainer.snapshot()
        log = {"size": self.log.tell(), "sha256": self.logged.hexdigest()}
        snapshot["state"] |= {"log": log, "time": {"seconds": self.seconds}, **self.ties}
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
        event = closing(self.trainer.position, self.trainer.metric)
        event["time"] = {"seconds": self.seconds}
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
def run_lock(run: Path) -> Iterator[None]:
    """No second process trains in this folder; the lock goes with the process, however it ends."""
    path = run / LOCK
    with explained(path):
        lock = open_own(path, "a")
    with lock:
        with explained(path):
            taken = take_lock(lock, MOMENT)
        if not taken:
            raise RunExistsError(f"another process is training {run}; wait for it, or name another folder")
        yield


@contextmanager
def signals() -> Iterator[list[int]]:
    """Signals that ask to stop, noted instead of obeyed; a second Ctrl-C is obeyed.

    Only the main thread of a program hears of signals: elsewhere there are none.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

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


def closing(position: Position, metric: str) -> dict[str, Any]:
    """The last event of a training, but for its time."""
    return {
        "event": "end",
        "update": position.update,
        "reason": position.finished,
        "best_update": position.best_update,
        "best": position.best,
        "metric": metric,
    }


def log_size(state: Mapping[str, Any]) -> int:
    """Bytes of the log at a checkpoint; an earlier version kept no more of it."""
    return int(state["log"]["size"] if "log" in state else state["log_bytes"])


def check_log(log: Path, state: Mapping[str, Any]) -> bytes:
    """The log is, so far, what it was at the checkpoint; what came after it."""
    try:
        data = read_plain(log)
    except OSError as error:
        raise RunError(f"{log} cannot be read: {error.strerror}; restore it") from None
    size = log_size(state)
    if len(data) < size:
        raise RunError(f"{log} is shorter than at its checkpoint; restore it")
    if "log" in state and described(data[:size]) != state["log"]:
        raise RunError(f"{log} is not what it was at its checkpoint: a line was changed; restore it")
    return data[size:]


def end_of(rest: bytes, event: dict[str, Any]) -> dict[str, Any] | None:
    """The closing line, if the rest of the log is this event, and not a part of it as a full disk leaves."""
    try:
        found = event | {"time": json.loads(rest)["time"]}
        return found if rest == line_of(found) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def line_of(event: Mapping[str, Any]) -> bytes:
    """An event as it stands in the log."""
    return (json.dumps(event, ensure_ascii=False, allow_nan=False) + "\n").encode()


def cut(log: Path, size: int) -> None:
    """Drop what was logged after the checkpoint."""
    with explained(log), open_own(log, "r+") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """The whole text on the disk, or an error about the run."""
    with explained(path):
        files.write_text(path, text)
