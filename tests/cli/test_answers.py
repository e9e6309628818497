"""Files in, answers out: any layout in any task, as many records out as in, the file back with columns."""

import csv
import gzip
import io
import json

import pytest

from forked import python
from tiny import elman
from tiny_tasks import TEXTS, descend, ready, save

ROLES = {
    "lm": ("text",),
    "classify": ("text", "label"),
    "seq2seq": ("source", "target"),
    "class2seq": ("class", "sequence"),
    "tag": ("word", "tag"),
}


def table(rows, delimiter):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


def rows_of(task, *, answers=True):
    """Cells of each question, with something beside it that nobody asks for."""
    answer = ["gold"] if answers and len(ROLES[task]) > 1 else []
    return [[str(number), text, *answer] for number, text in enumerate(TEXTS[task])]


def named(task, *, answers=True):
    return ["id", *ROLES[task][: 1 + answers]]


def jsonl(task):
    keys = named(task)
    return "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows_of(task))


def headed(delimiter, **how):
    return lambda task: table([named(task, **how), *rows_of(task, **how)], delimiter)


def bare(delimiter):
    return lambda task: table(rows_of(task), delimiter)


def lines(end="\n"):
    return lambda task: "".join(f"{text}{end}" for text in TEXTS[task])


# ending, what writes the file, and how it is laid out
LAYOUTS = {
    "csv with a header": (".csv", headed(","), {"named": ","}),
    "csv without answers": (".csv", headed(",", answers=False), {"named": ","}),
    "csv by numbers": (".csv", bare(","), {"numbered": True}),
    "semicolons": (".csv", headed(";"), {"named": ";"}),
    "tsv by numbers": (".tsv", bare("\t"), {"numbered": True}),
    "tsv with a header": (".tsv", headed("\t"), {"named": "\t"}),
    "objects": (".jsonl", jsonl, {}),
    "packed objects": (".jsonl.gz", jsonl, {}),
    "a packed table": (".csv.gz", headed(","), {"named": ","}),
    "lines": (".txt", lines(), {}),
    "lines with blank ones": (".txt", lines("\n\n"), {"twice": True}),
    "lines of a table": (".csv", lines(), {"format": "lines"}),
}
TEXT_TASKS = [task for task in ROLES if task != "tag"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    found = {}
    for task in ROLES:
        folder = tmp_path_factory.mktemp(task)
        one = ready(task, folder, {"text.context": "sentence"} if task == "lm" else {})
        descend(one, 5)
        found[task] = save(one, folder / "run")
    return found


def write(folder, task, layout):
    ending, make, how = LAYOUTS[layout]
    path = folder / f"asked{ending}"
    text = make(task)
    if ending.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    role = ROLES[task][0]
    options = ["--format", how["format"]] if "format" in how else []
    options += ["--columns", f"{role}={role}"] if how.get("named") else []
    options += ["--columns", f"{role}=1"] if how.get("numbered") else []
    return path, options, len(TEXTS[task]) * (1 + ("twice" in how)), text


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("task", TEXT_TASKS)
def test_as_many_answers_as_records(task, layout, runs, tmp_path):
    if task == "class2seq" and layout == "lines with blank ones":
        pytest.skip("a blank line is no class, which is an error")
    path, options, count, _ = write(tmp_path, task, layout)
    code, out, err = elman("predict", runs[task], path, *options)
    assert code == 0, err
    assert out.count("\n") == count
    if layout != "lines with blank ones":
        assert out == elman("predict", runs[task], stdin=lines()(task).encode()).out
    if task == "lm":
        code, out, err = elman("score", runs[task], path, *options)
        assert (code, out.count("\n")) == (0, count), err


def read_table(text, delimiter):
    return list(csv.reader(io.StringIO(text), delimiter=delimiter))


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("task", ["classify", "seq2seq"])
def test_the_file_comes_back_with_columns(task, layout, ending, runs, tmp_path):
    path, options, count, text = write(tmp_path, task, layout)
    output = tmp_path / f"answers{ending}"
    code, out, err = elman("predict", runs[task], path, *options, "--output", output)
    assert (code, out) == (0, ""), err
    answers = elman("predict", runs[task], path, *options).out.split("\n")[:-1]
    found = output.read_text(encoding="utf-8")
    if ending == ".jsonl":
        objects = [json.loads(line) for line in found.split("\n")[:-1]]
        assert [one["prediction"] for one in objects] == answers
        if layout.endswith("objects"):
            old = [json.loads(line) for line in text.split("\n")[:-1]]
            assert [{key: one[key] for key in old[0]} for one in objects] == old
        return
    rows = read_table(found, "," if ending == ".csv" else "\t")
    head = [] if LAYOUTS[layout][2].get("numbered") else rows.pop(0)
    assert [row[-2] for row in rows] == answers
    assert len(rows) == count
    assert not head or head[-2:] == ["prediction", "confidence"]
    if delimiter := LAYOUTS[layout][2].get("named"):
        assert [head[:-2], *(row[:-2] for row in rows)] == read_table(text, delimiter)
    assert all(not row[-1] or 0 <= float(row[-1]) <= 1 for row in rows)


CONLL = "# a comment\nthe\tX\ncat\tX\n\n-DOCSTART- X\n\n#\tX\nruns\tX\n\n\n"


WORDS = "the\ncat\n\n#\nruns\n"
CONLLU = """# text = the cats
1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_
1\tthe\t_\t_\t_\t_\t_\t_\t_\tA=1
2\tcats\t_\tX\t_\t_\t_\t_\t_\t_

"""


@pytest.mark.parametrize(("name", "data"), [("a.conll", CONLL), ("a.iob2", CONLL), ("a.conll", WORDS)])
def test_a_column_file_is_answered_by_the_sentence(name, data, runs, tmp_path):
    path, output = tmp_path / name, tmp_path / "out.conll"
    path.write_text(data)
    code, out, err = elman("predict", runs["tag"], path)
    assert code == 0, err
    tags = [line.split(" ") for line in out.split("\n")[:-1]]
    assert [len(line) for line in tags] == [2, 2]
    assert elman("predict", runs["tag"], path, "--output", output).code == 0
    lines = [line for line in output.read_text().split("\n") if line and not line.startswith("# ")]
    words = ["the", "cat", "#", "runs"]
    split = [line.split("\t") for line in lines]
    assert [cells[0] for cells in split] == words
    assert [cells[-2] for cells in split] == [tag for line in tags for tag in line]


def test_conllu_keeps_all_and_says_more(runs, tmp_path):
    path, output = tmp_path / "a.conllu", tmp_path / "out.conllu"
    path.write_text(CONLLU)
    assert elman("predict", runs["tag"], path, "--output", output).code == 0
    old, new = path.read_text().split("\n"), output.read_text().split("\n")
    first, second = (line.split("\t") for line in new[2:4])
    assert first[3] in ("DET", "NOUN", "VERB", "ADV")  # there was none
    assert first[9].startswith("A=1|Confidence=")
    assert second[3] == "X"
    assert second[9].startswith("Prediction=")
    new[2] = "\t".join([*first[:3], "_", *first[4:9], "A=1"])
    new[3] = "\t".join([*second[:9], "_"])
    assert new[:5] == old[:5]


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".conll"])
def test_objects_of_words_are_answered_by_the_sentence(ending, runs, tmp_path):
    path, output = tmp_path / "a.jsonl", tmp_path / f"out{ending}"
    path.write_text(
        '{"id": 7, "words": ["the", "\\"cat\\""]}\n{"words": []}\n{"words": ["New York"], "id": 0}\n'
    )
    code, out, err = elman("predict", runs["tag"], path)
    assert code == 0, err
    tags = [line.split() for line in out.split("\n")[:-1]]
    assert [len(line) for line in tags] == [2, 0, 1]
    assert elman("predict", runs["tag"], path, "--output", output).code == 0
    found = output.read_text()
    if ending == ".jsonl":
        objects = [json.loads(line) for line in found.split("\n")[:-1]]
        assert objects[0]["id"] == 7
        assert [one["prediction"] for one in objects] == tags
    elif ending == ".csv":
        assert [row[:2] for row in read_table(found, ",")][:2] == [
            ["id", "words"],
            ["7", json.dumps(["the", '"cat"'])],
        ]
    else:
        assert [line.split("\t")[0] for line in found.split("\n") if line] == ["the", '"cat"', "New York"]


