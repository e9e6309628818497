"""The facts about this machine without which a result means little."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import torch

from elman.cores import cores
from elman.recurrence.cpu.compile import compiler, processor

Facts = dict[str, str | float | None]
NO_COMPILER = "none: cells run on the plain loop"


def describe_machine() -> Facts:
    """Names and values, as they are printed; ``load``: how many processes were busy in the last minute."""
    command = compiler()
    return {
        "cpu": _processor_name(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": _first_line([*command, "--version"]) or " ".join(command) if command else NO_COMPILER,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def describe_card() -> Facts:
    """The same of a machine with a CUDA device: the first one that torch uses."""
    card = torch.cuda.get_device_properties(torch.cuda.current_device())
    host = describe_machine()
    return {
        "card": card.name,
        "memory": f"{card.total_memory / 2**30:.0f} GiB",
        "multiprocessors": card.multi_processor_count,
        "capability": f"{card.major}.{card.minor}",
        "driver": _driver_version(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "triton": _triton_version(),
        **{name: host[name] for name in ("torch", "python", "cpu", "system", "date")},
    }


def _driver_version() -> str:
    command = shutil.which("nvidia-smi")
    if command is None:
        return "unknown: there is no nvidia-smi"
    return _first_line([command, "--query-gpu=driver_version", "--format=csv,noheader"]) or "unknown"


def _triton_version() -> str:
    try:
        return version("triton")
    except PackageNotFoundError:
        return NO_COMPILER


def _processor_name() -> str:
    named = re.search(r"^model name[^:]*:(.*)", processor(), re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def _first_line(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0].strip()
