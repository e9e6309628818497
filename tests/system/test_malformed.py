"""Files as they should not be: a line that says what, where and what to do, or a repair that is counted."""

import gzip
import json
import lzma
import os
import re
from typing import NamedTuple

import pytest

from tiny import RUNS, elman, train_command, write_data

TASKS = {"lm": "lm-stream"} | {task: task for task in ("tag", "classify", "class2seq", "seq2seq")}
QUICK = {"training.max_steps": 2, "training.validate_every": 2, "training.save_seconds": 1000.0}
GOOD = {
    "lm": "the dog likes Rex\nTom feeds the cat\n",
    "tag": "the\tO\ndog\tO\n\nRex\tB-NAME\nsees\tO\n",
    "classify": "the dog likes Rex\tanimal\nTom feeds the cat\tperson\n",
    "class2seq": "dog\tdog is called Rex\ncat\tcat is called Tom\n",
    "seq2seq": "the dog likes Rex\tRex likes dog\nTom feeds the cat\tcat the feeds\n",
}
ASKED = GOOD | {"class2seq": "dog\ncat\n"}  # lines that a model can answer


class Case(NamedTuple):
    """A file that cannot be used: its name and bytes, and the number and line of the error."""

    what: str
    tasks: str
    name: str
    content: bytes
    number: str
    line: int | None
    options: tuple[str, ...] = ()


def bad(what, tasks, name, content, number, line, *options):
    content = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    return Case(what, tasks, name, content, number, line, options)


NAMED = {"classify": ("text", "label"), "class2seq": ("class", "sequence"), "seq2seq": ("source", "target")}


def for_every_task(texts):
    """Wrong bytes are wrong in every format; the first lines are in order, the fault comes later."""
    for task in TASKS:
        good = texts[task].encode()
        lines = good.count(b"\n")
        last = lines + 1
        yield bad("not UTF-8", task, "a.txt", good + b"caf\xe9\tX\n", "E403", last)
        yield bad("cut character", task, "a.txt", good + "é".encode()[:1] + b"\n", "E403", last)
        yield bad("surrogate bytes", task, "a.txt", good + b"\xed\xa0\x80 a\tb\n", "E403", last)
        yield bad("overlong NUL", task, "a.txt", good + b"\xc0\x80\n", "E403", last)
        yield bad("NUL", task, "a.txt", good + b"a\0b\tO\n", "E404", last)
        yield bad("UTF-16", task, "a.txt", good.decode().encode("utf-16"), "E403", 1)
        yield bad("UTF-16 without mark", task, "a.txt", good.decode().encode("utf-16-le"), "E403", 1)
        yield bad("UTF-32", task, "a.txt", good.decode().encode("utf-32"), "E403", 1)
        yield bad("nothing", task, "a.txt", b"", "E406", None)
        yield bad("only a mark", task, "a.txt", b"\xef\xbb\xbf", "E406", None)
        yield bad("zip archive", task, "a.txt", b"PK\x03\x04\x14\x00\x00\n", "E403", 1)
        yield bad("gzip under another name", task, "a.txt", gzip.compress(good), "E403", 1)
        yield bad("no gzip", task, "a.txt.gz", good, "E402", None)
        yield bad("cut gzip", task, "a.txt.gz", gzip.compress(good)[:-9], "E402", None)
        yield bad("damaged gzip", task, "a.txt.gz", gzip.compress(good)[:-8] + b"12345678", "E402", None)
        yield bad("cut xz", task, "a.txt.xz", lzma.compress(good)[:-20], "E402", None)
        yield bad("no xz", task, "a.txt.xz", good, "E402", None)
        yield bad("old Mac lines", task, "a.txt", good.strip(b"\n").replace(b"\n", b"\r"), "E409", 1)


