"""The record of trusted code: private, whole, shared by processes, and relied on only if it is the user's."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from elman.errors import TrustNotice, UntrustedCodeError
from elman.trust import RECORD, TEMPORARY, Trust, record
from elman.users_code import Code, SourceFile


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The folder of an empty record."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "elman"


def code(content="a = 1", path="/somewhere/mine.py"):
    return Code(path, (SourceFile("mine", path, content.encode()),))


def trusted(one):
    """Does a fresh look at the record trust it?"""
    try:
        Trust("runs/a").check({"mine.py:Mine": one})
    except UntrustedCodeError:
        return False
    return True


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_what_is_added_is_remembered_and_private(umask, state):
    assert not trusted(code())
    assert not state.exists()  # looking leaves nothing
    before = os.umask(umask)
    try:
        Trust("runs/a").add([code(), code("b = 2")])
    finally:
        os.umask(before)
    assert (mode(state.parent), mode(state), mode(state / RECORD)) == (0o700, 0o700, 0o600)
    assert trusted(code())
    assert trusted(code(path="/elsewhere/other.py"))  # the same code, wherever it is
    assert not trusted(code("c = 3"))
    assert [path.name for path in state.iterdir()] == [RECORD]
    for line in (state / RECORD).read_text().splitlines():
        assert set(json.loads(line)) == {"sha256", "path"}
    about = (state / RECORD).stat()
    Trust("runs/b").add([code()])
    assert (state / RECORD).stat().st_ino == about.st_ino  # nothing new, nothing written


def test_an_error_names_all_that_is_strange_and_the_flag(state):
    Trust("runs/a").add([code()])
    strange = code("b = 2", "/new/b.py")
    with pytest.raises(UntrustedCodeError) as caught:
        Trust("runs/a").check(
            {"b.py:B": strange, "mine.py:Mine": code("changed"), "sys:S": Code("sys", (), ("sys",))}
        )
    head, new, changed, sourceless = str(caught.value).split("\n")
    assert head.startswith("E703: runs/a names code that you have not trusted, and nothing of it has run")
    assert "--trust-code" in head
    assert "trust_code=True" in head
    assert new == f"  'b.py:B' runs '/new/b.py', SHA-256 {strange.files[0].digest}"
    assert changed.endswith("which is not the file that you trained with or trusted")
    assert sourceless == "  'sys:S' runs the module 'sys', which has no source file to hash"
    assert caught.value.exit_code == 2


def test_the_flag_trusts_and_remembers(state):
    Trust("runs/a", everything=True).check({"mine.py:Mine": code()})
    assert trusted(code())
    without = Code("sys", (), ("sys",))
    Trust("runs/a", everything=True).check({"sys:S": without})
    assert not trusted(without)
    said = Trust("runs/a")
    said.add([without])
    said.check({"sys:S": without})  # what the user said holds as long as the training


def test_a_record_is_not_followed_through_links(state, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("")
    state.parent.mkdir()
    state.symlink_to(elsewhere)
    with pytest.warns(TrustNotice, match=f"{state}: "):
        Trust("runs/a").add([code()])
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]
    state.unlink()
    Trust("runs/a").add([code()])
    content = (state / RECORD).read_text()
    (state / RECORD).rename(elsewhere / RECORD)
    (state / RECORD).symlink_to(elsewhere / RECORD)
    (state / TEMPORARY).symlink_to(elsewhere / "target")
    with pytest.warns(TrustNotice, match=f"{state / RECORD}: .*so nothing that it holds is trusted"):
        assert not trusted(code())
    with pytest.warns(TrustNotice, match="is not remembered"):
        Trust("runs/a").add([code("b = 2")])
    assert (elsewhere / RECORD).read_text() == content
    (state / RECORD).unlink()
    Trust("runs/a").add([code()])  # a link that stands where the new record is written is removed
    assert not (elsewhere / "target").exists()


@pytest.mark.parametrize("which", ["folder", "file"])
@pytest.mark.parametrize("bits", [0o020, 0o002])
def test_a_record_that_others_can_write_to_is_refused(which, bits, state):
    Trust("runs/a").add([code()])
    path = state if which == "folder" else state / RECORD
    path.chmod(mode(path) | bits)
    with pytest.warns(TrustNotice, match=f"{path}: others can write to this; mend it with chmod go-w, so"):
        assert not trusted(code())
    with pytest.warns(TrustNotice, match="so the code of runs/a is not remembered: it needs --trust-code"):
        Trust("runs/a").add([code("b = 2")])
    path.chmod(mode(path) & ~bits)
    assert trusted(code())
    assert not trusted(code("b = 2"))


def test_a_record_of_somebody_else_is_refused(state, monkeypatch):
    Trust("runs/a").add([code()])
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(TrustNotice, match=f"{state}: this is owned by somebody else"):
        assert not trusted(code())


@pytest.mark.parametrize("line", ["{", '{"sha256": "a"}', "5", "\x80"])
def test_a_damaged_record_counts_for_nothing_and_is_kept(line, state):
    Trust("runs/a").add([code()])
    with (state / RECORD).open("a", encoding="latin-1") as file:
        file.write(line)
    content = (state / RECORD).read_bytes()
    with pytest.warns(TrustNotice, match=f"{RECORD}: line 2 is damaged; delete the file"):
        assert not trusted(code())
    with pytest.warns(TrustNotice, match="is not remembered"):
        Trust("runs/a").add([code("b = 2")])
    assert (state / RECORD).read_bytes() == content


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_record_that_is_no_file_is_refused(make, state):
    state.mkdir(parents=True)
    make(state / RECORD)
    with pytest.warns(TrustNotice, match="this is no file"):
        assert not trusted(code())


def test_no_home_is_no_crash(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME")

    def homeless(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert not trusted(code())
    trust = Trust("runs/a")
    with pytest.warns(TrustNotice, match="Could not determine home directory., so the code of runs/a is not"):
        trust.add([code()])
    trust.check({"mine.py:Mine": code()})


@pytest.mark.parametrize("number", [13, 28, 30])  # no right, no room, read-only
def test_a_disk_that_cannot_be_written_is_no_crash(number, state, monkeypatch):
    def failing(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    trust = Trust("runs/a")
    with pytest.warns(TrustNotice, match=f"{state / RECORD}: {os.strerror(number)}, so the code of runs/a"):
        trust.add([code()])
    trust.check({"mine.py:Mine": code()})
    monkeypatch.undo()
    assert not (state / RECORD).exists()


@pytest.mark.parametrize("chosen", [None, "", "relative/folder"])
def test_the_folder_is_the_usual_one(chosen, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    if chosen is None:
        monkeypatch.delenv("XDG_STATE_HOME")
    else:
        monkeypatch.setenv("XDG_STATE_HOME", chosen)
    assert record() == tmp_path / ".local" / "state" / "elman" / RECORD
    Trust("runs/a").add([code()])
    assert record().is_file()


def test_two_at_once_lose_nothing(state):
    codes = [[code(f"a = {number}") for number in range(start, 40, 4)] for start in range(4)]

    def add(some):
        for one in some:
            Trust("runs/a").add([one])

    threads = [threading.Thread(target=add, args=(some,)) for some in codes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(trusted(one) for some in codes for one in some)
    assert len((state / RECORD).read_text().splitlines()) == 40


def test_a_name_may_have_any_bytes(state):
    odd = code(path="/some\nwhere/\udcff\x1b.py")
    with pytest.raises(UntrustedCodeError) as caught:
        Trust("runs/a").check({"odd": odd})
    assert "\x1b" not in str(caught.value)
    Trust("runs/a").add([odd])
    assert trusted(odd)
    assert len((state / RECORD).read_text().splitlines()) == 1


def test_tests_leave_the_users_record_alone():
    assert record() != Path("~/.local/state/elman").expanduser() / RECORD
