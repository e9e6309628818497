"""``elman``: the commands put together, and what becomes of their errors."""

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated

import typer

from elman import __version__
from elman.cli.output import flush, notices_told, put
from elman.errors import ArgumentError, ElmanError
from elman.registry import users_place

COMMANDS = (
    "train",
    "doctor",
    "predict",
    "evaluate",
    "inspect",
    "export",
    "generate",
    "score",
    "compare",
    "tune",
    "runs",
    "init",
    "corpora",
    "serve",
    "demo",
    "bench",
)

app = typer.Typer(
    help="Recurrent sequence models: write a cell as its equations, use it everywhere.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def tell_version(asked: bool) -> None:
    """The versions that a report of a mistake should name; torch's is read, not imported."""
    if asked:
        from importlib.metadata import version

        put(f"elman {__version__} (torch {version('torch')})")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=tell_version, is_eager=True, help="Versions, and exit.")
    ] = False,
) -> None:
    """Options that belong to no command."""


for name in COMMANDS:  # each is a function of this name in a file of this name
    app.command()(getattr(import_module(f"elman.cli.commands.{name}"), name))


def run() -> None:
    """The entry of the command: what a user did wrong is a line on stderr and an exit code of its own."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)  # as files, whatever the locale
    try:
        try:
            with notices_told():
                app()
        finally:
            flush()
    except ElmanError as error:
        print(f"elman: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        place = users_place(error)
        if place is None or isinstance(error, (MemoryError, OSError)):
            raise
        number, name = ArgumentError.number, type(error).__name__
        print(f"elman: {place}: {number}: {name}: {error}", file=sys.stderr)
        raise SystemExit(ArgumentError.exit_code) from None
