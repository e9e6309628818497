"""Talk goes to stderr, data to stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def say(line: str = "") -> None:
    print(line, file=sys.stderr, flush=True)


def put(line: str) -> None:
    """One line of data."""
    sys.stdout.write(line + "\n")


def put_json(value: Any) -> None:
    put(json.dumps(value, ensure_ascii=False, allow_nan=False))


def figures_table(figures: Mapping[str, Any]) -> str:
    """The plain numbers of an evaluation, one a line."""
    rows = [(name, value) for name, value in figures.items() if isinstance(value, (int, float))]
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(
        f"  {name:<{width}}  {value:,}" if isinstance(value, int) else f"  {name:<{width}}  {value:.4f}"
        for name, value in rows
    )
