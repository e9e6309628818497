"""A run that several files look at and treat badly."""

import shutil

import pytest
from runs import SHORT

from tiny import (
    elman,
    train_command,
    write_data,
)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def finished(data, tmp_path_factory):
    """A run that has come to its end, with checkpoints at updates 40 and 60 (and the best)."""
    run = tmp_path_factory.mktemp("finished") / "run"
    answer = elman(*train_command("lm-sentence", data, run, SHORT))
    assert answer.code == 0, answer.err
    return run


@pytest.fixture
def run(finished, tmp_path):
    """A copy to be treated badly."""
    return shutil.copytree(finished, tmp_path / "run", symlinks=True)
