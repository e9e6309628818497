"""Requests that another worker answers, and what comes of it when that one goes away."""

import asyncio

import pytest

from elman.server.forwarding import Siblings


class Finder:
    def worker_of(self, scope):
        return 1


def forwarded(folder, answer, method="GET"):
    """What is told to whoever asks, where the other worker says that; and what it was asked."""
    told, asked = [], []

    async def worker(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        told.append(message)

    async def run():
        async with await asyncio.start_unix_server(worker, folder / "1.sock"):
            scope = {"method": method, "raw_path": b"/v1/sessions/s1", "headers": [(b"cookie", b"c")]}
            assert await Siblings(0, folder).forwarded(scope, receive, send, Finder())

    asyncio.run(run())
    return told[0]["status"], told[1]["body"], asked[0]


def test_an_answer_is_handed_on(tmp_path):
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    for method in ("GET", "HEAD"):  # whoever sends the answer leaves out the body
        status, body, asked = forwarded(tmp_path, answer, method)
        assert (status, body) == (200, b"{}")
        assert asked.startswith(b"GET /v1/sessions/s1 HTTP/1.1")
        assert b"cookie" not in asked
    assert forwarded(tmp_path, b"HTTP/1.1 204 No Content\r\n\r\n")[:2] == (204, b"")


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{"]
)
def test_a_worker_that_ends_in_the_middle_has_no_session_any_more(answer, tmp_path):
    status, body, _ = forwarded(tmp_path, answer)
    assert (status, b"ended with its worker" in body) == (410, True)
