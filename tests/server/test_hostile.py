"""Clients that are slow, broken, greedy or curious: they are cut or refused, and others are served meanwhile.

``ELMAN_HOSTILE=100 pytest tests/server/test_hostile.py`` brings a hundred times as many, and the timeouts
are the real ones.
"""

import asyncio
import os
import random
import re
import socket
import threading
import time
from contextlib import suppress

import httpx
import pytest

from elman.errors import ArgumentError, FileError, RunError
from elman.server import limits
from elman.server.auth import Gate, check_address, read_tokens
from served import TOKEN, Served, raw, request, statuses, until_closed

TIMES = int(os.environ.get("ELMAN_HOSTILE", "1"))
REAL = TIMES > 1
PREDICT = {"model": "tag", "inputs": ["the cat"]}


@pytest.fixture
def hasty(monkeypatch):
    """Timeouts that a test can wait for, unless the real ones are asked for."""
    if not REAL:
        for name, seconds in (("HEADER_SECONDS", 0.4), ("BODY_SECONDS", 0.8), ("WRITE_SECONDS", 0.5)):
            monkeypatch.setattr(limits, name, seconds)


async def cut_after(host, beginning, pieces, every, most):
    """What a slow client hears, and after how long it is cut."""
    start = time.monotonic()
    reader, writer = await asyncio.open_connection(*host)

    async def drip():
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(every)

    writer.write(beginning)
    dripping = asyncio.create_task(drip())
    try:
        heard = await asyncio.wait_for(reader.read(), most)
    except ConnectionResetError:
        heard = b""
    dripping.cancel()
    await asyncio.gather(dripping, return_exceptions=True)
    writer.close()
    return heard, time.monotonic() - start


def test_half_sent_headers_and_slow_bodies_are_cut(served, client, hasty):
    body = request("POST", "/v1/predict", PREDICT)
    head, _, content = body.partition(b"\r\n\r\n")
    halves = [b"", b"POST /v1/pre", head[:60], head + b"\r\n"]
    served_meanwhile = []

    def others():
        while not done.is_set():
            found = client.post("/v1/predict", json=PREDICT)
            served_meanwhile.append(found.status_code)
            time.sleep(0.02)

    async def all_of_them():
        every = 1.0 if REAL else 0.1
        headers = [cut_after(served.host, halves[n % 4], [], 1, 60) for n in range(5 * TIMES)]
        dripped = [b"x: y\r\n"] * 500
        headers += [cut_after(served.host, head + b"\r\n", dripped, every, 60) for _ in range(2)]
        drops = [bytes([one]) for one in content * 9]
        slow = head.replace(b"content-length: ", b"content-length: 9") + b"\r\n\r\n"
        bodies = [cut_after(served.host, slow, drops, every, 90) for _ in range(2 * TIMES)]
        cut = await asyncio.gather(*headers, *bodies)
        return cut[: len(headers)], cut[len(headers) :]

    done = threading.Event()
    thread = threading.Thread(target=others)
    thread.start()
    try:
        headers, bodies = asyncio.run(all_of_them())
    finally:
        done.set()
        thread.join()
    for cut, allowed in ((headers, limits.HEADER_SECONDS), (bodies, limits.BODY_SECONDS)):
        for heard, seconds in cut:
            assert statuses(heard) in ([], [408])
            assert 0.9 * allowed < seconds < allowed * 1.5 + 2.5
    assert len(served_meanwhile) > 3
    assert {*served_meanwhile} == {200}
    if REAL:
        assert max(seconds for _, seconds in headers) < 10
        assert max(seconds for _, seconds in bodies) < 30


def test_who_reads_nothing_is_cut(served, hasty):
    asked = {"model": "lm", "prompt": "a" * limits.TEXT, "n": 8, "echo": True, "max_tokens": 1}
    latest = time.monotonic() + limits.WRITE_SECONDS + 10
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(served.host)

        def is_open():
            return any(own.client == one.getsockname() for own in [*served.running.server_state.connections])

        while not is_open():
            time.sleep(0.01)
        one.sendall(request("POST", "/v1/completions", asked, close=False) * limits.PIPELINED)
        while is_open():
            assert time.monotonic() < latest
            time.sleep(0.05)
        assert len(statuses(until_closed(one))) < limits.PIPELINED


