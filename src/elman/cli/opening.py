"""A trained run and the lines that it is asked about, as commands open them."""

import itertools
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from elman.cli.output import Json, flush, say
from elman.config import parse_settings
from elman.errors import ConfigError
from elman.predictor import Predictor, load
from elman.text.files import Line, open_lines
from elman.training.sources import check_layout

CHUNK = 256  # lines of a file that are answered together; what comes through a pipe is answered line by line
OPEN = ("decoding.", "data.", "evaluation.")  # settings that training does not fix


def open_run(run: Path, pairs: list[str], ensemble: Sequence[Path] = (), *, trust_code: bool) -> Predictor:
    """The run, with the settings of the command line that a trained model can take."""
    settings = dotted_settings(pairs)
    for key in settings:
        if not key.startswith(OPEN):
            allowed = ", ".join(f"{section}*" for section in OPEN)
            raise ConfigError(f"{key} is fixed by training; a trained run takes {allowed}")
    return load(run, settings=settings, ensemble=ensemble, trust_code=trust_code)


def dotted_settings(pairs: list[str]) -> dict[str, Json]:
    """The settings of the command line, as ``decoding.beam``."""
    settings: dict[str, Json] = {}
    for section, values in parse_settings(pairs).items():
        if isinstance(values, dict):
            settings.update((f"{section}.{key}", value) for key, value in values.items())
        else:
            settings[section] = values
    return settings


def check_target(target: str | None, pairs: list[str]) -> None:
    """Two line-aligned files do not go together with settings about the layout of one."""
    check_layout(None if target is None else "--target", dotted_settings(pairs))


def line_chunks(path: str) -> Iterator[list[Line]]:
    """Lines that are answered together; whoever waits at the other end of a pipe gets each answer at once."""
    lines = open_lines(path)
    if path == "-" and sys.stdin is not None and sys.stdin.isatty():
        say("one text a line; Ctrl-D ends")
    piped = path == "-" and sys.stdin is not None and not stat.S_ISREG(os.fstat(0).st_mode)
    while part := list(itertools.islice(lines, 1 if piped else CHUNK)):
        yield part
        flush()
