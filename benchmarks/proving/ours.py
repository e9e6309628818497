"""One command with nothing set but the files, and what the trained model then says."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proving.measures import Counts, count
from proving.sets import Example, Set, Split

ROOT = Path(__file__).resolve().parents[2]
ROLES = {"classify": ("text", "label"), "tag": ("word", "tag"), "seq2seq": ("source", "target")}
DECIDING = ("cells", "config", "decoding", "layers", "metrics", "models", "tasks", "text", "training")


class Result(NamedTuple):
    counts: Counts
    seconds: float
    more: dict[str, float]  # the calibration error and the temperature of a classifier


def code_key() -> str:
    """What decides what a model is: when it changes, ours is measured again."""
    files = sorted(file for name in DECIDING for file in (ROOT / "src" / "elman" / name).rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def measure(
    one: Set,
    split: Split,
    seed: int,
    *,
    baseline: str | None = None,
    more: Sequence[str] = (),
    start: Sequence[str] = (),
) -> Result:
    """Train in a new process, as a user does, and look at the test data once; ``start``: runs for --from."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: f"{folder}/{name}{'.txt' if one.task == 'lm' else '.jsonl'}" for name in split._fields}
        for name, examples in split._asdict().items():
            Path(files[name]).write_text(written(one.task, examples), encoding="utf-8")
        options = ["--train", files["train"], "--out", f"{folder}/run", "--quiet"]
        options += ["--dev", files["dev"]] if split.dev else []
        options += ["--baseline", baseline] if baseline else []
        options += [part for run in start for part in ("--from", run)]
        seconds = train(one.task, options, (f"training.seed={seed}", *one.settings, *more))
        counts, figures = _asked(one, f"{folder}/run", split.test, files["test"])
        return Result(counts, seconds, figures)


def train(task: str, options: Sequence[str], settings: Sequence[str]) -> float:
    """One command; how many seconds it takes."""
    command = [sys.executable, "-c", "from elman.cli.main import run; run()", "train", task, *options]
    command += [part for setting in settings for part in ("--set", setting)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": paths}
    begin = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return time.perf_counter() - begin


def written(task: str, examples: Sequence[Example]) -> str:
    if task == "lm":
        return "".join(f"{line}\n" for line, _ in examples)
    rows = (dict(zip(ROLES[task], (one, _first(other)), strict=True)) for one, other in examples)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _first(answer: Any) -> Any:
    """Of several right answers one, for a file."""
    return answer.split("\n")[0] if isinstance(answer, str) else answer


def _asked(one: Set, run: str, test: Sequence[Example], file: str) -> tuple[Counts, dict[str, float]]:
    import torch

    import elman

    torch.set_num_threads(1)
    model = elman.load(run)
    if one.task == "lm":
        found, _ = model.evaluate(file)
        return np.array([[found["loss"] * found["tokens"], found["tokens"]]]), {}
    said = model.predict([question for question, _ in test])
    counts = count(one.measure, said, [true for _, true in test])
    if one.task != "classify":
        return counts, {}
    found, _ = model.evaluate(file)
    keys = ("calibration_error", "calibration_error_before", "temperature", "loss", "f1")
    return counts, {key: float(found[key]) for key in keys if key in found}
