"""Who may ask: tokens of a file, compared in constant time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from elman.errors import ArgumentError, FileError
from elman.storage.files import explained

LEAST = 16  # characters of a token


def read_tokens(path: Path) -> list[str]:
    """The tokens of a file, one a line; blank lines and those after # are none."""
    with explained(path, "cannot be read"):
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    lines = [line.strip() for line in text.split("\n")]
    tokens = [line for line in lines if line and not line.startswith("#")]
    if not tokens:
        raise FileError("no token in it", path=path, remedy="write one a line, as of openssl rand -hex 32")
    for number, token in enumerate(tokens, 1):
        if len(token) < LEAST or not token.isascii() or not token.isprintable() or " " in token:
            raise FileError(
                f"token {number} is too short, or has characters that no header has",
                path=path,
                remedy=f"take at least {LEAST} letters and digits, as of openssl rand -hex 32",
            )
    return tokens


def check_address(host: str, *, token: bool, anyone: bool) -> None:
    """An address that others reach needs a token, unless somebody says that anyone may ask."""
    if token or anyone or is_loopback(host):
        return
    raise ArgumentError(
        f"--host {host} lets others ask, and there is no --token-file; give one, or say --anyone"
    )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Gate:
    """Lets requests in by ``Authorization: Bearer TOKEN``; a browser may give it as a password (Basic)."""

    def __init__(self, tokens: Iterable[str] = ()) -> None:
        self._digests = [self._digest(token) for token in tokens]

    def owner(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Whose request it is: a name for the token, empty where none is asked for; None: nobody's."""
        if not self._digests:
            return ""
        given = next((value for name, value in headers if name == b"authorization"), b"")
        kind, _, rest = given.partition(b" ")
        token = rest.strip()
        if kind.lower() == b"basic":
            try:
                token = base64.b64decode(token, validate=True).partition(b":")[2]
            except binascii.Error:
                return None
        elif kind.lower() != b"bearer":
            return None
        own, found = hashlib.sha256(token).digest(), None
        for digest in self._digests:  # all of them, so that the time tells nothing
            if hmac.compare_digest(own, digest):
                found = digest.hex()
        return found

    @staticmethod
    def _digest(token: str) -> bytes:
        return hashlib.sha256(token.encode()).digest()
