"""Requests about a session that another worker has: they are handed on to it, by a socket of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Protocol

from elman.server.answers import extra_headers, problem

Message = MutableMapping[str, Any]
KEPT = (b"content-type", b"content-length", b"retry-after")
PATIENCE = 30.0  # seconds


class Finder(Protocol):
    def worker_of(self, scope: Message) -> int | None:
        """Which worker has the session of a request."""


class Siblings:
    """The workers of a server, each with a Unix socket in a folder that only its user can enter."""

    def __init__(self, worker: int = 0, folder: Path | None = None) -> None:
        self.worker, self.folder = worker, folder

    def socket(self, worker: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{worker}.sock"

    async def forwarded(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
        finder: Finder,
    ) -> bool:
        """Whether a request was another worker's, and is answered."""
        worker = None if self.folder is None else finder.worker_of(scope)
        if worker is None or worker == self.worker:
            return False
        message = await receive()
        body = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        if message["type"] == "http.disconnect":
            return True
        try:
            async with asyncio.timeout(PATIENCE):
                status, headers, answer = await self._ask(worker, scope, body)
        except TimeoutError:
            status, headers = 503, [(b"content-type", b"application/json"), *extra_headers(503)]
            answer = problem(503, "the worker that has the session did not answer in time")
        except (OSError, ValueError, asyncio.IncompleteReadError):
            status, headers = 410, [(b"content-type", b"application/json")]
            answer = problem(410, "the session has ended with its worker; begin another")
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
        return True

    async def _ask(self, worker: int, scope: Message, body: bytes) -> tuple[int, list[Any], bytes]:
        reader, writer = await asyncio.open_unix_connection(str(self.socket(worker)))
        try:
            method = b"GET" if scope["method"] == "HEAD" else scope["method"].encode()
            lines = [b"%s %s HTTP/1.1" % (method, scope["raw_path"]), b"host: worker"]
            passed = (b"content-type", b"authorization")
            lines += [b"%s: %s" % pair for pair in scope["headers"] if pair[0] in passed]
            lines += [b"content-length: %d" % len(body), b"connection: close", b"", b""]
            writer.write(b"\r\n".join(lines) + body)
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            answer = await reader.read()
        finally:
            writer.close()
        first, *rest = head[:-4].split(b"\r\n")
        pairs = [(name, value) for name, _, value in (line.partition(b": ") for line in rest) if name in KEPT]
        if len(answer) != int(dict(pairs).get(b"content-length", len(answer))):
            raise ValueError("the worker ended in the middle of its answer")
        return int(first.split()[1]), pairs, answer
