"""The facts about this machine without which a figure means little."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from elman.recurrence.cpu.compile import compiler, processor


def describe_machine() -> dict[str, Any]:
    """Names and values, as they are printed; ``load``: how many processes were busy in the last minute."""
    return {
        "cpu": _processor_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": _compiler_version(),
        "date": _now(),
    }


def describe_card() -> dict[str, Any]:
    """The same of a machine with a CUDA device: the first one that torch uses."""
    card = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "card": card.name,
        "memory": f"{card.total_memory / 2**30:.0f} GiB",
        "multiprocessors": card.multi_processor_count,
        "capability": f"{card.major}.{card.minor}",
        "driver": _driver_version(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "triton": _triton_version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": _processor_name(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "date": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _driver_version() -> str:
    command = shutil.which("nvidia-smi")
    if command is None:
        return "unknown: there is no nvidia-smi"
    query = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0].strip() or "unknown"


def _triton_version() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return "none: cells run on the plain loop"


def _processor_name() -> str:
    for line in processor().split("\n"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _compiler_version() -> str:
    command = compiler()
    if command is None:
        return "none: cells run on the plain loop"
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0].strip() or " ".join(command)
