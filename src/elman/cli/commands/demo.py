"""``elman demo``: a demonstration, trained and drawn in a few minutes."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def demo(
    what: Annotated[
        Literal["dates", "memory"], typer.Argument(help="Read dates with attention, or remember a word.")
    ] = "dates",
    out: Annotated[Path, typer.Option(help="Folder for what it writes.")] = Path("elman-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and order.")] = 1,
) -> None:
    """Train a network that reads dates in 40 languages; or four that try to remember a word."""
    if what == "dates":
        from elman.cli.demo_dates import show
    else:
        from elman.cli.demo_memory import show
    show(out, seed)