def test_the_best_of_several(runs):
    line = elman("predict", runs["classify"], "--top", "2", stdin=b"a good one\n").out
    found = [part.rsplit(" ", 1) for part in line.strip().split("\t")]
    assert len(found) == 2
    assert float(found[0][1]) >= float(found[1][1])
    assert sum(float(chance) for _, chance in found) <= 1.00001
    written = elman("predict", runs["seq2seq"], "--top", "3", stdin=TEXTS["seq2seq"][0].encode()).out
    assert written.count("\t") == 2


def test_the_best_tags_of_each_word(runs, tmp_path):
    known = {"DET", "NOUN", "VERB", "ADV"}
    [best] = elman("predict", runs["tag"], "--top", "2", "--json", stdin=b"the cat runs\n").out.splitlines()
    found = json.loads(best)
    assert [word[0]["tag"] for word in found["alternatives"]] == found["prediction"]
    line = elman("predict", runs["tag"], "--top", "9", stdin=b"the cat runs\n").out
    for word, tag in zip(line.rstrip("\n").split("\t"), found["prediction"], strict=True):
        cells = word.split(" ")
        assert (cells[0], set(cells[::2])) == (tag, known)
        assert abs(sum(map(float, cells[1::2])) - 1) < 1e-4
    path, output = tmp_path / "a.conll", tmp_path / "out.conll"
    path.write_text("the\ncat\n\nruns\n")
    assert elman("predict", runs["tag"], path, "--top", "3", "--output", output).code == 0
    assert [line.count("\t") for line in output.read_text().splitlines()] == [6, 6, 0, 6, 0]


