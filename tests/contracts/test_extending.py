"""Every kind of part plugs in from one file: what docs/extending.md shows is run as it stands there."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from elman.registry import REGISTRIES
from tiny import elman
from tiny_tasks import DATA

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
FILES = {
    "reviews.tsv": DATA["classify"],
    "pairs.tsv": DATA["seq2seq"],
    "tagged.txt": DATA["tag"],
    "text.txt": DATA["lm"],
    "marked.txt": "good| a cat\nbad| no dog\ngood| a dog and a cat\nbad| nothing\n",
}
TEXTS = {"tag": "the cat runs", "lm": "the cat", "seq2seq": "a dog"}
QUICK = {
    "data.held_out": 0,
    "model.hidden": 8,
    "model.embedding": 4,
    "training.max_steps": 6,
    "training.validate_every": 3,
    "training.batch_size": 2,
    "training.threads": 1,
}
CORPUS = "corpus"  # is named by its class in Python alone


def sections():
    """(title, file, code, commands) of every part on the page."""
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        [code] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        [commands] = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        yield title, code.partition("\n")[0].removeprefix("# "), code, commands.strip().split("\n")


SECTIONS = {title: rest for title, *rest in sections()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    for name, text in FILES.items():
        (here / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(here)
    return here


def quick(words):
    """A command of the page, with so little to do that it takes a moment."""
    if words[1] != "train":
        return words
    said = [word.partition("=")[0] for word in words]
    small = {key: value for key, value in QUICK.items() if key not in said}
    return [
        *words,
        "--quiet",
        *(word for key, value in small.items() for word in ("--set", f"{key}={value}")),
    ]


@pytest.mark.parametrize("title", SECTIONS)
@pytest.mark.slow
def test_a_part_from_one_file_works_in_every_command(title, folder, tmp_path, monkeypatch):
    file, code, commands = SECTIONS[title]
    (folder / file).write_text(code, encoding="utf-8")
    trained = []
    for command in commands:
        words = shlex.split(command)
        answer = elman(*quick(words)[1:])
        assert answer.code == 0, answer.err
        if words[1] == "train":
            trained.append((words[2], folder / words[words.index("--out") + 1]))
    (folder / file).unlink()  # from here on, the copies in the runs serve
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    monkeypatch.chdir(moved)
    for number, (task, run) in enumerate(trained):
        there = shutil.move(run, moved / str(number))
        answer = elman("predict", there, "--json", stdin=TEXTS.get(task, "a cat").encode() + b"\n")
        assert answer.code == 0, answer.err
        assert "prediction" in json.loads(answer.out)


def test_every_kind_of_part_is_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    for registry in REGISTRIES:
        if registry.kind != CORPUS:
            name = (
                "torch.optim.Optimizer"
                if registry.base_name == "Optimizer"
                else f"elman.{registry.base_name}"
            )
            assert f"`{name}`" in text, registry.kind
    assert len(SECTIONS) == len(REGISTRIES) - 1


def test_a_moved_run_asks_for_trust_on_another_machine(folder, tmp_path, monkeypatch):
    file, code, commands = SECTIONS["A pooling"]
    (folder / file).write_text(code, encoding="utf-8")
    words = shlex.split(commands[0])
    assert elman(*quick(words)[1:]).code == 0
    run = folder / words[words.index("--out") + 1]
    (folder / file).unlink()
    [copy] = (run / "code").glob("*.py")
    assert copy.read_text(encoding="utf-8") == code
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    answer = elman("predict", run, stdin=b"a cat\n")
    assert answer.code == 2
    assert "E703" in answer.err
    assert str(copy) in answer.err
    assert elman("predict", run, "--trust-code", stdin=b"a cat\n").code == 0
    copy.write_text(code + "\n# changed\n", encoding="utf-8")
    answer = elman("predict", run, "--trust-code", stdin=b"a cat\n")
    assert answer.code == 5
    assert "is damaged" in answer.err


def test_a_run_goes_on_with_the_code_that_it_began_with(folder):
    file, code, commands = SECTIONS["A schedule"]
    (folder / file).write_text(code, encoding="utf-8")
    words = quick(shlex.split(commands[0]))
    assert elman(*words[1:]).code == 0
    run = folder / words[words.index("--out") + 1]
    last = sorted((run / "checkpoints").iterdir())[-1]
    expected = (run / "metrics.jsonl").read_bytes().split(b'"time"')[0]
    shutil.rmtree(last)
    (folder / file).write_text(code.replace("0.5", "0.9"), encoding="utf-8")
    answer = elman("train", "--out", run, "--resume", "--quiet")
    assert answer.code == 0, answer.err
    assert (run / "metrics.jsonl").read_bytes().split(b'"time"')[0] == expected
