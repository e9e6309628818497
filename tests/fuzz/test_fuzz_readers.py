"""Any bytes in: records whose places are right and that leave no line out, or an error with its place."""

import csv
import gzip
import io
import lzma
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzzing import Entry, attempt, check_message, fuzz, mutated

from elman.errors import DataError, ElmanError, EncodingError, FileError
from elman.text.files import Repairs, open_lines
from elman.text.reading import read_fields, read_text, read_tokens
from elman.text.records import Record, Source
from elman.text.vectors import read_vectors

WHITE = " \t"
PAIR, TAGGED, SIDES = ("text", "label"), ("word", "tag"), ("source", "target")

Case = tuple[bytes, ...]


def lines_of(data: bytes) -> list[str]:
    """The plain definition: what lies between line feeds, without marks and without carriage returns."""
    lines = data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace").split("\n")
    lines = [line.rstrip("\r") for line in (lines if lines[-1] else lines[:-1])]
    return lines[:1] + [line.removeprefix("\ufeff") for line in lines[1:]]


def check_error(error: ElmanError, texts: dict[str, list[str]]) -> None:
    """The file is one of those given, the line and the column are in it, and the text stands there."""
    check_message(error)
    assert "\n" not in str(error)
    if not isinstance(error, DataError):
        return
    assert error.path in texts
    if error.line is None:
        return
    lines = texts[str(error.path)]
    if isinstance(error, FileError):  # what cannot be unpacked has no line to look at
        return
    line = lines[error.line - 1]
    if not isinstance(error, EncodingError):
        assert error.column is None or error.column <= len(line) + 1
        assert error.text is None or error.text in line


def check_record(record: Record, roles: tuple[str, ...], texts: dict[str, list[str]]) -> None:
    lines = texts[record.path]
    for place, role in enumerate(roles):
        value = record.fields[role]
        if record.lines:
            for number, token in zip(record.lines, value, strict=True):
                assert token in lines[number - 1]
        elif record.places:
            line, column = record.places[place]
            rest = lines[line - 1][column - 1 :]
            assert rest.startswith('"') or rest.lstrip(WHITE).startswith(value)
        else:
            last = role == roles[-1] and record.target is not None
            line_text = (texts[record.target] if last else lines)[record.line - 1]
            words = value if isinstance(value, list) else [value]
            assert record.path.endswith("jsonl") or all(word in line_text for word in words)
        assert record.path.endswith("txt") or value


def check_nothing_lost(kind: str, records: list[Record], repairs: Repairs, lines: list[str]) -> None:
    """Every line that is not blank is in a record or is counted as what it is."""
    told = [line for line in lines if line.strip(WHITE)]
    if kind == "text":
        assert [record.fields["text"] for record in records] == lines
    elif kind == "tokens":
        left_out = ("-DOCSTART- line skipped", "multi-word token skipped", "empty node skipped")
        comments = sum(line.startswith("#") for line in told) if records[0].path.endswith("conllu") else 0
        tokens = sum(len(record.lines) for record in records)
        assert tokens + comments + sum(repairs[one] for one in left_out) == len(told)
    elif "quoted" in kind:
        rows = [row for row in csv.reader(quoted_lines(lines)) if "".join(row).strip(WHITE)]
        headers = repairs["header line skipped"] + ("named" in kind)
        assert len(records) + headers == len(rows)
        for record, row in zip(records, rows[headers:], strict=True):
            cells = {cell.replace("\0", "\r") for cell in row}
            assert cells | {cell.strip(WHITE) for cell in cells} >= set(record.fields.values())
    else:
        assert len(records) + repairs["header line skipped"] + ("named" in kind) == len(told)


def quoted_lines(lines: list[str]) -> Iterator[str]:
    """For Python's reader, which would take a carriage return for a line end; no text has NUL."""
    return (line.replace("\r", "\0") + "\n" for line in lines)


def reader(
    kind: str,
    names: tuple[str, ...],
    roles: tuple[str, ...],
    read: Callable[[Source, Repairs], Iterator[Record]],
    **options: Any,
) -> Callable[[Case, Path], None]:
    """What a reader makes of as many files as it has names; ``kind`` says how to count what it read."""

    def check(case: Case, folder: Path) -> None:
        paths = [folder / name for name in names]
        for path, data in zip(paths, case, strict=True):
            path.write_bytes(data)
        texts = {str(path): lines_of(data) for path, data in zip(paths, case, strict=True)}
        repairs = Repairs()
        source = Source(*map(str, paths), **options)
        try:
            records = list(read(source, repairs))
        except ElmanError as error:
            check_error(error, texts)
            return
        for record in records:
            check_record(record, roles, texts)
        assert [record.line for record in records] == sorted({record.line for record in records})
        check_nothing_lost(kind, records, repairs, texts[str(paths[0])])

    return check


