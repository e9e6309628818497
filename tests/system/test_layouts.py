"""Every layout of a file in every task: trained on, evaluated, asked and scored, or refused with advice."""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tiny import elman

ROLES = {
    "lm": ("text",),
    "tag": ("word", "tag"),
    "classify": ("text", "label"),
    "seq2seq": ("source", "target"),
    "class2seq": ("class", "sequence"),
}
TEXTS = (
    "the café is good, it is",
    'a bad "film" here',
    "good tea; very hot",
    "the film is bad",
    "no good café",
)
EXAMPLES: dict[str, list[tuple[str, ...]]] = {
    "lm": [(text,) for text in TEXTS],
    "tag": [(text, " ".join("ADJ" if word in "goodbad" else "X" for word in text.split())) for text in TEXTS],
    "classify": [(text, "yes" if "good" in text else "no") for text in TEXTS],
    "seq2seq": [(text, " ".join(reversed(text.split()))) for text in TEXTS],
    "class2seq": [("yes" if "good" in text else "no", text) for text in TEXTS],
}
FIELDS = ("classify", "seq2seq", "class2seq")
SETTINGS = "training.max_steps=2 training.validate_every=2 training.threads=1 data.held_out=0 model.hidden=4"
OWN = {"lm": " text.context=sentence", "tag": " model.characters=0"}
Rows = list[list[str]]


def rows_of(task: str, *, number: bool = False, halved: bool = False, note: str | None = None) -> Rows:
    """A row an example, or a word, with an empty row after each sentence."""
    found: Rows = []
    for place, example in enumerate(EXAMPLES[task]):
        before, after = [str(place)] * number, [note] * (note is not None)
        if task == "tag":
            found += [[*before, *pair] for pair in zip(*map(str.split, example), strict=True)]
            found.append([])
        else:
            asked = example[0].split(" ", 1) if halved else example[:1]
            found.append([*before, *asked, *example[1:], *after])
    return found


def table(rows: Rows, delimiter: str, quoting: int = csv.QUOTE_MINIMAL) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=quoting).writerows(rows)  # type: ignore[arg-type]
    return out.getvalue()


def plain(rows: Rows, delimiter: str = "\t") -> str:
    return "".join(delimiter.join(row) + "\n" for row in rows)


def joined(task: str) -> Rows:
    """What is asked in two columns, and a note of two lines behind the answer; words have neither."""
    answers = [f"the {role}" for role in ROLES[task][1:]]
    if task in ("tag", "class2seq"):
        return [["n", "asked", *answers], *rows_of(task, number=True)]
    rows = rows_of(task, number=True, halved=True, note='two\nlines, "quoted"')
    return [["n", "title", "body", *answers, "note"], *rows]


def joined_columns(task: str) -> str:
    asked, *answers = ROLES[task]
    column = "asked" if task in ("tag", "class2seq") else "title+body"
    return ",".join([f"{asked}={column}", *(f"{role}=the {role}" for role in answers)])


def objects(task: str) -> str:
    """With keys that nobody asks for; words and tags are lists."""
    rows = [[*map(str.split, one)] if task == "tag" else one for one in EXAMPLES[task]]
    examples = [dict(zip(ROLES[task], one, strict=True)) for one in rows]
    return "".join(json.dumps({"n": [1, None, 2.50], **one, "prediction": True}) + "\n" for one in examples)


def commented(task: str) -> str:
    sentences = plain(rows_of("tag"), " ").split("\n\n")[:-1]
    return "".join(f"# text {place}\n# of {place} here\n{one}\n\n" for place, one in enumerate(sentences))


def conllu(task: str) -> str:
    found = ""
    for text, tags in EXAMPLES["tag"]:
        words = enumerate(zip(text.split(), tags.split(), strict=True), 1)
        lines = [f"{n}\t{word}\t_\t{tag}\t_\t_\t0\troot\t_\tA=1" for n, (word, tag) in words]
        found += "\n".join([f"# text = {text}", "1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_", *lines]) + "\n\n"
    return found


class Layout(NamedTuple):
    """The ending of a file, what it holds, who can read it, and the options that training needs."""

    ending: str
    write: Callable[[str], str]
    tasks: Sequence[str] = tuple(ROLES)
    options: Callable[[str], list[str]] = lambda task: []
    encoding: str = "utf-8"
    delimiter: str | None = None  # of the table that comes back


