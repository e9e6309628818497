"""Lines out of files: plain, gzip, xz or standard input, decoded strictly, each with its place."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from elman.errors import DataError, EncodingError, FileError, NulError, SyntaxProblem

if TYPE_CHECKING:
    from elman.text.stretches import Stretch

LONGEST_LINE = 1 << 28  # bytes; a "line" beyond this is a file without line ends, not text
LARGEST_UNPACKED = 1 << 30  # bytes; a packed file may become larger if it is not SWOLLEN
SWOLLEN = 200  # times its size, which no text is

UNPACKING: dict[str, Callable[[str], Any]] = {".gz": gzip.open, ".xz": lzma.open}
UTF8 = "utf-8"
MARK = b"\xef\xbb\xbf"  # UTF-8's byte order mark

SIGNATURES = {
    b"\xff\xfe\x00\x00": ("UTF-32", "say --encoding utf-32"),
    b"\x00\x00\xfe\xff": ("UTF-32", "say --encoding utf-32"),
    b"\xff\xfe": ("UTF-16", "say --encoding utf-16"),
    b"\xfe\xff": ("UTF-16", "say --encoding utf-16"),
    b"\x1f\x8b": ("packed by gzip", "let its name end in .gz, or gunzip"),
    b"\xfd7zXZ\x00": ("packed by xz", "let its name end in .xz, or unxz"),
    b"BZh91AY&SY": ("packed by bzip2", "bunzip2"),
    b"\x28\xb5\x2f\xfd": ("packed by zstd", "unzstd"),
    b"PK\x03\x04": ("a zip archive", "unzip it; of a spreadsheet, save the table as .csv"),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its line end; ``number`` counts from 1."""

    text: str
    path: str
    number: int

    def error(self, kind: type[DataError], problem: str, remedy: str, column: int | None = None) -> DataError:
        """An error to raise about this line, or about what begins at a column of it, counted from 1."""
        return kind(problem, path=self.path, line=self.number, column=column, text=self.text, remedy=remedy)

    def error_at(self, place: int, kind: type[DataError], problem: str, remedy: str) -> DataError:
        """An error about one character, with enough of a long line to recognise the place."""
        around = self.text[max(0, place - 20) : place + 30].rstrip("\r\n")
        return replace(self, text=around).error(kind, problem, remedy, place + 1)


class Repairs(Counter[str]):
    """What was put right while reading, counted by kind. These are all the kinds there are:

    * ``byte order mark removed``: the file began with U+FEFF, or a line, where files were put together
    * ``Windows line end (CRLF) removed``: a line ended in ``\\r\\n``
    * ``blank line skipped``: only spaces and tabs, where a blank line means nothing
    * ``white space around a field removed``: spaces or tabs beside an unquoted field
    * ``empty column at the end of a line removed``: the line ended in delimiters too many
    * ``header line skipped``: no columns were named, and the first line names them
    * ``quote inside an unquoted field kept``, ``text after a closing quote kept``: as Python's csv reads them
    * ``-DOCSTART- line skipped``, ``comment line skipped``, ``multi-word token skipped``,
      ``empty node skipped``: in column files

    notes: what a user should know besides, with the option that settles it, each with a word for its kind:
    ``header``, ``suspicious-header``, ``delimiter``, ``quotes``; ``layout`` is any other.

    >>> Repairs({"blank line skipped": 2}).sentences()
    ['blank line skipped: 2 times']
    """

    def __init__(self, *given: Any, **counts: Any) -> None:
        super().__init__(*given, **counts)
        self.notes: dict[str, str] = {}  # each once, in order, and its kind

    def note(self, sentence: str, kind: str = "layout") -> None:
        self.notes[sentence] = kind

    def sentences(self) -> list[str]:
        """One line a kind, as a user should see them."""
        return [f"{kind}: {count} time{'s' * (count != 1)}" for kind, count in sorted(self.items())]


