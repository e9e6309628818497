"""A server from its options to its end: one process, or several that are started anew when they die."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import torch
import uvicorn
from prometheus_client.multiprocess import mark_process_dead

from elman.errors import ArgumentError, ElmanError
from elman.layers.rnn import RNN
from elman.server import limits
from elman.server.app import make_app
from elman.server.auth import Gate, check_address
from elman.server.forwarding import Siblings
from elman.server.front import Front
from elman.server.protocol import GuardedProtocol
from elman.server.runs import ServedRun, open_runs
from elman.server.service import Service
from elman.server.sessions import Sessions
from elman.tensors.threads import all_threads

LARGE = 1 << 20  # weights that several threads multiply by faster
LONG = 70  # bytes of a folder for sockets, of whose paths systems know some 100


@dataclass(frozen=True)
class Options:
    """All that a server is told."""

    runs: dict[str, Path]
    host: str = "127.0.0.1"
    port: int = 8000
    device: str = "cpu"
    threads: int | None = None
    workers: int = 1
    tokens: tuple[str, ...] = ()
    anyone: bool = False
    trust_code: bool = False
    session_idle: float = 300.0
    secret: bytes = b""
    folder: Path | None = None  # of the workers' sockets


def serve(options: Options, say: Callable[[str], None]) -> None:
    """Answer requests until somebody stops it."""
    check_address(options.host, token=bool(options.tokens), anyone=options.anyone)
    listening = bound(options.host, options.port)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host

    def began() -> None:
        say(f"serving {', '.join(options.runs)} at http://{shown}:{port}/ (Ctrl-C ends)")

    secret = secrets.token_bytes(32)
    if options.workers == 1:
        work(Options(**{**vars(options), "secret": secret}), 0, listening, began)
        return
    if len(os.fsencode(gettempdir())) > LONG:
        raise ArgumentError(f"sockets of workers have no room in {gettempdir()}; set TMPDIR to a short path")
    with TemporaryDirectory(prefix="elman-serve-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        supervise(
            Options(**{**vars(options), "secret": secret, "folder": Path(folder)}), listening, began, say
        )


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ArgumentError(f"--host {host} --port {port}: {error.strerror}; choose another") from None
    listening.listen(2048)
    listening.setblocking(False)
    listening.set_inheritable(True)
    return listening


def make_service(options: Options, worker: int) -> Service:
    """The runs of a worker, loaded."""
    table = open_runs(
        options.runs, device=options.device, threads=options.threads, trust_code=options.trust_code
    )
    torch.set_num_threads(options.threads or usual_threads(table))
    return Service(table, Sessions(options.secret, worker, idle=options.session_idle))


def usual_threads(runs: dict[str, ServedRun]) -> int:
    """One, unless a recurrent layer is so wide that several multiply faster."""
    parts = (part for run in runs.values() for part in run.predictor.model.modules())
    weights = (one.numel() for part in parts if isinstance(part, RNN) for one in part.parameters())
    return 1 if max(weights, default=0) < LARGE else all_threads()


def work(
    options: Options, worker: int, listening: socket.socket, began: Callable[[], None] | None = None
) -> None:
    """One worker until it is stopped: what it has accepted, it answers before it ends."""
    service = make_service(options, worker)
    siblings = Siblings(worker, options.folder)
    front = Front(make_app(service), service, Gate(options.tokens), siblings)
    GuardedProtocol.shed = service.metrics.shed
    server = WorkerServer(configured(front), service, began)
    sockets = [listening]
    if options.folder is not None:
        path = siblings.socket(worker)
        path.unlink(missing_ok=True)
        own = socket.socket(socket.AF_UNIX)
        own.bind(str(path))
        own.listen(1024)
        sockets.append(own)
    try:
        server.run(sockets)
    finally:
        service.thread.close()


def configured(front: Front) -> uvicorn.Config:
    """How uvicorn is to serve: it believes nobody about who asks, and writes down errors alone."""
    return uvicorn.Config(
        front,
        http=GuardedProtocol,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=limits.STOP_SECONDS,
        backlog=2048,
    )


def work_for(options: Options, worker: int, listening: socket.socket) -> None:
    """As a process of a supervisor: what is wrong with a run is told on its way out, by one of them."""
    try:
        work(options, worker, listening)
    except ElmanError as error:
        if worker == 0:
            print(f"elman: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None


class WorkerServer(uvicorn.Server):
    """Says when it has begun, and is not ready any more when it stops."""

    def __init__(self, config: uvicorn.Config, service: Service, began: Callable[[], None] | None) -> None:
        super().__init__(config)
        self.service, self.began = service, began

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        parent = multiprocessing.parent_process()
        if parent is not None:  # a worker does not outlive who supervises it
            loop = asyncio.get_running_loop()
            loop.add_reader(parent.sentinel, self._orphaned, parent.sentinel)
        if self.began is not None:
            self.began()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # once a second
            self.service.tidy()
        return await super().on_tick(counter)

    def _orphaned(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.stopping = True
        for one in sockets or []:
            await self._take_rest(one)
        await super().shutdown(sockets)

    async def _take_rest(self, listening: socket.socket) -> None:
        """Connections that wait to be accepted: to whoever opened one, it is as good as accepted."""
        loop, state = asyncio.get_running_loop(), self.lifespan.state

        def protocol() -> GuardedProtocol:
            return GuardedProtocol(self.config, self.server_state, state, loop)

        with suppress(OSError):  # there is none any more
            while True:
                connection, _ = listening.accept()
                connection.setblocking(False)
                await loop.connect_accepted_socket(protocol, connection)


def supervise(
    options: Options, listening: socket.socket, began: Callable[[], None], say: Callable[[str], None]
) -> None:
    """Start workers, and another one for each that dies; a signal stops them all.

    Where one ends before all have begun, there is something that another one would not mend.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["elman.server.serving"])
    stopping = threading.Event()
    workers: dict[int, Any] = {}

    def stop(number: int, frame: object) -> None:
        stopping.set()
        for one in workers.values():
            if one.is_alive():
                os.kill(one.pid, signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    told, failed = False, 0
    begun: dict[int, float] = {}
    while True:
        for worker in range(options.workers):
            process = workers.get(worker)
            if process is not None and process.is_alive():
                continue
            if process is not None:
                process.join()
                mark_process_dead(process.pid)  # type: ignore[no-untyped-call]
                if not told and not stopping.is_set():
                    stop(signal.SIGTERM, None)
                    failed = max(1, process.exitcode or 1)
                if not stopping.is_set():
                    say(f"worker {worker} ended with {process.exitcode}; it is started anew")
                    time.sleep(0.1 if time.monotonic() - begun[worker] > 5 else 1.0)
            if stopping.is_set():
                continue
            process = context.Process(target=work_for, args=(options, worker, listening), daemon=False)
            process.start()
            workers[worker], begun[worker] = process, time.monotonic()
            if stopping.is_set():  # since it was asked
                os.kill(workers[worker].pid, signal.SIGTERM)
        if stopping.is_set():
            listening.close()  # when the last worker has closed it, too, nobody can come any more
        if stopping.is_set() and not any(one.is_alive() for one in workers.values()):
            if failed:
                raise SystemExit(failed)
            return
        if not told and all(
            answers(Siblings(0, options.folder).socket(one)) for one in range(options.workers)
        ):
            told = True
            began()
        time.sleep(0.05)


def answers(path: Path) -> bool:
    """Does somebody listen there?"""
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(str(path))
        except OSError:
            return False
    return True