LAYOUTS = {
    "tsv": Layout(".tsv", lambda task: plain(rows_of(task)), delimiter="\t"),
    "csv": Layout(".csv", lambda task: table(rows_of(task), ","), delimiter=","),
    "semicolons": Layout(
        ".csv", lambda task: table([["n", *ROLES[task]], *rows_of(task, number=True)], ";"), delimiter=";"
    ),
    "quoted": Layout(
        ".csv",
        lambda task: table(joined(task), ",", csv.QUOTE_ALL),
        options=lambda task: ["--columns", joined_columns(task)],
        delimiter=",",
    ),
    "named": Layout(
        ".tsv",
        lambda task: plain([["N", *map(str.upper, ROLES[task])], *rows_of(task, number=True)]),
        options=lambda task: ["--columns", ",".join(f"{role}={role.upper()}" for role in ROLES[task])],
        delimiter="\t",
    ),
    "numbered": Layout(
        ".txt",
        lambda task: plain(rows_of(task, number=True), "|"),
        options=lambda task: [
            *("--format", "columns" if task == "tag" else "delimited", "--delimiter", "|"),
            *("--columns", ",".join(f"{role}={place}" for place, role in enumerate(ROLES[task], 1))),
        ],
        delimiter="|",
    ),
    "jsonl": Layout(".jsonl", objects),
    "conll": Layout(".conll", lambda task: plain(rows_of("tag")), ["tag"]),
    "iob2": Layout(".iob2", commented, ["tag"]),
    "conllu": Layout(".conllu", conllu, ["tag"]),
    "separator": Layout(
        ".txt", lambda task: plain(rows_of(task), " ||| "), FIELDS, lambda task: ["--separator", " ||| "]
    ),
    "two files": Layout(".one", lambda task: plain([[one[0]] for one in EXAMPLES[task]]), (*FIELDS, "tag")),
    "lines": Layout(".txt", lambda task: plain([[one[0]] for one in EXAMPLES[task]]), ["lm"]),
    "gzip": Layout(".csv.gz", lambda task: table(rows_of(task), ","), delimiter=","),
    "latin-1": Layout(
        ".tsv",
        lambda task: plain(rows_of(task)),
        options=lambda task: ["--encoding", "latin-1"],
        encoding="latin-1",
        delimiter="\t",
    ),
    "utf-16": Layout(
        ".csv",
        lambda task: table(rows_of(task), ","),
        options=lambda task: ["--encoding", "utf-16"],
        encoding="utf-16",
        delimiter=",",
    ),
}
CELLS = [(layout, task) for layout in LAYOUTS for task in ROLES]
GOOD = [(layout, task) for layout, task in CELLS if task in LAYOUTS[layout].tasks]
BAD = [cell for cell in CELLS if cell not in GOOD]


def write(folder: Path, layout: str, task: str) -> Path:
    one = LAYOUTS[layout]
    path = folder / f"file{one.ending}"
    data = one.write(task).encode(one.encoding)
    path.write_bytes(gzip.compress(data) if one.ending.endswith(".gz") else data)
    if layout == "two files":
        answers = plain([[example[-1]] for example in EXAMPLES[task]])
        path.with_suffix(".two").write_text(answers, encoding="utf-8")
    return path


def said(layout: str, task: str) -> list[str]:
    """What tells ``evaluate`` and ``predict`` how a file is laid out."""
    options = LAYOUTS[layout].options(task)
    return ["--set", f"data.separator='{options[1]}'"] if layout == "separator" else options


def train(path: Path, layout: str, task: str, run: Path):
    files = ["--train", path]
    if layout == "two files":
        files += ["--train-target", path.with_suffix(".two")]
    settings = [part for pair in (SETTINGS + OWN.get(task, "")).split() for part in ("--set", pair)]
    return elman("train", task, *files, "--out", run, *LAYOUTS[layout].options(task), *settings)


