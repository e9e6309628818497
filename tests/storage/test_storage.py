"""Files, folders and locks keep their promises; those who use them have tests of their own."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
import time

import pytest

from elman.errors import RunError
from elman.storage import files, folders
from elman.storage.locks import ThreadLock, take_lock
from elman.storage.private import make_private_folder, open_folder
from elman.storage.sealed import described, fits, sealed, unsealed

HOLD = """
import fcntl, sys
held = open(sys.argv[1])
fcntl.flock(held, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""
LIGHT = """
import sys
from elman.storage import files, folders, locks, private, sealed
print({"torch", "numpy"} & {*sys.modules})
"""


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_file_is_replaced_whole_and_never_through_a_link(tmp_path):
    path, other = tmp_path / "a.txt", tmp_path / "other"
    other.write_text("theirs")
    files.temporary_file(path).symlink_to(other)
    path.symlink_to(other)
    files.write_text(path, "héllo")
    assert (path.read_bytes(), other.read_text()) == ("héllo".encode(), "theirs")
    assert not path.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "other"]


def test_a_disk_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"a\.txt cannot be written: No space left"), files.explained(path):
            files.write_text(path, "new")
        with pytest.raises(OSError, match="No space left"), files.replacing(path) as temporary:
            temporary.write_text("new")
    assert path.read_text() == "old"
    files.write_text(path, "new")  # over what is left
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.usefixtures("umask")
def test_what_is_private_is_the_users_alone(tmp_path):
    folder = tmp_path / "a" / "b"
    make_private_folder(folder)
    with open_folder(folder, lambda about: None) as opened:
        files.write_bytes("secret", b"1", private=True, folder=opened)
        assert files.read_own("secret", lambda about: None, folder=opened) == b"1"
    files.write_bytes(folder / "open", b"2")
    modes = [mode(path) for path in (folder.parent, folder, folder / "secret", folder / "open")]
    assert modes == [0o700, 0o700, 0o600, 0o666]


def test_links_and_pipes_are_no_files(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a link, which is not followed"):
        files.open_own(tmp_path / "link", "a")
    with pytest.raises(OSError, match="symbolic links"):
        files.read_own(tmp_path / "link", lambda about: None)
    with pytest.raises(OSError, match="it is a pipe or a device"):
        files.read_plain(tmp_path / "pipe")
    (tmp_path / "folder").symlink_to(tmp_path)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        open_folder(tmp_path / "folder", lambda about: None, follow_links=False).__enter__()


def test_a_folder_takes_the_place_of_another(tmp_path):
    folder = tmp_path / "one"
    for content in (b"1", b"2"):
        folders.write_folder(folder, {"a": content})
        assert (folder / "a").read_bytes() == content
    folder.rename(tmp_path / "one.old")
    assert folders.standing(folder) == tmp_path / "one.old"
    folders.write_folder(folder, {"a": b"3"})
    assert folders.standing(folder) == folder
    assert os.listdir(tmp_path) == ["one"]


def test_what_is_sealed_knows_every_bit(tmp_path):
    data = sealed({"name": "Größe", "count": 3})
    assert unsealed(data) == {"name": "Größe", "count": 3}
    for place in range(len(data)):
        with pytest.raises(ValueError, match=r"no JSON|SHA-256"):
            unsealed(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    (tmp_path / "a").write_bytes(data)
    assert fits(tmp_path / "a", described(data))
    assert not fits(tmp_path / "a", described(data + b" "))


def test_a_lock_is_waited_for_a_moment_and_ends_with_its_process(tmp_path):
    path = tmp_path / "lock"
    path.write_text("kept")
    holds = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holds as holder:
        holder.stdout.readline()
        with files.open_own(path, "a") as lock:
            began = time.monotonic()
            assert not take_lock(lock, 0.2)
            assert 0.2 <= time.monotonic() - began < 2
            threading.Timer(0.1, holder.kill).start()
            assert take_lock(lock, 5)
            with path.open() as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert path.read_text() == "kept"


def test_a_lock_of_threads_is_free_in_a_forked_child():
    lock = ThreadLock()
    with lock.held():
        child = os.fork()
        if child == 0:
            with lock.held():
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_it_imports_neither_torch_nor_numpy():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
