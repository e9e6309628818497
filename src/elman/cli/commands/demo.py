"""``elman demo``: a demonstration, trained and drawn in a few minutes."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from elman.errors import ArgumentError


def demo(
    what: Annotated[
        Literal["dates", "memory"], typer.Argument(help="Read dates with attention, or remember a word.")
    ] = "dates",
    out: Annotated[Path, typer.Option(help="Folder for what it writes.")] = Path("elman-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and order.")] = 1,
    serve: Annotated[
        bool, typer.Option("--serve", help="Open the page of the trained reader of dates afterwards.")
    ] = False,
) -> None:
    """Train a network that reads dates in 40 languages; or four that try to remember a word."""
    if what == "dates":
        from elman.cli.demo_dates import show, show_and_serve

        (show_and_serve if serve else show)(out, seed)
        return
    from elman.cli.demo_memory import show as remember

    if serve:
        raise ArgumentError(
            "--serve shows the page of a trained run, and demo memory keeps none; leave it out"
        )
    remember(out, seed)