def for_fields():
    for task, (one, two) in NAMED.items():
        good = GOOD[task]
        pair = good.split("\n")[0].split("\t")
        yield bad("one column", task, "a.tsv", f"{good}dog\n", "E405", 3)
        yield bad("three columns", task, "a.tsv", f"{good}dog\ta\tb\n", "E405", 3)
        yield bad("empty first", task, "a.tsv", f"{good}\tanimal\n", "E406", 3)
        yield bad("empty second", task, "a.tsv", f"{good}dog\t\n", "E406", 3)
        yield bad("only spaces", task, "a.tsv", f"{good}dog\t  \n", "E406", 3)
        yield bad("wrong delimiter", task, "a.tsv", good.replace("\t", ";"), "E405", 1)
        yield bad("no such column", task, "a.tsv", good, "E405", 1, "--columns", f"{one}=0,{two}=7")
        yield bad("no such name", task, "a.tsv", good, "E405", 1, "--columns", f"{one}=x,{two}=y")
        bars, separator = good.replace("\t", " ||| "), ("--set", 'data.separator=" ||| "')
        yield bad("no separator", task, "a.txt", f"{bars}dog\n", "E405", 3, *separator)
        yield bad("two separators", task, "a.txt", f"{bars}dog ||| a ||| b\n", "E405", 3, *separator)
        yield bad("nothing before it", task, "a.txt", f"{bars}||| animal\n", "E406", 3, *separator)
        yield bad("nothing after it", task, "a.txt", f"{bars}dog |||\n", "E406", 3, *separator)
        marked = f"IN: {bars.splitlines()[0]}\n{bars}"
        yield bad("no prefix", task, "a.txt", marked, "E409", 2, *separator, "--set", 'data.prefix="IN: "')
        yield bad("open quote", task, "a.csv", f'{pair[0]},{pair[1]}\n"dog,{pair[1]}\n', "E409", 2)
        row = json.dumps({one: pair[0], two: pair[1]})
        yield bad("no JSON", task, "a.jsonl", f"{row}\n{{'a': 1}}\n", "E409", 2)
        yield bad("cut JSON", task, "a.jsonl", f"{row}\n{row[:-5]}\n", "E409", 2)
        yield bad("two objects", task, "a.jsonl", f"{row}\n{row}{row}\n", "E409", 2)
        yield bad("a list", task, "a.jsonl", f"{row}\n[1, 2]\n", "E409", 2)
        yield bad("a missing key", task, "a.jsonl", f'{row}\n{{"{one}": "dog"}}\n', "E405", 2)
        yield bad("null", task, "a.jsonl", f'{row}\n{{"{one}": "dog", "{two}": null}}\n', "E409", 2)
        yield bad("a nested value", task, "a.jsonl", f'{row}\n{{"{one}": "dog", "{two}": {{}}}}\n', "E409", 2)
        yield bad("NaN", task, "a.jsonl", f'{row}\n{{"{one}": "dog", "{two}": NaN}}\n', "E409", 2)
        yield bad("a key twice", task, "a.jsonl", f'{row}\n{{"{one}": "a", "{one}": "b"}}\n', "E409", 2)
        yield bad("half a pair", task, "a.jsonl", f'{row}\n{{"{one}": "\\ud83d", "{two}": "b"}}\n', "E409", 2)
        yield bad("NUL escape", task, "a.jsonl", f'{row}\n{{"{one}": "a\\u0000", "{two}": "b"}}\n', "E404", 2)
        yield bad("an empty value", task, "a.jsonl", f'{row}\n{{"{one}": "dog", "{two}": ""}}\n', "E406", 2)


def for_tags():
    good = GOOD["tag"]
    word = "1\tdog\t_\tO\t_\t_\t_\t_\t_\t_"
    yield bad("a word without tag", "tag", "a.txt", f"{good}\nRex\n", "E405", 7)
    yield bad("an empty tag", "tag", "a.txt", f"{good}\nRex\t \n", "E406", 7)
    yield bad("an empty word", "tag", "a.txt", f"{good}\n\tO\n", "E406", 7)
    yield bad("three columns", "tag", "a.txt", f"{good}\nRex\tB-NAME\tx\n", "E405", 7)
    yield bad("another delimiter", "tag", "a.txt", f"{good}\nRex B-NAME\n", "E405", 7)
    yield bad("nine columns", "tag", "a.conllu", f"{word}\n\n{word[:-2]}\n", "E405", 3)
    yield bad("spaces for tabs", "tag", "a.conllu", f"{word}\n\n{word.replace(chr(9), ' ')}\n", "E405", 3)
    yield bad("a word out of order", "tag", "a.conllu", f"{word}\n3{word[1:]}\n", "E409", 2)
    yield bad("no number", "tag", "a.conllu", f"{word}\nx{word[1:]}\n", "E409", 2)
    yield bad("no annotation", "tag", "a.conllu", f"{word}\n\n{word.replace('O', '_')}\n", "E406", 3)
    yield bad("comments alone", "tag", "a.conllu", "# a\n\n# b\n", "E406", None)


