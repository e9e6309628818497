"""Files that are known by size and SHA-256, and JSON that knows its own SHA-256."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any, NoReturn

from elman.storage.files import AnyPath, plain


def described(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def fits(path: AnyPath, description: Mapping[str, Any]) -> bool:
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


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(digits: str) -> float:
    """Python reads 1e999 as infinity."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is too large")
    return number
