"""Files that are verified: opened safely, known by size and SHA-256; and JSON that knows its own SHA-256."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import shutil
import stat
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn


def plain(path: str, flags: int) -> int:
    """For ``open(…, opener=plain)``: a pipe or a device, which may never answer or end, is an ``OSError``."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # open itself refuses a folder
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")


def open_own(path: str | os.PathLike[str], mode: str) -> FileIO:
    """A file that is written to, as it is: a link, which leads to another's file, is an ``OSError``."""
    return FileIO(path, mode, opener=_own)


def _own(path: str, flags: int) -> int:
    try:
        return plain(path, flags | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "it is a link, which is not followed; put the file itself there") from None


def read_plain(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb", opener=plain) as file:
        return file.read()


def described(data: bytes) -> dict[str, Any]:
    """What a file is known by."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def fits(path: str | os.PathLike[str], description: Mapping[str, Any]) -> bool:
    """Has the file the bytes that :func:`described` was given? It is read in pieces, about 1 s a GB."""
    with open(path, "rb", opener=plain) as file:
        if os.fstat(file.fileno()).st_size != description["size"]:
            return False
        return bool(hashlib.file_digest(file, "sha256").hexdigest() == description["sha256"])


def canonical(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def sealed(content: Mapping[str, Any]) -> bytes:
    """The canonical JSON of the content and of the SHA-256 of its canonical JSON."""
    return canonical({**content, "sha256": hashlib.sha256(canonical(content)).hexdigest()})


def unsealed(data: bytes) -> dict[str, Any]:
    """What was sealed; a ``ValueError`` where a byte is another."""
    content = parsed(data)
    digest = content.pop("sha256", None)
    if data != sealed(content):
        raise ValueError(f"its bytes do not fit its own SHA-256, {digest!r}")
    return content


def parsed(data: bytes) -> dict[str, Any]:
    """A JSON object; a ``ValueError`` says what else it is."""
    try:
        content = json.loads(data, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("no JSON: it is nested too deeply") from None
    except ValueError as error:  # also what is not UTF-8
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content


def remove(path: Path) -> None:
    """Whatever has this name, and never what a link leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(digits: str) -> float:
    """Python reads 1e999 as infinity."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large")
    return number
