"""Processes that begin with torch and Elman imported: children of one that did nothing but import them.

Importing takes longer than what most tests of other processes do. A child is a process as any other: it
has its own environment and output, is killed by signals and leaves a status. What happens while Python
starts is tested with ``subprocess``.
"""

import atexit
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import IO, NoReturn

import pytest

# The compiler of torch is what its first optimiser imports.
IMPORTED = ("elman.cli.main", "elman.layers.rnn", "elman.training.run", "torch._dynamo")


class Forked:
    """A child at work, in the manner of ``subprocess.Popen``."""

    def __init__(
        self, code: str, arguments: list[str] | None = None, environment: dict[str, str] | None = None
    ):
        self._folder = TemporaryDirectory()
        self._files = [Path(self._folder.name) / name for name in ("output", "errors")]
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(server())
        work = {
            "code": code,
            "arguments": arguments or [],
            "environment": {**os.environ, **(environment or {})},
            "folder": os.getcwd(),
            "files": [str(path) for path in self._files],
        }
        self._server.sendall(json.dumps(work).encode() + b"\n")
        (self.pid,) = struct.unpack("q", self._server.recv(8))
        self.returncode: int | None = None
        self._ended: tuple[str, ...] | None = None  # output and errors

    def poll(self) -> int | None:
        return self._wait(0.0)

    def told(self) -> str:
        """Its errors so far."""
        return self._files[1].read_text() if self._files[1].exists() else ""

    def communicate(self, timeout: float | None = None) -> tuple[str, ...]:
        """Its output and its errors, at its end."""
        if self._wait(timeout) is None:
            os.kill(self.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        if self._ended is None:
            self._ended = tuple(path.read_text() for path in self._files)
            self._folder.cleanup()
        return self._ended

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._server.settimeout(timeout)
            try:
                (self.returncode,) = struct.unpack("q", self._server.recv(8))
            except (BlockingIOError, TimeoutError):
                return None
            self._server.close()
        return self.returncode


class Command:
    """A child in place of what ``elman.comparing.processes`` begins by ``subprocess.Popen``."""

    def __init__(
        self, command: list[str], *, stdout: IO[bytes], stderr: IO[bytes], env: dict[str, str], **rest
    ):
        assert command[1:3] == ["-m", "elman"]
        self._paths = [file.name for file in (stdout, stderr)]
        self._forked = Forked("from elman.cli.main import run; run()", command[3:], env)

    def poll(self) -> int | None:
        """Its status; at its end what it said is brought to where it should be."""
        if self._paths and self._forked.poll() is not None:
            for path, said in zip(self._paths, self._forked.communicate(), strict=True):
                with open(path, "a") as file:
                    file.write(said)
            self._paths = []
        return self._forked.returncode

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self._forked.pid, signal.SIGTERM)

    def wait(self) -> int:
        while (code := self.poll()) is None:
            time.sleep(0.01)
        return code


def quickly(patch: pytest.MonkeyPatch) -> None:
    """Let ``elman compare`` and ``elman tune`` begin such children, which need not import torch."""
    from elman.comparing import processes

    patch.setattr(processes, "subprocess", SimpleNamespace(Popen=Command))


def python(code: str, timeout: float = 600, **environment: str) -> str:
    """What a child that runs the code prints; it must end well, and warnings are errors in it too."""
    process = Forked(f"import warnings; warnings.simplefilter('error')\n{code}", environment=environment)
    output, errors = process.communicate(timeout)
    assert process.returncode == 0, errors
    return output


@cache
def server() -> str:
    """Where the process listens whose children all are; it ends when this one does."""
    folder = TemporaryDirectory()
    address = f"{folder.name}/socket"
    process = subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()
    atexit.register(folder.cleanup)
    atexit.register(process.communicate)  # which closes its standard input
    return address


def serve(address: str) -> NoReturn:
    """A child for every caller, and between them one that waits for its end; this process only forks."""
    for name in IMPORTED:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(64)
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listening, sys.stdin], [], [])
            if sys.stdin in ready:
                os._exit(0)
            caller, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                keep(caller)
            caller.close()


def keep(caller: socket.socket) -> NoReturn:
    """Tell the child's number, and at its end its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with caller.makefile("rb") as lines:
        work = json.loads(lines.readline())
    child = os.fork()
    if child == 0:
        caller.close()
        live(work)
    try:
        caller.sendall(struct.pack("q", child))
        _, status = os.waitpid(child, 0)
        caller.sendall(struct.pack("q", os.waitstatus_to_exitcode(status)))
    finally:
        os._exit(0)


def live(work: dict[str, object]) -> NoReturn:
    """Run the code as an interpreter would that was started with ``-c``."""
    for number, path in zip((1, 2), work["files"], strict=True):  # type: ignore[call-overload]
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(work["environment"])  # type: ignore[arg-type]
    os.chdir(str(work["folder"]))
    sys.argv[:] = ["-c", *work["arguments"]]  # type: ignore[misc]
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    status = 1
    try:
        exec(str(work["code"]), main.__dict__)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
