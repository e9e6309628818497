"""Files as nobody should write them, through the whole command line: an error with its place, or a repair."""

import gzip
import json
import lzma
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import pytest

from tiny import elman
from tiny_tasks import descend, ready, save

TASKS = ("lm", "tag", "classify", "seq2seq", "class2seq")


class Base(NamedTuple):
    """A file as it should be: its task, its name, its lines, and what stands between columns."""

    task: str
    name: str
    lines: tuple[str, ...]
    delimiter: str = "\t"


def objects(*pairs: tuple[str, str]) -> tuple[str, ...]:
    return tuple(json.dumps({"text": text, "label": label}) for text, label in pairs)


def word(place: int, form: str, tag: str) -> str:
    return f"{place}\t{form}\t_\t{tag}\t_\t_\t0\troot\t_\t_"


BASES = {
    "text": Base("lm", "a.txt", ("the cat sees the dog", "a dog runs", "it runs"), " "),
    "csv text": Base("lm", "a.csv", ("text,n", "the cat,1", "a dog runs,2", "it runs,3"), ","),
    "csv": Base("classify", "a.csv", ("text,label", "a dog,animal", "stones lie,thing", "dogs,animal"), ","),
    "tsv": Base("classify", "a.tsv", ("a dog\tanimal", "stones lie\tthing", "dogs\tanimal")),
    "jsonl": Base(
        "classify", "a.jsonl", objects(("a dog", "animal"), ("stones lie", "thing"), ("dogs", "animal")), ", "
    ),
    "pairs": Base("seq2seq", "a.tsv", ("the cat\tdie Katze", "a dog\tein Hund", "it runs\tes läuft")),
    "semicolons": Base(
        "class2seq", "a.csv", ("class;sequence", "I;love my cat", "it;is raining", "I;love"), ";"
    ),
    "conll": Base("tag", "a.conll", ("The\tDET", "dog\tNOUN", "", "a\tDET", "dog\tNOUN", "runs\tVERB")),
    "words": Base("tag", "a.csv", ("word,tag", "The,DET", "dog,NOUN", "", "a,DET", "dog,NOUN"), ","),
    "conllu": Base(
        "tag",
        "a.conllu",
        (
            "# a",
            word(1, "the", "DET"),
            word(2, "dog", "NOUN"),
            "",
            word(1, "runs", "VERB"),
            word(2, "a", "DET"),
        ),
    ),
}


def text_of(base: Base) -> bytes:
    return "".join(f"{line}\n" for line in base.lines).encode()


def line_changed(change: Callable[[str, Base], str], place: int = -1) -> Callable[[Base], bytes]:
    """One line of the file otherwise, the last unless told."""

    def changed(base: Base) -> bytes:
        lines = list(base.lines)
        lines[place] = change(lines[place], base)
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")

    return changed


def zipped(base: Base) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(base.name, text_of(base))
    return out.getvalue()


