"""``elman``: the commands and their options; the work is done elsewhere, imported on demand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from elman.errors import ElmanError

app = typer.Typer(
    help="Recurrent sequence models: write a cell as its equations, use it everywhere.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("elman-demo"),
    seed: Annotated[int, typer.Option(help="Seed of data, weights and order.")] = 1,
) -> None:
    """Train small networks on a built-in memory task and show how far back each one can learn."""
    from elman.cli.demo import show

    show(out, seed)


@app.command()
def bench(
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    quick: Annotated[bool, typer.Option(help="Few sizes and repetitions: a look, not a result.")] = False,
    only: Annotated[str, typer.Option(help="Only groups whose name contains this.")] = "",
) -> None:
    """Measure this machine: the engine beside torch.nn, in one run, with the losses."""
    from elman.cli.bench.report import report

    report(as_json=json, quick=quick, only=only)


def run() -> None:
    """The entry of the command: what a user did wrong is one line on stderr and exit code 2."""
    try:
        app()
    except ElmanError as error:
        print(f"elman: {error}", file=sys.stderr)
        raise SystemExit(2) from None
