"""What a training tells: the events of its log, and the measures in them."""

import json
import math
from pathlib import Path
from typing import Any

from elman.errors import RunError
from elman.storage.files import read_plain

Event = dict[str, Any]  # one line of metrics.jsonl (docs/runs.md)


def read_events(path: Path) -> list[Event]:
    """The lines of ``metrics.jsonl``; a last line that a crash cut short is left out.

    Any other damaged line is a ``RunError`` that names it.
    """
    lines = read_file(path).split(b"\n")
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


def read_file(path: Path) -> bytes:
    """The bytes of a run's file; a ``RunError`` where it is missing or cannot be read."""
    try:
        return read_plain(path)
    except FileNotFoundError:
        raise RunError(f"{path} is missing; name the folder of a run") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None


def measures(event: Event, *, counts: bool = False) -> dict[str, float]:
    """What a validation measured: its finite fractional numbers, and its counts where they are asked for.

    >>> measures({"event": "validation", "update": 3, "epoch": 1.0, "loss": 0.5, "f1": 0.9, "tokens": 70})
    {'loss': 0.5, 'f1': 0.9}
    """
    known = {name: value for name, value in event.items() if name not in ("update", "epoch", "improved")}
    kinds = (int, float) if counts else (float,)
    return {name: v for name, v in known.items() if isinstance(v, kinds) and math.isfinite(v)}
