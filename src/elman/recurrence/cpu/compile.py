"""Turns generated C into a loaded library, once per machine: a cache that can be trusted.

A cached file is the library followed by the SHA-256 of its bytes; a file that was cut short, changed
or written by another program is thrown away and built again. Its name is a hash of the source, the
flags, the compiler and the processor. It is built beside its place and renamed into it, so that
processes may build the same kernel at the same time.

A library is a program, so only folders and files are used that nobody but their user (and root) can
write. A folder is opened once, looked at, and from then on named by what was opened: whoever can rename
a folder above it cannot put another one in its place. Where the cache cannot be used, the library is
built in a temporary folder for this process. ``$CC`` names another compiler, ``$ELMAN_CFLAGS`` adds flags.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elman.errors import BackendError
from elman.recurrence.notices import say_once
from elman.storage.files import read_own
from elman.storage.private import (
    fixed_name,
    make_private_folder,
    open_folder,
    others_can_write,
    temporary_folder,
)

FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-w"),
)
ENTRIES = ("forward", "backward", "lanes")  # of every library
PATIENCE = 300.0  # seconds that a compiler is given
_DIGEST = 32


@functools.cache
def compiler() -> tuple[str, ...] | None:
    """The command that compiles C: ``$CC`` if set (empty: none), else cc, gcc or clang; None if absent."""
    if "CC" in os.environ:
        try:
            command = shlex.split(os.environ["CC"])
        except ValueError:  # a quotation without an end
            return None
        return tuple(command) if command and shutil.which(command[0]) else None
    found = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    return (found,) if found else None


def cache_folder() -> Path:
    """``$ELMAN_CACHE``, else ``elman`` in the user's cache folder."""
    chosen, users = os.environ.get("ELMAN_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else Path(users or Path("~/.cache").expanduser()) / "elman"


@functools.cache
def processor() -> str:
    """What the compiler's ``-march=native`` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return " ".join(platform.uname())
    marks = ("model name", "flags", "Features", "CPU part", "cpu family", "model\t")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(marks)))


@functools.cache
def library(source: str) -> ctypes.CDLL:
    """The library compiled from this source, from the cache if it is there, whole and the user's own."""
    command = _command()
    try:
        name = f"{_key(command, source)}.so"
        try:
            return _cached(command, source, name)
        except (OSError, RuntimeError) as error:  # no home, another's, read-only or full
            if isinstance(error.__cause__, subprocess.TimeoutExpired):
                raise
            problem = _problem(error)
        with _temporary() as folder:
            loaded = _build(command, source, folder, name)
    except OSError as error:
        raise BackendError(f"a kernel cannot be compiled ({_problem(error)})") from None
    say_once(
        f"the cache of kernels cannot be used ({problem}): each process compiles its own; $ELMAN_CACHE may "
        "name another folder"
    )
    return loaded


def _command() -> tuple[str, ...]:
    command = compiler()
    if command is None:
        raise BackendError("no C compiler found (cc, gcc or clang on the path, or $CC)")
    try:
        return (*command, *FLAGS, *shlex.split(os.environ.get("ELMAN_CFLAGS", "")))
    except ValueError as error:
        raise BackendError(f"$ELMAN_CFLAGS cannot be read as flags: {error}") from None


def _key(command: tuple[str, ...], source: str) -> str:
    """A hash of all that the library depends on; a command may name programs that call each other."""
    versions = []
    for program in filter(None, map(shutil.which, command)):
        about = os.stat(program)
        versions.append(f"{os.path.realpath(program)} {about.st_size} {about.st_mtime_ns}")
    identity = "\0".join((*command, *versions, processor(), source))
    return hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:40]


def _problem(error: Exception) -> str:
    words = error.strerror if isinstance(error, OSError) else None
    return words or str(error.args[0] if error.args else error).partition("\n")[0]


def _cached(command: tuple[str, ...], source: str, name: str) -> ctypes.CDLL:
    path = cache_folder()
    make_private_folder(path)
    with held(path) as folder:
        place = os.path.join(folder, name)
        if _whole(place):
            with suppress(BackendError):  # whole, but not for this machine: build it here
                return _load(place)
        with _temporary(folder) as beside:
            loaded = _build(command, source, beside, name)
            os.replace(os.path.join(beside, name), place)
    return loaded


@contextmanager
def held(path: str | Path) -> Iterator[str]:
    """A folder that is the user's own, under a name that is not looked up again (without /proc: its path)."""

    def check(about: os.stat_result) -> None:
        if not _own(about):
            raise PermissionError(f"{path} belongs to another user, or others can write to it")

    with open_folder(path, check) as folder:
        yield fixed_name(folder, path)


@contextmanager
def _temporary(above: str | None = None) -> Iterator[str]:
    """A folder of our own that is gone in the end."""
    with temporary_folder(above) as path, held(path) as folder:
        yield folder


def _own(about: os.stat_result) -> bool:
    """Whether nobody but this user and root, who can do anything, can write there."""
    return about.st_uid in (os.geteuid(), 0) and not others_can_write(about)


def _whole(path: str) -> bool:
    """Whether there is a file of the user's own with the digest of what it holds."""
    try:
        data = read_own(path, _check_file)
    except OSError:
        return False
    return len(data) > _DIGEST and hashlib.sha256(data[:-_DIGEST]).digest() == data[-_DIGEST:]


def _check_file(about: os.stat_result) -> None:
    own = _own(about)
    if not own:
        say_once("a file in the cache of kernels is not yours alone: its kernel is compiled again")
    if not own or not stat.S_ISREG(about.st_mode):
        raise PermissionError


# ---- the compiler ----------------------------------------------------------------------------------


def _build(command: tuple[str, ...], source: str, folder: str, name: str) -> ctypes.CDLL:
    """Leave the library of this source in the folder, with its digest; and load it."""
    built = Path(folder, name)
    Path(folder, "cell.c").write_text(source, encoding="utf-8")
    _run([*command, "cell.c", "-o", name, "-lm"], folder)
    try:
        data = built.read_bytes()
    except FileNotFoundError:
        raise BackendError(f"the C compiler {command[0]!r} wrote no library") from None
    built.chmod(0o600)
    with built.open("ab") as file:  # a loader ignores what follows the library
        file.write(hashlib.sha256(data).digest())
    return _load(str(built))


def _run(call: list[str], folder: str) -> None:
    """Let the compiler work in this folder, where its own temporary files lie too."""
    place = {**os.environ, "TMPDIR": "."}
    with subprocess.Popen(
        call,
        cwd=folder,
        env=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    ) as process:
        try:
            said, _ = process.communicate(timeout=PATIENCE)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and the programs that it called
            if isinstance(error, subprocess.TimeoutExpired):
                raise BackendError(
                    f"the C compiler {call[0]!r} was stopped after {PATIENCE:.0f} seconds"
                ) from error
            raise
    if process.returncode:
        message = said.decode(errors="replace").strip()[-2000:]
        status = f"the C compiler {call[0]!r} failed with status {process.returncode}"
        raise BackendError(f"{status}\n{shlex.join(call)}\n{message}")


def _load(path: str) -> ctypes.CDLL:
    try:
        loaded = ctypes.CDLL(path)
        for entry in ENTRIES:
            getattr(loaded, entry)
    except (OSError, AttributeError) as error:
        raise BackendError(f"the library that the C compiler wrote cannot be loaded: {error}") from None
    return loaded
