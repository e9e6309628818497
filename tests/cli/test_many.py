"""More than one of something: files to train on, labels of a text, labels that training never saw."""

import csv
import io
import json

import pytest

from elman.text.files import file_digest
from elman.training.settings import make_task, settings_class
from elman.training.sources import Reading
from tiny import elman

SMALL = ["--set", "model.hidden=4", "--set", "training.max_steps=2", "--set", "training.threads=1"]
NO_DEV = [*SMALL, "--set", "data.held_out=0"]
ROWS = [("red ball", "red|round"), ("blue box", "blue"), ("grey stone", ""), ("blue ball", "blue|round")]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def train(*options):
    answer = elman("train", "classify", *options)
    assert answer.code == 0, answer.err
    return answer.err


@pytest.fixture
def files(tmp_path):
    """Two tables and an object a line, in a folder that also has what nobody means."""
    write(tmp_path / "all/b.tsv", "a dog\tanimal\na cat\tanimal\n")
    write(tmp_path / "all/a.csv", "text,label\na stone,thing\n")
    write(tmp_path / "all/deep/c.jsonl", '{"text": "a chair", "label": "thing"}\n')
    write(tmp_path / "all/.hidden", "nothing")
    return tmp_path


@pytest.mark.parametrize(
    "names",
    [["all"], ["all/*.*", "all/deep/c.jsonl"], ["all/a.csv", "all/b.tsv", "all/deep"], ["all/**/*.*"]],
)
def test_files_patterns_and_folders_in_a_fixed_order(names, files):
    options = [word for name in names for word in ("--train", files / name)]
    err = train(*options, "--out", files / "run", *NO_DEV)
    counts = {str(files / "all" / name): n for name, n in (("a.csv", 1), ("b.tsv", 2), ("deep/c.jsonl", 1))}
    told = json.loads((files / "run" / "data.json").read_text())["train"]
    assert told["files"] == counts
    assert list(told["files"]) == sorted(counts)
    assert f"train: 4 examples from {files / 'all/a.csv'} and 2 more" in err
    assert f"  {files / 'all/b.tsv'}: 2\n" in err
    again = elman("train", "classify", *options, "--out", files / "run", "--resume", *NO_DEV)
    assert (again.code, "has ended already" in again.err) == (0, True), again.err


def test_files_in_the_order_in_which_they_are_named(files):
    for run, names in (("one", ("all/b.tsv", "all/a.csv")), ("two", ("all/a.csv", "all/b.tsv"))):
        train(*(word for name in names for word in ("--train", files / name)), "--out", files / run, *NO_DEV)
    told = [json.loads((files / run / "data.json").read_text())["train"] for run in ("one", "two")]
    assert [list(one["files"].values()) for one in told] == [[2, 1], [1, 2]]
    assert told[0]["sha256"] != told[1]["sha256"]


