"""``elman runs``: what has been trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli.options import AsJson
from elman.cli.output import put, put_json, say, warn
from elman.errors import RunExistsError

if TYPE_CHECKING:
    from elman.presentation.runs import RunState

LEFT = (0, 1, 2, 7, 8)  # columns of words; the others are numbers


def runs(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Where to look; unset, runs/ or this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the runs below a folder: what they are, how good, and whether they are finished."""
    from elman.presentation.runs import RunState, find_runs

    place = folder or (Path("runs") if Path("runs").is_dir() else Path())
    if not place.is_dir():
        raise RunExistsError(f"{place} is no folder; name one that has runs in it")
    found = sorted(map(RunState.of, find_runs(place)), key=lambda one: (one.began or "", one.run))
    for one in found:
        if as_json:
            put_json(one.as_json())
    if as_json:
        return
    if not found:
        say(f"there is no run below {place}; train one with elman train … --out runs/NAME")
        return
    put(table(found))
    for one in found:
        if one.state == "damaged":
            warn(f"{one.reason}")


def table(runs: list[RunState]) -> str:
    """A row a run, the newest last."""
    head = ("run", "task", "network", "parameters", "best", "updates", "epochs", "state", "began")
    rows = [head, *map(row, runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for cells in rows:
        padded = (
            f"{cell:<{width}}" if place in LEFT else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def row(one: RunState) -> tuple[str, ...]:
    from elman.presentation.wording import number, printable, short_count

    parameters = "" if one.parameters is None else short_count(one.parameters)
    best = "" if one.best is None else f"{one.metric} {number(one.best)}"
    updates = "" if one.updates is None else f"{one.updates:,}"
    epochs = "" if one.epochs is None else f"{one.epochs:.1f}"
    state = f"finished: {one.reason}" if one.state == "finished" else one.state
    words = (one.run, one.task or "", one.network or "", parameters, best, updates, epochs, state)
    return (*map(printable, words), (one.began or "")[:16])