def measured(run: Path, path: Path, *options):
    code, out, err = elman("evaluate", run, path, "--json", *options)
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """For each task a run that was trained on a .tsv file, the file, its figures and its answers."""
    found = {}
    for task in ROLES:
        folder = tmp_path_factory.mktemp(task)
        path = write(folder, "tsv", task)
        answer = train(path, "tsv", task, folder / "run")
        assert answer.code == 0, answer.err
        asked = "".join(f"{one[0]}\n" for one in EXAMPLES[task]).encode()
        answers = elman("predict", folder / "run", stdin=asked).out
        assert answers.count("\n") == len(TEXTS)
        found[task] = folder / "run", measured(folder / "run", path), answers
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "task"), GOOD)
def test_what_is_read_is_the_same(layout, task, reference, tmp_path):
    """Trained on any layout, a model is the same: so are its figures, answers and scores."""
    _, figures, answers = reference[task]
    path, run = write(tmp_path, layout, task), tmp_path / "run"
    code, _, err = train(path, layout, task, run)
    assert code == 0, err
    assert f"train: {len(TEXTS)} examples" in err
    assert "may be a header" not in err
    two = ["--target", path.with_suffix(".two")] if layout == "two files" else []
    assert measured(run, path, *two) == figures
    options = said(layout, task) if LAYOUTS[layout].ending == ".txt" else []  # which tells nothing
    code, out, err = elman("predict", run, path, *options)
    assert (code, out) == (0, answers), err
    if task == "lm":
        code, out, err = elman("score", run, path, *options)
        assert (code, out) == (0, elman("score", run, stdin="\n".join(TEXTS).encode()).out), err


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "task"), GOOD)
def test_a_run_reads_other_layouts(layout, task, reference, tmp_path):
    """One model, any file: ``evaluate`` and ``predict`` are told the layout as ``train`` is."""
    run, figures, answers = reference[task]
    path, options = write(tmp_path, layout, task), said(layout, task)
    two = ["--target", path.with_suffix(".two")] if layout == "two files" else []
    assert measured(run, path, *two, *options) == figures
    code, out, err = elman("predict", run, path, *options)
    assert (code, out) == (0, answers), err


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "task"), GOOD)
def test_the_file_comes_back(layout, task, reference, tmp_path):
    """Read by another parser, all that stood in a file is there, and two columns more."""
    run, _, answers = reference[task]
    path, options = write(tmp_path, layout, task), said(layout, task)
    old = LAYOUTS[layout].write(task)
    ending = path.suffixes[0] if path.suffixes[0] not in (".one", ".txt", ".iob2") else ".tsv"
    output = tmp_path / f"out{'.conll' if layout == 'iob2' else ending}"
    code, out, err = elman("predict", run, path, *options, "--output", output)
    assert (code, out) == (0, ""), err
    new = output.read_text(encoding="utf-8")
    tags = answers.split() if task == "tag" and layout != "two files" else answers.split("\n")[:-1]
    if layout == "jsonl":
        lines = [json.loads(line) for line in new.splitlines()]
        assert [one.pop("elman_prediction") for one in lines] == (
            [line.split() for line in answers.splitlines()] if task == "tag" else tags
        )
        assert all(np.min(one.pop("confidence")) >= 0 for one in lines)
        assert lines == [json.loads(line) for line in old.splitlines()]
    elif layout in ("conll", "iob2"):
        space = "\t" if layout == "conll" else " "
        words = [line for line in new.splitlines() if line and not line.startswith("#")]
        assert [line.split(space)[-2] for line in words] == tags
        cut = [line if line.startswith("#") else line.rsplit(space, 2)[0] for line in new.splitlines()]
        assert cut == old.splitlines()
    elif layout == "conllu":
        words = [line for line in new.splitlines() if re.match(r"\d+\t", line)]
        assert [re.search("Prediction=([^|]*)", line)[1] for line in words] == tags
        assert re.sub(r"\|Prediction=[^|]*\|Confidence=[\d.]+", "", new) == old
    else:
        check_table(layout, task, old, new, tags, "," if output.suffix == ".csv" else "\t")


def check_table(layout, task, old, new, answers, delimiter):
    rows, before = parsed(new, delimiter), parsed(old, LAYOUTS[layout].delimiter or "\t")
    if layout in ("separator", "two files", "lines"):  # a row an example, and a header
        width = 1 + (layout == "separator")
        before = [list(one[:width]) for one in (ROLES[task], *EXAMPLES[task])]
    assert [row[:-2] for row in rows] == before
    if layout in ("semicolons", "quoted", "named", "separator", "two files", "lines"):
        assert rows.pop(0)[-2:] == ["prediction", "confidence"]
    assert [row[-2] for row in rows if row] == answers
    assert all(0 <= float(row[-1]) <= 1 for row in rows if row)


