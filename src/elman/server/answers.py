"""Answers to requests that go wrong, each in OpenAI's shape, and the headers that all answers have."""

from __future__ import annotations

import json
from collections.abc import Sequence

Headers = list[tuple[bytes, bytes]]
SAFE: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'self'; style-src 'self'; script-src 'self'; "
     b"img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
]  # fmt: skip
KINDS = {
    400: "invalid_request",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    410: "gone",
    413: "too_large",
    422: "invalid_request",
    431: "too_large",
    503: "busy",
}


def problem(status: int, message: str, details: Sequence[object] = ()) -> bytes:
    """What is wrong, as JSON."""
    error = {"message": message, "type": KINDS.get(status, "error"), "code": status}
    return json.dumps({"error": error | ({"details": details} if details else {})}).encode()


def extra_headers(status: int) -> Headers:
    if status == 401:
        return [(b"www-authenticate", b'Bearer, Basic realm="elman", charset="UTF-8"')]
    return [(b"retry-after", b"1")] if status == 503 else []


def raw(status: int, reason: str, message: str, *, close: bool) -> bytes:
    """A whole answer as bytes, for where no application answers."""
    body = problem(status, message)
    headers = [(b"content-type", b"application/json"), *extra_headers(status), *SAFE]
    lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
    end = b"connection: close\r\n" if close else b""
    start = b"HTTP/1.1 %d %s\r\n" % (status, reason.encode())
    return start + lines + b"content-length: %d\r\n" % len(body) + end + b"\r\n" + body
