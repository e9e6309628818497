"""One connection: requests that wait behind others, one answer for each, and ways of HTTP that few go."""

import http.client
import re
import socket
import time

import pytest

from elman.server import limits
from elman.server.completing import Writing
from served import request, statuses, until_closed

PREDICT = {"model": "tag", "inputs": ["the cat"]}
STREAM = {"model": "lm", "prompt": "the", "max_tokens": 200, "stream": True}


@pytest.fixture
def slow(monkeypatch):
    """A stream of completions takes its time: a second, unless nobody waits for it any more."""

    def step(writing):
        time.sleep(0.005)
        writing.tokens.append(5)
        if len(writing.tokens) >= writing.most:
            writing.finished = "length"

    monkeypatch.setattr(Writing, "_step", step)


@pytest.fixture
def hasty(monkeypatch):
    for name in ("HEADER_SECONDS", "BODY_SECONDS", "WRITE_SECONDS"):
        monkeypatch.setattr(limits, name, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.95])
def test_what_waits_behind_an_answer_does_not_spoil_it(share, served, slow, hasty):
    """The half of a request that comes while another is answered has its time after that."""
    second = request("POST", "/v1/predict", PREDICT)
    half = int(share * len(second))
    with socket.create_connection(served.host, timeout=20) as one:
        one.sendall(request("POST", "/v1/completions", STREAM, close=False) + second[:half])
        time.sleep(1.0)
        one.sendall(second[half:])
        found = until_closed(one)
    assert statuses(found) == [200, 200]
    assert b"data: [DONE]" in found
    with socket.create_connection(served.host, timeout=20) as one:
        one.sendall(request("POST", "/v1/completions", STREAM, close=False) + second[:half])
        found = until_closed(one)  # the other half never comes
    assert statuses(found) == [200, 408]
    assert b"data: [DONE]" in found


def test_what_is_no_request_does_not_spoil_the_answer_before_it(served):
    good = request("POST", "/v1/predict", PREDICT, close=False)
    for broken in (b"\0\0\0\0\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * limits.HEADERS):
        found = served.raw(good + broken)
        assert statuses(found)[0] == 200
        assert b'"predictions"' in found


def test_who_leaves_leaves_all_that_was_asked(served, slow):
    with socket.create_connection(served.host) as one:
        one.sendall(request("POST", "/v1/completions", STREAM | {"max_tokens": 4096}, close=False) * 2)
        while not served.service._writing:
            time.sleep(0.01)
    latest = time.monotonic() + 5
    while served.service._writing:
        assert time.monotonic() < latest
        time.sleep(0.01)


def test_who_asks_without_end_is_answered_so_far(served):
    """What waits of a connection is bounded; the last answer says that the connection ends."""
    found = served.raw(request("GET", "/v2/health/live", close=False) * 5000)
    assert statuses(found) == [200] * (limits.PIPELINED + 1)
    assert found.count(b"connection: close") == 1
    assert found.rindex(b"HTTP/1.1") < found.index(b"connection: close")


@pytest.mark.parametrize(
    "rest",
    [
        b"content-length: 100\r\n\r\nx",
        b"transfer-encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * 40,
    ],
)
def test_one_answer_for_one_request(rest, served, hasty):
    """It came before the body, which then takes too long, or is too long."""
    assert statuses(served.raw(b"POST /nonsense HTTP/1.1\r\nhost: x\r\n" + rest)) == [404]


@pytest.mark.parametrize("body", [b"x" * 5_000_000, [b"x" * 65_536] * 80])
def test_who_sends_too_much_is_told_so(body, served):
    """Also a client that listens only when it has sent all."""
    one = http.client.HTTPConnection(*served.host, timeout=10)
    one.request("POST", "/v1/predict", body if isinstance(body, bytes) else iter(body))
    assert one.getresponse().status == 413


def test_who_waits_before_a_body_is_told_at_once_that_there_is_no_room(served, monkeypatch):
    head, _, _ = request("POST", "/v1/predict", PREDICT, expect="100-continue").partition(b"\r\n\r\n")
    monkeypatch.setattr(limits, "QUEUED", 0)
    assert statuses(served.raw(head + b"\r\n\r\n", 3)) == [503]


def test_heads(served, monkeypatch):
    """HEAD is GET without the body, and no answer to it has one that another answer would come behind."""
    twice = request("HEAD", "/v1/models", close=False) + request("GET", "/v1/models")
    first, second = re.split(rb"(?=HTTP/1\.1)", served.raw(twice))[1:]
    _, _, body = second.partition(b"\r\n\r\n")
    assert re.search(rb"content-length: (\d+)", first)[1] == str(len(body)).encode()
    assert (first.split()[1], first.partition(b"\r\n\r\n")[2]) == (b"200", b"")
    assert statuses(served.raw(request("HEAD", "/v1/predict"))) == [405]
    monkeypatch.setattr(limits, "QUEUED", 0)
    assert b"connection: close" in served.raw(request("HEAD", "/v1/models", close=False))


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"GET /v2/health/live HTTP/1.1\r\nconnection: close\r\n\r\n", 400),
        (b"GET /v2/health/live HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n", 400),
        (b"GET /v2/health/live HTTP/1.0\r\nhost: a\r\nhost: a\r\n\r\n", 400),
        (b"GET /v2/health/live\r\n\r\n", 400),
        (b"GET /v2/health/live HTTP/1.0\r\n\r\n", 200),
    ],
)
def test_a_request_has_one_host(asked, status, served):
    assert statuses(served.raw(asked)) == [status]


def test_an_old_client_gets_a_stream_in_one_piece(served):
    asked = request("POST", "/v1/completions", STREAM, close=False).replace(b"HTTP/1.1", b"HTTP/1.0")
    head, _, body = served.raw(asked).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body.endswith(b"data: [DONE]\n\n")
