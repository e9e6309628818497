"""How many cores this process may use, and how many others want them."""

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CROWDED = 2.0  # processes a core that want to run, from which on threads mostly wait for each other


def cores(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The cores that the process may run on, or as many as its control group has the time of, if fewer.

    A container mostly has a share of the time of all cores (``docker run --cpus 2``). With a thread on each
    of them, all would stand still for most of the time, and wait for each other.
    """
    many = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(many, *(math.ceil(share) for share in _shares(groups, own))))


def _shares(groups: Path, own: Path) -> Iterator[float]:
    """How many cores' time each group grants that the process is in, the groups above it among them."""
    yield float(2**31)
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((groups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if int(quota) > 0:
            yield int(quota) / int(period)
    inner = Path()
    with suppress(OSError, ValueError):
        lines = own.read_text(encoding="utf-8").split("\n")
        inner = next((Path(line[4:]) for line in lines if line.startswith("0::/")), inner)
    for folder in (inner, *inner.parents):
        with suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = (groups / folder / "cpu.max").read_text().split()
            if quota != "max":
                yield int(quota) / int(period)


def crowding() -> float | None:
    """How many processes a core of the machine wanted to run in the last minute, if too many for threads."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0
    return load if load > CROWDED else None
