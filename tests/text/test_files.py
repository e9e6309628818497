"""Lines of files: packed or not, in every state a user's file can be in."""

import gzip
import hashlib
import io
import lzma
import os
import random
import tracemalloc

import pytest

from elman.errors import DataError, EncodingError, FileError, NulError, SyntaxProblem
from elman.text import files
from elman.text.files import Line, Repairs, file_digest, inner_ending, open_lines

TEXT = "eins\nzwei\ndrei\n"
LETTERS = random.Random(0).choices("abcdefghijklmnopqrstuvwxyz\n", k=500_000)
NOISE = "".join(LETTERS)  # packs badly, so that half an archive holds many lines


def written(folder, data, name="a.txt"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def texts(path, repairs=None):
    return [line.text for line in open_lines(path, repairs)]


@pytest.mark.parametrize(
    ("data", "expected", "repairs"),
    [
        pytest.param(b"", [], {}, id="empty"),
        pytest.param(b"\n", [""], {}, id="one blank line"),
        pytest.param(b"a\nb\n", ["a", "b"], {}, id="plain"),
        pytest.param(b"a\nb", ["a", "b"], {}, id="no newline at the end"),
        pytest.param(b" a \n\n\tb\n", [" a ", "", "\tb"], {}, id="white space stays"),
        pytest.param(
            b"a\r\nb\r\n", ["a", "b"], {"Windows line end (CRLF) removed": 2}, id="Windows line ends"
        ),
        pytest.param(b"a\r\r\nb", ["a", "b"], {"Windows line end (CRLF) removed": 1}, id="doubled return"),
        pytest.param(b"a\nb\r", ["a", "b"], {"Windows line end (CRLF) removed": 1}, id="cut in CRLF"),
        pytest.param(b"a\rb\nc\n", ["a\rb", "c"], {}, id="a return inside a line"),
        pytest.param(b"\xef\xbb\xbfa\n", ["a"], {"byte order mark removed": 1}, id="mark"),
        pytest.param(b"\xef\xbb\xbf", [], {"byte order mark removed": 1}, id="mark alone"),
        pytest.param(
            b"a\n\xef\xbb\xbfb\n", ["a", "b"], {"byte order mark removed": 1}, id="files put together"
        ),
        pytest.param("a\ufeff\nb\ufeffc\n".encode(), ["a\ufeff", "b\ufeffc"], {}, id="mark in a line"),
        pytest.param(
            "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\nj\n".encode(),
            ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei", "j"],
            {},
            id="other separators do not split",
        ),
        pytest.param("\U0001f600e\u0301\n".encode(), ["\U0001f600e\u0301"], {}, id="beyond the plane"),
        pytest.param(b"BZhang\nPKW\n", ["BZhang", "PKW"], {}, id="begins almost like an archive"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.XZ"])
def test_lines(tmp_path, name, data, expected, repairs):
    pack = {"gz": gzip.compress, "XZ": lzma.compress}.get(name.rpartition(".")[2], bytes)
    done = Repairs()
    path = written(tmp_path, pack(data), name)
    assert list(open_lines(path, done)) == [Line(t, str(path), n) for n, t in enumerate(expected, 1)]
    assert done == repairs


LONG = b"good line\n" * 50_000 + "naïve café ".encode() + b"caf\xe9 au lait\n" + b"good line\n" * 50_000

BROKEN = {
    "latin-1 late in a long file": ("a.txt", LONG, EncodingError, 50_001, 15, "0xE9"),
    "bad start byte": ("a.txt", b"ok\n\xff\xff\n", EncodingError, 2, 1, "0xFF"),
    "character cut at the end of the file": ("a.txt", b"ok\nab\xe2\x82", EncodingError, 2, 3, "0xE2 0x82"),
    "surrogate in UTF-8": ("a.txt", b"x\xed\xa0\x80\n", EncodingError, 1, 2, "0xED"),
    "overlong slash": ("a.txt", b"\xc0\xaf\n", EncodingError, 1, 1, "0xC0"),
    "bad byte behind a mark": ("a.txt", b"\xef\xbb\xbfab\xff\n", EncodingError, 1, 3, "0xFF"),
    "UTF-16 little": ("a.txt", "ab\ncd\n".encode("utf-16"), EncodingError, 1, 1, "UTF-16"),
    "UTF-16 big": ("a.txt", b"\xfe\xff" + "ab\n".encode("utf-16-be"), EncodingError, 1, 1, "UTF-16"),
    "UTF-16 little, no mark": ("a.txt", "ab\ncd\n".encode("utf-16-le"), EncodingError, 1, 1, "UTF-16"),
    "UTF-16 big, no mark": ("a.txt", "ab\ncd\n".encode("utf-16-be"), EncodingError, 1, 1, "UTF-16"),
    "UTF-32": ("a.txt", "ab\n".encode("utf-32"), EncodingError, 1, 1, "UTF-32"),
    "NUL": ("a.txt", "ok\näb\0c\n".encode(), NulError, 2, 3, "NUL"),
    "nothing but NUL": ("a.txt", bytes(4096), NulError, 1, 1, "NUL"),
    "old Mac": ("a.txt", "é\rzwei\rdrei\r".encode(), SyntaxProblem, 1, 2, "old Macs"),
    "gzip without its name": ("a.txt", gzip.compress(b"a\n"), EncodingError, 1, 1, "gzip"),
    "xz without its name": ("a.txt", lzma.compress(b"a\n"), EncodingError, 1, 1, "xz"),
    "zip": ("a.txt", b"PK\x03\x04\x14\n", EncodingError, 1, 1, "zip"),
    "gz that is none": ("a.gz", b"plain text\n", FileError, None, None, "take .gz off"),
    "xz that is none": ("a.xz", b"plain text\n", FileError, None, None, "take .xz off"),
    "empty xz": ("a.xz", b"", FileError, None, None, "too early"),
    "gz header cut": ("a.gz", gzip.compress(b"a\n")[:5], FileError, None, None, "too early"),
    "gz checksum wrong": ("a.gz", gzip.compress(b"a\n")[:-8] + bytes(8), FileError, None, None, ".gz data"),
    "gz with something behind": ("a.gz", gzip.compress(b"a\n") + b"!", FileError, None, None, ".gz data"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files(tmp_path, case):
    name, data, kind, line, column, said = BROKEN[case]
    path = written(tmp_path, data, name)
    with pytest.raises(DataError, match=said.replace(".", r"\.")) as caught:
        texts(path)
    error = caught.value
    assert (type(error), error.path, error.line, error.column) == (kind, str(path), line, column)
    assert error.remedy


def test_the_place_of_a_bad_byte_is_shown(tmp_path):
    with pytest.raises(EncodingError) as caught:
        texts(written(tmp_path, LONG))
    assert str(caught.value).endswith(
        "a.txt:50001:15: E403: not UTF-8, invalid continuation byte: 0xE9: 'naïve café caf\ufffd au lait'; "
        "name the encoding of the file, as in --encoding cp1252, or save it as UTF-8"
    )


@pytest.mark.parametrize(("name", "pack"), [("a.gz", gzip.compress), ("a.xz", lzma.compress)])
def test_a_truncated_archive_gives_its_lines_and_then_the_error(tmp_path, name, pack):
    data = pack(NOISE.encode())
    path = written(tmp_path, data[: len(data) // 2], name)
    read = []
    with pytest.raises(FileError, match="ends too early") as caught:
        read.extend(line.text for line in open_lines(path))
    assert 1000 < len(read) < NOISE.count("\n")
    assert read == NOISE.split("\n")[: len(read)]
    assert caught.value.line == len(read) + 1


def test_files_that_cannot_be_opened(tmp_path, monkeypatch):
    for path, said in ((tmp_path / "none", "no such file"), (tmp_path, "this is a folder")):
        for read in (texts, file_digest):
            with pytest.raises(FileError, match=said) as caught:
                read(path)
            assert caught.value.line is None
    with pytest.raises(FileError, match="Not a directory"):
        texts(written(tmp_path, TEXT) / "b")

    for problem, said in (
        (PermissionError(13, "Permission denied"), "you may not read this file"),
        (MemoryError(), "needs more memory than there is"),  # 60 bytes of xz can ask for 4 GiB
    ):

        def refuse(*_, problem=problem):
            raise problem

        monkeypatch.setattr(files, "_opened", refuse)
        with pytest.raises(FileError, match=said):
            texts(tmp_path / "a.txt")


@pytest.mark.parametrize("name", ["a\0b", "a\0b.gz", "a\0b.xz", "a\ud800b"])
def test_a_name_that_no_file_has(name):
    for read in (texts, file_digest):
        with pytest.raises(FileError, match="no file has such a name") as caught:
            read(name)
        assert str(caught.value).isprintable()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path):
    path = written(tmp_path, TEXT)
    path.chmod(0)
    with pytest.raises(FileError, match="you may not read this file"):
        texts(path)


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\xff\n")))
    lines = open_lines("-")
    assert next(lines) == Line("a", "<stdin>", 1)
    with pytest.raises(EncodingError, match="<stdin>:2:2: E403"):
        next(lines)
    with pytest.raises(FileError, match="only once"):
        file_digest("-")
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(FileError, match="no standard input"):
        next(open_lines("-"))


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    assert texts(written(tmp_path, "x" * 999 + "\ny\n")) == ["x" * 999, "y"]
    assert texts(written(tmp_path, "x" * 999)) == ["x" * 999]
    with pytest.raises(SyntaxProblem, match="a line of more than") as caught:
        texts(written(tmp_path, "y\n" + "x" * 2000))
    assert caught.value.line == 2


def test_lines_come_one_at_a_time_and_memory_stays(tmp_path):
    path = written(tmp_path, b"a line of some words\n" * 100_000 + b"\xff\n")
    lines = open_lines(path)
    tracemalloc.start()
    for number, line in enumerate(lines, 1):
        assert line.number == number
        if number == 100_000:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300_000  # the file has 2.1 million bytes
    with pytest.raises(EncodingError):
        next(lines)


def test_digest_is_of_the_bytes_as_they_lie(tmp_path):
    data = gzip.compress(TEXT.encode())
    assert file_digest(written(tmp_path, data, "a.gz")) == hashlib.sha256(data).hexdigest()


def test_repairs_are_said():
    repairs = Repairs()
    assert repairs.sentences() == []
    repairs["blank line skipped"] += 1
    repairs["byte order mark removed"] += 2
    assert repairs.sentences() == ["blank line skipped: 1 time", "byte order mark removed: 2 times"]


@pytest.mark.parametrize(
    ("path", "ending"), [("a.csv", ".csv"), ("b/a.CONLLU.xz", ".conllu"), ("a.gz", ""), ("-", "")]
)
def test_the_ending_that_tells_the_format(path, ending):
    assert inner_ending(path) == ending