def test_headers_and_bodies_have_an_end(served, client):
    long = request("GET", "/v1/models", **{f"x{n}": "y" * 1000 for n in range(60)})
    assert statuses(served.raw(long)) == [431]
    assert statuses(served.raw(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n")) == [431]
    assert client.post("/v1/predict", content=b"x" * (limits.BODY + 1)).status_code == 413

    def endless():
        for _ in range(3 * limits.BODY // 60_000):
            yield b" " * 60_000

    with suppress(httpx.WriteError):  # it did not wait for the answer
        assert client.post("/v1/predict", content=endless()).status_code == 413
    assert statuses(served.raw(request("POST", "/v1/predict", PREDICT, expect="100-continue"))) == [100, 200]


def test_too_many_are_turned_away_before_their_body_is_read(served, client, monkeypatch):
    monkeypatch.setattr(limits, "QUEUED", 0)
    found = client.post("/v1/predict", json=PREDICT)
    assert (found.status_code, found.headers["retry-after"]) == (503, "1")
    assert found.json()["error"]["type"] == "busy"
    assert client.get("/v2/health/live").status_code == 200
    assert "elman_shed_total" in client.get("/metrics").text
    twice = request("POST", "/v1/predict", PREDICT, close=False) * 2
    assert statuses(served.raw(twice)) == [503]  # who does not wait gets one answer for all
    monkeypatch.undo()
    assert client.post("/v1/predict", json=PREDICT).status_code == 200


def test_connections_have_a_bound(served, monkeypatch):
    time.sleep(0.1)
    monkeypatch.setattr(limits, "CONNECTIONS", 1)
    with socket.create_connection(served.host, timeout=10), socket.create_connection(served.host) as second:
        second.settimeout(10)
        assert statuses(until_closed(second)) == [503]


def test_completions_and_looks_have_bounds(served, client, monkeypatch):
    monkeypatch.setattr(limits, "STREAMS", 0)
    assert client.post("/v1/completions", json={"model": "lm"}).status_code == 503
    monkeypatch.setattr(limits, "SLOW", 0)
    assert client.post("/v1/inspect", json={"model": "lm", "text": "a"}).status_code == 503


def test_a_completion_that_nobody_waits_for_is_not_written(served):
    before = served.service._writing
    asked = {"model": "lm", "prompt": "the", "max_tokens": 4096, "n": 4, "temperature": 0}
    for stream in (False, True):
        with socket.create_connection(served.host) as one:
            one.sendall(request("POST", "/v1/completions", asked | {"stream": stream}))
            while served.service._writing == before:
                time.sleep(0.01)
        latest = time.monotonic() + 3
        while served.service._writing > before:
            assert time.monotonic() < latest
            time.sleep(0.01)


def broken_requests(draw):
    """What no client would send, without an end."""
    good = request("POST", "/v1/predict", PREDICT)
    head, _, body = good.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    while True:
        kind = draw.randrange(9)
        if kind == 0:
            yield draw.randbytes(draw.randint(1, 200))
        elif kind == 1:  # one byte is another
            place = draw.randrange(len(head))
            yield good[:place] + draw.randbytes(1) + good[place + 1 :]
        elif kind == 2:  # two lengths, or a length beside chunks
            extra = draw.choice(
                (b"content-length: 5", b"transfer-encoding: chunked", b"Transfer-Encoding: xchunked")
            )
            yield b"\r\n".join([*lines, extra]) + b"\r\n\r\n" + body
        elif kind == 3:
            value = draw.choice((b"-1", b"+5", b"0x10", b"9" * 30, b"", b"1 1", b"1,1", b"\x00"))
            yield b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ncontent-length: " + value + b"\r\n\r\n{}"
        elif kind == 4:
            size = draw.choice((b"zz", b"-5", b"fffffffffffffffffff", b"5;" + b"a" * 300, b"", b"0x5"))
            start = b"POST /v1/predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            yield start + size + b"\r\nhello\r\n0\r\n\r\n"
        elif kind == 5:
            version = draw.choice(
                (b"HTTP/9.9", b"HTTP/1", b"HTTP", b"http/1.1", b"HTTP/1.1\x00", b"RTSP/1.0")
            )
            yield b"GET /v1/models " + version + b"\r\nhost: x\r\n\r\n"
        elif kind == 6:
            method = draw.choice((b"", b"G\x00T", b"get", b"GETT", b"G" * 500, b"PRI", b"CONNECT"))
            yield method + b" /v1/models HTTP/1.1\r\nhost: x\r\n\r\n"
        elif kind == 7:
            line = draw.choice(
                (b"no colon", b": no name", b"a b: c", b" folded", b"a\x00: b", b"a: \x01", b"a:\rb")
            )
            yield b"GET /v1/models HTTP/1.1\r\nhost: x\r\n" + line + b"\r\n\r\n"
        else:
            path = draw.choice(
                (b"", b"*", b"http://", b"//", b"\xff", b"/\x01", b"/%", b"/%zz", b"/a b", b"/#?")
            )
            yield b"GET " + path + b" HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.slow
def test_broken_requests_are_refused_or_cut(served, client, capfd):
    """Smuggling among them: a length beside chunks is refused, and never two answers come for one."""
    draw = random.Random(7)
    fuzz = broken_requests(draw)
    seen = {}
    for _ in range(100 * TIMES):
        asked = next(fuzz)
        with socket.create_connection(served.host, timeout=10) as one:
            one.sendall(asked)
            one.shutdown(socket.SHUT_WR)
            found = statuses(until_closed(one))
        # What happens to be a request after all is answered as one.
        assert len(found) <= 1, asked
        assert not found or found[0] in (200, 400, 404, 405, 408, 413, 422, 431), asked
        seen[tuple(found)] = seen.get(tuple(found), 0) + 1
    assert seen[(400,)] > 40 * TIMES
    assert client.post("/v1/predict", json=PREDICT).status_code == 200
    assert "Traceback" not in capfd.readouterr().err


SMUGGLED = [
    b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n",
    b"content-length: 5\r\ncontent-length: 6\r\n\r\n{} xx",
    b"transfer-encoding: identity\r\ncontent-length: 2\r\n\r\n{}",
    b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"content-length : 2\r\n\r\n{}",
]


@pytest.mark.parametrize("rest", SMUGGLED)
def test_two_ways_to_tell_a_length_are_refused(rest, served):
    found = statuses(served.raw(b"POST /v1/predict HTTP/1.1\r\nhost: x\r\n" + rest, 2.0))
    assert found in ([400], [])


def names_from_elsewhere(count):
    """Paths that try to leave a folder, in every spelling."""
    draw = random.Random(3)
    ups = [
        "..",
        "%2e%2e",
        "..%2f",
        "%2e%2e%2f",
        "..%5c",
        "..\\",
        "%252e%252e%252f",
        "....//",
        "%c0%ae%c0%ae",
        "..",
    ]
    ends = [
        "etc/passwd",
        "config.toml",
        "app.py",
        "tokens",
        "%00",
        "index.html%00.png",
        "~",
        "proc/self/environ",
    ]
    starts = ["/page/", "/v1/models/", "/v2/models/", "/v1/sessions/", "/v2/models/lm/", "/", "//", "/page//"]
    for _ in range(count):
        middle = "/".join(draw.choice(ups) for _ in range(draw.randint(1, 6)))
        yield f"{draw.choice(starts)}{middle}/{draw.choice(ends)}"


def test_names_from_elsewhere_are_nobodys(served, client):
    for path in names_from_elsewhere(200):
        found = served.raw(request("GET", path))
        assert statuses(found) in ([404], [422], [400]), path
        assert b"root:" not in found
    for name in ("..", ".", "../lm", "/etc/passwd", "lm/../tag", "lm\x00", "a" * 65, ""):
        for path in ("/v1/predict", "/v1/sessions", "/v1/completions", "/v1/inspect"):
            found = client.post(path, json={"model": name, "inputs": ["a"], "text": "a"})
            assert found.status_code in (404, 422), (path, name)


@pytest.fixture(scope="module")
def closed(runs):
    """A server with a token."""
    one = Served({"tag": runs["tag"], "tagger": runs["tagger"]}, tokens=(TOKEN, TOKEN[::-1]))
    yield one
    one.close()


def test_every_route_asks_for_a_token(closed):
    routes = [route for route in closed.front.app.routes if hasattr(route, "methods")]
    assert len(routes) > 18
    with httpx.Client(base_url=closed.address) as client:
        for route in routes:
            path = re.sub(r"\{\w+\}", "tag", route.path)
            for method in {*route.methods, "GET", "POST", "OPTIONS", "HEAD"}:
                status = client.request(method, path).status_code
                assert status == 401 or (path == "/v2/health/live" and status in (200, 405)), (method, path)
        for path in (
            "/nonsense",
            "/v2/health/live/",
            "//v2/health/live",
            "/v2/health/live%2f..",
            "/V2/health/live",
        ):
            assert client.get(path).status_code == 401, path
        told = client.get("/").headers["www-authenticate"]
        assert "Bearer" in told
        assert "Basic" in told
        for good in (TOKEN, TOKEN[::-1]):
            assert client.get("/v1/models", headers={"authorization": f"Bearer {good}"}).status_code == 200
            assert client.get("/v1/models", auth=("anybody", good)).status_code == 200
        for wrong in (
            "",
            "Bearer",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN}x",
            f"Basic {TOKEN}",
            TOKEN,
            "Basic é",
        ):
            headers = [(b"authorization", wrong.encode())]
            assert client.get("/v1/models", headers=headers).status_code == 401, wrong


def test_a_session_belongs_to_its_token(closed):
    own, other = ({"authorization": f"Bearer {one}"} for one in (TOKEN, TOKEN[::-1]))
    with httpx.Client(base_url=closed.address) as client:
        name = client.post("/v1/sessions", json={"model": "tagger"}, headers=own).json()["id"]
        assert client.get(f"/v1/sessions/{name}", headers=own).status_code == 200
        for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/fork"), ("GET", "/state")):
            assert client.request(method, f"/v1/sessions/{name}{rest}", headers=other).status_code == 404
        changed = name[:-1] + ("0" if name[-1] != "0" else "1")
        assert client.get(f"/v1/sessions/{changed}", headers=own).status_code == 404


def test_tokens_are_compared_whole(monkeypatch):
    """All of them, by hmac, whichever fits: the time tells nothing."""
    import hmac

    asked = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: asked.append(len(a)) or compare(a, b))
    gate = Gate([TOKEN, TOKEN[::-1], "x" * 40])
    for given in (TOKEN, "x" * 40, "nobody's"):
        gate.owner([(b"authorization", b"Bearer " + given.encode())])
    assert asked == [32] * 9


def test_tokens_of_a_file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# ours\n\n  {TOKEN}  \n{TOKEN[::-1]}\n")
    assert read_tokens(path) == [TOKEN, TOKEN[::-1]]
    path.write_bytes(b"\xef\xbb\xbf" + TOKEN.encode() + b"\r\n")
    assert read_tokens(path) == [TOKEN]
    with pytest.raises(RunError, match="cannot be read: No such file"):
        read_tokens(tmp_path / "none")
    path.write_bytes(b"\xff" * 20)
    with pytest.raises(FileError, match="characters that no header has"):
        read_tokens(path)
    for wrong in ("", "# none\n", "short\n", "with a space in it\n", "ümlautümlautümlaut\n"):
        path.write_text(wrong)
        with pytest.raises(FileError):
            read_tokens(path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_others_need_a_token(host):
    with pytest.raises(ArgumentError, match="--anyone"):
        check_address(host, token=False, anyone=False)
    check_address(host, token=True, anyone=False)
    check_address(host, token=False, anyone=True)
    for own in ("127.0.0.1", "127.0.0.53", "::1", "localhost"):
        check_address(own, token=False, anyone=False)


def test_a_request_to_a_closed_port_of_nobody(served):
    """A connection that says nothing is closed, and costs nobody anything."""
    with socket.create_connection(served.host):
        pass
    assert statuses(raw(served.host, request("GET", "/v2/health/live"))) == [200]
