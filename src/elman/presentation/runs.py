"""The runs below a folder, each in a few words as its files tell it; nothing here needs torch."""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from elman.errors import ElmanError, RunError
from elman.presentation.events import Event, read_events, read_file
from elman.presentation.wording import ending, network_name
from elman.storage.files import open_own
from elman.storage.locks import take_lock
from elman.training.earlier import renamed
from elman.training.folder import LOCK, SEAL, SETTINGS, without_seal

DEEPEST = 5  # folders below each other that are looked into
MOST = 10_000  # folders that are looked into
LOG = "metrics.jsonl"
WEIGHTS = ("checkpoints", "best", "last")  # of which a copy may have one
WORKS = (LOG, LOCK, "vocabulary.json", *WEIGHTS)  # what training puts beside the settings


@dataclass(frozen=True)
class RunState:
    """A run in a few words; None is what its files do not tell.

    ``state`` is ``finished``, ``training``, ``interrupted``, ``not begun`` or ``damaged``; ``reason`` says
    why it ended, or what is wrong with it.
    """

    run: str
    state: str
    reason: str | None = None
    task: str | None = None
    network: str | None = None
    parameters: int | None = None
    metric: str | None = None
    best: float | None = None
    updates: int | None = None
    epochs: float | None = None
    seconds: float | None = None
    began: str | None = None
    origin: str | None = None  # the run, or runs, whose weights it started from

    @classmethod
    def of(cls, run: Path) -> RunState:
        """What the files of a run tell; a damaged one is told of, too."""
        try:
            settings = read_settings(run)
            events = read_events(run / LOG) if (run / LOG).exists() else []
            told = {"began": _date(run), "state": "not begun", **_of_settings(settings), **_of_events(events)}
            if in_training(run):
                told["state"] = "training"
            elif told["state"] == "finished" and not any((run / name).is_dir() for name in WEIGHTS):
                raise RunError(f"{run} has no checkpoint; restore the folder or train again")
            return cls(str(run), **told)
        except ElmanError as error:
            return cls(str(run), "damaged", str(error), began=_date(run))
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # JSON and TOML of other things
            problem = f"its files do not tell of a training ({type(error).__name__}: {error})"
            return cls(str(run), "damaged", f"{RunError.number}: {run}: {problem}", began=_date(run))

    def as_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def find_runs(folder: Path, *, deepest: int = DEEPEST, most: int = MOST) -> Iterator[Path]:
    """The runs in a folder and below it, or the folder itself; nothing is looked for inside of a run.

    Hidden folders are left out. A link to a run is one; links to other folders are not followed.
    """
    if is_run(folder):
        yield folder
        return
    level = [folder]
    for _ in range(deepest):
        below: list[Path] = []
        for place in level:
            for one in _folders(place):
                if is_run(one):
                    yield one
                elif not one.is_symlink() and len(below) < most:
                    below.append(one)
        level, most = below, most - len(below)


def is_run(folder: Path) -> bool:
    """Has a training written here? The settings of other programs have the same name."""
    settings = folder / SETTINGS
    try:
        if not settings.is_file():
            return (folder / LOG).is_file() and any((folder / name).is_dir() for name in WEIGHTS)
        if any((folder / name).exists() for name in WORKS):
            return True
        with settings.open("rb") as file:
            return file.read(len(SEAL)) == SEAL.encode()
    except OSError:
        return False


def in_training(run: Path) -> bool:
    """Does a process train there now? Who looks holds the lock for a moment, which a beginner waits for."""
    try:
        with open_own(run / LOCK, "r") as lock:
            return not take_lock(lock, 0.0)
    except (ImportError, OSError):  # there is none, or it cannot be read
        return False


def read_settings(run: Path) -> dict[str, Any]:
    """The tables of the settings, as they stand."""
    path = run / SETTINGS
    try:
        text = read_file(path).decode("utf-8-sig")
        return renamed(tomllib.loads(without_seal(text, path)[0]))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}; restore the file or train again") from None


def _folders(place: Path) -> list[Path]:
    with suppress(OSError), os.scandir(place) as found:
        return sorted(Path(one.path) for one in found if one.name[0] != "." and one.is_dir())
    return []


def _of_settings(settings: dict[str, Any]) -> dict[str, Any]:
    return {"task": settings["task"], "network": network_name(settings.get("model", {}))}


def _of_events(events: list[Event]) -> dict[str, Any]:
    """What the log tells; of a log without events, nothing."""
    if not events:
        return {}
    start, last = events[0], events[-1]
    metric = str(last.get("metric") or start.get("metric"))
    best = last.get("best")
    for event in events:
        if event.get("improved") and last["event"] != "end":
            best = event.get(metric)
    timed = [event["time"]["seconds"] for event in events if "seconds" in event.get("time", {})]
    return {
        "state": "finished" if last["event"] == "end" else "interrupted",
        "reason": ending(last["reason"]) if last["event"] == "end" else None,
        "parameters": start.get("parameters"),
        "origin": " ".join(map(str, start.get("from", ()))) or None,
        "metric": metric,
        "best": best,
        "updates": max(int(event.get("update", 0)) for event in events),
        "epochs": max((event["epoch"] for event in events if "epoch" in event), default=None),
        "seconds": max(timed, default=None),
        **({"began": start["time"]["date"]} if "date" in start.get("time", {}) else {}),
    }


def _date(run: Path) -> str | None:
    """When its settings, or the folder, were written last."""
    for path in (run / SETTINGS, run):
        with suppress(OSError):
            return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(path.stat().st_mtime))
    return None
