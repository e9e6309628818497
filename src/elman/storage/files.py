"""Files that are opened without surprises, and written whole or not at all."""

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from elman.errors import RunError

AnyPath = str | os.PathLike[str]


def plain(path: str, flags: int) -> int:
    """For ``open(…, opener=plain)``: a pipe or a device, which may never answer or end, is an ``OSError``."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # open itself refuses a folder
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")


def open_own(path: AnyPath, mode: str) -> FileIO:
    """A file that is written to, as it is: a link, which leads to another's file, is an ``OSError``."""
    return FileIO(path, mode, opener=_own)


def _own(path: str, flags: int) -> int:
    try:
        return plain(path, flags | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "it is a link, which is not followed; put the file itself there") from None


def read_plain(path: AnyPath) -> bytes:
    """The bytes of a file, or of the file that a link leads to; never of a pipe or a device."""
    with open(path, "rb", opener=plain) as file:
        return file.read()


def read_own(path: AnyPath, check: Callable[[os.stat_result], None], *, folder: int | None = None) -> bytes:
    """The bytes of a file that is no link, after ``check`` has seen what was opened.

    A relative path begins at the open ``folder``, if there is one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        check(os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def write_bytes(path: AnyPath, data: bytes, *, private: bool = False, folder: int | None = None) -> None:
    """Leave the whole data on the disk, or the file as it was.

    A ``private`` file is its user's alone, whatever the umask. A relative path begins at the open
    ``folder``, if there is one.
    """
    temporary = temporary_file(Path(path))
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=folder)  # what a kill left; or a link, which must not be written through
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(temporary, flags, 0o600 if private else 0o666, dir_fd=folder), "wb") as file:
        if private:
            os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path, src_dir_fd=folder, dst_dir_fd=folder)


def write_text(path: AnyPath, text: str) -> None:
    """Leave the whole text on the disk, as UTF-8, or the file as it was."""
    write_bytes(path, text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path for a writer that wants one; what it has written there takes the file's place in the end."""
    temporary = temporary_file(path)
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(temporary)
    rename(temporary, path)


def temporary_file(path: Path) -> Path:
    """Where a file is written before it takes its place; at most one is left by a kill."""
    return path.with_name(f".{path.name}.tmp")


def remove(path: Path) -> None:
    """Remove whatever has this name, and never what a link leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def explained(subject: Path | str, problem: str = "cannot be written") -> Iterator[None]:
    """Turn the failure of a disk into an error about the run: ``RUN/config.toml cannot be written: …``."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{subject} {problem}: {error.strerror or error}") from error


# What folders are made with (folders.py); tests let each of these calls fail.


def write_new(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(path: Path, target: Path) -> None:
    os.replace(path, target)


def link(target: Path, path: Path) -> None:
    os.symlink(target, path)