def open_lines(
    path: str | os.PathLike[str],
    repairs: Repairs | None = None,
    encoding: str = UTF8,
    stretch: Stretch | None = None,
) -> Iterator[Line]:
    """The lines of a file, one at a time; ``-`` is standard input, ``.gz`` and ``.xz`` are unpacked.

    A line ends at ``\\n`` and nowhere else; carriage returns before it belong to the line end. Of a
    ``stretch`` of a file, its lines, after those of its head.
    """
    repairs = Repairs() if repairs is None else repairs
    name = "<stdin>" if os.fspath(path) == "-" else os.fspath(path)
    number = 0
    try:
        with _opened(os.fspath(path)) as handle:
            readline: Callable[[int], bytes] = handle.readline
            if "\n".encode(encoding) != b"\n":  # UTF-16 and its like: line ends are not one byte
                readline, encoding = _narrowed(handle, encoding), UTF8
            raw_lines = iter(partial(readline, LONGEST_LINE), b"")
            lines = enumerate(_bounded(raw_lines, name), 1)
            for number, raw in lines if stretch is None else _of_stretch(handle, stretch, repairs):
                if number == 1 and encoding == UTF8 and not (raw := _checked_start(raw, name, repairs)):
                    continue
                text = _decoded(raw, name, number, encoding).removesuffix("\n")
                if text[:1] == "\ufeff" and (number > 1 or encoding != UTF8):
                    text = text[1:]
                    repairs["byte order mark removed"] += 1
                if text[-1:] == "\r":
                    text = text.rstrip("\r")
                    repairs["Windows line end (CRLF) removed"] += 1
                yield Line(text, name, number)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, MemoryError) as problem:
        raise _unreadable(problem, name, number) from problem
    except UnicodeError as problem:  # of a wide encoding; others are told with their place
        said, remedy = f"not {encoding}: {problem}", "name the encoding of the file: --encoding"
        raise EncodingError(said, path=name, line=number + 1, remedy=remedy) from None


def _of_stretch(file: BinaryIO, stretch: Stretch, repairs: Repairs) -> Iterator[tuple[int, bytes]]:
    """The lines of the head, if there is one, and of the stretch, with their numbers.

    What was put right in the head is counted where it belongs.
    """
    if stretch.head:
        yield from enumerate(io.BytesIO(file.read(stretch.head)), 1)
        repairs.clear()
        repairs.notes.clear()
    file.seek(stretch.start)
    yield from enumerate(io.BytesIO(file.read(stretch.end - stretch.start)), stretch.before + 1)


def encoding_mistake(encoding: str) -> str | None:
    """What is wrong with the name of an encoding, if anything."""
    try:
        "\n".encode(encoding)
    except (LookupError, ValueError):
        known = "name one as latin-1, cp1252 or utf-16"
        return f"encoding is {encoding!r}, which Python does not know; {known}"
    return None


def _narrowed(handle: BinaryIO, encoding: str) -> Callable[[int], bytes]:
    """What reads lines of a file in a wide encoding as UTF-8."""
    text = io.TextIOWrapper(handle, encoding, newline="\n")
    return lambda limit: text.readline(limit).encode()