def test_a_changed_file_of_several_changes_what_identifies_them(files):
    task = make_task(settings_class("classify")(task="classify"))
    reading = Reading(task, [(str(files / "all/a.csv"), None), (str(files / "all/b.tsv"), None)])
    before = reading.digest()
    write(files / "all/b.tsv", "a dog\tanimal\n")
    assert reading.digest() != before
    assert Reading(task, reading.files[:1]).digest() == file_digest(files / "all/a.csv")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--train", "{}/all/*.txt"], "E411: there is no file"),
        (["--train", "{}/all/b.tsv", "--train", "{}/all"], "is named twice"),
        (["--train", "{}/all/b.tsv", "--train", "{}/all/../all/b.tsv"], "is named twice"),
        (["--train", "{}/all/b.tsv", "--train", "builtin:topics"], "it stands alone"),
        (["--train", "{}/all", "--train-target", "{}/all/b.tsv"], "are 3 and 1 files"),
    ],
)
def test_files_that_cannot_be_meant(options, said, files):
    answer = elman("train", "classify", *(one.format(files) for one in options), "--out", files / "run")
    assert answer.code in (2, 3)
    assert said.removeprefix("E411: ") in answer.err
    assert not (files / "run").exists()


def test_an_unseen_label_does_not_end_an_evaluation(files):
    run, dev = files / "run", write(files / "dev.tsv", "a dog\tanimal\na song\tsound\n")
    err = train("--train", files / "all", "--dev", dev, "--out", run, *SMALL)
    assert "1 label that training never saw counts as wrong: 'sound' (1)" in err
    answer = elman("evaluate", run, dev)
    assert answer.code == 0, answer.err
    assert "1 label that training never saw counts as wrong: 'sound' (1)" in answer.out
    assert json.loads(elman("evaluate", run, dev, "--json").out)["unseen"] == {"sound": 1}


def test_a_run_holds_out_of_every_label_and_keeps_how(tmp_path):
    lines = "".join(f"word {n}\t{'a' if n < 90 else 'b'}\n" for n in range(100))
    train("--train", write(tmp_path / "a.tsv", lines), "--out", tmp_path / "run", *SMALL)
    data = json.loads((tmp_path / "run" / "data.json").read_text())
    assert (data["train"]["examples"], data["dev"]["examples"]) == (90, 10)
    assert "stratified = true" in (tmp_path / "run" / "config.toml").read_text()


def test_several_labels_from_a_table_and_from_lists(tmp_path):
    table = write(tmp_path / "a.tsv", "".join(f"{text}\t{labels}\n" for text, labels in ROWS))
    listed = [{"text": text, "label": [one for one in labels.split("|") if one]} for text, labels in ROWS]
    objects = write(tmp_path / "b.jsonl", "".join(f"{json.dumps(one)}\n" for one in listed))
    train("--train", table, "--labels-separator", "|", "--out", tmp_path / "a", *NO_DEV)
    train("--train", objects, "--out", tmp_path / "b", *NO_DEV)
    assert (
        elman("predict", tmp_path / "a", table, "--json").out
        == elman("predict", tmp_path / "b", objects, "--json").out
    )
    figures = [elman("evaluate", tmp_path / name, file).out for name, file in (("a", table), ("b", objects))]
    assert figures[0] == figures[1]
    assert "micro_f1" in figures[0]
    assert "all labels" in figures[0]
    output = tmp_path / "out.jsonl"
    assert elman("predict", tmp_path / "b", objects, "--output", output).code == 0
    answered = [json.loads(line) for line in output.read_text().splitlines()]
    assert [{key: one[key] for key in ("text", "label")} for one in answered] == listed
    assert all(isinstance(one["prediction"], list) for one in answered)


def test_one_label_in_every_list_is_one_label_a_text(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": ["x"]}\n{"text": "b", "label": ["y"]}\n')
    train("--train", path, "--out", tmp_path / "run", *NO_DEV)
    assert "multilabel = false" in (tmp_path / "run" / "config.toml").read_text()


def test_threads_batch_and_device_of_every_command_that_uses_a_run(files):
    run, path = files / "run", files / "all/b.tsv"
    train("--train", files / "all", "--out", run, *NO_DEV)
    same = elman("predict", run, path).out
    assert elman("predict", run, path, "--threads", "1", "--batch", "1").out == same
    assert elman("evaluate", run, path, "--threads", "2", "--batch", "1", "--json").code == 0
    for command in (["predict", run, path], ["evaluate", run, path], ["score", run, path], ["generate", run]):
        answer = elman(*command, "--device", "cuda:7")
        assert (answer.code, "device is 'cuda:7'" in answer.err) == (2, True)


def test_the_best_labels_beside_a_set_of_them(tmp_path):
    table = write(tmp_path / "a.tsv", "".join(f"{text}\t{labels}\n" for text, labels in ROWS))
    train("--train", table, "--labels-separator", "|", "--out", tmp_path / "run", *NO_DEV)
    for ending, read in ((".csv", lambda text: [*csv.DictReader(io.StringIO(text))]), (".jsonl", objects)):
        output = tmp_path / f"out{ending}"
        lines = write(tmp_path / "b.txt", "red ball\n\n")
        assert elman("predict", tmp_path / "run", lines, "--top", "2", "--output", output).code == 0
        first, empty = read(output.read_text())
        assert {first["label_1"], first["label_2"]} < {"red", "blue", "round"}
        assert float(first["probability_1"]) >= float(first["probability_2"]) > 0
        assert "prediction_2" not in first
        assert not empty["prediction"]


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def test_validation_data_without_a_known_label_are_refused(files):
    dev = write(files / "dev.tsv", "a song\tsound\n")
    answer = elman(
        "train", "classify", "--train", files / "all", "--dev", dev, "--out", files / "run", *SMALL
    )
    assert (answer.code, "no label is one of the training data" in answer.err) == (3, True)


def test_a_lone_text_with_several_labels_decides_wherever_it_stands(tmp_path):
    rows = [{"text": f"word{n}", "label": "ab"[n % 2]} for n in range(40)]
    for place in range(0, 40, 9):
        own = [*rows[:place], {"text": "both", "label": ["a", "b"]}, *rows[place:]]
        path = write(tmp_path / f"{place}.jsonl", "".join(f"{json.dumps(one)}\n" for one in own))
        train("--train", path, "--out", tmp_path / f"run{place}", *SMALL)
        assert "multilabel = true" in (tmp_path / f"run{place}" / "config.toml").read_text()


def test_numbers_of_columns_are_those_of_one_kind_of_file(tmp_path):
    """The words of CoNLL-U are its forms, wherever they stood in what was trained on."""
    path = write(tmp_path / "a.conll", "The\tx\tDET\ndog\ty\tNOUN\n\nA\tx\tDET\ncat\ty\tNOUN\n")
    options = ["--columns", "word=0,tag=2", "--out", tmp_path / "run", *NO_DEV]
    assert elman("train", "tag", "--train", path, *options).code == 0
    lines = "".join(f"{n}\t{word}\t_\tX\t_\t_\t0\t_\t_\t_\n" for n, word in enumerate(("The", "dog"), 1))
    trees = write(tmp_path / "b.conllu", f"{lines}\n")
    answer = json.loads(elman("predict", tmp_path / "run", trees, "--json").out)
    assert answer["words"] == ["The", "dog"]


def test_a_folder_is_evaluated_as_its_files_together(files):
    run = files / "run"
    train("--train", files / "all", "--out", run, *NO_DEV)
    assert json.loads(elman("evaluate", run, files / "all", "--json").out)["examples"] == 4


def test_a_separator_of_labels_in_evaluation(tmp_path):
    listed = [{"text": text, "label": [one for one in labels.split("|") if one]} for text, labels in ROWS]
    objects = write(tmp_path / "b.jsonl", "".join(f"{json.dumps(one)}\n" for one in listed))
    train("--train", objects, "--out", tmp_path / "run", *NO_DEV)
    table = write(tmp_path / "a.tsv", "".join(f"{text}\t{labels}\n" for text, labels in ROWS))
    figures = elman("evaluate", tmp_path / "run", table, "--labels-separator", "|", "--json").out
    assert figures == elman("evaluate", tmp_path / "run", objects, "--json").out


def test_a_run_that_is_there_asks_for_resume(files):
    train("--train", files / "all", "--out", files / "run", *NO_DEV)
    answer = elman("train", "--out", files / "run")
    assert (answer.code, "add --resume to continue it" in answer.err) == (2, True)


def test_lines_of_fasttext_are_told_how_to_read_them(tmp_path):
    path = write(tmp_path / "a.txt", "__label__x some words\n__label__y other words\n")
    answer = elman("train", "classify", "--train", path, "--out", tmp_path / "run", *NO_DEV)
    assert "say --delimiter space --columns label=0,text=1" in answer.err
    options = ["--delimiter", "space", "--columns", "label=0,text=1"]
    train("--train", path, "--out", tmp_path / "run", *options, *NO_DEV)