CASES = [*for_every_task(GOOD), *for_fields(), *for_tags()]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A tiny trained model of every kind."""
    folder = tmp_path_factory.mktemp("runs")
    for name in RUNS:
        answer = elman(*train_command(name, data, folder / name, QUICK))
        assert answer.code == 0, answer.err
    return {name: folder / name for name in RUNS}


def check_line(answer, path, number, line, answered=0):
    """One line on stderr, ``elman: file:line[:column]: E4xx: …``; so many answers before it on stdout."""
    assert answer.code == 3, answer
    assert answer.out.count("\n") == answered
    last = answer.err.splitlines()[-1]
    assert len(last) < 600
    assert "Traceback" not in answer.err
    found = re.match(r"elman: (.+?)(?::(\d+))?(?::(\d+))?: (E\d+): ", last)
    assert found, last
    assert (found[1], found[4]) == (str(path), number), last
    assert found[2] == (None if line is None else str(line)), last


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.tasks}: {case.what}")
def test_training_and_evaluation_name_the_place(case, runs, data, tmp_path):
    path = tmp_path / case.name
    path.write_bytes(case.content)
    task = case.tasks
    answer = elman(
        *(
            "train",
            task,
            "--train",
            path,
            "--dev",
            path,
            "--out",
            tmp_path / "run",
            "--set",
            "data.held_out=0",
        ),
        *case.options,
    )
    check_line(answer, path, case.number, case.line)
    assert answer.err.count("\n") == 1
    if not case.options:
        answer = elman("evaluate", runs[TASKS[task]], path)
        check_line(answer, path, case.number, case.line)
        assert answer.err.count("\n") == 1


@pytest.mark.parametrize("case", [*for_every_task(ASKED)], ids=lambda case: f"{case.tasks}: {case.what}")
def test_prediction_names_the_place(case, runs, tmp_path):
    path = tmp_path / case.name
    path.write_bytes(case.content)
    for command in ("predict", "score") if case.tasks == "lm" else ("predict",):
        answer = elman(command, runs[TASKS[case.tasks]], path)
        if case.number == "E406":  # no line in, no line out
            assert answer == (0, "", "repaired: byte order mark removed: 1 time\n" if case.content else "")
        else:
            check_line(answer, path, case.number, case.line, (case.line or 1) - 1)


def test_there_are_many_of_them():
    assert len(CASES) >= 100


@pytest.mark.parametrize(
    ("task", "content", "label"),
    [
        ("tag", "the\tO\n\nRex\tB-DOG\n", "B-DOG"),
        ("classify", "the dog\tanimal\nthe cat\tanimals\n", "animals"),
    ],
)
def test_a_label_that_training_never_saw_is_wrong(task, content, label, runs, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(content)
    answer = elman("evaluate", runs[TASKS[task]], path)
    assert (answer.code, f"counts as wrong: {label!r} (1)" in answer.out) == (0, True), answer.err


def test_a_class_that_training_never_saw_is_an_error(runs, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("dog\tdog is called Rex\nzebra\tzebra is called Rex\n")
    check_line(elman("evaluate", runs[TASKS["class2seq"]], path), path, "E407", 2)


@pytest.mark.parametrize(
    ("task", "first", "second", "wrong", "number", "line"),
    [
        ("tag", "the dog\nRex\n", "O O\nB-NAME O\n", "second.txt", "E408", 2),
        ("tag", "the dog\nRex\n", "O O\n\n", "second.txt", "E408", 2),
        ("tag", "the dog\n", "O O\nO\n", "second.txt", "E408", 2),
        ("seq2seq", "the dog\n", "dog the\nRex\n", "second.txt", "E408", 2),
        ("seq2seq", "the dog\nRex\nTom\n", "dog the\n", "first.txt", "E408", 2),
        ("seq2seq", "the dog\nRex\n", "dog the\n \n", "second.txt", "E406", 2),
        ("seq2seq", "the dog\n\n", "dog the\nRex\n", "first.txt", "E406", 2),
        ("seq2seq", "the dog\n", "\n", "second.txt", "E406", 1),
    ],
)
def test_two_files_that_do_not_agree(task, first, second, wrong, number, line, runs, tmp_path):
    one, two = tmp_path / "first.txt", tmp_path / "second.txt"
    one.write_text(first)
    two.write_text(second)
    answer = elman("train", task, "--train", one, "--train-target", two, "--out", tmp_path / "run")
    check_line(answer, tmp_path / wrong, number, line)
    check_line(elman("evaluate", runs[task], one, "--target", two), tmp_path / wrong, number, line)


@pytest.mark.parametrize("content", ["one text\n", "a\tb\nc\td\te\n"])
def test_pairs_that_are_none(content, runs, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(content)
    last = content.count("\n")
    check_line(elman("score", runs["lm-stream"], path, "--pairs"), path, "E405", last, last - 1)


@pytest.mark.parametrize(
    ("content", "line"), [("dog 1 2\ncat 1\n", 2), ("dog 1 nan\n", 1), ("dog 1 2\ncat x y\n", 2)]
)
def test_vectors_that_are_none(content, line, data, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    answer = elman(
        *train_command("lm-stream", data, tmp_path / "run", QUICK), "--set", f"text.vectors={path}"
    )
    check_line(answer, path, "E410", line)


@pytest.mark.parametrize("task", TASKS)
def test_files_that_are_not_there(task, runs, tmp_path):
    missing = tmp_path / "missing.txt"
    check_line(elman("train", task, "--train", missing, "--out", tmp_path / "run"), missing, "E402", None)
    check_line(elman("train", task, "--train", tmp_path, "--out", tmp_path / "run"), tmp_path, "E402", None)
    for command in ("evaluate", "predict"):
        check_line(elman(command, runs[TASKS[task]], missing), missing, "E402", None)
        check_line(elman(command, runs[TASKS[task]], tmp_path), tmp_path, "E402", None)


def test_a_pipe_is_refused_where_it_would_be_read_twice(tmp_path):
    """Opening it again would wait for a second writer, for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    check_line(elman("train", "lm", "--train", pipe, "--out", tmp_path / "run"), pipe, "E402", None)


