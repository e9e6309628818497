"""The first use of a new cell, timed in processes of their own: ``python -m elman.bench.first``."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

# B, T, H and the type of the numbers. On CUDA sizes of which several programs share the weights: the form
# that takes longest to compile.
SIZES = {"cpu": (8, 20, 64, "float32"), "cuda": (32, 64, 512, "bfloat16")}


class FirstUse(NamedTuple):
    """Seconds of the first training step with a compile before it, and in a later process."""

    compiled: float
    later: float
    from_cache: bool | None  # whether the later process compiled nothing; None: the first did not either


def measure_first(device: str) -> FirstUse:
    """Two processes, one after the other, with a cache that is empty at first."""
    with tempfile.TemporaryDirectory(prefix="elman-bench-") as folder:
        first = _first_use(device, folder)
        made = _files(folder)
        later = _first_use(device, folder)
        return FirstUse(first, later, _files(folder) == made if made else None)


def _first_use(device: str, cache: str) -> float:
    command = [sys.executable, "-m", "elman.bench.first", device]
    environment = {**os.environ, "ELMAN_CACHE": cache, "TRITON_CACHE_DIR": str(Path(cache, "triton"))}
    return float(subprocess.check_output(command, env=environment))


def _files(folder: str) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.is_file()}


def use_new_cell(device: str) -> float:
    """What the process does: torch is warm, then a cell is made and trained for one step; its seconds."""
    import torch

    from elman.bench.cells import UserFourGates
    from elman.layers.rnn import RNN

    wait = torch.cuda.synchronize if device == "cuda" else torch.cpu.synchronize
    B, T, H, numbers = SIZES[device]
    dtype = getattr(torch, numbers)
    warm = torch.nn.LSTM(H, H, device=device)
    warm(torch.randn(T, B, H, device=device))[0].sum().backward()
    x = torch.randn(B, T, H, device=device, dtype=dtype)
    wait()
    start = time.perf_counter()
    rnn = RNN(UserFourGates, H, H).to(device, dtype)
    rnn(x).outputs.square().sum().backward()
    wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    print(use_new_cell(sys.argv[1]))
