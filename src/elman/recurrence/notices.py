"""Says once a process that a slower path is taken, at the user's own line."""

import inspect
import warnings

from elman.errors import BackendNotice

_noticed: set[str] = set()


def say_once(notice: str) -> None:
    if notice in _noticed:
        return
    _noticed.add(notice)
    frame, level = inspect.currentframe(), 1  # how many calls up the user's own line is
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("elman", "torch"):
        frame, level = frame.f_back, level + 1
    warnings.warn(notice, BackendNotice, stacklevel=level)
