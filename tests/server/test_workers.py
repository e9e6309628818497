"""Servers as processes: how they stop, what becomes of a worker's death, and what is told at the start.

``ELMAN_IN_FLIGHT=200 pytest tests/server/test_workers.py`` stops a server with so many requests in flight.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress

import httpx
import pytest

from forked import Forked
from served import STREAMING, Process, request, statuses
from tiny import elman

MANY = int(os.environ.get("ELMAN_IN_FLIGHT", "40"))
pytestmark = pytest.mark.slow


async def answered(host, asked):
    """All that comes back for a request until its connection ends, and when that is."""
    reader, writer = await asyncio.open_connection(*host)
    writer.write(asked)
    await writer.drain()
    found = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return found, time.monotonic()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stop_loses_nothing_that_was_sent(workers, runs):
    """Requests and streams that are in flight, and connections by which more come at that moment."""
    predict = request("POST", "/v1/predict", {"model": "tag", "inputs": ["the cat " * 300] * 4}, close=False)
    asked = {"model": "lm", "prompt": "the", "max_tokens": 200, "temperature": 0, "stream": True}
    streams = [request("POST", "/v1/completions", asked)] * (MANY // 4)

    async def kept(late):
        """A connection that was used before; its next request may come when the server is told to stop."""
        reader, writer = await asyncio.open_connection(*process.host)
        writer.write(request("GET", "/v2/health/live", close=False))
        await reader.readuntil(b"}")
        ready.release()
        await go.wait()
        await asyncio.sleep(late)
        writer.write(predict)
        found = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        return found

    async def all_of_them():
        live = [asyncio.create_task(kept(0.1 * (n % 3))) for n in range(MANY)]
        for _ in live:
            await ready.acquire()
        flowing = [asyncio.create_task(answered(process.host, one)) for one in streams]
        await asyncio.sleep(0.1)
        go.set()
        await asyncio.sleep(0.05)
        os.kill(process.pid, signal.SIGTERM)
        return time.monotonic(), await asyncio.gather(*live), await asyncio.gather(*flowing)

    ready, go = asyncio.Semaphore(0), asyncio.Event()
    with Process(*(runs[name] for name in ("lm", "tag")), "--workers", workers) as process:
        stopped, live, flowing = asyncio.run(all_of_them())
        process.forked.communicate(60)
    for found in live:
        assert statuses(found) == [200], found[-300:]
        assert len(json.loads(found[found.index(b'{"predictions"') :])["predictions"]) == 4
    for found, end in flowing:
        assert end > stopped
        assert statuses(found) == [200]
        assert found.count(b"data: ") >= 200
        assert b"data: [DONE]" in found


def test_a_worker_that_is_killed_comes_back(runs):
    with (
        Process(*(runs[name] for name in STREAMING), "--workers", 2) as process,
        httpx.Client(base_url=process.address, timeout=30) as client,
    ):
        owned, begun = {}, 0
        while len(owned) < 2:  # whoever takes the connection has the session
            with httpx.Client(base_url=process.address, timeout=30) as other:
                name = other.post("/v1/sessions", json={"model": "tagger"}).json()["id"]
            begun += 1
            owned.setdefault(int(re.match(r"s(\d+)-", name)[1]), name)
        for name in owned.values():  # whoever is asked: the worker that has it answers
            for _ in range(3):
                with httpx.Client(base_url=process.address, timeout=30) as other:
                    fed = other.post(f"/v1/sessions/{name}/feed", json={"tokens": ["the"]})
                assert fed.status_code == 200, fed.text
            assert client.get(f"/v1/sessions/{name}").json()["position"] == 3
        assert f"elman_sessions {begun}.0" in client.get("/metrics").text
        victim = killed(process.pid)
        start, status = time.monotonic(), {}
        other = {"base_url": process.address, "timeout": 5}
        while len(status) < 2 or 410 not in status.values() or time.monotonic() - start < 1:
            assert time.monotonic() - start < 20
            for worker, name in owned.items():
                # An answer, or the connection breaks; silence would be a TimeoutException.
                with suppress(httpx.NetworkError, httpx.RemoteProtocolError), httpx.Client(**other) as one:
                    status[worker] = one.get(f"/v1/sessions/{name}").status_code
        assert sorted(status.values()) == [200, 410]
        while len(workers_of(process.pid)) < 2 or victim in workers_of(process.pid):
            assert time.monotonic() - start < 10
            time.sleep(0.05)
        predicted = Counter()
        while predicted[200] < 20:
            with httpx.Client(**other) as one:
                found = one.post("/v1/predict", json={"model": "tagger", "inputs": ["the cat"]})
            predicted[found.status_code] += 1
        assert {*predicted} == {200}
        [lost] = [worker for worker, one in status.items() if one == 410]
        gone = client.post(f"/v1/sessions/{owned[lost]}/feed", json={"tokens": ["a"]})
        assert (gone.status_code, gone.json()["error"]["type"]) == (410, "gone")
        assert client.get(f"/v1/sessions/{owned[1 - lost]}").status_code == 200
        errors = process.stop()
    assert f"worker {lost} ended with -9; it is started anew" in errors
    assert "Traceback" not in errors


def workers_of(pid):
    """The processes that answer: children of the one that forks them."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in listed.splitlines()[1:]]
    children = {child for child, parent in pairs if parent == pid}
    return {child for child, parent in pairs if parent in children}


def killed(pid):
    victim = min(workers_of(pid))
    os.kill(victim, signal.SIGKILL)
    return victim


def test_workers_end_with_who_supervises_them(runs):
    with Process(runs["tag"], "--workers", 2) as process:
        left = workers_of(process.pid)
        assert len(left) == 2
        os.kill(process.pid, signal.SIGKILL)
    latest = time.monotonic() + 15
    while any(os.path.exists(f"/proc/{one}") for one in left):
        assert time.monotonic() < latest
        time.sleep(0.05)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_none_ends_the_start(workers, tmp_path):
    arguments = ["serve", str(tmp_path / "none"), "--workers", str(workers), "--port", "0"]
    process = Forked("from elman.cli.main import run; run()", arguments)
    _, errors = process.communicate(60)
    assert process.returncode == 2
    assert errors.count("is no run") == 1


def test_the_description_is_printed(runs):
    told = json.loads(elman("serve", runs["tag"], "--print-openapi").out)
    assert {"/v1/predict", "/v1/completions", "/v1/sessions", "/v1/inspect", "/metrics"} <= {*told["paths"]}


def test_names_and_addresses_are_checked(runs, tmp_path):
    twice = elman("serve", runs["tag"], runs["tag"])
    assert "two runs are called" in twice.err
    assert "no name for a model" in elman("serve", f"a/b={runs['tag']}").err
    assert "--anyone" in elman("serve", runs["tag"], "--host", "0.0.0.0").err
    assert "no such file" in elman("serve", runs["tag"], "--token-file", tmp_path / "none").err.lower()
