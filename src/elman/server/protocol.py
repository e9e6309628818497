"""uvicorn's HTTP protocol with the timeouts and bounds that it has none of.

Headers, bodies and writes have their time; a request beyond the bound of those that are being answered is
turned away when its headers are there, before its body is read.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

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
        self._read_timer: asyncio.TimerHandle | None = None  # of headers, then of a body
        self._write_timer: asyncio.TimerHandle | None = None
        self._in_body = False  # are the headers of the request that is being read there?
        self._before_body, self._head, self._body = 0, 0, 0  # bytes: as they came, of headers, of a body
        self._turned_away = False  # is the request that is being read?
        self._to_tell: asyncio.TimerHandle | None = None  # that it is
        self._cycles: list[RequestResponseCycle] = []  # what is to be answered, one after the other
        self._deaf = False  # nothing is read beyond this request
        self._stopping = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > limits.CONNECTIONS:
            transport.write(FULL)
            transport.close()
            return
        self._give(limits.HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._read_timer, self._write_timer, self._to_tell):
            if timer is not None:
                timer.cancel()
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self._ended():
            return
        if self._read_timer is None and self._idle():
            self._give(limits.HEADER_SECONDS)
        if not self._in_body:
            self._before_body += len(data)
        super().data_received(data)
        if not self._in_body and self._read_timer is not None and self._before_body > limits.HEADERS:
            self._cut(LONG)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._to_tell is not None:  # it does not wait for its answer: one answer is for both
            self._to_tell.cancel()
            self._turn_away(keep=False)
        self._turned_away, self._head, self._body = False, 0, 0
        if self._read_timer is None and not self._ended():
            self._give(limits.HEADER_SECONDS)

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
        self._before_body = 0
        length = next((value for name, value in self.headers if name == b"content-length"), b"0")
        hosts, version = sum(name == b"host" for name, _ in self.headers), self.parser.get_http_version()
        if hosts > 1 or version not in ("1.0", "1.1") or (version == "1.1" and not hosts):
            self._cut(BROKEN)
        elif int(length) > limits.BODY:
            self._cut(LARGE)
        if self._ended():
            self._turned_away = True
            return
        self._cycles = [one for one in self._cycles if not one.response_complete]
        busy = len(self.tasks) >= limits.QUEUED and not self._cycles and not self.url.startswith(ALWAYS)
        if busy:
            self._turned_away = True
            if self.shed is not None:
                self.shed.inc()
            if self.expect_100_continue:  # it waits to be told before it sends the rest
                self._cut(BUSY_CLOSED)
                return
        else:
            super().on_headers_complete()
            self._cycles.append(self.cycle)
            if self._stopping:
                self.cycle.keep_alive = False
            if len(self._cycles) > limits.PIPELINED:  # the rest is asked again, by another connection
                self._end_after_answers()
        self._in_body = True
        self._give(limits.BODY_SECONDS)

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        if self._body > limits.BODY:
            self._cut(LARGE)
        elif not self._turned_away:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._in_body and self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        self._in_body = False
        if not self._turned_away:
            super().on_message_complete()
        elif not self._ended():  # a moment later, so that whoever asks again at once does not keep us busy
            self.flow.pause_reading()
            keep = self.parser.should_keep_alive() and self.parser.get_method() != b"HEAD"
            self._to_tell = self.loop.call_later(limits.SHED_SECONDS, self._turn_away, keep)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._flush()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._flush()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._flush()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None and not self.transport.is_closing():
            self._write_timer.cancel()
            self._write_timer = None

    def _flush(self) -> None:
        """What is not written has its time."""
        if self._write_timer is None and self.transport.get_write_buffer_size():
            self._write_timer = self.loop.call_later(limits.WRITE_SECONDS, self.transport.abort)

    def _give(self, seconds: float) -> None:
        """So much time for what is being read."""
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._read_timer = self.loop.call_later(seconds, self._late)

    def _idle(self) -> bool:
        """Is no request of this connection being answered?"""
        return self.cycle is None or self.cycle.response_complete

    def _ended(self) -> bool:
        """Is nothing more read?"""
        return self.transport.is_closing() or (self._deaf and not self._in_body)

    def _is_behind(self) -> bool:
        """Is the request that is being read behind one that has no answer yet?"""
        own = self.cycle if self._in_body and not self._turned_away else None
        return any(one is not own and not one.response_complete for one in self._cycles)

    def shutdown(self) -> None:
        """The server stops: what is on its way by this connection is answered, and then it is closed."""
        self._stopping = True
        if self._idle():
            self.loop.call_later(limits.LAST_SECONDS, self._close_unused)
        else:
            super().shutdown()

    def _close_unused(self) -> None:
        """Where a request has begun, it has its time."""
        if self._idle() and not self._before_body and not self._in_body and self._to_tell is None:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._cut(BROKEN)

    def _turn_away(self, keep: bool) -> None:
        self._to_tell = None
        if self._ended():
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
        """Headers or a body did not come in time; behind another request they are not read."""
        if self._deaf and not self._in_body:
            self.transport.abort()
        elif self._is_behind():
            self._give(limits.BODY_SECONDS if self._in_body else limits.HEADER_SECONDS)
        else:
            self._cut(LATE)

    def _cut(self, answer: bytes) -> None:
        """Answer, unless that has been done, and read no further.

        What still comes is thrown away for a moment: to close at once would take the answer from the client.
        """
        if self._ended():
            return
        own = self._in_body and not self._turned_away
        if self._is_behind() and not own:
            self._end_after_answers()
            return
        if not self._is_behind() and not (own and self.cycle.response_started):
            self.transport.write(answer)
        self._turned_away, self._deaf, self._in_body = True, True, False
        self._leave()
        self.flow.resume_reading()
        self.transport.write_eof()
        self._give(limits.LINGER_SECONDS)

    def _end_after_answers(self) -> None:
        """Read no further, and close when what was asked before has its answer."""
        self._deaf, self.cycle.keep_alive = True, False

    def _leave(self) -> None:
        """Nobody waits for answers any more."""
        for one in self._cycles:
            if not one.response_complete:
                one.disconnected = True
                one.message_event.set()
