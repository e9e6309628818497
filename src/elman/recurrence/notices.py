"""Says once a process that a slower path is taken, at the user's own line."""

import inspect
import warnings

from elman.errors import BackendNotice

_noticed: set[str] = set()


def say_once(notice: str) -> None:
    """Warn with these words, unless this process has done so."""
    if notice not in _noticed:
        _noticed.add(notice)
        warnings.warn(notice, BackendNotice, stacklevel=_outside())


def _outside() -> int:
    """How many calls up the user's own line is."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("elman", "torch"):
        frame, level = frame.f_back, level + 1
    return level
