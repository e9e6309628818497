"""Turns generated C into a loaded library, once per machine: a cache that can be trusted.

A cached file is the library followed by the SHA-256 of its bytes; a file that was cut short, changed
or written by another program is thrown away and built again. Its name is a hash of the source, the
flags, the compiler and the processor. It is written beside its place and renamed into it, so that
processes may build the same kernel at the same time. Where the folder cannot be used, the library is
built in a temporary one for this process. ``$CC`` names another compiler, ``$ELMAN_CFLAGS`` adds flags.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

from elman.errors import BackendError

FLAGS = (
    "-O3",
    "-march=native",
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-w",
)
_DIGEST = 32
_lock = threading.Lock()


@functools.cache
def compiler() -> tuple[str, ...] | None:
    """The command that compiles C: ``$CC`` if set (empty: none), else cc, gcc or clang; None if absent."""
    if "CC" in os.environ:
        command = shlex.split(os.environ["CC"])
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


def library(source: str) -> ctypes.CDLL:
    """The library compiled from this source, from the cache if it is there and whole."""
    with _lock:
        return _library(source)


@functools.cache
def _library(source: str) -> ctypes.CDLL:
    command = compiler()
    if command is None:
        raise BackendError("no C compiler found (cc, gcc or clang on the path, or $CC)")
    binary = Path(shutil.which(command[0]) or command[0]).resolve()
    about = binary.stat()
    command = (*command, *FLAGS, *shlex.split(os.environ.get("ELMAN_CFLAGS", "")))
    version = (str(binary), str(about.st_size), str(about.st_mtime_ns))
    identity = (*command, *version, processor(), source)
    key = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:40]
    try:
        path = cache_folder() / f"{key}.so"
    except RuntimeError:  # a user without a home
        path = Path(os.devnull) / "none"
    if _whole(path):
        try:
            return ctypes.CDLL(str(path))
        except OSError:  # whole, but not for this machine: build it here
            pass
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            built = _build(command, source, Path(folder))
            os.replace(built, path)
        return ctypes.CDLL(str(path))
    except (OSError, BackendError):  # read-only or full: this process keeps its own copy
        with tempfile.TemporaryDirectory() as folder:
            return ctypes.CDLL(str(_build(command, source, Path(folder), keep=True)))


def _whole(path: Path) -> bool:
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return len(data) > _DIGEST and hashlib.sha256(data[:-_DIGEST]).digest() == data[-_DIGEST:]


def _build(command: tuple[str, ...], source: str, folder: Path, *, keep: bool = False) -> Path:
    text, built = folder / "cell.c", folder / "cell.so"
    text.write_text(source, encoding="utf-8")
    call = [*command, str(text), "-o", str(built), "-lm"]
    result = subprocess.run(call, capture_output=True, text=True, check=False)
    if result.returncode:
        if keep:  # for whoever wants to see what the compiler saw
            with tempfile.NamedTemporaryFile("w", suffix=".c", prefix="elman-", delete=False) as kept:
                kept.write(source)
            text = Path(kept.name)
        message = result.stderr.strip()[-2000:]
        raise BackendError(f"the C compiler failed on {text}: {' '.join(command)}\n{message}")
    data = built.read_bytes()
    with built.open("ab") as file:  # a loader ignores what follows the library
        file.write(hashlib.sha256(data).digest())
    return built
