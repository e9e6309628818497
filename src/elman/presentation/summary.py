"""A run as its files tell it: settings, data and events; report and card are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from elman.config import parse_toml
from elman.errors import ConfigError, RunError
from elman.presentation.events import Event, read_events, read_file
from elman.presentation.wording import ending, network_name
from elman.training.earlier import renamed
from elman.training.folder import SEAL
from elman.training.learned import read_json

Table = dict[str, Any]  # of TOML or JSON
TASKS = {
    "lm": "Language model",
    "tag": "Tagger",
    "classify": "Classifier",
    "seq2seq": "Sequence to sequence",
    "class2seq": "Class to sequence",
}
USES = {"lm": ("generate {run} --prompt 'Once upon'", "score {run} FILE")}


@dataclass(frozen=True)
class Summary:
    run: Path
    text: str  # of config.toml
    settings: Table
    data: Table  # of data.json
    start: Event
    updates: list[Event]
    validations: list[Event]
    end: Event | None

    @classmethod
    def of(cls, run: Path) -> Summary:
        events = read_events(run / "metrics.jsonl")
        text = read_file(run / "config.toml").decode("utf-8", errors="replace")
        try:
            settings = renamed(parse_toml(text, run / "config.toml"))
            text = text.partition("\n")[2] if text.startswith(SEAL) else text
        except ConfigError as error:
            raise RunError(f"{error.args[0]}; restore the file or train again") from None
        data = read_json(run / "data.json") if (run / "data.json").exists() else {}
        starts, updates, validations, ends = (
            [event for event in events if event["event"] == kind]
            for kind in ("start", "update", "validation", "end")
        )
        start, end = next(iter(starts), {}), next(reversed(ends), None)
        return cls(run, text, settings, data, start, updates, validations, end)

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
        return "not finished" if self.end is None else f"finished: {ending(self.end['reason'])}"

    def reasons(self) -> list[tuple[str, str, str]]:
        """The settings that were chosen for a reason, with their values and reasons."""
        known = self.data.get("reasons")
        found: list[tuple[str, str, str]] = []
        for key, why in known.items() if isinstance(known, dict) else ():
            value: object = self.settings
            for name in str(key).split("."):
                value = value.get(name) if isinstance(value, dict) else None
            found.append((str(key), "" if value is None else str(value), str(why)))
        return found

    def title(self) -> str:
        return f"{TASKS.get(self.task, self.task)} · {network_name(self.settings.get('model', {}))}"

    def commands(self, run: str) -> list[str]:
        """How the run is used and, unless it is finished, continued."""
        uses = USES.get(self.task, ("predict {run} FILE",))
        lines = [f"elman {use.format(run=run)}" for use in (*uses, "evaluate {run} FILE")]
        return lines if self.end else [*lines, f"elman train --out {run} --resume"]
