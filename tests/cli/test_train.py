"""``elman train``: settings from everywhere, dry runs, comparators, and what it refuses."""

import json
import sys
from pathlib import Path

import pytest

from elman.cli.training import collect
from elman.config import ModelSettings, has_key, read_toml
from elman.errors import UnknownNameError
from elman.registry import NETWORKS, TASKS
from elman.training.run import begin
from elman.training.session import run_lock
from elman.training.settings import settings_class
from tiny import elman
from tiny_tasks import DATA

QUICK = {
    "data.held_out": 0,
    "model.hidden": 4,
    "model.embedding": 3,
    "training.max_steps": 3,
    "training.threads": 1,
    "decoding.max_length": 5,
}
OWN = {
    "lm": {"text.min_count": 1},
    "tag": {"model.characters": 2},
    "classify": {},
    "class2seq": {},
    "seq2seq": {},
}


def pairs(task, **more):
    quick = {key: value for key, value in QUICK.items() if has_key(settings_class(task), key)}
    return [word for key, value in (quick | OWN[task] | more).items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def files(tmp_path):
    return {task: write(tmp_path / f"{task}.txt", text) for task, text in DATA.items()}


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("task", TASKS.names())
def test_a_run_and_what_it_leaves(task, files, tmp_path):
    run = tmp_path / "run"
    code, out, err = elman("train", task, "--train", files[task], "--out", run, "--json", *pairs(task))
    assert code == 0, err
    [line] = out.splitlines()  # the data; all talk is on stderr
    last = json.loads(line)
    assert last["event"] == "end"
    assert last["update"] == 3
    for talk in ("train: ", "dev: ", "network: ", "training: 3 updates", "use it: elman predict"):
        assert talk in err
    for name in ("config.toml", "vocabulary.json", "metrics.jsonl", "data.json", "report.html", "card.md"):
        assert (run / name).is_file(), name
    assert (run / "best").exists()
    assert (run / "last").exists()
    written = read_toml(run / "config.toml")
    assert written["model"]["hidden"] == 4
    assert written["training"]["learning_rate"] > 0  # what was open is settled
    code, out, err = elman("train", task, "--train", files[task], "--out", run, *pairs(task))
    assert (code, out) == (2, "")
    assert "is there already; continue it with --resume" in err
    for words in ([], [task, "--train", files[task], *pairs(task)]):  # said again, or left out
        code, out, err = elman("train", *words, "--out", run, "--resume")
        assert (code, out) == (0, ""), err
    code, out, err = elman(
        "train", task, "--train", files[task], "--out", run, "--resume", "--set", "model.hidden=9"
    )
    assert (code, out) == (2, "")
    assert "a continued run keeps its settings\n  model.hidden is 9, the run has 4\n" in err


@pytest.mark.parametrize("task", TASKS.names())
def test_a_dry_run_creates_nothing(task, files, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    run = tmp_path / "run"
    code, out, err = elman("train", task, "--train", files[task], "--dry-run", "--out", run, *pairs(task))
    assert (code, out) == (0, ""), err
    for talk in ("memory of weights", "first batch: ", "time: about ", "chosen, since you ", "parameters"):
        assert talk in err
    assert sorted(tmp_path.rglob("*")) == before
    code, out, err = elman("train", task, "--train", files[task], "--dry-run", "--json", *pairs(task))
    assert code == 0
    figures = json.loads(out)
    assert figures["parameters"] > 0
    assert figures["updates"] == 3
    assert figures["config"]["model"]["hidden"] == 4
    assert figures["examples"] > 0


def test_a_dry_run_of_nothing_does_not_train(tmp_path):
    code, out, err = elman("train", "--dry-run", "--resume", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert "Name a task and --train" in " ".join(err.split())


@pytest.mark.parametrize(
    ("task", "baseline"),
    [(t, b) for t in ("lm", "tag", "classify") for b in ("ngram", "window", "bag")]
    + [("class2seq", "ngram")],
)
def test_comparators(task, baseline, files, tmp_path):
    run = tmp_path / "run"
    words = ("--train", files[task], "--out", run, "--baseline", baseline)
    code, out, err = elman("train", task, *words, *pairs(task))
    assert (code, out) == (0, ""), err
    assert f"network: {baseline}" in err
    assert read_toml(run / "config.toml")["model"]["network"] == baseline
    code, out, _ = elman("evaluate", run, files[task], "--json")
    assert code == 0
    assert json.loads(out)["loss"] > 0


def test_settings_of_file_and_command_line(files, tmp_path):
    config = write(
        tmp_path / "my.toml",
        f'task = "classify"\n[data]\ntrain = "{files["classify"]}"\n[model]\ncell = "gru"\nhidden = 7\n',
    )
    code, out, err = elman(
        "train", "--config", config, "--dry-run", "--json", "--set", "model.hidden=3",
        "--set", "training.max_steps=1", "--set", "data.held_out=0",
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)["config"]
    assert (found["task"], found["model"]["cell"], found["model"]["hidden"]) == ("classify", "gru", 3)
    code, _, err = elman("train", "lm", "--config", config, "--dry-run")
    assert code == 2
    assert "is for the task 'classify', the command line says 'lm'" in err


def test_settings_that_suit_a_corpus():
    code, out, err = elman(
        "train", "class2seq", "--train", "builtin:worked_example", "--dry-run", "--json", *pairs("class2seq")
    )
    assert code == 0, err
    assert json.loads(out)["config"]["text"]["vocabulary"][:3] == ["allowed", "always", "and"]


def test_columns_and_delimiter(tmp_path):
    data = write(tmp_path / "data.csv", 'x,"a b, c",animal\ny,d e,thing\nz,a b,animal\nw,e,thing\n')
    code, out, err = elman(
        "train", "classify", "--train", data, "--columns", "text=1,label=2", "--delimiter", "comma",
        "--dry-run", "--json", *pairs("classify"),
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["config"]["data"]["columns"] == {"text": 1, "label": 2}


SCAN = (
    "IN: jump OUT: I_JUMP\nIN: walk twice OUT: I_WALK I_WALK\nIN: run left OUT: I_TURN_LEFT I_RUN\n"
    "IN: jump twice OUT: I_JUMP I_JUMP\nIN: walk left OUT: I_TURN_LEFT I_WALK\n"
)


@pytest.mark.slow
def test_separator_and_prefix_E8(tmp_path):
    """Lines of two sides are learned, and the file is read again in the same way."""
    data, run = write(tmp_path / "scan.txt", SCAN), tmp_path / "run"
    layout = ("--separator", " OUT: ", "--prefix", "IN: ")
    learned = {"model.hidden": 16, "training.max_steps": 120, "training.learning_rate": 0.02}
    learned |= {"model.dropout": 0.0, "model.tied": False, "training.label_smoothing": 0.0}
    code, _, err = elman(
        "train", "seq2seq", "--train", data, *layout, "--out", run, *pairs("seq2seq", **learned)
    )
    assert code == 0, err
    assert read_toml(run / "config.toml")["data"]["separator"] == " OUT: "
    assert elman("predict", run, stdin=b"jump twice\nrun left\n").out == "I_JUMP I_JUMP\nI_TURN_LEFT I_RUN\n"
    figures = json.loads(elman("evaluate", run, data, "--json").out)
    assert (figures["examples"], figures["exact_match"]) == (5, 1.0)
    code, _, err = elman("evaluate", run, write(tmp_path / "other.txt", "IN: jump -> I_JUMP\n"))
    assert code == 3
    assert "other.txt:1:19: E405: no separator ' OUT: '" in err


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        (
            {"model.attention": "bilinear", "model.layers": 2},
            [
                "start of the decoder, layer 0: transform of source layer 0, 2 × (h, c) → 1 × (h, c) of",
                "start of the decoder, layer 1: transform of source layer 1, 2 × (h, c) → 1 × (h, c) of",
                "attention: bilinear",
            ],
        ),
        (
            {"model.attention": "none", "model.start": "copy", "model.decoder.cell": "gru"},
            ["start of the decoder, layer 0: copy of source layer 0, 2 × (h, c) → 1 × (h) of width 4"],
        ),
    ],
    ids=["transform", "copy"],
)
def test_a_dry_run_tells_how_the_decoder_starts_E2(settings, lines, files):
    words = ("train", "seq2seq", "--train", files["seq2seq"], "--dry-run", *pairs("seq2seq", **settings))
    code, out, err = elman(*words)
    assert (code, out) == (0, ""), err
    for line in lines:
        assert f"\n  {line}" in err
    assert ("attention:" in err) == (settings["model.attention"] != "none")
    assert "network: lstm 4" in err
    assert ("→ gru 4" in err) == ("model.decoder.cell" in settings)


WRONG = {
    "separator and a second file": (
        [
            "train",
            "seq2seq",
            "--train",
            "{lm}",
            "--train-target",
            "{tag}",
            "--separator",
            "x",
            "--out",
            "{run}",
        ],
        2,
        "and a second file; leave out one of them",
    ),
    "columns and a second file": (
        [
            "train",
            "seq2seq",
            "--train",
            "{lm}",
            "--train-target",
            "{lm}",
            "--columns",
            "source=0,target=0",
            "--out",
            "{run}",
        ],
        2,
        "is a second file, which data.columns does not fit; leave out one of them",
    ),
    "prefix alone": (
        ["train", "seq2seq", "--train", "{lm}", "--prefix", "x", "--out", "{run}"],
        2,
        "but there is no separator",
    ),
    "a baseline of two networks": (
        ["train", "seq2seq", "--train", "{seq2seq}", "--baseline", "ngram", "--out", "{run}"],
        2,
        "no comparator without recurrence",
    ),
    "no task": (["train", "--train", "{lm}", "--out", "{run}"], 2, "no task; name one"),
    "unknown task": (
        ["train", "translate", "--train", "{lm}", "--out", "{run}"],
        2,
        "no task named 'translate'",
    ),
    "no data": (["train", "lm", "--out", "{run}"], 2, "no training data; name a file with --train"),
    "no such file": (
        ["train", "lm", "--train", "{run}/no.txt", "--out", "{run}"],
        3,
        "there is no such file",
    ),
    "no folder": (["train", "lm", "--train", "{lm}"], 2, "--out"),
    "unknown key": (
        ["train", "lm", "--train", "{lm}", "--out", "{run}", "--set", "model.hiden=3"],
        2,
        "model.hiden is unknown; did you mean 'hidden'?",
    ),
    "no pair": (
        ["train", "lm", "--train", "{lm}", "--out", "{run}", "--set", "hidden"],
        2,
        "is not key=value",
    ),
    "unknown baseline": (
        ["train", "lm", "--train", "{lm}", "--out", "{run}", "--baseline", "transformer"],
        2,
        "model.network: no network named 'transformer'",
    ),
    "both directions": (
        ["train", "lm", "--train", "{lm}", "--out", "{run}", "--set", "model.bidirectional=true"],
        2,
        "reads in one direction",
    ),
    "unknown corpus": (["train", "lm", "--train", "builtin:x", "--out", "{run}"], 2, "no corpus named 'x'"),
    "corpus of another task": (
        ["train", "lm", "--train", "builtin:worked_example", "--out", "{run}"],
        2,
        "is a corpus for the task 'class2seq'",
    ),
    "nothing to resume": (["train", "--out", "{run}", "--resume"], 2, "holds nothing to resume"),
    "settings of a resumed run": (
        ["train", "--out", "{run}", "--resume", "--set", "model.hidden=3"],
        2,
        "a continued run keeps its settings",
    ),
    "unknown option": (["train", "lm", "--trane", "x"], 2, "No such option"),
    "bad columns": (
        ["train", "classify", "--train", "{lm}", "--out", "{run}", "--set", "data.held_out=0"],
        3,
        "lm.txt:1",
    ),
    "unbalanced": (
        ["train", "tag", "--train", "{lm}", "--train-target", "{tag}", "--out", "{run}"],
        3,
        "E408",
    ),
    "another task": (
        ["train", "lm", "--train", "{lm}", "--out", "{run}", "--set", "task=tag"],
        2,
        "--set says the task 'tag', not 'lm'",
    ),
    "standard input": (["train", "classify", "--train", "-", "--out", "{run}"], 3, "can be read only once"),
    "bad bytes": (["train", "lm", "--train", "{latin}", "--out", "{run}"], 3, "latin.txt:2:2: E403"),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_one_line_with_an_exit_code(case, files, tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"a b\na\xe9\n")
    words, expected, message = WRONG[case]
    places = {**files, "run": tmp_path / "run", "latin": tmp_path / "latin.txt"}
    code, out, err = elman(*(word.format(**places) for word in words))
    assert (code, out) == (expected, "")
    assert message in " ".join(err.replace("│", " ").split()), err
    assert "Traceback" not in err


def test_the_network_in_a_few_words():
    def shown(**settings):
        model = ModelSettings(**settings)
        return NETWORKS.find(model.network).summary(model.network, model)

    assert shown(hidden=4, layers=2, bidirectional=True) == "lstm 4 × 2, both directions"
    assert shown(cell="gru", hidden=[4, 6], layers=2) == "gru 4 + 6"
    assert shown(network="bag", hidden=4, layers=1) == "bag 4"
    assert shown(network="ngram", hidden=4) == "ngram, counted"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('data = "a.tsv"', r"data is 'a.tsv': input should be a valid dictionary"),
        ("[[data]]", "data is [{}]: input should be a valid dictionary"),
        ("[data]\ntrain = [3]", "data.train[0] is 3"),
        ("[data]\ntrain = []", "data.train is []"),
    ],
)
def test_data_that_is_no_name_of_a_file(text, said, tmp_path):
    config = write(tmp_path / "a.toml", f'task = "classify"\n{text}\n')
    code, out, err = elman("train", "--config", config, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert said in err


def test_a_mistake_in_the_name_of_a_corpus_lists_those_of_the_task():
    with pytest.raises(UnknownNameError, match=r"no corpus named 'reverses'; did you mean 'reverse'.*dates"):
        collect("seq2seq", None, {"train": "builtin:reverses"}, None, [], None)
    with pytest.raises(UnknownNameError, match=r"no corpus named 'reverses'; Known: python_tokens$"):
        collect("tag", None, {"train": "builtin:reverses"}, None, [], None)


def test_a_corpus_brings_its_settings_wherever_it_is_named(tmp_path):
    settings = ["--set", "data.train=builtin:worked_example", *pairs("class2seq")]
    assert elman("train", "class2seq", "--out", tmp_path / "run", *settings).code == 0
    assert read_toml(tmp_path / "run" / "config.toml")["text"]["end"] == "<end>"


def test_a_failed_start_leaves_the_folder_free(tmp_path):
    path, run = tmp_path / "a.tsv", tmp_path / "run"
    path.write_text("good\tpos\nbad\n", encoding="utf-8")
    command = ["train", "classify", "--train", path, "--out", run]
    settings = ["--set", "training.max_steps=2", "--set", "training.threads=1"]
    assert elman(*command, *settings).code == 3
    assert not run.exists()
    path.write_text("good\tpos\nbad\tneg\n", encoding="utf-8")
    answer = elman(*command, *settings, "--set", "model.cell=lsmt")  # found when the network is built
    assert (answer.code, run.exists()) == (2, False), answer.err
    assert elman(*command, *settings).code == 0
    assert (run / "report.html").is_file()


def test_without_tensorboard_nothing_begins(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    run = tmp_path / "run"
    answer = elman("train", "lm", "--train", files["lm"], "--out", run, "--tensorboard", *pairs("lm"))
    assert (answer.code, run.exists()) == (2, False), answer.err


def test_a_folder_with_a_space_is_said_as_a_shell_takes_it(files, tmp_path):
    run = tmp_path / "my run"
    answer = elman("train", "lm", "--train", files["lm"], "--out", run, *pairs("lm"))
    assert f"use it: elman predict '{run}' · elman evaluate '{run}' FILE" in answer.err


def test_a_failed_start_empties_a_folder_that_it_cannot_remove(tmp_path):
    path, folder, link = tmp_path / "a.tsv", tmp_path / "folder", tmp_path / "link"
    path.write_text("good\n", encoding="utf-8")
    folder.mkdir()
    link.symlink_to(folder)
    answer = elman("train", "classify", "--train", path, "--out", link, "--set", "training.threads=1")
    assert answer.code == 3, answer.err
    assert list(folder.iterdir()) == []


def test_a_resumed_start_that_fails_removes_nothing(tmp_path):
    """The folder may be a user's own, with a config.toml in it, or a model without what training left."""
    run, path = tmp_path / "mine", tmp_path / "mine" / "a.tsv"
    run.mkdir()
    path.write_text("good\tpos\nbad\n", encoding="utf-8")
    (run / "config.toml").write_text(f'task = "classify"\n[data]\ntrain = "{path}"\n', encoding="utf-8")
    for words in (["--config", run / "config.toml"], []):
        answer = elman("train", *words, "--out", run, "--resume")
        assert (answer.code, path.is_file(), (run / "config.toml").is_file()) == (3, True, True), answer.err


def test_a_run_that_another_process_prepares_is_not_removed(tmp_path):
    run, path = tmp_path / "run", tmp_path / "a.tsv"
    path.write_text("good\tpos\nbad\tneg\n", encoding="utf-8")
    command = ["train", "classify", "--train", path, "--out", run, "--resume"]
    begin(run, collect("classify", None, {"train": str(path)}, None, [], None))
    with run_lock(run):
        answer = elman(*command)
        assert (answer.code, "another process is training" in answer.err) == (2, True), answer.err
        assert (run / "config.toml").is_file()


@pytest.mark.parametrize(("text", "width"), [("Good", 32), ("good", 0)])
def test_letters_are_read_where_a_text_has_capitals(tmp_path, text, width):
    path, run = tmp_path / "a.tsv", tmp_path / "run"
    path.write_text(f"{text} film\tpos\nbad film\tneg\n", encoding="utf-8")
    settings = ["--set", "training.max_steps=1", "--set", "training.threads=1"]
    assert elman("train", "classify", "--train", path, *settings, "--out", run).code == 0
    assert read_toml(run / "config.toml")["model"]["characters"] == width


MISTAKEN = """
import torch
from elman import Cell

class Misspelt(Cell):
    state, gates = ("h",), ("a",)
    def R(self, x, h, s):
        return self.State(h=torch.tanh(x.a + h.a + shift))

class Failing(Misspelt):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        raise ValueError("no such luck")

class Wanting(Misspelt):
    def __init__(self, input_size, hidden_size, *, gain):
        super().__init__(input_size, hidden_size)
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Misspelt", "cells.py:8: Misspelt.R: E101: NameError: name 'shift' is not defined"),
        ("Failing", "cells.py:13: Failing.__init__: E101: ValueError: no such luck"),
        ("Wanting", "E101: Wanting needs the option 'gain'; set it in cell_options"),
    ],
)
def test_a_mistake_in_a_users_class_is_a_line_and_leaves_no_run(name, said, files, tmp_path):
    cells, run = write(tmp_path / "cells.py", MISTAKEN), tmp_path / "run"
    words = ("train", "classify", "--train", files["classify"], "--out", run)
    code, out, err = elman(*words, *pairs("classify", **{"model.cell": f"{cells}:{name}"}))
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith(said)
    assert not run.exists()
    write(cells, "raise RuntimeError('not now')\n")
    code, out, err = elman(*words, *pairs("classify", **{"model.cell": f"{cells}:{name}"}))
    assert (code, out) == (2, "")
    assert "cells.py:1: <module>: E101: RuntimeError: not now" in err
    assert not run.exists()


def test_a_start_that_is_stopped_says_how_to_go_on(files, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    command = ["train", "lm", "--train", files["lm"], "--out", tmp_path / "run", *pairs("lm")]
    with monkeypatch.context() as patched:
        patched.setattr("elman.training.run.build", stopped)
        answer = elman(*command)
    assert answer.code == 130
    assert f"elman train --out {tmp_path}/run --resume\n" in answer.err
    assert "delete the folder" in answer.err
    assert elman("train", "--out", tmp_path / "run", "--resume").code == 0


def test_a_mistake_of_our_own_keeps_its_traceback(files, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise AttributeError("ours")

    monkeypatch.setattr("elman.training.run.build", broken)
    with pytest.raises(AttributeError, match="ours"):
        elman("train", "lm", "--train", files["lm"], "--out", tmp_path / "run", *pairs("lm"))
    assert not (tmp_path / "run").exists()


def test_a_run_whose_files_are_elsewhere_says_where_it_began(tmp_path, monkeypatch):
    write(tmp_path / "a.tsv", DATA["classify"])
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    assert elman("train", "classify", "--train", "a.tsv", "--out", "run", *pairs("classify")).code == 0
    log = tmp_path / "run" / "metrics.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))  # it is not at its end
    monkeypatch.chdir(tmp_path / "other")
    code, _, err = elman("train", "--out", "../run", "--resume")
    assert code == 3
    assert "a.tsv: E402: there is no such file; paths of a run are relative to the folder where" in err
    assert f"or write whole paths into {Path('../run/config.toml')} and delete its first line" in err
    config = tmp_path / "run" / "config.toml"
    _, _, settings = config.read_text().partition("\n")
    write(config, settings.replace('"a.tsv"', f'"{tmp_path / "a.tsv"}"'))
    assert elman("train", "--out", "../run", "--resume").code == 0
