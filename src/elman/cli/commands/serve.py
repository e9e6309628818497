"""``elman serve``: trained runs behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elman.cli.completion import run_folders
from elman.cli.options import Device, Quiet, Threads, TrustCode
from elman.cli.output import put, say
from elman.cli.serving import server_needed


def serve(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Folders of trained runs; NAME=RUN calls one otherwise.",
            autocompletion=run_folders,
        ),
    ],
    host: Annotated[str, typer.Option(help="The address at which it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any that is free.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="Tokens, one a line; all but liveness needs one of them.")
    ] = None,
    anyone: Annotated[
        bool, typer.Option("--anyone", help="Let others ask without a token, at a public address.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that answer.")] = 1,
    session_idle: Annotated[
        float, typer.Option(min=1, max=86400, help="Seconds after which an unused session ends.")
    ] = 300.0,
    print_openapi: Annotated[
        bool, typer.Option("--print-openapi", help="The description of all routes as JSON, and exit.")
    ] = False,
    device: Device = "cpu",
    threads: Threads = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
) -> None:
    """Answer over HTTP: predictions, completions, sessions that keep their state, and a page to play with."""
    with server_needed():
        from elman.server.app import described, make_app
        from elman.server.auth import read_tokens
        from elman.server.runs import parse_names
        from elman.server.serving import Options, make_service
        from elman.server.serving import serve as answer
    options = Options(
        parse_names(runs),
        host=host,
        port=port,
        device=device,
        threads=threads,
        workers=workers,
        tokens=() if token_file is None else tuple(read_tokens(token_file)),
        anyone=anyone,
        trust_code=trust_code,
        session_idle=session_idle,
    )
    if print_openapi:
        service = make_service(options, 0)
        put(described(make_app(service)))
        service.thread.close()
        return
    answer(options, say)