# What is put right is counted and said.


@pytest.mark.parametrize(
    ("task", "change", "repair"),
    [
        ("lm", lambda text: "\ufeff" + text, "byte order mark removed"),
        ("lm", lambda text: text.replace("\n", "\r\n"), "Windows line end (CRLF) removed"),
        ("tag", lambda text: "-DOCSTART-\tO\n\n" + text, "-DOCSTART- line skipped"),
        ("tag", lambda text: text + "\n\n\n", "blank line skipped"),
        ("tag", lambda text: text.replace("\n", "\r\n"), "Windows line end (CRLF) removed"),
        ("classify", lambda text: "\n" + text, "blank line skipped"),
        ("classify", lambda text: "text\tlabel\n" + text, "header line skipped"),
        ("classify", lambda text: text.replace("\n", "\t\n"), "empty column at the end of a line removed"),
        ("class2seq", lambda text: text.replace("\t", " \t "), "white space around a field removed"),
        ("class2seq", lambda text: "\ufeff" + text.replace("\n", "\r\n"), "byte order mark removed"),
        ("seq2seq", lambda text: "source\ttarget\n" + text, "header line skipped"),
        ("seq2seq", lambda text: text.replace("\t", "\t "), "white space around a field removed"),
        ("seq2seq", lambda text: text.replace("\n", "\n\n"), "blank line skipped"),
    ],
)
def test_a_repair_is_reported_and_changes_no_figure(task, change, repair, runs, data, tmp_path):
    path = tmp_path / "a.txt"
    plain = (data / f"{task}.dev.txt").read_text()
    path.write_bytes(change(plain).encode())
    run = runs[TASKS[task]]
    answer = elman("evaluate", run, path, "--json")
    assert f"repaired: {repair}: " in answer.err
    assert answer.out == elman("evaluate", run, data / f"{task}.dev.txt", "--json").out
    settings = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
    answer = elman("train", task, "--train", path, "--dev", path, "--out", tmp_path / "run", *settings)
    assert answer.code == 0, answer.err
    assert f"repaired: {repair}: " in answer.err


