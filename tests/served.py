"""Servers for tests: tiny models of every task behind the real protocol, in a thread or in a process."""

import json
import os
import re
import signal
import socket
import threading
import time

from elman.server.app import make_app
from elman.server.auth import Gate
from elman.server.forwarding import Siblings
from elman.server.front import Front
from elman.server.serving import Options, WorkerServer, bound, configured, make_service
from forked import Forked
from tiny_tasks import DATA, descend, ready, save

STREAMING = {"tagger": "tag", "classifier": "classify", "lm": "lm"}  # runs that read as a text comes
TOKEN = "0123456789abcdef0123456789abcdef"


def tiny_runs(folder, updates=10):
    """A run of every task, by its name, and two that read in one direction alone."""
    runs = {}
    more = {name: task for name, task in STREAMING.items() if name not in DATA}
    for name, task in ({task: task for task in DATA} | more).items():
        settings = {"model.hidden": 5} | ({"model.bidirectional": False} if name in more else {})
        one = ready(task, folder, settings)
        descend(one, updates)
        runs[name] = save(one, folder / name)
    return runs


class Served:
    """A server in a thread; ``wrap`` puts something around its application."""

    def __init__(self, runs, wrap=lambda front: front, **options):
        self.service = make_service(Options(runs, **options), 0)
        self.front = Front(
            make_app(self.service), self.service, Gate(options.get("tokens", ())), Siblings(0, None)
        )
        self.app = wrap(self.front)
        self._listening = bound("127.0.0.1", 0)
        self.running = WorkerServer(configured(self.app), self.service, None)
        self.host = self._listening.getsockname()
        self.address = f"http://127.0.0.1:{self.host[1]}/"
        self._thread = threading.Thread(target=self.running.run, args=([self._listening],))
        self._thread.start()

    def close(self):
        self.running.should_exit = True
        self._thread.join()
        self.service.thread.close()
        self._listening.close()

    def raw(self, request, seconds=10.0):
        """All that comes back for some bytes until the connection is closed or nothing comes any more."""
        return raw(self.host, request, seconds)


class Process:
    """``elman serve`` as a process of its own."""

    def __init__(self, *arguments):
        self.forked = Forked(
            "from elman.cli.main import run; run()", ["serve", *map(str, arguments), "--port", "0"]
        )
        self.pid, latest = self.forked.pid, time.monotonic() + 60
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/", self.forked.told())):
            assert self.forked.poll() is None, self.forked.told()
            assert time.monotonic() < latest, self.forked.told()
            time.sleep(0.02)
        self.address, self.host = found[0], ("127.0.0.1", int(found[1]))

    def stop(self):
        """What it said until its end."""
        os.kill(self.pid, signal.SIGTERM)
        return self.forked.communicate(60)[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.forked.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.forked.communicate(60)


def raw(host, request, seconds=10.0):
    with socket.create_connection(host, timeout=seconds) as one:
        one.sendall(request)
        return until_closed(one)


def until_closed(one):
    found = b""
    try:
        while piece := one.recv(1 << 16):
            found += piece
    except (TimeoutError, ConnectionResetError):
        pass
    return found


def request(method, path, body=None, *, close=True, **headers):
    """A request as bytes; the body as JSON."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "host: elman", f"content-length: {len(content)}"]
    lines += ["content-type: application/json"] * (body is not None) + ["connection: close"] * close
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


def statuses(answers):
    """The status of each answer in some bytes."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+) ", answers)]
