"""How commands import what is slow to import."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports() -> Iterator[None]:
    """Look for no garbage while torch is imported, nor ever again among what that made.

    It makes a quarter of a million objects that all stay. Walking through them again and again, also when
    the process ends, takes a quarter of the time of a short command.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