def test_what_was_read_before_a_mistake_is_answered(runs, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\ngood,x\nbad,y\nbroken\n")
    code, out, err = elman("predict", runs["classify"], path)
    assert (code, out.count("\n")) == (3, 2)
    assert "a.csv:4" in err
    code, _, err = elman("predict", runs["classify"], path, "--output", tmp_path / "out.csv")
    assert code == 3
    assert not (tmp_path / "out.csv").exists()


PEAKS = """
import resource, sys
from elman.cli.main import run
for name in ("few", "many"):
    given, output = (f"{folder}/{{one}}{ending}" for one in (name, "out"))
    sys.argv = ["elman", "predict", {run!r}, given, "--output", output]
    try:
        run()
    except SystemExit as end:
        assert not end.code
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("task", "ending"), [("classify", ".csv"), ("tag", ".conll"), ("lm", ".jsonl")])
def test_memory_does_not_grow_with_the_file(task, ending, runs, tmp_path):
    """Four times as many records, each with a word of its own, need no more than a few buffers."""
    line = {
        ".csv": "word{} a dog,{}",
        ".conll": "word{}\tX\ndog{}\tX\n",
        ".jsonl": '{{"text": "word{}", "n": {}}}',
    }
    for name, count in (("few", 10_000), ("many", 40_000)):
        rows = (line[ending].format(number, number) + "\n" for number in range(count))
        head = "text,n\n" if ending == ".csv" else ""
        (tmp_path / f"{name}{ending}").write_text(head + "".join(rows), encoding="utf-8")
    code = PEAKS.format(run=str(runs[task]), folder=tmp_path, ending=ending)
    few, many = map(int, python(code, OMP_NUM_THREADS="1").split())
    assert many - few < 14_000  # KiB; to keep all records takes 20,000 and more


def test_a_table_with_commas_on_standard_input(runs):
    given = b'text,label\n"a good, old one",x\n'
    code, out, err = elman("predict", runs["classify"], "--format", "delimited", stdin=given)
    assert (code, out.count("\n")) == (0, 1), err
    assert "--delimiter comma is taken for granted" in err


def test_line_ends_inside_cells_stay_inside_them(runs, tmp_path):
    path, output = tmp_path / "a.csv", tmp_path / "out.csv"
    path.write_text('text;label\n"two\nlines";x\n"a ""good"" one; so";y\n')
    assert elman("predict", runs["classify"], path, "--output", output).code == 0
    _, *rows = read_table(output.read_text(), ",")
    assert [row[:2] for row in rows] == [["two\nlines", "x"], ['a "good" one; so', "y"]]


def test_a_table_in_which_nobody_can_tell_what_is_asked_is_refused(runs, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,kind,comment\n0,x,a good one\n")
    for command in ("predict", "evaluate"):
        answer = elman(command, runs["classify"], path)
        assert (answer.code, answer.out, "E405" in answer.err) == (3, "", True)
    assert elman("predict", runs["classify"], path, "--columns", "text=comment").out.count("\n") == 1


def test_spans_are_for_taggers(runs):
    answer = elman("predict", runs["classify"], "--spans", stdin=b"a\n")
    assert (answer.code, "--spans is for taggers" in answer.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", 'id,body\n1,"the dog, a"\n2,\n'),
        ("a.jsonl", '{"id": 1, "body": "the dog, a"}\n{"id": 2, "body": ""}\n'),
    ],
)
def test_a_tagger_reads_a_column_of_texts(name, text, runs, tmp_path):
    (tmp_path / name).write_text(text)
    code, out, err = elman("predict", runs["tag"], tmp_path / name, "--columns", "text=body", "--json")
    assert code == 0, err
    assert [json.loads(line)["words"] for line in out.splitlines()] == [["the", "dog,", "a"], []]
    output = tmp_path / "out.csv"
    assert (
        elman("predict", runs["tag"], tmp_path / name, "--columns", "text=body", "--output", output).code == 0
    )
    assert [row[0] for row in read_table(output.read_text(), ",")] == ["id", "1", "2"]


def test_quotes_between_tabs_are_told_of(runs, tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('"he said ""good"" twice"\tx\n')
    answer = elman("predict", runs["classify"], path)
    assert (answer.code, "between tabs quotes are letters" in answer.err) == (0, True), answer.err