# What becomes of each, and of which files otherwise; after | of predict, where it answers otherwise.
Made = tuple[Callable[[Base], bytes], str, dict[str, str]]
MUTATIONS: dict[str, Made] = {
    "as it should be": (text_of, "ok", {}),
    "nothing": (lambda base: b"", "E406 | ok", {}),
    "blank lines": (lambda base: b"\n \n\t\n\n", "E406 | blank line skipped", {"text": "E406 | ok"}),
    "a mark": (lambda base: b"\xef\xbb\xbf" + text_of(base), "byte order mark removed", {}),
    "a mark alone": (lambda base: b"\xef\xbb\xbf", "E406 | byte order mark removed", {}),
    "a mark in the middle": (line_changed(lambda line, base: f"\ufeff{line}"), "byte order mark removed", {}),
    "NUL": (line_changed(lambda line, base: f"{line[:-1]}\0{line[-1:]}"), "E404", {}),
    "latin-1": (lambda base: text_of(base) + b"caf\xe9\n", "E403", {}),
    "a cut character": (lambda base: text_of(base)[:-1] + b"\xe2\x82\n", "E403", {}),
    "a surrogate": (line_changed(lambda line, base: f"{line}\ud800"), "E403", {}),
    "UTF-16": (lambda base: text_of(base).decode().encode("utf-16"), "E403", {}),
    "UTF-16 without a mark": (lambda base: text_of(base).decode().encode("utf-16-be"), "E403", {}),
    "UTF-32": (lambda base: text_of(base).decode().encode("utf-32"), "E403", {}),
    "Windows": (lambda base: text_of(base).replace(b"\n", b"\r\n"), "Windows line end (CRLF) removed", {}),
    "old Mac": (lambda base: text_of(base).replace(b"\n", b"\r"), "E409", {}),
    "one carriage return": (
        line_changed(lambda line, base: f"{line[:2]}\r{line[2:]}"),
        "ok",
        {"jsonl": "E409"},
    ),
    "a line separator": (
        line_changed(lambda line, base: f"{line[:2]}\u2028{line[2:]}"),
        "ok",
        {"jsonl": "E405"},
    ),
    "no last line end": (lambda base: text_of(base)[:-1], "ok", {}),
    "blank lines at the end": (
        lambda base: text_of(base) + b"\n  \n\n",
        "blank line skipped",
        {"text": "blank line skipped | ok"},
    ),
    "a long line": (
        line_changed(lambda line, base: line + "x" * 200_000),
        "ok",
        {"csv, tsv, conll, words": "ok", "jsonl": "E409"},
    ),
    "many words": (
        line_changed(lambda line, base: line + " x" * 500),
        "ok",
        {"csv, tsv, conll, words": "ok", "jsonl": "E409"},
    ),
    "tabs as spaces": (
        lambda base: text_of(base).replace(b"\t", b" "),
        "ok",
        {"tsv, pairs": "E405 | ok", "conllu": "E405"},
    ),
    "spaces as tabs": (
        lambda base: text_of(base).replace(b" ", b"\t"),
        "ok",
        {"tsv": "E405", "jsonl": "E409", "pairs": "E405"},
    ),
    "a column too many": (
        line_changed(lambda line, base: f"{line}{base.delimiter}x"),
        "E405",
        {"text": "ok", "jsonl": "E409"},
    ),
    "a column too few": (
        line_changed(lambda line, base: line.rpartition(base.delimiter)[0] or line),
        "E405",
        {"text": "ok", "jsonl": "E409"},
    ),
    "an empty column too many": (
        line_changed(lambda line, base: f"{line}{base.delimiter}"),
        "empty column at the end of a line removed",
        {"text": "ok", "jsonl": "E409"},
    ),
    "only the first line": (
        lambda base: f"{base.lines[0]}\n".encode(),
        "ok",
        {"csv text, csv, semicolons, words, conllu": "E406 | ok"},
    ),
    "the first line twice": (
        lambda base: f"{base.lines[0]}\n".encode() + text_of(base),
        "ok",
        {"csv, words": "ok", "semicolons": "E407"},
    ),
    "a cut line": (
        line_changed(lambda line, base: line[: len(line) // 2]),
        "E406 | ok",
        {"text, semicolons": "ok", "csv text, conll, conllu": "E405", "jsonl": "E409"},
    ),
    "a quote": (line_changed(lambda line, base: f'"{line}'), "E409", {"text, tsv, pairs, conll": "ok"}),
    "a quote inside": (
        line_changed(lambda line, base: f'{line[:2]}"{line[2:]}'),
        "ok",
        {"jsonl, semicolons": "E409", "csv text, csv, words": "quote inside an unquoted field kept"},
    ),
    "a comment": (
        line_changed(lambda line, base: f"# a comment of more words\n{line}"),
        "E405",
        {"text, conllu": "ok", "jsonl": "E409"},
    ),
    "a separator of sections": (
        line_changed(lambda line, base: f"{'-' * 40}\n{line}"),
        "E405",
        {"text": "ok", "jsonl": "E409"},
    ),
    "a conflict": (
        line_changed(lambda line, base: f"<<<<<<< HEAD\n{line}\n=======\n{line}\n>>>>>>> other"),
        "E405",
        {"text": "ok", "jsonl": "E409"},
    ),
    "random bytes": (lambda base: bytes((71 * n * n + 13 * n) % 256 for n in range(500)), "E403", {}),
    "a picture": (lambda base: b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "E403", {}),
    "zip": (zipped, "E403", {}),
    "gzip": (lambda base: gzip.compress(text_of(base)), "E403", {}),
    "xz": (lambda base: lzma.compress(text_of(base)), "E403", {}),
    "JSON": (lambda base: b'{"a": [1, 2]}\n[3]\n', "E409", {"text": "ok", "jsonl, conll, conllu": "E405"}),
    "XML": (
        lambda base: b"<?xml version='1.0'?>\n<a>\n<b/>\n</a>\n",
        "E405 | ok",
        {"text, csv text": "ok", "jsonl": "E409", "semicolons": "E405 | E407", "conll, conllu": "E405"},
    ),
    "Markdown": (
        lambda base: b"| a | b |\n|---|---|\n| 1 | 2 |\n",
        "E405 | ok",
        {"text, csv text": "ok", "jsonl": "E409", "semicolons": "E405 | E407", "conll, conllu": "E405"},
    ),
}


def objects_and(line: str) -> bytes:
    return text_of(BASES["jsonl"]) + line.encode() + b"\n"


def rows(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


W1, W2 = word(1, "the", "DET"), word(2, "dog", "NOUN")
HEAD = "text,label"
SPECIAL: list[tuple[str, str, bytes, str]] = [
    ("csv", "a header twice in a line", rows("text,label,label", "a,animal,b"), "E405 | ok"),
    ("csv", "a header without the text", rows("x,label", "a dog,animal"), "ok"),
    ("csv", "a quote that takes the rest", rows(HEAD, '"a dog,animal', "dogs,animal"), "E409"),
    ("csv", "text after a quote", rows(HEAD, '"a" dog,animal'), "text after a closing quote kept"),
    (
        "csv",
        "a space before a quote",
        rows(HEAD, ' "a dog",animal'),
        "quote inside an unquoted field kept & white space around a field removed",
    ),
    ("csv", "a backslash for a quote", rows(HEAD, '"a \\"dog\\"",animal'), "text after a closing quote kept"),
    ("csv", "a cell of two lines", rows(HEAD, '"a', 'dog",animal'), "ok"),
    (
        "csv",
        "a cell of two Windows lines",
        rows(HEAD, '"a\r', 'dog",animal'),
        "Windows line end (CRLF) removed",
    ),
    ("csv", "an empty text", rows(HEAD, ",animal", "dogs,animal"), "E406 | ok"),
    ("csv", "an empty quoted text", rows(HEAD, '"",animal'), "E406 | ok"),
    ("csv", "a text of spaces", rows(HEAD, '"  ",animal'), "E406 | ok"),
    ("csv", "a space after commas", rows(HEAD, "a dog, animal"), "white space around a field removed"),
    ("csv", "semicolons below a header with commas", rows(HEAD, "a dog;animal"), "E405"),
    ("csv", "empty columns alone", rows(HEAD, ",", "dogs,animal"), "E406 | ok"),
    ("csv", "sep=", rows("sep=,", HEAD, "a dog,animal"), "E406 | ok"),
    ("csv", "a title above", rows("My reviews", "", HEAD, "a dog,animal"), "E405"),
    ("csv", "a total below", rows(HEAD, "a dog,animal", "1 row"), "E405"),
    ("jsonl", "a list", objects_and('["a", "animal"]'), "E409"),
    ("jsonl", "a number", objects_and("17"), "E409"),
    ("jsonl", "a string", objects_and('"a dog"'), "E409"),
    ("jsonl", "null", objects_and("null"), "E409"),
    ("jsonl", "an empty object", objects_and("{}"), "E405"),
    ("jsonl", "an object in an object", objects_and('{"text": {"a": "b"}, "label": "animal"}'), "E409"),
    ("jsonl", "a list as text", objects_and('{"text": ["a"], "label": "animal"}'), "E409"),
    ("jsonl", "null as text", objects_and('{"text": null, "label": "animal"}'), "E409"),
    ("jsonl", "a number as text", objects_and('{"text": 1.50, "label": "animal"}'), "ok"),
    ("jsonl", "an endless number", objects_and('{"text": ' + "9" * 5000 + ', "label": "animal"}'), "ok"),
    ("jsonl", "half a pair", objects_and('{"text": "\\ud83d", "label": "animal"}'), "E409"),
    ("jsonl", "half a pair elsewhere", objects_and('{"text": "a", "label": "animal", "x": "\\ud83d"}'), "ok"),
    ("jsonl", "an escaped NUL", objects_and('{"text": "a\\u0000", "label": "animal"}'), "E404"),
    ("jsonl", "a line end", objects_and('{"text": "a\\ndog", "label": "animal"}'), "ok"),
    ("jsonl", "NaN", objects_and('{"text": NaN, "label": "animal"}'), "E409"),
    ("jsonl", "Infinity elsewhere", objects_and('{"text": "a", "label": "animal", "x": -Infinity}'), "E409"),
    ("jsonl", "a key twice", objects_and('{"text": "a", "text": "b", "label": "animal"}'), "E409"),
    ("jsonl", "a comma at the end", objects_and('{"text": "a", "label": "animal",}'), "E409"),
    ("jsonl", "single quotes", objects_and("{'text': 'a', 'label': 'animal'}"), "E409"),
    ("jsonl", "two objects", objects_and('{"text": "a", "label": "animal"} {}'), "E409"),
    ("jsonl", "an object over lines", objects_and('{"text": "a",\n"label": "animal"}'), "E409"),
    ("jsonl", "nested too deeply", objects_and('{"text": ' + "[" * 100_000 + "]" * 100_000 + "}"), "E409"),
    ("jsonl", "no such key", objects_and('{"Text": "a", "label": "animal"}'), "E405"),
    ("jsonl", "an empty text", objects_and('{"text": "", "label": "animal"}'), "E406 | ok"),
    ("jsonl", "no label", objects_and('{"text": "a"}'), "E405 | ok"),
    ("conllu", "ids from 0", rows(word(0, "a", "DET"), W1), "E409"),
    ("conllu", "an id twice", rows(W1, W1), "E409"),
    ("conllu", "a gap of ids", rows(W1, word(3, "dog", "NOUN")), "E409"),
    ("conllu", "no blank line between", rows(W1, W2, W1), "E409"),
    ("conllu", "no id", rows("_" + W1[1:]), "E409"),
    ("conllu", "half a range", rows("1-" + W1[1:], W1), "E409"),
    ("conllu", "a range", rows("1-2" + W1[1:], W1, W2), "multi-word token skipped"),
    ("conllu", "a range backwards", rows("3-2" + W1[1:], W1, W2), "multi-word token skipped"),
    ("conllu", "an empty node", rows(W1, "1.1" + W1[1:], W2), "empty node skipped"),
    ("conllu", "heads in a circle", rows(W1.replace("\t0\t", "\t2\t"), W2.replace("\t0\t", "\t1\t")), "ok"),
    ("conllu", "a head beyond", rows(W1.replace("\t0\t", "\t99\t")), "ok"),
    ("conllu", "a comment in the middle", rows(W1, "# a", W2), "ok"),
    ("conllu", "comments alone", rows("# a", "", "# b"), "E406 | ok"),
    ("conllu", "nine columns", rows(W1[:-2]), "E405"),
    ("conllu", "no tag", rows(W1.replace("DET", "_")), "E406 | ok"),
    ("conllu", "no word", rows(W1.replace("the", "")), "E406"),
    ("conllu", "a word of spaces", rows(W1.replace("the", "a b")), "ok"),
    ("conll", "comments above", rows("# a", "# b c d", "The\tDET"), "comment line skipped"),
    ("conll", "comments alone", rows("# a", "", "The\tDET", "", "# b c d"), "comment line skipped"),
    ("conll", "a comment below", rows("The\tDET", "# a"), "E405"),
    ("conll", "# as a word", rows("#\tDET", "dog\tNOUN"), "ok"),
    ("conll", "spaces after tabs", rows("The\tDET", "", "dog NOUN"), "E405 | ok"),
    ("conll", "an empty tag", rows("The\t ", "dog\tNOUN"), "E406 | white space around a field removed"),
    ("conll", "an empty word", rows("The\tDET", "\tNOUN"), "E406"),
    (
        "conll",
        "-DOCSTART-",
        rows("-DOCSTART- -X- O", "", "The\tDET"),
        "-DOCSTART- line skipped & blank line skipped",
    ),
    ("words", "no blank line, but commas", rows("word,tag", "The,DET", ",", "dog,NOUN"), "ok"),
    ("words", "a comma as a word", rows("word,tag", '",",DET'), "ok"),
    ("words", "a quote as a word", rows("word,tag", '"""",DET'), "ok"),
    ("words", "a word of two lines", rows("word,tag", '"a', 'b",DET'), "E409"),
    ("words", "a header without words", rows("x,y", "The,DET"), "ok"),
]
PACKED: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "gzip": (".gz", gzip.compress, "ok"),
    "two members": (".gz", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:]), "ok"),
    "a cut gzip": (".gz", lambda data: gzip.compress(data)[:-9], "E402"),
    "half a gzip": (".gz", lambda data: gzip.compress(data)[:20], "E402"),
    "a damaged gzip": (".gz", lambda data: gzip.compress(data)[:-8] + b"12345678", "E402"),
    "waste after gzip": (".gz", lambda data: gzip.compress(data) + b"waste", "E402"),
    "no gzip": (".gz", lambda data: data, "E402"),
    "an empty gzip": (".gz", lambda data: b"", "E406 | ok"),
    "gzip twice": (".gz", lambda data: gzip.compress(gzip.compress(data)), "E403"),
    "xz": (".xz", lzma.compress, "ok"),
    "a cut xz": (".xz", lambda data: lzma.compress(data)[:-20], "E402"),
    "no xz": (".xz", lambda data: data, "E402"),
    "gzip as xz": (".xz", gzip.compress, "E402"),
}


