"""Which code a run may bring in: what this user has trained with or trusted, by its SHA-256.

The record is one JSON object a line, ``{"sha256": …, "path": …}``, in a folder that only its user can write
to. It is replaced as a whole, under a lock.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from elman.errors import TrustNotice, UntrustedCodeError
from elman.users_code import Code

RECORD = "trusted-code.jsonl"
TEMPORARY = f".{RECORD}.tmp"
Entry = tuple[str, str]  # SHA-256, path


class Trust:
    """What a user lets the run in this folder bring in: known code, or by the flag ``everything``.

    A run cannot say it of itself: settings that come from a run's folder carry this object to the place
    where their names are looked up, and what the user says in a call or on the command line does not.
    """

    def __init__(self, run: str | Path, *, everything: bool = False) -> None:
        self.run, self.everything = run, everything
        self._known: set[str] = set()  # SHA-256 of files that are trusted
        self._sourceless: set[str] = set()  # modules without one: trusted for as long as this object lives

    def add(self, codes: Iterable[Code]) -> None:
        """Trust this code, and remember it; where it cannot be remembered, that is a notice."""
        codes = list(codes)
        self._sourceless.update(module for code in codes for module in code.sourceless)
        entries = {(file.digest, file.path) for code in codes for file in code.files}
        self._known |= {digest for digest, _ in entries}
        if not entries:
            return
        try:
            _add(entries)
        except OSError as error:
            _notice(f"{_reason(error)}, so the code of {self.run} is not remembered: it needs --trust-code")

    def check(self, codes: Mapping[str, Code]) -> None:
        """Raise for all code, by name, that is not trusted; nothing of it has run.

        By the flag it is trusted, and remembered.
        """
        if not any(self._strange(codes)):
            return
        if self.everything:
            self.add(codes.values())
            return
        entries = _read()
        self._known |= {digest for digest, _ in entries}
        if strange := list(self._strange(codes, {path for _, path in entries})):
            head = (
                f"{self.run} names code that you have not trusted, and nothing of it has run; "
                "read it, and if you trust it, add --trust-code (in Python: trust_code=True)"
            )
            raise UntrustedCodeError("\n  ".join([head, *strange]))

    def _strange(self, codes: Mapping[str, Code], paths: Container[str] = ()) -> Iterator[str]:
        """A line for each file or module that is not trusted; ``paths`` are those of the record."""
        for name, code in codes.items():
            for file in code.files:
                if file.digest in self._known:
                    continue
                other = (
                    ", which is not the file that you trained with or trusted" if file.path in paths else ""
                )
                yield f"{name!r} runs {file.path!r}, SHA-256 {file.digest}{other}"
            for module in code.sourceless:
                if module not in self._sourceless:
                    yield f"{name!r} runs the module {module!r}, which has no source file to hash"


def record() -> Path:
    """The file of the record, in ``$XDG_STATE_HOME/elman``; by default in ``~/.local/state/elman``."""
    chosen = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        folder = chosen if chosen.is_absolute() else Path("~/.local/state").expanduser()
    except RuntimeError as error:  # a user without a home
        raise FileNotFoundError(errno.ENOENT, str(error), "~/.local/state") from None
    return folder / "elman" / RECORD


def _read() -> set[Entry]:
    """The entries; a record that cannot be relied on counts for nothing, which is a notice."""
    try:
        with _opened(record().parent) as folder:
            return _entries(folder)
    except FileNotFoundError:
        return set()
    except OSError as error:
        _notice(f"{_reason(error)}, so nothing that it holds is trusted")
        return set()


def _add(entries: set[Entry]) -> None:
    """Put entries into the record, beside those that other processes put there."""
    path = record().parent
    for missing in (one for one in (*reversed(path.parents), path) if not one.exists()):
        with suppress(FileExistsError):
            missing.mkdir()
            missing.chmod(0o700)  # whatever the umask
    with _opened(path) as folder:
        import fcntl  # Windows has none, and does not come here

        fcntl.flock(folder, fcntl.LOCK_EX)
        known = _entries(folder)
        if entries <= known:
            return
        lines = [json.dumps({"sha256": digest, "path": file}) for digest, file in sorted(known | entries)]
        with suppress(FileNotFoundError):
            os.unlink(TEMPORARY, dir_fd=folder)  # what a kill left
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(TEMPORARY, flags, 0o600, dir_fd=folder), "w", encoding="ascii") as written:
            os.fchmod(written.fileno(), 0o600)
            written.writelines(f"{line}\n" for line in lines)
            written.flush()
            os.fsync(written.fileno())
        os.replace(TEMPORARY, RECORD, src_dir_fd=folder, dst_dir_fd=folder)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The folder of the record; a link is not followed, and one that others can write to is refused."""
    if not hasattr(os, "geteuid"):
        raise FileNotFoundError(errno.ENOENT, "this system does not tell whose a file is", str(path))
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check_owner(folder, path, stat.S_ISDIR)
        yield folder
    finally:
        os.close(folder)


def _entries(folder: int) -> set[Entry]:
    path = record()
    try:
        file = os.open(RECORD, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        _check_owner(file, path, stat.S_ISREG)
        with open(file, "rb", closefd=False) as opened:
            lines = opened.read().split(b"\n")
    finally:
        os.close(file)
    entries = set()
    for number, line in enumerate(lines, 1):
        try:
            if line:
                entry = json.loads(line)
                entries.add((str(entry["sha256"]), str(entry["path"])))
        except (ValueError, KeyError, TypeError):
            raise OSError(errno.EINVAL, f"line {number} is damaged; delete the file", str(path)) from None
    return entries


def _check_owner(descriptor: int, path: Path, kind: Callable[[int], bool]) -> None:
    """A file or folder as it should be: the user's own, and nobody else's to write."""
    about = os.fstat(descriptor)
    if not kind(about.st_mode):
        raise PermissionError(errno.EPERM, "this is no file", str(path))
    if about.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "this is owned by somebody else", str(path))
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others can write to this; mend it with chmod go-w", str(path))


def _reason(error: OSError) -> str:
    """What is wrong with which file; one that is named within the folder is the record."""
    name = str(error.filename or RECORD)
    return f"{record() if name in (RECORD, TEMPORARY) else name}: {error.strerror}"


def _notice(text: str) -> None:
    warnings.warn(text, TrustNotice, stacklevel=3)
