"""Folders and files that are one user's alone, since what they hold is trusted or run."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Make the folder and those above it that are missing for the user alone, whatever the umask."""
    for missing in (one for one in (*reversed(path.parents), path) if not one.exists()):
        with suppress(FileExistsError):
            missing.mkdir(mode=0o700)
            missing.chmod(0o700)


@contextmanager
def open_folder(
    path: str | Path, check: Callable[[os.stat_result], None], *, follow_links: bool = True
) -> Iterator[int]:
    """The folder as a descriptor, after ``check`` has seen what was opened."""
    unfollowed = 0 if follow_links else os.O_NOFOLLOW
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | unfollowed)
    try:
        check(os.fstat(folder))
        yield folder
    finally:
        os.close(folder)


def fixed_name(folder: int, path: str | Path) -> str:
    """A name of an open folder that is not looked up again; without ``/proc``, its path."""
    name = f"/proc/self/fd/{folder}"
    return name if os.path.isdir(name) else os.path.realpath(path)


@contextmanager
def temporary_folder(above: str | None = None) -> Iterator[str]:
    """A folder of the user's own that is gone in the end.

    Not ``tempfile.TemporaryDirectory``, which a forked child would remove when it ends.
    """
    path = tempfile.mkdtemp(dir=above)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def others_can_write(about: os.stat_result) -> bool:
    return bool(about.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
