"""``elman init`` and ``elman corpora``, and the help."""

import json
import subprocess
import sys
import tomllib

import pytest
import torch

from elman import __version__
from elman.config import describe, read_toml, validate
from elman.corpora.dates import Dates
from elman.errors import ArgumentError
from elman.registry import CORPORA, TASKS
from elman.training.settings import settings_class
from tiny import elman


@pytest.mark.parametrize("task", TASKS.names())
def test_init_is_a_complete_config_with_the_defaults(task, tmp_path):
    code, out, err = elman("init", task)
    assert (code, err) == (0, "")
    path = tmp_path / "all.toml"
    path.write_text(out, encoding="utf-8")
    kind = settings_class(task)
    assert validate(kind, read_toml(path), path) == validate(kind, {"task": task})
    for key, _, _, description in describe(kind):
        name = key.rpartition(".")[2]
        assert any(f"{name} =" in line and description in line for line in out.split("\n")), key


@pytest.mark.parametrize("task", TASKS.names())
def test_what_is_unset_can_be_uncommented(task):
    """An open setting stands as a comment with its name, and never as a value."""
    tables = tomllib.loads(elman("init", task).out)
    assert "hidden" not in tables["model"]
    assert "# hidden =" in elman("init", task).out


def test_init_of_an_unknown_task():
    code, out, err = elman("init", "tagg")
    assert (code, out) == (2, "")
    assert "no task named 'tagg'; did you mean 'tag'? Known: class2seq, classify, lm, seq2seq, tag" in err


@pytest.mark.slow
def test_corpora_for_people_and_machines():
    code, out, err = elman("corpora")
    assert (code, err) == (0, "")
    for name in CORPORA.names():
        assert f"builtin:{name}  (" in out
    assert "I  ⇥  love my cat" in out
    code, out, err = elman("corpora", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [one["name"] for one in found] == CORPORA.names()
    assert all(one["task"] in TASKS.names() and one["summary"] and len(one["samples"]) == 2 for one in found)


@pytest.mark.slow
def test_a_corpus_that_lacks_a_package_is_listed_without_samples(monkeypatch):
    def lacking(self, split, random):
        raise ArgumentError("corpus 'dates' needs Babel")

    monkeypatch.setattr(Dates, "generate", lacking)
    code, out, err = elman("corpora")
    assert (code, err) == (0, "")
    assert "\n    E101: corpus 'dates' needs Babel\n" in out
    assert "builtin:worked_example" in out  # the list goes on
    found = [json.loads(line) for line in elman("corpora", "--json").out.splitlines()]
    assert [one["name"] for one in found if not one["samples"]] == ["dates"]


def test_the_reference_has_the_sections_of_every_task():
    page = elman("init", "--markdown").out
    keys = [key for task in TASKS.names() for key, *_ in describe(settings_class(task)) if "." in key]
    assert "evaluation.metrics" in keys
    for key in keys:
        assert f"\n| `{key}` |" in page, key
        assert f"\n## {key.partition('.')[0]}\n\n" in page


def test_help_is_light():
    """It names every command, and neither torch nor numpy is loaded for it."""
    program = """
import sys
from elman.cli.completion import run_folders, task_names
from elman.cli.main import app
assert "lm" in task_names("") and run_folders("") is not None
for words in (["--version"], ["runs", "--json"], ["--help"], ["train", "--help"], ["score", "--help"]):
    try:
        app(words)
    except SystemExit as end:
        assert end.code == 0
heavy = {"torch", "numpy", "matplotlib", "tokenizers"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for command in (
        "train",
        "doctor",
        "predict",
        "evaluate",
        "generate",
        "score",
        "runs",
        "init",
        "corpora",
        "demo",
        "bench",
    ):
        assert command in done.stdout
    assert "--dry-run" in done.stdout
    assert done.stdout.startswith(f"elman {__version__} (torch {torch.__version__})\n")
