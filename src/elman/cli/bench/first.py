"""The first use of a new cell, timed in processes of their own: ``python -m elman.cli.bench.first``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

B, T, H = 8, 20, 64


class FirstUse(NamedTuple):
    """Seconds of the first training step with a compile before it, and in a later process."""

    compiled: float
    later: float
    from_cache: bool | None  # whether the later process compiled nothing; None: the first did not either


def measure_first() -> FirstUse:
    """Two processes, one after the other, with a cache that is empty at first."""
    with tempfile.TemporaryDirectory(prefix="elman-bench-") as folder:
        first = _first_use(folder)
        made = _libraries(folder)
        later = _first_use(folder)
        return FirstUse(first, later, _libraries(folder) == made if made else None)


def _first_use(cache: str) -> float:
    command = [sys.executable, "-m", "elman.cli.bench.first"]
    environment = {**os.environ, "ELMAN_CACHE": cache}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout)["seconds"])


def _libraries(folder: str) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file()}


def use_new_cell() -> dict[str, Any]:
    """What the process does: torch is warm, then a cell is made and trained for one step."""
    import torch

    from elman.cli.bench.cells import UserFourGates
    from elman.layers.rnn import RNN

    warm = torch.nn.LSTM(H, H)
    warm(torch.randn(T, B, H))[0].sum().backward()
    x = torch.randn(B, T, H)
    start = time.perf_counter()
    rnn = RNN(UserFourGates, H, H)
    rnn(x).outputs.square().sum().backward()
    return {"seconds": time.perf_counter() - start}


if __name__ == "__main__":
    print(json.dumps(use_new_cell()))