class Pieces(io.RawIOBase):
    """A stream that gives a few bytes at a time, as a pipe may."""

    def __init__(self, data: bytes, random: Random) -> None:
        self.rest, self.random = data, random

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = min(len(buffer), self.random.choice((1, 2, 3, 7, 100, 70_000)), len(self.rest))
        buffer[:size], self.rest = self.rest[:size], self.rest[size:]
        return size


def outcome(path: str) -> list[Any]:
    """Lines as far as they could be read, and what was wrong then."""
    found: list[Any] = []
    try:
        for line in open_lines(path):
            found.append((line.number, line.text))
    except DataError as error:
        found.append((error.number, error.line, error.column, error.problem))
    return found


def check_lines(case: tuple[bytes, int], folder: Path) -> None:
    """Plain, packed or through a pipe in pieces of any size: the same lines, those of the file."""
    data, seed = case
    (folder / "a").write_bytes(data)
    whole = outcome(str(folder / "a"))
    given, sys.stdin = sys.stdin, io.TextIOWrapper(io.BufferedReader(Pieces(data, Random(seed)), 8))
    try:
        assert outcome("-") == whole
    finally:
        sys.stdin = given
    if seed % 16 == 0:
        (folder / "a.gz").write_bytes(gzip.compress(data, 1))
        (folder / "a.xz").write_bytes(lzma.compress(data, preset=0))
        assert outcome(str(folder / "a.gz")) == outcome(str(folder / "a.xz")) == whole
    if all(isinstance(number, int) for number, *_ in whole):
        assert [line for _, line in whole] == lines_of(data)


def check_packed(ending: str, unpack: Callable[[bytes], bytes]) -> Callable[[bytes, Path], None]:
    def check(data: bytes, folder: Path) -> None:
        path = folder / f"a.{ending}"
        path.write_bytes(data)
        found = [line.text for line in open_lines(str(path))]
        assert found == lines_of(unpack(data))

    return check


def check_vectors(data: bytes, folder: Path) -> None:
    path = folder / "vectors"
    path.write_bytes(data)
    texts = {str(path): lines_of(data)}
    try:
        found = read_vectors(str(path))
    except ElmanError as error:
        check_error(error, texts)
        return
    assert found.matrix.shape[0] == len(found.words) == len(set(found.words))
    first = texts[str(path)][0].split()
    header = len(first) == 2 and all(re.fullmatch("[0-9]{1,15}", one) for one in first) and int(first[1]) > 0
    repeated = found.repairs["second vector of a word skipped"]
    assert len(found.words) + repeated + header == len(texts[str(path)])
    assert all(word and word == word.strip(WHITE) for word in found.words)
    wanted = found.words[::2]
    assert read_vectors(str(path), set(wanted)).words == wanted


CONLLU = (
    b"# sent_id = 1\n1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\tde\tADP\t_\t_\t3\tcase\t_\t_\n"
    b"2\tle\tle\tDET\t_\t_\t3\tdet\t_\t_\n2.1\tx\tx\tX\t_\t_\t_\t_\t_\t_\n3\tchat\tchat\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    b"1\toui\toui\tINTJ\t_\t_\t0\troot\t_\t_\n"
)
TAGS = (b"the\tO\ndog\tB-x\n\n-DOCSTART- O\n\nRex\tI-x\n", b"the O\ndog B-x\n\nRex O\n")
TABLES = (
    b"good film\tpos\nbad film\tneg\n",
    b"text\tlabel\ngood\tpos\n\n bad \tneg\t\n",
    b"a\tb\r\nc\td\r\n",
)
QUOTED = (
    b'text,label\n"good, ""very"" film",pos\nbad,neg\n',
    b'label,text\nx,"two\nlines"\ny,z\n',
    b"a,b\n1,2\n",
)
OBJECTS = (
    b'{"text": "good", "label": "pos"}\n{"label": 1, "text": "a\\u00e9\\ud83d\\ude00"}\n',
    b'{"text": true, "label": -1.5e3, "more": [1, {"a": null}]}\n\n',
)
LISTS = (
    b'{"words": ["New York", "is"], "tags": ["B", "O"]}\n{"word": ["a"], "tag": [1]}\n',
    b'{"words": [], "tags": []}\n{"words": [""], "tags": ["O"]}\n{"words": "a", "tags": "O"}\n',
)
BARS = (b"walk ||| go\nrun ||| a b\n", b"a |||\n ||| b\n||| c\n")
LINES = (b"one line\nanother\n\nthird", b"\xef\xbb\xbfa\r\nb\r\n", "é\u2028ü\n".encode(), b"a\rb\rc")
VECTORS = (b"2 3\nthe 1 2 3\ncat .5 -1e-3 0\n", b"the 1 2\nnew york 3 4\nthe 5 6\n", b"1 2 3\n4 5 6\n")


