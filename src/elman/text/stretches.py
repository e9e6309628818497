"""Large files in stretches that can be read one by one, by several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

from elman.text.files import UNPACKING

SIZE = 1 << 24  # bytes of a stretch, about
LONGEST = 4  # times as long as it should be: a file whose lines do not end is not cut
HEAD = 128  # lines that say something, of those that tell how a file is laid out
WHITE = b" \t\r\n"

Between = Literal["lines", "sentences"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some bytes of a file, from the beginning of a line to the end of one, and the lines before them.

    head: so many bytes at the beginning of the file, and lines, which tell how it is laid out: they are read
    first, and what they hold belongs to another stretch.
    """

    start: int
    end: int
    before: int
    head: int = 0
    head_lines: int = 0


def cut(
    path: str, second: str | None, between: Between, *, headed: bool, quotes: bool
) -> list[tuple[Stretch, ...]]:
    """The stretches of a file, each with that of a second one whose lines belong to it; none of a short one.

    headed: the first lines tell how the others are to be read. quotes: where there are any, a line end may
    stand between two of them, so the file is not cut.
    """
    if any(Path(name).suffix.lower() in UNPACKING for name in (path, second) if name is not None):
        return []
    try:
        own = [] if Path(path).stat().st_size < 2 * SIZE else _cut(path, between, quotes=quotes)
        if len(own) < 2:
            return []
        if headed:
            size, lines = _head(path, between)
            if not 0 < size <= own[0].end:
                return []
            own[1:] = [Stretch(one.start, one.end, one.before, size, lines) for one in own[1:]]
        return [(one,) for one in own] if second is None else _beside(own, second)
    except OSError:
        return []  # who reads it says what is wrong


def _cut(path: str, between: Between, *, quotes: bool) -> list[Stretch]:
    found: list[Stretch] = []
    start = before = 0
    with open(path, "rb") as file:
        while block := file.read(SIZE):
            rest = [file.readline(LONGEST * SIZE)]
            while between == "sentences" and rest[-1] and (len(rest) == 1 or rest[-1].strip(WHITE)):
                rest.append(file.readline(LONGEST * SIZE))
            pieces = block, *rest
            end = start + sum(map(len, pieces))
            if end - start > LONGEST * SIZE or (quotes and any(b'"' in piece for piece in pieces)):
                return []
            found.append(Stretch(start, end, before))
            start, before = end, before + sum(piece.count(b"\n") for piece in pieces)
    return found


def _head(path: str, between: Between) -> tuple[int, int]:
    """Bytes and lines of a file that tell how it is laid out; none where it does not become clear."""
    size = telling = words = 0
    with open(path, "rb") as file:
        for number, line in enumerate(islice(file, 100 * HEAD), 1):
            said = bool(line.strip(WHITE))
            size, telling = size + len(line), telling + said
            words += said and not line.startswith(b"#")
            if telling >= HEAD and words and (between == "lines" or not said):
                return size, number
    return 0, 0


def _beside(own: Sequence[Stretch], second: str) -> list[tuple[Stretch, ...]]:
    """Each stretch with the lines of a second file that belong to it; the last one has all the rest."""
    found: list[tuple[Stretch, ...]] = []
    start = 0
    with open(second, "rb") as file:
        for one, after in zip(own, [*own[1:], None], strict=True):
            rest = Path(second).stat().st_size - start
            length = rest if after is None else _length(file, after.before - one.before)
            if length > LONGEST * SIZE:
                return []
            found.append((one, Stretch(start, start + length, one.before)))
            start += length
    return found


def _length(file: BinaryIO, lines: int) -> int:
    return sum(map(len, islice(file, lines)))
