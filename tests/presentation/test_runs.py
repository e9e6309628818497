"""The runs below a folder: all are found, each tells its state, and a damaged one stops no other."""

import json
import shutil

import pytest

from elman.presentation.runs import RunState, find_runs
from elman.training.folder import seal
from elman.training.session import run_lock
from fake_run import CONFIG, fake_events, fake_run
from tiny import elman


@pytest.fixture
def runs(tmp_path):
    """A run in every state, at several depths."""
    folder = tmp_path / "runs"
    for name, ended in (("finished", True), ("some/interrupted", False), ("some/more/training", False)):
        run = fake_run(folder / name, fake_events(400, 40, 100, ended=ended))
        (run / "checkpoints").mkdir()
    for name in ("not-begun", "damaged"):
        (folder / name).mkdir()
        (folder / name / "config.toml").write_text(seal(CONFIG), encoding="utf-8")
    with (folder / "damaged" / "config.toml").open("a") as settings:
        settings.write("# changed\n")
    (folder / "website").mkdir()
    (folder / "website" / "config.toml").write_text('baseURL = "https://example.org"\n', encoding="utf-8")
    return folder


def test_every_run_is_found_in_its_state(runs):
    with run_lock(runs / "some" / "more" / "training"):
        found = {one.run: one for one in map(RunState.of, find_runs(runs))}
    states = {str(runs / name): name.rpartition("/")[2].replace("-", " ") for name in (
        "finished", "some/interrupted", "some/more/training", "not-begun", "damaged",
    )}  # fmt: skip
    assert {run: one.state for run, one in found.items()} == states
    whole = found[str(runs / "finished")]
    assert whole.reason == "all epochs done"
    assert (whole.task, whole.network, whole.parameters) == ("tag", "bidirectional LSTM", 1234567)
    assert (whole.metric, whole.updates, whole.epochs) == ("accuracy", 400, 4.0)
    cut = found[str(runs / "some" / "interrupted")]
    assert cut.best == whole.best == pytest.approx(0.95, abs=0.01)
    assert "was changed after Elman wrote it" in found[str(runs / "damaged")].reason


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("config.toml", b"task = 3 = 4"),
        ("config.toml", b"\xff"),
        ("config.toml", b"x = 1"),
        ("config.toml", b'task = "lm"\nmodel = 3'),
        ("config.toml", b"[" * 100_000),
        ("config.toml", None),
        ("metrics.jsonl", b"{}\n{\n{}\n"),
        ("metrics.jsonl", b'{"event": "end"}\n'),
        ("metrics.jsonl", b'{"event": "update", "time": 3}\n'),
        ("metrics.jsonl", b'{"event": "update", "update": "x", "epoch": []}\n'),
        ("checkpoints", None),
    ],
)
def test_a_damaged_run_is_told_of(name, data, runs):
    path = runs / "finished" / name
    if data is not None:
        path.write_bytes(data)
    elif path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    one = RunState.of(runs / "finished")
    assert one.state == "damaged"
    assert one.reason.startswith("E701: ")
    assert len([*find_runs(runs)]) == 5


def test_the_search_has_bounds(runs):
    assert [*find_runs(runs / "finished")] == [runs / "finished"]
    assert len([*find_runs(runs, deepest=1)]) == 3
    assert len([*find_runs(runs, most=0)]) == 3
    (runs / "again").symlink_to(runs)
    (runs / "best-of-all").symlink_to(runs / "finished")
    assert len([*find_runs(runs)]) == 6


def test_the_command(runs, monkeypatch):
    monkeypatch.chdir(runs.parent)
    code, out, err = elman("runs")
    assert code == 0
    head, *rows = out.splitlines()
    assert head.split()[:4] == ["run", "task", "network", "parameters"]
    assert len(rows) == 5
    assert "runs/finished" in rows[0]
    assert "accuracy 0.94" in rows[0]
    assert "finished: all epochs done  2026-01-31 12:00" in rows[0]
    assert err.startswith("E701: runs/damaged/config.toml was changed")
    code, out, err = elman("runs", "runs/some", "--json")
    assert (code, err) == (0, "")
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["interrupted", "interrupted"]
    shutil.rmtree(runs)
    assert elman("runs") == (0, "", "there is no run below .; train one with elman train … --out runs/NAME\n")
    code, out, err = elman("runs", "elsewhere")
    assert (code, out) == (2, "")
    assert "E702: elsewhere is no folder" in err