def parsed(text: str, delimiter: str) -> Rows:
    """Python's own reader where quotes mean something."""
    if delimiter in ",;":
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    return [line.split(delimiter) if line else [] for line in text.split("\n")[:-1]]


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "task"), BAD)
def test_what_cannot_be_read_says_what_to_do(layout, task, reference, tmp_path):
    run, _, _ = reference[task]
    path = write(tmp_path, layout, task)
    two = ["--target", path.with_suffix(".two")] if layout == "two files" else []
    options = said(layout, task)
    for answer in (train(path, layout, task, tmp_path / "run"), elman("evaluate", run, path, *two, *options)):
        assert answer.code in (2, 3), answer
        assert answer.out == ""
        last = answer.err.splitlines()[-1]
        assert re.match(rf"elman: ({re.escape(str(path))}(:\d+)*: )?E\d+: ", last), last
        assert re.search("; (set one of .* with --format|name (the columns, |what separates ))", last), last
    assert not (tmp_path / "run").exists()


def test_the_matrix_is_whole():
    assert len(LAYOUTS) >= 12
    assert len(GOOD) + len(BAD) == len(LAYOUTS) * len(ROLES)


# Another kind of file than the one that was read.


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["csv", "quoted", "conll", "iob2", "conllu", "two files"])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".conll", ".conllu"])
def test_tags_in_any_kind_of_file(layout, ending, reference, tmp_path):
    run, _, answers = reference["tag"]
    path, output = write(tmp_path, layout, "tag"), tmp_path / f"out{ending}"
    code, _, err = elman("predict", run, path, *said(layout, "tag"), "--output", output)
    assert code == 0, err
    new = output.read_text(encoding="utf-8")
    tagged = [
        list(zip(*map(str.split, one), strict=True)) for one in zip(TEXTS, answers.splitlines(), strict=True)
    ]
    words = [pair for sentence in tagged for pair in sentence]
    if ending == ".jsonl":
        found = [json.loads(line) for line in new.splitlines()]
        assert [list(zip(one["words"], one["prediction"], strict=True)) for one in found] == tagged
    elif ending == ".conllu":
        lines = [
            line.split("\t") for line in new.splitlines() if line and line[0] != "#" and "-" not in line[:3]
        ]
        assert {len(line) for line in lines} == {10}
        shown = [line[3] if layout != "conllu" else line[9].split("|")[1].split("=")[1] for line in lines]
        assert [(line[1], tag) for line, tag in zip(lines, shown, strict=True)] == words
        assert [int(line[0]) for line in lines] == [n for one in tagged for n, _ in enumerate(one, 1)]
    else:
        delimiter = "," if ending == ".csv" else " " if (ending, layout) == (".conll", "iob2") else "\t"
        rows = [row for row in parsed(new, delimiter) if row and not row[0].startswith("#")]
        place = {"quoted": 1, "conllu": 1}.get(layout, 0)
        rows = rows[1:] if layout == "quoted" or (layout == "two files" and ending != ".conll") else rows
        if layout == "two files" and ending != ".conll":
            rows = [[*pair] for row in rows for pair in zip(row[0].split(), row[1].split(), strict=True)]
            rows = [[word, tag, "1"] for word, tag in rows]
        assert [(row[place], row[-2]) for row in rows] == words
        assert len({len(row) for row in rows}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["csv", "semicolons", "quoted", "named", "jsonl", "separator", "lines"])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_texts_in_any_kind_of_file(layout, ending, reference, tmp_path):
    task = "lm" if layout == "lines" else "classify"
    run, _, answers = reference[task]
    path, output = write(tmp_path, layout, task), tmp_path / f"out{ending}"
    code, _, err = elman("predict", run, path, *said(layout, task), "--output", output, "--top", "2")
    assert code == 0, err
    new, old = output.read_text(encoding="utf-8"), LAYOUTS[layout].write(task)
    if layout == "jsonl":
        objects = [json.loads(line) for line in old.splitlines()]
        before = [
            [one if isinstance(one, str) else json.dumps(one) for one in two.values()] for two in objects
        ]
    elif layout in ("separator", "lines"):
        before = [list(one) for one in EXAMPLES[task]]
    else:
        before = parsed(old, LAYOUTS[layout].delimiter)[layout != "csv" :]
    if ending == ".jsonl":
        found = [json.loads(line) for line in new.splitlines()]
        rows = [[one if isinstance(one, str) else json.dumps(one) for one in two.values()] for two in found]
    else:
        rows = parsed(new, "," if ending == ".csv" else "\t")[layout != "csv" :]
    if ending == ".tsv":
        before = [[cell.replace("\n", " ") for cell in row] for row in before]
    assert [row[:-4] for row in rows] == before
    assert [row[-4] for row in rows] == answers.split("\n")[:-1]
    assert all(float(row[-3]) >= float(row[-1]) for row in rows)
