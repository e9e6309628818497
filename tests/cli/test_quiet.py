"""``--quiet`` leaves out the talk on stderr, and nothing else: data, and what goes wrong, come as ever."""

import json

import pytest

from elman.cli.output import is_quiet
from tiny import elman
from tiny_tasks import ready, save

TRAIN = ("--set", "model.hidden=3", "--set", "training.max_steps=2", "--set", "training.validate_every=1")
REPAIRED = b"\xef\xbb\xbfa dog\tanimal\r\nstones\tthing\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """By task; and a file that must be repaired."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "repaired.tsv").write_bytes(REPAIRED)
    made = {}
    for task in ("classify", "lm"):
        (folder / task).mkdir()
        made[task] = save(ready(task, folder / task), folder / task / "run")
    return folder / "repaired.tsv", made


@pytest.mark.slow
def test_training_says_nothing_but_what_is_asked_for(runs, tmp_path):
    data, _ = runs
    train = ("train", "classify", "--train", data, *TRAIN, "--set", "data.held_out=0.0")
    assert elman(*train, "--out", tmp_path / "a", "--quiet") == (0, "", "")
    code, out, err = elman(*train, "--out", tmp_path / "b", "--quiet", "--json")
    assert (code, json.loads(out)["event"], err) == (0, "end", "")
    assert elman("train", "--out", tmp_path / "a", "--resume", "--quiet") == (0, "", "")
    assert elman(*train, "--dry-run", "--quiet") == (0, "", "")
    code, out, err = elman(*train, "--out", tmp_path / "a", "--quiet")
    assert (code, out) == (2, "")
    assert "is there already" in err


def test_a_damaged_checkpoint_is_told_of(runs, tmp_path):
    data, _ = runs
    run = tmp_path / "run"
    elman("train", "classify", "--train", data, *TRAIN, "--set", "data.held_out=0.0", "--out", run)
    (run / "checkpoints" / "update-00000002" / "model.safetensors").write_bytes(b"")
    code, out, err = elman("train", "--out", run, "--resume", "--quiet")
    assert (code, out) == (0, "")
    assert "model.safetensors is damaged" in err
    assert len(err.splitlines()) == 1


def test_those_who_use_a_run_say_nothing(runs):
    data, made = runs
    asked = {
        ("predict", made["classify"], data): "byte order mark removed",
        ("evaluate", made["classify"], data): "byte order mark removed",
        ("score", made["lm"], "--pairs"): "of 1 pairs",
        ("generate", made["lm"], "--prompt", "the"): "",
    }
    for words, talk in asked.items():
        loud = elman(*words, stdin=b"the dog\tdog the\n")
        assert loud.code == 0, loud.err
        assert talk in loud.err
        assert elman(*words, "--quiet", stdin=b"the dog\tdog the\n") == (0, loud.out, "")
    assert not is_quiet()
