"""Talk goes to stderr, data to stdout."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from elman.errors import BackendNotice, FontNotice, RunError, TrustNotice


def say(line: str = "") -> None:
    print(line, file=sys.stderr, flush=True)


def put(line: str) -> None:
    """One line of data."""
    if sys.stdout is not None:  # so it is where the shell closed it
        with written():
            sys.stdout.write(line + "\n")


def flush() -> None:
    """What was put so far is on its way."""
    if sys.stdout is not None:
        with written():
            sys.stdout.flush()


@contextmanager
def written() -> Iterator[None]:
    """Output that nobody reads any more ends the program with 141; a full disk is an error."""
    try:
        yield
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python will flush what is left
        if isinstance(error, BrokenPipeError):
            raise SystemExit(141) from None
        raise RunError(
            f"the output cannot be written: {error.strerror}; make room, or write elsewhere"
        ) from None


@contextmanager
def notices_told() -> Iterator[None]:
    """What Elman notices is a line like any other talk, without the place in its source."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, (BackendNotice, TrustNotice)):
                say(f"elman: {message}")
            else:
                before(message, category, *place, **more)

        warnings.showwarning = show
        yield


@contextmanager
def fonts_told() -> Iterator[None]:
    """What the fonts of this machine lack is said, not warned of."""
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always", FontNotice)
        yield
    for notice in noticed:
        say(str(notice.message))


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
