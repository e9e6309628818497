"""Runs of every task that an earlier version made load, predict the same, and go on."""

import json
import tarfile
from pathlib import Path

import pytest
from runs import resume, set_back

from tiny import elman
from tiny_tasks import TEXTS

ARCHIVE = Path(__file__).parent / "earlier_runs" / "runs.tar.xz"  # of 0.1.0; make.py beside it made them
NAMES = (
    "lm",
    "lm-sentences",
    "lm-ngram",
    "tag",
    "tag-window",
    "classify",
    "classify-bpe",
    "class2seq",
    "seq2seq",
    "seq2seq-single",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Paths of the runs are relative: training began in this folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def near(found, expected):
    """Equal, but for the last digits of another machine's numbers."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(near(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(near, found, expected))
    return (
        found == pytest.approx(expected, rel=1e-3, abs=1e-6)
        if isinstance(expected, float)
        else found == expected
    )


def events(run):
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    left_out = {"time", "watched"}  # the examples watched came later than these runs
    return [{key: value for key, value in json.loads(line).items() if key not in left_out} for line in lines]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_an_earlier_version_predicts_the_same(folder, name):
    texts = "\n".join(TEXTS[name.partition("-")[0]]) + "\n"
    answer = elman("predict", folder / name, "--json", stdin=texts.encode())
    assert answer.code == 0, answer.err
    found = [json.loads(line) for line in answer.out.splitlines()]
    lines = (folder / f"{name}.predictions.jsonl").read_text(encoding="utf-8").splitlines()
    expected = [json.loads(line) for line in lines]
    added = {"read", "unknown"} - expected[0].keys()  # what later versions tell besides
    assert near([{key: one[key] for key in one.keys() - added} for one in found], expected)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "lm-ngram"])
def test_a_run_of_an_earlier_version_goes_on(folder, name):
    expected = events(folder / name)
    set_back(folder / name, 12)
    answer = resume(folder / name)
    assert answer.code == 0, answer.err
    assert "continuing after update 8" in answer.err
    found = events(folder / name)
    assert near(found[1:], expected[1:])  # notes of the opening line are of the version that began
