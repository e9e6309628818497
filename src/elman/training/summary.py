"""A run as its files tell it: settings, data and events; report and card are made from it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from elman.config import parse_toml
from elman.errors import ConfigError, RunError
from elman.tasks.base import read_json
from elman.text.files import write_text
from elman.text.sealed import read_plain
from elman.training.progress import Event
from elman.training.ties import SEAL

TASKS = {
    "lm": "Language model",
    "tag": "Tagger",
    "classify": "Classifier",
    "seq2seq": "Sequence to sequence",
    "class2seq": "Class to sequence",
}
ACRONYMS = {"lstm", "gru", "mgu", "sru", "rnn"}
REASONS = {
    "epochs": "all epochs done",
    "max_steps": "all updates done",
    "patience": "no improvement for a while",
    "converged": "the objective no longer changes",
    "counted": "counted, not trained",
}
USES = {"lm": ("generate {run} --prompt 'Once upon'", "score {run} FILE")}


@dataclass(frozen=True)
class Summary:
    """A run as its files tell it."""

    run: Path
    text: str  # of config.toml
    settings: dict[str, Any]
    data: dict[str, Any]  # of data.json
    start: Event
    updates: list[Event]
    validations: list[Event]
    end: Event | None

    @classmethod
    def of(cls, run: Path) -> Summary:
        events = read_events(run / "metrics.jsonl")
        text = _read(run / "config.toml").decode("utf-8", errors="replace")
        try:
            settings = parse_toml(text, run / "config.toml")
            text = text.partition("\n")[2] if text.startswith(SEAL) else text
        except ConfigError as error:
            raise RunError(f"{error.args[0]}; restore the file or train again") from None
        data = read_json(run / "data.json") if (run / "data.json").exists() else {}
        kinds: dict[str, list[Event]] = {"start": [], "update": [], "validation": [], "end": []}
        for event in events:
            kinds.setdefault(event["event"], []).append(event)
        first, last = kinds["start"][:1], kinds["end"][-1:]
        start, end = first[0] if first else {}, last[0] if last else None
        return cls(run, text, settings, data, start, kinds["update"], kinds["validation"], end)

    @property
    def task(self) -> str:
        return str(self.settings.get("task", self.start.get("task", "")))

    @property
    def metric(self) -> str:
        return str((self.end or {}).get("metric") or self.start.get("metric") or "loss")

    @property
    def best(self) -> Event | None:
        """The validation whose weights are kept: the last one that improved."""
        return next((event for event in reversed(self.validations) if event.get("improved")), None)

    @property
    def last_update(self) -> int:
        return max((event["update"] for event in (*self.updates, *self.validations)), default=0)

    @property
    def seconds(self) -> float:
        """Of training, in all sessions."""
        events = (*self.updates, *self.validations, *([self.end] if self.end else []))
        return max((float(event.get("time", {}).get("seconds", 0.0)) for event in events), default=0.0)

    @property
    def speed(self) -> float | None:
        speeds = [event["time"]["tokens_per_second"] for event in self.updates if "time" in event]
        return median(speeds) if speeds else None

    @property
    def ending(self) -> str:
        if self.end is None:
            return "not finished"
        return f"finished: {REASONS.get(self.end['reason'], self.end['reason'])}"

    def title(self) -> str:
        return f"{TASKS.get(self.task, self.task)} · {network_name(self.settings.get('model', {}))}"

    def commands(self, run: str) -> list[str]:
        """How the run is used and, unless it is finished, continued."""
        uses = USES.get(self.task, ("predict {run} FILE",))
        lines = [f"elman {use.format(run=run)}" for use in (*uses, "evaluate {run} FILE")]
        return lines if self.end else [*lines, f"elman train --out {run} --resume"]


def read_events(path: Path) -> list[Event]:
    """The lines of ``metrics.jsonl``; a last line that a crash cut short is left out.

    Any other damaged line is a ``RunError`` that names it.
    """
    lines = _read(path).split(b"\n")
    events: list[Event] = []
    for place, line in enumerate(lines, 1):
        try:
            event = json.loads(line, parse_constant=lambda name: None) if line.strip() else None
        except (ValueError, RecursionError) as error:
            if place == len(lines):
                break
            raise RunError(f"{path}:{place} is damaged: {error}; restore the file or train again") from None
        if isinstance(event, dict) and "event" in event:
            events.append(event)
    return events


def network_name(model: Mapping[str, Any]) -> str:
    """The network in two or three words.

    >>> network_name({"cell": "lstm", "bidirectional": True}), network_name({"encoder": "bag"})
    ('bidirectional LSTM', 'bag of words')
    """
    encoder = model.get("encoder", "rnn")
    if isinstance(encoder, Mapping):  # an encoder and a decoder, each with what differs from the whole
        reads, writes = (
            network_name({**model, "encoder": "rnn", "bidirectional": both, **model.get(side, {})})
            for side, both in (("encoder", model.get("bidirectional")), ("decoder", False))
        )
        score = model.get("attention") or "none"
        return f"{reads} → {writes}" + (f", {score} attention" if score != "none" else "")
    if encoder != "rnn":
        return {"bag": "bag of words", "window": f"window of {model.get('window')}"}.get(
            encoder, str(encoder)
        )
    cell = str(model.get("cell", "rnn"))
    shown = " ".join(word.upper() if word in ACRONYMS else word for word in cell.split("_"))
    return f"bidirectional {shown}" if model.get("bidirectional") else shown


def all_figures(event: Event) -> dict[str, float]:
    """Every number of a validation, counts included."""
    known = {name: value for name, value in event.items() if name not in ("update", "epoch", "improved")}
    return {name: v for name, v in known.items() if isinstance(v, (int, float)) and math.isfinite(v)}


def write_whole(path: Path, text: str) -> Path:
    """The whole page; what cannot be encoded, half of a surrogate pair, is shown as a question mark."""
    write_text(path, text.encode("utf-8", errors="replace").decode())
    return path


def _read(path: Path) -> bytes:
    try:
        return read_plain(path)
    except FileNotFoundError:
        raise RunError(f"{path} is missing; name the folder of a run") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
