"""Folders that appear whole or not at all, and links that change at once.

A folder is written under a hidden name, brought to the disk, and renamed. One of the same name is set aside
for that moment (``NAME.old``), from where it can be read and put back.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from elman.storage import files

OLD = ".old"
_TEMPORARY = re.compile(r"\..+\.tmp-\d+")  # what a crash may leave; never read


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write a folder of files, which takes the place of one of the same name."""
    parent, temporary, aside = folder.parent, _temporary(folder), _aside(folder)
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    try:
        temporary.mkdir()
        for name, data in contents.items():
            files.write_new(temporary / name, data)
            files.sync(temporary / name)
        files.sync(temporary)
        if folder.exists():
            files.rename(folder, aside)
        files.rename(temporary, folder)
        files.sync(parent)
        if aside.exists():
            remove_folder(aside)
    except OSError:
        with suppress(OSError):
            files.remove(temporary)  # a full disk needs the room
        raise


def remove_folder(folder: Path) -> None:
    """Remove a folder, out of sight first, so that no half of it is ever found."""
    hidden = _temporary(folder)
    files.rename(folder, hidden)
    files.remove(hidden)


def standing(folder: Path) -> Path:
    """The folder itself, or the one set aside if a crash hit before its replacement came."""
    folder = Path(os.path.realpath(folder))
    aside = _aside(folder)
    return aside if aside.exists() and not folder.exists() else folder


def set_link(link: Path, target: Path) -> None:
    """Let a link lead to this target, at once."""
    if link.is_dir() and not link.is_symlink():  # copied by what follows links
        files.rename(link, _temporary(link))
    for left in link.parent.glob(f".{link.name}.tmp-*"):  # by a crash, too
        files.remove(left)
    temporary = _temporary(link)
    files.link(target, temporary)
    files.rename(temporary, link)
    files.sync(link.parent)


def _aside(folder: Path) -> Path:
    return folder.with_name(folder.name + OLD)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp-{os.getpid()}")


def _sweep(parent: Path) -> None:
    """Remove what crashes left: unfinished folders, and those set aside whose replacement arrived."""
    for folder in parent.iterdir():
        if _TEMPORARY.fullmatch(folder.name):
            files.remove(folder)
        elif folder.name.endswith(OLD) and folder.with_name(folder.name.removesuffix(OLD)).exists():
            remove_folder(folder)
