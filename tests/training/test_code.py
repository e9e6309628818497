"""Files of a user's own are copied into a run, which goes on with them, whatever becomes of the files."""

import hashlib
import json
import os

import pytest

from elman.config import merge, parse_settings, part_names, validate
from elman.errors import RunError, UnknownNameError, UntrustedCodeError
from elman.registry import CELLS, TASKS, PartName, named_code
from elman.storage.sealed import sealed
from elman.training.code import keep_code
from elman.training.settings import check_code, settings_class
from elman.trust import CODE, INDEX, Trust
from marked import marked, ran

CELL = """
from elman import Cell

class Leaky(Cell):
    state, gates = ("h",), ("a",)
    def R(self, x, h, s):
        return self.State(h=0.9 * s.h + 0.1 * (x.a + h.a))
"""
SCHEDULE = """
from elman.training.schedules.base import Schedule

class Halved(Schedule):
    def share(self, update, total):
        return 0.5
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """An empty record of trusted code."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def config_of(*pairs, trust=None):
    tables = merge({"task": "lm"}, parse_settings(pairs))
    if trust is not None:
        tables["task"] = PartName("lm", TASKS, trust)
    return validate(settings_class("lm"), tables, None, trust)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def index(run):
    return json.loads((run / CODE / INDEX).read_text())["files"]


def test_every_file_that_settings_name_is_copied_once(run, tmp_path):
    cell = marked(tmp_path / "cells.py", CELL)
    schedule = marked(tmp_path / "schedules.py", SCHEDULE)
    keep_code(
        run,
        config_of(
            f"model.cell={cell}:Leaky",
            f"training.schedule={schedule}:Halved",
            f"training.metric={cell}:Leaky",
            "training.optimizer=torch.optim:RMSprop",  # a module is no file, and is not copied
        ),
    )
    assert index(run) == {str(cell): digest(cell), str(schedule): digest(schedule)}
    assert {path.name for path in (run / CODE).iterdir()} == {
        INDEX,
        f"{digest(cell)}.py",
        f"{digest(schedule)}.py",
    }
    assert (run / CODE / f"{digest(cell)}.py").read_bytes() == cell.read_bytes()
    assert ran(tmp_path) == []  # nothing of it ran


def test_a_run_without_code_of_the_users_has_no_folder_for_it(run):
    keep_code(run, config_of("model.cell=gru", "training.optimizer=torch.optim:RMSprop"))
    assert not (run / CODE).exists()
    assert Trust(run).copy_of("mine.py") is None


def test_a_relative_path_is_known_by_where_it_was(run, tmp_path, monkeypatch):
    marked(tmp_path / "mine.py", CELL)
    monkeypatch.chdir(tmp_path)
    keep_code(run, config_of("model.cell=mine.py:Leaky"))
    expected = run / CODE / f"{digest(tmp_path / 'mine.py')}.py"
    assert Trust(run).copy_of("mine.py") == Trust(run).copy_of(str(tmp_path / "mine.py")) == expected


@pytest.mark.parametrize("becomes", ["the same", "another", "gone"])
def test_a_run_goes_on_with_its_copy(becomes, run, tmp_path):
    path = marked(tmp_path / "mine.py", CELL)
    keep_code(run, config_of(f"model.cell={path}:Leaky"))
    if becomes == "another":
        path.write_text("raise RuntimeError('not what training began with')", encoding="utf-8")
    if becomes == "gone":
        path.unlink()
    trust = Trust(run, everything=True)
    config = config_of(f"model.cell={path}:Leaky", trust=trust)
    [code] = named_code((name for _, name in part_names(config)), trust).values()
    told = tmp_path if becomes == "the same" else run / CODE  # an error is told where the user will look
    assert [os.path.dirname(file.path) for file in code.files] == [str(told)]
    check_code(config, trust)
    assert ran(tmp_path) == []
    assert CELLS.find(config.model.cell).__name__ == "Leaky"


