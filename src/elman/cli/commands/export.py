"""``elman export``: a trained run as files that need no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elman.cli.options import Quiet, Run, Set, TrustCode
from elman.cli.output import say
from elman.cli.startup import quick_imports

TO = "c (one C file), html (one page), js (an ES module) or onnx."


def export(
    run: Run,
    to: Annotated[str, typer.Option("--to", help=f"The format: {TO}")],
    out: Annotated[Path | None, typer.Option(help="A new folder for it; unset: RUN-FORMAT.")] = None,
    name: Annotated[
        str | None, typer.Option(help="What its files and functions are called; unset: as the run.")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="Weights in 8 bits, a quarter of the size.")] = False,
    max_length: Annotated[int, typer.Option(min=1, help="The most tokens of a line.")] = 1000,
    freestanding: Annotated[
        bool, typer.Option("--freestanding", help="C that needs no C library, and has no main.")
    ] = False,
    lines: Annotated[
        str | None, typer.Option(help="A file to prove it with; unset: the validation data of the run.")
    ] = None,
    setting: Set = [],  # noqa: B006
    trust_code: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Take a model anywhere: one C file, one HTML page, JavaScript or ONNX, proven equal."""
    with quick_imports():
        from elman.cli.opening import open_run
        from elman.export.exporting import export as exported
        from elman.export.exporting import find_format
        from elman.export.options import ExportOptions
        from elman.export.parity import Line, validation_lines

    find_format(to)
    predictor = open_run(run, setting, trust_code=trust_code)
    options = ExportOptions(name or usual_name(run), int8, max_length, freestanding)
    folder = out or run.with_name(f"{run.resolve().name}-{to}")
    if lines is None:
        asked = validation_lines(predictor)
    else:
        role = predictor.task.roles[0]
        texts = (record.fields[role] for record in predictor.read(lines))
        asked = [Line(text if isinstance(text, str) else " ".join(text)) for text in texts]
    proof = exported(predictor, to, folder, options, asked)
    for sentence in proof.sentences():
        say(sentence)
    say(f"export: {folder}")


def usual_name(run: Path) -> str:
    """The run's own name, as far as it can be a name in a program."""
    kept = "".join(c if c.isascii() and c.isalnum() else "_" for c in run.resolve().name)
    return kept if kept[:1].isalpha() else f"model_{kept}".rstrip("_")