def of(*corpora: tuple[bytes, ...], tokens: tuple[bytes, ...] = ()) -> Callable[[Random], Case]:
    return lambda random: tuple(mutated(random, corpus, tokens) for corpus in corpora)


def one_of(corpus: tuple[bytes, ...], tokens: tuple[bytes, ...] = ()) -> Callable[[Random], bytes]:
    return lambda random: mutated(random, corpus, tokens)


def fields(*roles: str) -> Callable[[Source, Repairs], Iterator[Record]]:
    return lambda source, repairs: read_fields(source, roles, repairs)


def tokens(source: Source, repairs: Repairs) -> Iterator[Record]:
    return read_tokens(source, TAGGED, repairs)


NAMED = {"text": "text", "label": "label"}
READERS = [
    Entry("lines", lambda random: (mutated(random, LINES), random.randrange(1 << 30)), check_lines),
    Entry("gzip", one_of(tuple(gzip.compress(one) for one in LINES)), check_packed("gz", gzip.decompress)),
    Entry("xz", one_of(tuple(lzma.compress(one) for one in LINES)), check_packed("xz", lzma.decompress)),
    Entry("text", of(LINES), reader("text", ("a.txt",), ("text",), read_text)),
    Entry("tab", of(TABLES), reader("rows", ("a.tsv",), PAIR, fields(*PAIR))),
    Entry("tab, named", of(TABLES), reader("named", ("a.tsv",), PAIR, fields(*PAIR), columns=NAMED)),
    Entry("space", of(TABLES), reader("rows", ("a",), PAIR, fields(*PAIR), delimiter="space")),
    Entry("comma", of(QUOTED), reader("quoted", ("a.csv",), PAIR, fields(*PAIR))),
    Entry(
        "comma, named", of(QUOTED), reader("quoted, named", ("a.csv",), PAIR, fields(*PAIR), columns=NAMED)
    ),
    Entry("JSON Lines", of(OBJECTS), reader("rows", ("a.jsonl",), PAIR, fields(*PAIR))),
    Entry("JSON Lines of words", of(LISTS), reader("rows", ("a.jsonl",), TAGGED, tokens)),
    Entry(
        "separator",
        of(BARS, tokens=(b" ||| ", b"|||")),
        reader("rows", ("a",), SIDES, fields(*SIDES), separator=" ||| "),
    ),
    Entry("two files", of(LINES, LINES), reader("rows", ("a", "b"), SIDES, fields(*SIDES))),
    Entry("tags", of(TAGS, tokens=(b"-DOCSTART-",)), reader("tokens", ("a",), TAGGED, tokens)),
    Entry(
        "tags, numbered", of(TAGS), reader("tokens", ("a",), TAGGED, tokens, columns={"word": 0, "tag": 1})
    ),
    Entry("CoNLL-U", of((CONLLU,)), reader("tokens", ("a.conllu",), TAGGED, tokens)),
    Entry("words and tags", of(LINES, LINES), reader("rows", ("a", "b"), TAGGED, tokens)),
    Entry("vectors", one_of(VECTORS), check_vectors),
]


@pytest.mark.parametrize("entry", READERS, ids=lambda entry: entry.name)
def test_any_bytes_are_read_or_refused_with_their_place(entry: Entry, tmp_path: Path) -> None:
    fuzz(entry, tmp_path)


# So many bytes of one thing, beside as many of plain lines: what grows with their square takes far longer.
SIZE = 100_000
RUNS = (
    *(b"a", b" ", b"\t", b"\n", b"\r", b'"', b'""', b",", b'",', b"[", b"{", b'{"', b'{"a":', b"\\", b'"\\"'),
    *(b"|", b" ||| ", b"-", b".", b"0", b"1 ", b"#", b"\xef\xbb\xbf", b"\xc3\xa9", b"NaN", b'{"a":1}'),
)
PLAIN = [entry for entry in READERS if entry.name not in ("lines", "gzip", "xz")]


@pytest.mark.parametrize("entry", PLAIN, ids=lambda entry: entry.name)
def test_no_run_of_one_thing_takes_long(entry: Entry, tmp_path: Path) -> None:
    def seconds(data: bytes) -> float:
        began = time.process_time()
        attempt(entry, data if isinstance(files, bytes) else (data,) * len(files), tmp_path)
        return time.process_time() - began

    files = entry.make(Random(0))
    usual = max(seconds(b"a b\n" * (SIZE // 4)) for _ in range(2))
    longest = max((seconds(b"a b\n" + part * (SIZE // len(part))), part) for part in RUNS)
    assert longest[0] < 100 * max(usual, 0.01), longest
