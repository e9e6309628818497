"""uvicorn's HTTP protocol with the timeouts and bounds that it has none of.

Headers, bodies and writes have their time; a request beyond the bound of those that are being answered is
turned away when its headers are there, before its body is read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from elman.server import limits
from elman.server.answers import raw

BUSY = raw(503, "Service Unavailable", "the server is busy; come back in a second", close=False)
BUSY_CLOSED = raw(503, "Service Unavailable", "the server is busy; come back in a second", close=True)
BROKEN = raw(400, "Bad Request", "that is no HTTP request", close=True)
FULL = raw(503, "Service Unavailable", "the server has too many connections", close=True)
LARGE = raw(413, "Content Too Large", f"a request has at most {limits.BODY:,} bytes", close=True)
LONG = raw(431, "Request Header Fields Too Large", "the headers are too long", close=True)
LATE = raw(408, "Request Timeout", "the request did not come in time", close=True)
ALWAYS = (b"/v2/health/", b"/metrics")  # what answers however busy a server is


class GuardedProtocol(HttpToolsProtocol):
    """One connection."""

    shed: Any = None  # counts requests that are turned away

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._header_timer: asyncio.TimerHandle | None = None
        self._body_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._before_body, self._head, self._body = 0, 0, 0  # bytes: as they came, of headers, of a body
        self._turned_away = False  # is the request that is being read?
        self._to_tell: asyncio.TimerHandle | None = None  # that it is
        self._stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > limits.CONNECTIONS:
            transport.write(FULL)
            transport.close()
            return
        self._header_timer = self.loop.call_later(limits.HEADER_SECONDS, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._header_timer, self._body_timer, self._write_timer, self._to_tell):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._header_timer is None and self._body_timer is None and self._idle():
            self._header_timer = self.loop.call_later(limits.HEADER_SECONDS, self._late)
        if self._body_timer is None:
            self._before_body += len(data)
        if self.parser is None or self.transport.is_closing():
            return
        super().data_received(data)
        if self._body_timer is None and self._header_timer is not None and self._before_body > limits.HEADERS:
            self._cut(LONG)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._to_tell is not None:  # it does not wait for its answer: one answer is for both
            self._to_tell.cancel()
            self._turn_away(keep=False)
        self._turned_away, self._head, self._body = False, 0, 0
        if self._header_timer is None and not self.transport.is_closing():
            self._header_timer = self.loop.call_later(limits.HEADER_SECONDS, self._late)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_head(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count_head(name + value)

    def _count_head(self, more: bytes) -> None:
        self._head += len(more)
        if self._head > limits.HEADERS:
            self._cut(LONG)

    def on_headers_complete(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        self._before_body = 0
        if self.transport.is_closing():
            self._turned_away = True
            return
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        if int(length) > limits.BODY:
            self._turned_away = True
            self._cut(LARGE)
            return
        busy = len(self.tasks) >= limits.QUEUED and self._idle() and not self.url.startswith(ALWAYS)
        self._body_timer = self.loop.call_later(limits.BODY_SECONDS, self._late)
        if busy:
            self._turned_away = True
            if self.shed is not None:
                self.shed.inc()
        else:
            super().on_headers_complete()
            self.cycle.keep_alive = self.cycle.keep_alive and not self._stopping

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        if self._body > limits.BODY:
            self._turned_away = True
            self._cut(LARGE)
        elif not self._turned_away:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
        if self.transport.is_closing():
            return
        if self._turned_away:  # a moment later, so that whoever asks again at once does not keep us busy
            self.flow.pause_reading()
            keep = self.parser.should_keep_alive()
            self._to_tell = self.loop.call_later(limits.SHED_SECONDS, self._turn_away, keep)
            return
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(limits.WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _idle(self) -> bool:
        """Is no request of this connection being answered?"""
        return self.cycle is None or self.cycle.response_complete

    def shutdown(self) -> None:
        """The server stops: what is on its way by this connection is answered, and then it is closed."""
        self._stopping = True
        if self._idle():
            self.loop.call_later(limits.LAST_SECONDS, self._close_unused)
        else:
            super().shutdown()

    def _close_unused(self) -> None:
        """Where a request has begun, it has its time."""
        if self._idle() and not self._before_body and self._body_timer is None and self._to_tell is None:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._cut(BROKEN)

    def _turn_away(self, keep: bool) -> None:
        self._to_tell = None
        if self.transport.is_closing():
            return
        if not keep or self._stopping:
            self.transport.write(BUSY_CLOSED)
            self.transport.close()
            return
        self.transport.write(BUSY)
        self.flow.resume_reading()
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _late(self) -> None:
        """Headers or a body did not come in time."""
        self._cut(LATE)

    def _cut(self, answer: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._idle() or not self.cycle.response_started:
            self.transport.write(answer)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
