"""Work in numbered pieces, done by several processes whose results are files."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import current_process

MOST = 8  # processes; each holds what one piece needs
DONE = b"+"


def in_order(work: Callable[[int], object], pieces: int, processes: int) -> Iterator[int]:
    """Do ``work(0)``, ``work(1)`` …, several at a time; the number of each, in order, once it is done.

    What ``work`` leaves are files: its results stay in the process that did it. A piece that fails elsewhere,
    or whose process was killed, is done again here, so that its error is raised here, in its place.
    """
    processes = min(processes, pieces, MOST)
    if processes < 2 or not may_fork():
        for piece in range(pieces):
            work(piece)
            yield piece
        return
    children = []
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # or that library warns about forks
    try:
        for first in range(processes):
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                _serve(work, range(first, pieces, processes), writing)
            os.close(writing)
            children.append((child, reading))
        for piece in range(pieces):
            if os.read(children[piece % processes][1], 1) != DONE:
                work(piece)
            yield piece
    finally:
        for child, reading in children:
            os.close(reading)
            os.kill(child, signal.SIGKILL)  # of one that has ended, nothing is left to end
            os.waitpid(child, 0)
        if before is None:
            del os.environ["TOKENIZERS_PARALLELISM"]
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


def may_fork() -> bool:
    """May this process be copied? One with other threads may hold their locks; macOS has no safe way."""
    alone = threading.active_count() == 1 and not current_process().daemon
    return hasattr(os, "fork") and sys.platform != "darwin" and alone


def _serve(work: Callable[[int], object], pieces: range, writing: int) -> None:
    """The life of a child; it ends with its parent, and keeps nothing open that is its parent's."""
    parent = os.getppid()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the parent hears, too
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.closerange(3, writing)  # a lock among them
        os.closerange(writing + 1, 1 << 16)
        for piece in pieces:
            if os.getppid() != parent:
                break
            work(piece)
            os.write(writing, DONE)
    except BaseException:
        pass  # the parent does it again, and says it
    finally:
        os.kill(os.getpid(), signal.SIGKILL)  # nothing of its parent's is tidied up here
