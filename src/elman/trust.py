"""Which code a run may bring in: what this user has trained with or trusted, by its SHA-256.

The record is one JSON object a line, ``{"sha256": …, "path": …}``, in a folder that only its user can write
to. It is replaced as a whole, under a lock.
"""

import errno
import json
import os
import stat
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path

from elman.errors import RunError, TrustNotice, UntrustedCodeError
from elman.storage.files import read_own, read_plain, temporary_file, write_bytes
from elman.storage.locks import take_lock
from elman.storage.private import make_private_folder, open_folder, others_can_write
from elman.storage.sealed import unsealed
from elman.users_code import Code

RECORD = "trusted-code.jsonl"
CODE = "code"  # folder of a run with copies of its user's files
INDEX = "index.json"  # which copy stands for which path
TEMPORARY = temporary_file(Path(RECORD)).name
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

    def copy_of(self, path: str) -> Path | None:
        """The copy of a user's file that the run brings along; None where it brings none."""
        digest = self._copies.get(os.path.abspath(path))
        return None if digest is None else Path(self.run) / CODE / f"{digest}.py"

    @cached_property
    def _copies(self) -> dict[str, str]:
        """By path, the SHA-256 of the file that training began with."""
        index = Path(self.run) / CODE / INDEX
        try:
            files = unsealed(read_plain(index))["files"]
            return {str(path): str(digest) for path, digest in files.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise RunError(f"{index} is damaged: {error}; restore the file") from None

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
                line = f"{name!r} runs {file.path!r}, SHA-256 {file.digest}"
                other = ", which is not the file that you trained with or trusted"
                yield line + other if file.path in paths else line
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
    make_private_folder(path)
    with _opened(path) as folder:
        take_lock(folder)
        known = _entries(folder)
        if entries <= known:
            return
        lines = [json.dumps({"sha256": digest, "path": file}) for digest, file in sorted(known | entries)]
        data = "".join(f"{line}\n" for line in lines).encode("ascii")
        write_bytes(RECORD, data, private=True, folder=folder)


def _opened(path: Path) -> AbstractContextManager[int]:
    """The folder of the record; a link is not followed, and one that others can write to is refused."""
    if not hasattr(os, "geteuid"):
        raise FileNotFoundError(errno.ENOENT, "this system does not tell whose a file is", str(path))
    return open_folder(path, partial(_check_owner, path, stat.S_ISDIR), follow_links=False)


def _entries(folder: int) -> set[Entry]:
    path = record()
    try:
        lines = read_own(RECORD, partial(_check_owner, path, stat.S_ISREG), folder=folder).split(b"\n")
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    entries = set()
    for number, line in enumerate(lines, 1):
        try:
            if line:
                entry = json.loads(line)
                entries.add((str(entry["sha256"]), str(entry["path"])))
        except (ValueError, KeyError, TypeError):
            raise OSError(errno.EINVAL, f"line {number} is damaged; delete the file", str(path)) from None
    return entries


def _check_owner(path: Path, kind: Callable[[int], bool], about: os.stat_result) -> None:
    """A file or folder as it should be: the user's own, and nobody else's to write."""
    if not kind(about.st_mode):
        raise PermissionError(errno.EPERM, "this is no file", str(path))
    if about.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "this is owned by somebody else", str(path))
    if others_can_write(about):
        raise PermissionError(errno.EPERM, "others can write to this; mend it with chmod go-w", str(path))


def _reason(error: OSError) -> str:
    """What is wrong with which file; one that is named within the folder is the record."""
    name = str(error.filename or RECORD)
    return f"{record() if name in (RECORD, TEMPORARY) else name}: {error.strerror}"


def _notice(text: str) -> None:
    warnings.warn(text, TrustNotice, stacklevel=3)
