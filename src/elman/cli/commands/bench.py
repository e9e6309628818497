"""``elman bench``: the engine beside torch.nn on this machine."""

from typing import Annotated, Literal

import typer


def bench(
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    quick: Annotated[bool, typer.Option(help="Few sizes and repetitions: a look, not a result.")] = False,
    only: Annotated[
        str,
        typer.Option(
            help="Only groups whose name contains this; without it all but catalogue, which takes minutes."
        ),
    ] = "",
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option(help="What to measure; CUDA by default if torch sees such a device."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="CUDA: how each case would run, and why so; nothing is measured."),
    ] = False,
) -> None:
    """Measure this machine: the engine beside torch.nn, in one run, with the losses."""
    from elman.bench.report import report

    report(device=device, explain=explain, as_json=json, quick=quick, only=only)
