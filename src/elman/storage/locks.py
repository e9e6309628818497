"""Locks: between processes, which end with the process that holds them, and among the threads of one."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO

PAUSE = 0.025  # seconds between two attempts


def take_lock(lock: FileIO | int, wait: float | None = None) -> bool:
    """Lock an open file or folder until it is closed; whether that came about within ``wait`` seconds.

    Unset, another holder is waited for without end.
    """
    import fcntl  # Windows has none: there a trained run can be used

    end = time.monotonic() + (wait or 0.0)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait is None else fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(PAUSE)


class ThreadLock:
    """A lock among the threads of a process: in a forked child, where the others are gone, it is free."""

    def __init__(self) -> None:
        self._renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            yield
