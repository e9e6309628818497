"""All runs of a comparison, several at a time, each a process of its own; what is finished stays."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elman.comparing.contenders import Entry
from elman.config import to_toml
from elman.errors import ConfigError, RunError
from elman.presentation.summary import Summary
from elman.storage.files import write_bytes

FORMAT = 1
PLAN = "plan.json"


@dataclass(frozen=True)
class Job:
    """One run: a contender with a seed."""

    name: str
    seed: int
    config: Path
    run: Path
    figures: Path  # of test data, once they were asked for

    @property
    def trained(self) -> bool:
        return (self.run / "metrics.jsonl").is_file() and Summary.of(self.run).end is not None

    def finished(self, tested: bool) -> bool:
        return self.trained and (self.figures.is_file() or not tested)


def jobs(out: Path, names: Sequence[str], seeds: int) -> list[Job]:
    """Seed by seed, so that an unfinished comparison has something of everybody."""
    folders = {name: f"{place}-{_plain(name)}" for place, name in enumerate(names, start=1)}
    return [
        Job(name, seed, out / f"{at}.toml", out / "runs" / f"{at}-{seed}", out / "test" / f"{at}-{seed}.json")
        for seed in range(1, seeds + 1)
        for name, at in folders.items()
    ]


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)[:40]


def begin(out: Path, plan: dict[str, Any], make: Callable[[], tuple[list[Entry], bool]]) -> dict[str, Any]:
    """Write down what is to be compared, or find it written: then it must be the same. The plan, whole."""
    path = out / PLAN
    if path.is_file():
        kept: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if kept.get("format") != FORMAT:
            raise RunError(f"{path} is of another version; compare anew in another folder")
        wrong = [key for key, value in plan.items() if kept["said"].get(key) != value]
        if wrong:
            problem = f"{out} holds a comparison with other {', '.join(wrong)}"
            raise ConfigError(f"{problem}; say the same to go on with it, or name another folder")
        return kept
    if out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty; name a new folder for the comparison")
    entries, higher_is_better = make()
    out.mkdir(parents=True, exist_ok=True)
    for entry, job in zip(entries, jobs(out, [one.name for one in entries], 1), strict=True):
        write_bytes(job.config, to_toml(entry.config).encode())
    whole = {
        "format": FORMAT,
        "said": plan,
        "higher_is_better": higher_is_better,
        "entries": [{"name": one.name, "parameters": one.parameters} for one in entries],
    }
    write_bytes(path, json.dumps(whole, indent=1, ensure_ascii=False).encode() + b"\n")  # the last
    return whole


def run_all(
    todo: Sequence[Job],
    test: Sequence[str],
    *,
    at_once: int,
    trust_code: bool,
    told: Callable[[Job, float], None],
) -> None:
    """Train what is not finished, ``at_once`` processes at a time; one that fails stops the others.

    ``test``: what ``elman evaluate`` is told of the test data, if there are any. A signal stops them
    all: each saves itself, and the same command goes on with them.
    """
    waiting = deque(job for job in todo if not job.finished(bool(test)))
    active: dict[int, tuple[Job, subprocess.Popen[bytes], float]] = {}
    free = set(range(at_once))
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        while waiting or active:
            while free and waiting:
                job, slot = waiting.popleft(), free.pop()
                active[slot] = job, _start(job, test, slot, at_once, trust_code), time.monotonic()
            time.sleep(0.02)
            for slot, (job, process, began) in [*active.items()]:
                if process.poll() is None:
                    continue
                del active[slot]
                free.add(slot)
                if process.returncode:
                    raise RunError(_failure(job))
                if _unfinished(job).is_file():
                    _unfinished(job).replace(job.figures)
                if job.finished(bool(test)):
                    told(job, time.monotonic() - began)
                else:
                    waiting.appendleft(job)
    finally:
        for _, process, _ in active.values():
            process.terminate()
        for _, process, _ in active.values():
            process.wait()
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _start(
    job: Job, test: Sequence[str], slot: int, at_once: int, trust_code: bool
) -> "subprocess.Popen[bytes]":
    """Train it, or once it is trained, measure it on the test data."""
    job.run.parent.mkdir(parents=True, exist_ok=True)
    trust = ["--trust-code"] if trust_code else []
    out: Path = job.run.with_suffix(".log")
    if not job.trained:
        said = ["train", "--config", str(job.config), "--set", f"training.seed={job.seed}", "--quiet"]
        said += ["--out", str(job.run), "--resume", *trust]
    else:
        said = ["evaluate", str(job.run), *test, "--json", *trust]
        job.figures.parent.mkdir(exist_ok=True)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    environment = os.environ | {"OMP_NUM_THREADS": str(max(1, cores // at_once))}
    if gpus := torch.cuda.device_count():
        environment["CUDA_VISIBLE_DEVICES"] = str(slot % gpus)
    with ExitStack() as files:
        log = files.enter_context(open(out, "ab"))
        told = files.enter_context(open(_unfinished(job), "wb")) if job.trained else log
        return subprocess.Popen(
            [sys.executable, "-m", "elman", *said],
            stdout=told,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C is told to this process alone, which stops the others in order
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # there are no threads here
        )


def _unfinished(job: Job) -> Path:
    return job.figures.with_suffix(".part")


def _end_with_parent() -> None:
    """Let a process be told to stop when the one that began it is killed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _failure(job: Job) -> str:
    log = job.run.with_suffix(".log")
    lines = log.read_text("utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
    return f"{job.name} with seed {job.seed} failed: {lines[-1]}\n  all it said is in {log}"