# One line in, one line out.

LINES = [
    "the dog likes Rex",
    "",
    "   ",
    "\t",
    "a\u2028b\u2029c\x0b\x0c\x1c\x85d",
    "new\u00a0york",
    "😀 👩‍👩‍👧 e\u0301 مرحبا שלום \u202eabc",
    "word " * 300,
    "x" * 5000,
    "a\rb",
    "\ufeff",
    "<s> </s> <pad> <unk>",
    '"quoted, \\n"',
    "the last one",
]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("name", [name for name in RUNS if name != "class2seq"])
def test_as_many_lines_out_as_in(name, closed, ending, runs):
    given = ("\ufeff" + ending.join(LINES) + ending * closed).encode()
    commands = ["predict", "score"] if name.startswith("lm") else ["predict"]
    repaired = "repaired: byte order mark removed: 2 times\n"  # one is a line
    if ending == "\r\n":
        repaired = f"repaired: Windows line end (CRLF) removed: {len(LINES) - 1 + closed} times\n{repaired}"
    short = () if name in ("tag", "classify") else ("--set", "decoding.max_length=5")
    for command in commands:
        options = short if command == "predict" else ()
        answer = elman(command, runs[name], *options, stdin=given)
        assert (answer.code, repaired in answer.err) == (0, True), answer.err
        lines = answer.out.split("\n")
        assert lines.pop() == ""
        assert len(lines) == len(LINES)
        alone = elman(command, runs[name], "--quiet", *options, stdin=LINES[0].encode())
        assert lines[0] == alone.out.rstrip("\n")
        found = elman(command, runs[name], "--json", *options, stdin=given).out.split("\n")[:-1]
        assert len([json.loads(line) for line in found]) == len(LINES)


def test_a_prediction_stays_at_its_line_beyond_a_chunk(runs):
    """Answers of many lines, among them blank ones, are those of the lines one by one."""
    lines = ["the dog likes Rex", "", "Tom sees the bird", " ", "Kiki"] * 60
    answer = elman("predict", runs["tag"], stdin="\n".join(lines).encode())
    found = answer.out.split("\n")[:-1]
    assert [len(tags.split()) for tags in found] == [len(line.split()) for line in lines]
    assert found == found[:5] * 60


def test_no_line_in_no_line_out(runs):
    for name, run in runs.items():
        assert elman("predict", run, stdin=b"") == (0, "", ""), name


@pytest.mark.parametrize("lines", [["dog", "zebra"], ["dog"] * 299 + ["zebra"], ["dog", "", "cat"]])
def test_a_class_that_training_never_saw_is_named_by_its_line(lines, runs, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(lines))
    answer = elman("predict", runs["class2seq"], path)
    wrong = next(number for number, line in enumerate(lines, 1) if line not in ("dog", "cat"))
    check_line(answer, path, "E407", wrong, wrong - 1)


@pytest.mark.parametrize(
    ("task", "rows", "given"),
    [
        ("classify", 'hello,"a\nb"\nbye,"c\nd"\n', "hello\nbye\n"),
        ("class2seq", 'x,"a\nb"\ny,"c\nd"\n', "x\ny\n"),
        ("seq2seq", 'x,"a\nb"\ny,"c\nd"\n', "x\ny\n"),
    ],
)
def test_a_prediction_with_a_line_end_in_it_is_one_line(task, rows, given, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(rows * 6)
    pairs = {"text.unit": "character", "training.epochs": 60, "training.threads": 1, "training.tolerance": 0}
    settings = [part for key, value in pairs.items() for part in ("--set", f"{key}={value}")]
    answer = elman("train", task, "--train", path, "--dev", path, "--out", tmp_path / "run", *settings)
    assert answer.code == 0, answer.err
    assert elman("predict", tmp_path / "run", stdin=given.encode()).out.count("\n") == 2
