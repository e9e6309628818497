"""Starts the workers of a run on this machine, and starts all of them again when one is lost.

A worker that is killed ends the others: they notice, or are killed. All begin again at another port, from the
last checkpoint. What a worker says by its exit code, a mistake in the settings say, ends them all for good.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from elman.cores import cores
from elman.distributed.place import LOST, SUPERVISOR
from elman.errors import WorkersError

LOOK = 0.05  # seconds between two looks at the workers
GRACE = 60.0  # for the first worker to end, after another has ended with an error
MOMENT = 3.0  # for an error to come to light, after a worker was lost
VAINLY = 10  # attempts one after the other that came to no new checkpoint
ENOUGH = 3  # seconds between such attempts, at most


class Attempt:
    """All workers, from their start to their end."""

    def __init__(self, command: Sequence[str], count: int, number: int) -> None:
        self.said: list[BinaryIO] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        shared = {
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "TORCHELASTIC_RESTART_COUNT": str(number),
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            SUPERVISOR: str(os.getpid()),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // count))),
        }
        for rank in range(count):
            environment = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            self.said.append(tempfile.TemporaryFile())  # noqa: SIM115
            only_first = None if rank == 0 else subprocess.DEVNULL
            self.workers.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=only_first,
                    stderr=None if rank == 0 else self.said[rank],
                    start_new_session=True,  # Ctrl-C is for the supervisor, which tells them
                )
            )

    def see_through(self, received: Sequence[int]) -> int | None:
        """The exit code of all together; None where one was lost, and they are to begin again."""
        told = 0
        since: float | None = None  # when the first of them ended otherwise than well
        try:
            while True:
                for number in received[told:]:
                    told += 1
                    for worker in self.workers:
                        worker.send_signal(number if told == 1 else signal.SIGKILL)
                codes = [worker.poll() for worker in self.workers]
                if codes[0] == 0:
                    return 0
                ended = [code for code in codes if code not in (None, 0)]
                since = (since or time.monotonic()) if ended else None
                if codes[0] is not None and not is_lost(codes[0]):
                    return codes[0]
                passed = 0.0 if since is None else time.monotonic() - since
                patience = MOMENT if any(map(is_lost, ended)) else GRACE
                if since is not None and (passed > patience or None not in codes):
                    return self._judge(codes)
                time.sleep(LOOK)
        finally:
            self.kill()

    def _judge(self, codes: Sequence[int | None]) -> int | None:
        """What becomes of it when some were lost or ended with an error."""
        for rank, code in enumerate(codes):
            if code not in (None, 0) and not is_lost(code):
                self.said[rank].seek(0)
                sys.stderr.write(f"worker {rank}:\n{self.said[rank].read().decode(errors='replace')}")
                return code
        return None

    def reason(self) -> str:
        """Why there is to be another attempt."""
        for rank, worker in enumerate(self.workers):
            code = worker.returncode
            if code is not None and code < 0 and not self.killed[rank]:
                return f"worker {rank} was ended by {signal.Signals(-code).name}"
        return "a worker was lost"

    def kill(self) -> None:
        """End all that are left, also such as stand still."""
        self.killed = [worker.poll() is None for worker in self.workers]
        for worker in self.workers:
            with suppress(ProcessLookupError):
                worker.kill()
        for worker in self.workers:
            worker.wait()


def supervise(command: Sequence[str], count: int, run: Path, warn: Callable[[str], None]) -> int:
    """Run the command as so many workers until they have trained the run; their exit code."""
    vainly = number = 0
    with noted_signals() as received:
        while True:
            before, attempt = newest(run), Attempt(command, count, number)
            code = attempt.see_through(received)
            if received and (code is None or code < 0):
                return 128 + received[0]
            if code is not None:
                return code
            number, vainly = number + 1, 0 if newest(run) != before else vainly + 1
            if vainly == VAINLY:
                raise WorkersError(
                    f"{attempt.reason()}; {VAINLY} times one after the other the workers came to no new "
                    f"checkpoint. What there is of {run} is sound: continue it with --resume"
                )
            warn(f"{attempt.reason()}; all {count} begin again, from the last checkpoint")
            time.sleep(min(ENOUGH, vainly))


def is_lost(code: int | None) -> bool:
    """Whether a worker with this exit code has said nothing: a signal ended it, or others were gone."""
    return code is not None and (code < 0 or code == LOST)


def newest(run: Path) -> str | None:
    """The last checkpoint of a run."""
    with suppress(OSError):
        return os.readlink(run / "last")
    return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Signals that ask to stop, noted for the workers to obey."""
    received: list[int] = []
    numbers = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, lambda n, _: received.append(n)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
