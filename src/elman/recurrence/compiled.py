"""What backends make of equations: made once, by one thread, and kept with the equations."""

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from elman.errors import BackendError
from elman.recurrence.trace import Equations


class ProcessLock:
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


_making = ProcessLock()


def make_once(equations: Equations, key: Hashable, make: Callable[[], Any]) -> Any:
    """What ``make`` returns, at its first call for this key; if it cannot be made, its error every time."""
    kept = equations.compiled
    if key not in kept:
        with _making.held():  # making it extends the graph, which threads must not do at once
            if key not in kept:
                try:
                    kept[key] = make()
                except BackendError as error:
                    kept[key] = BackendError(*error.args)  # without the frames in which it happened
    made = kept[key]
    if isinstance(made, BackendError):
        raise BackendError(*made.args)
    return made