def _bounded(lines: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The lines of a file, unless it is packed and swells beyond all measure."""
    if Path(name).suffix.lower() not in UNPACKING:
        yield from lines
        return
    most, total = max(LARGEST_UNPACKED, SWOLLEN * os.stat(name).st_size), 0
    for number, line in enumerate(lines, 1):
        total += len(line)
        if total > most:
            said = f"unpacked, the file is more than {SWOLLEN} times as large, beyond {most >> 30} GiB"
            raise FileError(said, path=name, line=number, remedy="unpack it yourself if that is meant")
        yield line


def file_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes as they lie, packed or not, in hexadecimal."""
    if os.fspath(path) == "-":
        raise FileError("standard input can be read only once", path="<stdin>", remedy="save it as a file")
    try:
        with open(path, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except (OSError, ValueError) as problem:
        raise _unreadable(problem, os.fspath(path), 0) from problem


def inner_ending(path: str) -> str:
    """The ending that tells the format, whether or not the file is packed.

    >>> inner_ending("train.TSV.gz"), inner_ending("notes")
    ('.tsv', '')
    """
    inner = Path(path)
    return (inner.with_suffix("") if inner.suffix.lower() in UNPACKING else inner).suffix.lower()


def _opened(path: str) -> AbstractContextManager[BinaryIO]:
    if path == "-":
        if sys.stdin is None:
            raise FileError("there is no standard input", path="<stdin>", remedy="name a file")
        return nullcontext(cast(BinaryIO, sys.stdin.buffer))
    unpack = UNPACKING.get(Path(path).suffix.lower())
    try:
        if unpack is None:
            return open(path, "rb")
        # Buffered, a stream has a ``readline`` in C: those of gzip and lzma go through Python.
        return cast(BinaryIO, io.BufferedReader(unpack(path), 1 << 16))
    except ValueError as problem:
        raise _unreadable(problem, path, 0) from problem


def _checked_start(raw: bytes, name: str, repairs: Repairs) -> bytes:
    """The first line without its byte order mark, if the file can be UTF-8 text with ``\\n`` at all."""
    not_text = partial(EncodingError, path=name, line=1, column=1)
    for signature, (kind, command) in SIGNATURES.items():
        if raw.startswith(signature):
            raise not_text(f"the file is {kind}, not UTF-8 text", remedy=command)
    if len(raw) > 3 and raw.strip(b"\0\n") and not (any(raw[::2]) and any(raw[1::2])):
        said = "every second byte is NUL: the file seems to be UTF-16"
        raise not_text(said, remedy=f"say --encoding utf-16-{'le' if any(raw[::2]) else 'be'}")
    if raw.startswith(MARK):
        raw = raw[len(MARK) :]
        repairs["byte order mark removed"] += 1
    if raw[-1:] != b"\n" and b"\r" in raw.rstrip(b"\r"):
        text, remedy = raw.decode(errors="replace"), r"convert it: tr '\r' '\n'"
        said = "the file's lines end in a carriage return alone, as on old Macs"
        raise Line(text, name, 1).error_at(text.index("\r"), SyntaxProblem, said, remedy)
    return raw


def _decoded(raw: bytes, name: str, number: int, encoding: str) -> str:
    """A line as text; what cannot be one is an error with its place."""
    if len(raw) == LONGEST_LINE and raw[-1:] != b"\n":
        said = f"a line of more than {LONGEST_LINE >> 20} MiB"
        remedy = r"see whether the file is text, and that its lines end in \n"
        raise SyntaxProblem(said, path=name, line=number, remedy=remedy)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as problem:
        wrong = " ".join(f"0x{byte:02X}" for byte in raw[problem.start : problem.end])
        said = f"not {'UTF-8' if encoding == UTF8 else encoding}, {problem.reason}: {wrong}"
        remedy = "name the encoding of the file, as in --encoding cp1252, or save it as UTF-8"
        line = Line(raw.decode(encoding, errors="replace"), name, number)
        place = len(raw[: problem.start].decode(encoding, errors="replace"))
        raise line.error_at(place, EncodingError, said, remedy) from None
    if "\0" in text:
        said = "a NUL character, which no text has"
        remedy = r"see whether the file is damaged or is no text; tr -d '\0' takes NULs out"
        raise Line(text, name, number).error_at(text.index("\0"), NulError, said, remedy)
    return text


def _unreadable(problem: Exception, name: str, number: int) -> FileError:
    """``number`` is the last line that could be read."""
    said, remedy = getattr(problem, "strerror", None) or str(problem), "see whether the file is in order"
    match problem:
        case FileNotFoundError():
            said, remedy = "there is no such file", "check the name and the folder"
        case IsADirectoryError():
            said, remedy = "this is a folder", "name a file in it"
        case PermissionError():
            said, remedy = "you may not read this file", "chmod u+r, or ask its owner"
        case MemoryError():
            said, remedy = "unpacking it needs more memory than there is", "unpack it elsewhere"
        case EOFError():
            said, remedy = "the packed file ends too early", "it is truncated: fetch or pack it again"
        case gzip.BadGzipFile() | zlib.error() | lzma.LZMAError():
            packing = Path(name).suffix.lower()
            said = f"not the {packing} data its name promises ({problem})"
            remedy = f"fetch or pack it again, or take {packing} off the name of a plain file"
        case ValueError():  # in the path there is NUL, or half of a surrogate pair
            said, remedy = "no file has such a name", "check the name"
    return FileError(said, path=name, line=number + 1 if number else None, remedy=remedy)