def test_the_users_own_word_means_the_file_itself(run, tmp_path):
    path = marked(tmp_path / "mine.py", CELL)
    keep_code(run, config_of(f"model.cell={path}:Leaky"))
    path.write_text(CELL.replace("0.9", "0.8"), encoding="utf-8")
    own = config_of(f"model.cell={path}:Leaky")
    assert own.model.cell.code.files[0].path == str(path)
    assert b"0.8" in own.model.cell.code.files[0].content


def test_a_copy_must_be_trusted_as_the_file_was(run, tmp_path):
    """A run cannot say it of itself: who gets one from somebody else is asked."""
    path = marked(tmp_path / "mine.py", CELL)
    keep_code(run, config_of(f"model.cell={path}:Leaky"))
    config = config_of(f"model.cell={path}:Leaky", trust=Trust(run))
    with pytest.raises(UntrustedCodeError, match=f"SHA-256 {digest(path)}"):
        check_code(config, config.model.cell.trust)
    with pytest.raises(UntrustedCodeError):
        CELLS.find(config.model.cell)
    assert ran(tmp_path) == []
    Trust(run).add([config_of(f"model.cell={path}:Leaky").model.cell.code])  # as training does
    check_code(config, config.model.cell.trust)
    assert CELLS.find(config.model.cell).__name__ == "Leaky"


def test_a_copy_that_was_changed_is_damage_and_does_not_run(run, tmp_path):
    path = marked(tmp_path / "mine.py", CELL)
    keep_code(run, config_of(f"model.cell={path}:Leaky"))
    copy = run / CODE / f"{digest(path)}.py"
    copy.write_bytes(copy.read_bytes() + b"# more")
    trust = Trust(run, everything=True)
    config = config_of(f"model.cell={path}:Leaky", trust=trust)
    with pytest.raises(RunError, match="is damaged: it is not the file of its name; restore it"):
        check_code(config, trust)
    assert ran(tmp_path) == []


def test_a_copy_that_is_missing_is_not_replaced_by_the_file(run, tmp_path):
    path = marked(tmp_path / "mine.py", CELL)
    keep_code(run, config_of(f"model.cell={path}:Leaky"))
    (run / CODE / f"{digest(path)}.py").unlink()
    config = config_of(f"model.cell={path}:Leaky", trust=Trust(run, everything=True))
    with pytest.raises(UnknownNameError, match="cannot be loaded"):
        CELLS.find(config.model.cell)
    assert ran(tmp_path) == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"files": {}}', sealed({"nothing": 1}), sealed({"files": [1]})],
)
def test_a_damaged_index_is_named(content, run):
    (run / CODE).mkdir()
    (run / CODE / INDEX).write_bytes(content)
    with pytest.raises(RunError, match=r"index\.json is damaged: .*; restore the file"):
        Trust(run).copy_of("mine.py")


@pytest.mark.parametrize("digest", ["../../secret", "/etc/passwd", "a/../../b", ""])
def test_an_index_cannot_lead_out_of_the_run(digest, run, tmp_path):
    """What it names is read only to be compared with its name, which no path is."""
    (run / CODE).mkdir()
    (run / CODE / INDEX).write_bytes(sealed({"files": {str(tmp_path / "mine.py"): digest}}))
    marked(tmp_path / "secret.py", CELL)
    name = PartName(f"{tmp_path / 'mine.py'}:Leaky", CELLS, Trust(run, everything=True))
    with pytest.raises((RunError, UnknownNameError)):
        CELLS.find(name)
    assert ran(tmp_path) == []


def test_a_run_of_an_earlier_version_has_no_copies(run, tmp_path):
    path = marked(tmp_path / "mine.py", CELL)
    trust = Trust(run, everything=True)
    config = config_of(f"model.cell={path}:Leaky", trust=trust)
    assert config.model.cell.code.files[0].path == str(path)
    assert CELLS.find(config.model.cell).__name__ == "Leaky"