class Case(NamedTuple):
    base: str
    what: str
    name: str
    data: bytes
    verdict: str


def cases() -> Iterator[Case]:
    for base, one in BASES.items():
        for what, (make, usual, others) in MUTATIONS.items():
            own = [verdict for bases, verdict in others.items() if base in bases.split(", ")]
            yield Case(base, what, one.name, make(one), own[0] if own else usual)
        for what, (ending, pack, verdict) in PACKED.items():
            if base in ("text", "csv", "jsonl", "conllu"):
                yield Case(base, f"packed: {what}", one.name + ending, pack(text_of(one)), verdict)
    for base, what, data, verdict in SPECIAL:
        yield Case(base, what, BASES[base].name, data, verdict)


CASES = list(cases())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    found = {}
    for task in TASKS:
        folder = tmp_path_factory.mktemp(task)
        one = ready(task, folder, {"text.context": "sentence"} if task == "lm" else {})
        descend(one, 2)
        found[task] = save(one, folder / "run")
    return found


def check(answer, path, verdict):
    """An error with its number and its place, a repair that is counted, or nothing wrong; what it says."""
    lines = answer.err.splitlines()
    if not re.fullmatch(r"E\d+", verdict):
        assert answer.code == 0, (verdict, answer)
        repaired = [line for line in lines if line.startswith("repaired: ") and "header line" not in line]
        assert [re.sub(r"repaired: (.*): \d+ times?", r"\1", line) for line in repaired] == (
            [] if verdict == "ok" else verdict.split(" & ")
        )
        return None
    assert answer.code == 3, (verdict, answer)
    assert len(lines) == 1
    assert len(lines[0]) < 700
    found = re.match(r"elman: (.+?)((?::\d+)*): (E\d+): .*; .+", lines[0])
    assert found, lines[0]
    assert (found[1], found[3]) == (str(path), verdict), lines[0]
    assert found[2] or verdict in ("E402", "E406"), lines[
        0
    ]  # a place in the file, unless it is about the whole
    return found.groups()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.base}: {case.what}")
