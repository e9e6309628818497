"""Talk goes to stderr, data to stdout."""

import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, TextIO, TypeAlias

from elman.errors import BackendNotice, FontNotice, RunError, TrustNotice

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Bucket = Mapping[str, float]  # by the length of sources: shortest, longest, count, exact_match, error_rate
Answer = dict[str, Any]  # what a trained model says to one text


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def quietly() -> Iterator[None]:
    """Nothing is said meanwhile; what goes wrong is."""
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)


def is_quiet() -> bool:
    return _quiet.get()


def say(line: str = "") -> None:
    """Talk: what a user may want to know. ``--quiet`` leaves it out."""
    if not is_quiet():
        warn(line)


def warn(line: str) -> None:
    """What a user has to know."""
    print(line, file=sys.stderr, flush=True)


def put(line: str) -> None:
    if sys.stdout is not None:  # so it is where the shell closed it
        try:  # of which there are many
            sys.stdout.write(line + "\n")
        except OSError as error:
            unwritten(error)


def flush() -> None:
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError as error:
            unwritten(error)


def unwritten(error: OSError) -> NoReturn:
    """Output that nobody reads any more ends the program with 141; a full disk is an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python will flush what is left
    if isinstance(error, BrokenPipeError):
        raise SystemExit(141) from None
    problem = f"the output cannot be written: {error.strerror}"
    raise RunError(f"{problem}; make room, or write elsewhere") from None


@contextmanager
def notices_told() -> Iterator[None]:
    """What Elman notices is a line like any other talk, without the place in its source."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, (BackendNotice, TrustNotice)):
                warn(f"elman: {message}")
            else:
                before(message, category, filename, lineno, file, line)

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


def tell_unseen(count: int) -> None:
    """How many texts a model could only guess at."""
    if count:
        texts = "1 text" if count == 1 else f"{count:,} texts"
        say(f"{texts} had no token that training saw")


def put_json(value: Json) -> None:
    put(json.dumps(value, ensure_ascii=False, allow_nan=False))


def measures_table(measures: Mapping[str, Json]) -> str:
    """The plain numbers of an evaluation, one a line."""
    rows = [(name, value) for name, value in measures.items() if isinstance(value, (int, float))]
    width = max((len(name) for name, _ in rows), default=0)
    forms = {name: "," if isinstance(value, int) else ".4f" for name, value in rows}
    return "\n".join(f"  {name:<{width}}  {value:{forms[name]}}" for name, value in rows)


def aligned(rows: Sequence[tuple[str, ...]]) -> str:
    """Names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            f"{cell:<{width}}" if place in (0, len(row) - 1) else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def span(bucket: Bucket) -> str:
    """ "3–7", or "3" where it is one length."""
    first, last = bucket["shortest"], bucket["longest"]
    return f"{first}–{last}" if first != last else str(first)
