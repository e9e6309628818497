"""A trained run and the lines that it is asked about, as commands open them."""

import gc
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from select import select
from typing import TypeVar

import torch
from torch import nn

from elman.cli.options import THIS_MACHINE, Machine
from elman.cli.output import Json, flush, say
from elman.config import parse_settings
from elman.errors import ConfigError, ElmanError
from elman.layers.rnn import RNN
from elman.predictor import Predictor, load
from elman.tensors.threads import all_threads
from elman.text.columns import parse_columns
from elman.text.files import Repairs
from elman.training.sources import check_layout

CHUNK = 8192  # records that are answered together
LARGE = 1 << 20  # weights of a matrix that several threads multiply by faster
T = TypeVar("T")
Layout = dict[str, Json]
OPEN = ("decoding.", "data.", "evaluation.", "model.feedback")  # settings that training does not fix


def open_run(
    run: Path,
    pairs: list[str],
    ensemble: Sequence[Path] = (),
    *,
    trust_code: bool,
    files: Layout | None = None,
    machine: Machine = THIS_MACHINE,
) -> Predictor:
    """The run, with the settings of the command line that a trained model can take.

    A small model uses one core: a second one brings little, and where others work, waiting for it costs more.
    """
    settings = dotted_settings(pairs) | (files or {})
    for key in settings:
        if not key.startswith(OPEN):
            allowed = ", ".join(f"{one}*" if one[-1] == "." else one for one in OPEN)
            raise ConfigError(f"{key} is fixed by training; a trained run takes {allowed}")
    device, threads, batch = machine
    predictor = load(
        run, settings=settings, ensemble=ensemble, trust_code=trust_code, device=device, batch=batch
    )
    torch.set_num_threads(threads or usual_threads(predictor.model))
    gc.freeze()  # what was imported and loaded stays: the collector need not look at it again
    return predictor


def usual_threads(model: nn.Module) -> int:
    """Threads for a model in use, by the weights of its widest recurrent layer."""
    weights = (one.numel() for part in model.modules() if isinstance(part, RNN) for one in part.parameters())
    return 1 if max(weights, default=0) < LARGE else all_threads()


def dotted_settings(pairs: list[str]) -> dict[str, Json]:
    """The settings of the command line, as ``decoding.beam``."""
    settings: dict[str, Json] = {}
    for section, values in parse_settings(pairs).items():
        if isinstance(values, dict):
            settings.update((f"{section}.{key}", value) for key, value in values.items())
        else:
            settings[section] = values
    return settings


def layout_of(
    pairs: list[str],
    *,
    format: str | None = None,
    columns: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Layout:
    """The settings of a file's layout that the command line says, by option or by ``--set``."""
    parsed = None if columns is None else parse_columns(columns)
    options = {"format": format, "columns": parsed, "delimiter": delimiter, "encoding": encoding}
    said = {key: value for key, value in dotted_settings(pairs).items() if key.startswith("data.")}
    return said | {f"data.{key}": value for key, value in options.items() if value is not None}


def adaptation(*, dynamic: bool, cache: bool) -> Layout:
    """The settings that options of a language model stand for."""
    asked = {"evaluation.dynamic": dynamic, "evaluation.cache": cache}
    return {key: value for key, value in asked.items() if value}


def check_target(target: str | None, layout: Layout) -> None:
    """Two line-aligned files do not go together with settings about the layout of one."""
    check_layout(None if target is None else "--target", layout)


def tell(repairs: Repairs) -> None:
    """Say what was put right in a file, and what was taken for granted."""
    for sentence in repairs.sentences():
        say(f"repaired: {sentence}")
    for note in repairs.notes:
        say(note)


def chunks(path: str, records: Iterator[T], batch: int | None = None) -> Iterator[list[T]]:
    """What is answered together: so many records of a file, or all that wait in a pipe.

    Whoever waits at the other end of a pipe gets each answer at once.
    """
    if path == "-" and sys.stdin is not None and sys.stdin.isatty():
        say("one text a line; Ctrl-D ends")
    size = max(CHUNK, batch or 0)
    pipe = Pipe(0) if path == "-" and is_pipe() else None
    if pipe is not None:
        sys.stdin = pipe
    problem: ElmanError | None = None
    while problem is None:
        part: list[T] = []
        try:
            part.extend(islice(records, size if pipe is None else 1))
            while pipe is not None and part and len(part) < size and pipe.line_waits():
                part.append(next(records))
        except StopIteration:
            pass
        except ElmanError as error:  # what was read before it is answered first
            problem = error
        if not part:
            break
        yield part
        flush()
    if problem is not None:
        raise problem


def is_pipe() -> bool:
    """Does standard input come as somebody writes it?"""
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (AttributeError, OSError, ValueError):  # there is none, or it is closed, or it is no file
        return False


class Pipe:
    """Standard input of which one can ask whether a line waits in it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._data, self._place, self._ended = descriptor, b"", 0, False

    @property
    def buffer(self) -> "Pipe":
        """Where ``sys.stdin`` has its bytes."""
        return self

    def readline(self, limit: int) -> bytes:
        while (end := self._data.find(b"\n", self._place)) < 0 and not self._ended:
            if len(self._data) - self._place >= limit:
                break
            self._take()
        start, end = self._place, len(self._data) if end < 0 else end + 1
        self._place = min(end, start + limit)
        return self._data[start : self._place]

    def line_waits(self) -> bool:
        """Is a whole line there, or the end?"""
        while self._data.find(b"\n", self._place) < 0 and not self._ended:
            if not select([self._descriptor], [], [], 0)[0]:
                return False
            self._take()
        return True

    def _take(self) -> None:
        new = os.read(self._descriptor, 1 << 16)
        self._data, self._place, self._ended = self._data[self._place :] + new, 0, not new
