"""Scalars for TensorBoard, or a word about how to get it."""

import sys
from types import ModuleType

import pytest

from elman.errors import ArgumentError
from elman.presentation.tensorboard import TensorBoard
from fake_run import fake_events


@pytest.fixture
def writers(monkeypatch):
    """All writers made in a test; the package itself is an optional one."""
    made = []

    class SummaryWriter:
        def __init__(self, log_dir, purge_step):
            self.log_dir, self.purge_step, self.scalars, self.closed = log_dir, purge_step, [], False
            made.append(self)

        def add_scalar(self, name, value, step):
            self.scalars.append((name, value, step))

        def flush(self):
            pass

        def close(self):
            self.closed = True

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return made


def test_every_scalar_is_written(writers, tmp_path):
    observer = TensorBoard(tmp_path / "board")
    events = list(fake_events(80, 20, 40))
    for event in events:
        observer(event)
    observer.close()
    observer.close()
    (writer,) = writers
    assert writer.log_dir == str(tmp_path / "board")
    assert writer.purge_step is None
    assert writer.closed
    names = {name for name, _, _ in writer.scalars}
    assert names == {
        "training/loss",
        "training/rate",
        "training/gradient_norm",
        "training/tokens_per_second",
        "validation/loss",
        "validation/accuracy",
    }
    expected = [(event["update"], event["accuracy"]) for event in events if event["event"] == "validation"]
    assert [
        (step, value) for name, value, step in writer.scalars if name == "validation/accuracy"
    ] == expected
    assert [step for name, _, step in writer.scalars if name == "training/rate"] == [20, 40, 60, 80]


def test_a_continued_run_drops_the_points_that_come_again(writers, tmp_path):
    observer = TensorBoard(tmp_path)
    observer({"event": "start", "update": 0, "resumed_at": 40})
    assert writers[0].purge_step == 41


def test_a_missing_package_is_named_with_its_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ArgumentError, match=r"pip install elman\[track\]"):
        TensorBoard(tmp_path)