def test_an_error_with_its_place_or_a_repair(case, runs, tmp_path):
    began = time.process_time()
    task, path = BASES[case.base].task, tmp_path / case.name
    path.write_bytes(case.data)
    verdict, _, other = case.verdict.partition(" | ")
    said = check(elman("evaluate", runs[task], path), path, verdict)
    if said is not None and verdict != "E407":  # classes that are not known are learned
        answer = elman("train", task, "--train", path, "--set", "data.held_out=0", "--out", tmp_path / "run")
        assert check(answer, path, verdict) == said
        assert not (tmp_path / "run").exists()
    output = tmp_path / "out.jsonl"
    place = check(elman("predict", runs[task], path, "--output", output), path, other or verdict)
    assert output.exists() == (place is None)
    assert {one.name for one in tmp_path.iterdir()} <= {case.name, "out.jsonl"}
    if place is None or task == "lm":
        answer = elman("score" if task == "lm" else "predict", runs[task], path)
        assert check(answer, path, other or verdict) == place
    if place is None:
        written = [
            json.loads(line, parse_int=str) for line in output.read_text(encoding="utf-8").split("\n")[:-1]
        ]
        assert len(written) == answer.out.count("\n")
    assert time.process_time() - began < 20


@pytest.mark.parametrize("task", TASKS)
def test_what_is_no_file(task, runs, tmp_path):
    """A folder, nothing, a link that leads to itself, and what cannot be read though it is there."""
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    dangling = tmp_path / "dangling.csv"
    dangling.symlink_to(tmp_path / "nothing")
    for path in (tmp_path, tmp_path / "missing.csv", loop, dangling, Path("/proc/self/mem")):
        for words in (
            ["evaluate", runs[task], path],
            ["predict", runs[task], path, "--output", tmp_path / "o.csv"],
        ):
            check(elman(*words), path, "E402")
        check(elman("train", task, "--train", path, "--out", tmp_path / "run"), path, "E402")
    assert {one.name for one in tmp_path.iterdir()} == {"loop.csv", "dangling.csv"}


def test_there_are_many_of_them():
    assert len({(case.base, case.what) for case in CASES}) == len(CASES) >= 150
