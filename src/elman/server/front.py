"""What stands before the routes: the token, the fast way of what is asked most, sessions of other workers."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from elman.errors import ElmanError
from elman.server.answers import SAFE, Headers, extra_headers, problem
from elman.server.app import problem_of, together
from elman.server.auth import Gate
from elman.server.batching import BusyError
from elman.server.forwarding import Siblings
from elman.server.schemas import FeedRequest, PredictRequest
from elman.server.service import Service, UnknownModelError
from elman.server.sessions import GoneError, UnknownSessionError

R = TypeVar("R", bound=BaseModel)
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
OPEN = "/v2/health/live"  # all that answers without a token
SESSION = re.compile(r"/v1/sessions/(s[0-9]{1,3}-[0-9a-f-]{1,120})(/[a-z]+)?")
LOG = logging.getLogger("uvicorn.error")
NOBODY = 499  # in the metrics: nobody was there to be answered
JSON: Headers = [(b"content-type", b"application/json")]


class Front:
    """An ASGI application around another one."""

    def __init__(self, app: Any, service: Service, gate: Gate, siblings: Siblings) -> None:
        self.app, self.service, self.gate, self.siblings = app, service, gate, siblings

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path, started = scope["path"], perf_counter()
        route, status, whole = self._route(path), 0, False

        async def watched(message: Message) -> None:
            nonlocal status, whole
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *SAFE]
            await send(message)
            whole = message["type"] == "http.response.body" and not message.get("more_body")

        owner = self.gate.owner(scope["headers"])
        try:
            if owner is None and path != OPEN:
                await self._say(watched, 401, problem(401, "give a token: Authorization: Bearer TOKEN"))
            elif route == "/v1/predict" and self._is_quick(scope):
                await self._answer(receive, watched, PredictRequest, self._predicted)
            else:
                scope["elman.owner"] = owner or ""
                forwarded = route == "/v1/sessions/ID" and await self.siblings.forwarded(
                    scope, receive, watched, self
                )
                if forwarded:
                    pass
                elif path.endswith("/feed") and (match := SESSION.fullmatch(path)) and self._is_quick(scope):
                    work = partial(self.service.feed, match[1], owner or "")
                    await self._answer(receive, watched, FeedRequest, work)
                else:
                    asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
                    await self.app(asked, receive, watched)
        except Exception as error:
            if not status:
                await self._tell(watched, error)
            if not whole:  # the connection cannot go on
                raise
            LOG.error("a request to %s failed", route, exc_info=error)
        finally:
            metrics = self.service.metrics
            if route.startswith("/v1/sessions"):
                metrics.sessions.set(len(self.service.sessions))
            metrics.requests.labels(route, status or NOBODY).inc()
            metrics.seconds.labels(route).observe(perf_counter() - started)

    def worker_of(self, scope: Message) -> int | None:
        """Which worker has the session of a request; None where there is no such session."""
        match = SESSION.fullmatch(scope["path"])
        try:
            return None if match is None else self.service.sessions.worker_of(match[1], scope["elman.owner"])
        except UnknownSessionError:
            return None

    def _route(self, path: str) -> str:
        """The kind of path, of which there are few."""
        if path in ("/v1/predict", "/v1/completions", "/v1/inspect", "/v1/sessions", "/metrics"):
            return path
        if path.startswith("/v1/sessions/"):
            return "/v1/sessions/ID"
        return "/v2" if path.startswith("/v2") else "other"

    @staticmethod
    def _is_quick(scope: Message) -> bool:
        """Is it asked for by POST with JSON?"""
        return scope["method"] == "POST" and any(
            name == b"content-type" and value.startswith(b"application/json")
            for name, value in scope["headers"]
        )

    async def _predicted(self, asked: PredictRequest) -> bytes:
        return together(await self.service.predict(asked.model, asked.inputs))

    async def _answer(
        self, receive: Receive, send: Send, kind: type[R], work: Callable[[R], Awaitable[bytes]]
    ) -> None:
        """As the route of that path, without what a framework does on the way."""
        message = await receive()
        body = message.get("body", b"")
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        if message["type"] == "http.disconnect":
            return
        try:
            found = await work(kind.model_validate_json(body))
        except ValidationError as error:
            rows = [{**row, "loc": ("body", *row["loc"])} for row in error.errors(include_url=False)]
            await self._tell(send, RequestValidationError(rows))
        except (UnknownModelError, UnknownSessionError, GoneError, BusyError, ElmanError) as error:
            await self._tell(send, error)
        else:
            await self._say(send, 200, found)

    async def _tell(self, send: Send, error: Exception) -> None:
        found = problem_of(error)
        await self._say(send, found.status_code, bytes(found.body))

    async def _say(self, send: Send, status: int, body: bytes) -> None:
        headers = [*JSON, (b"content-length", b"%d" % len(body)), *extra_headers(status)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
