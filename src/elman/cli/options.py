"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained run.")]
Lines = Annotated[str, typer.Argument(help="One text a line; - is stdin.")]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting, as model.hidden=200.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
Ensemble = Annotated[
    list[Path],
    typer.Option("--ensemble", metavar="RUN", help="A run that decides with the first; may be repeated."),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code", help="Import the code that a run names (see docs/runs.md), and remember it."
    ),
]
TaskName = Annotated[str | None, typer.Argument(help="lm, tag, classify, seq2seq or class2seq.")]
