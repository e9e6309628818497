"""What a search is worth: the default and the best of 20 trials, on test data that are looked at once.

    ELMAN_DATA=…/data python benchmarks/tuning.py names:1000 turkish:300 … --out FOLDER [--trials 20]

Sets of the proving ground, with so many training examples (drawn with seed 0) and all validation data. The
default is trial 0 of the search; both are evaluated once, after the search has ended, with the same seed.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from proving.measures import count, value
from proving.ours import ROOT, written
from proving.sets import SETS, Split, drawn, read_set


def search(name: str, size: int, out: Path, trials: int, seeds: int, jobs: int) -> dict[str, object]:
    one, split = SETS[name], read_set(Path(os.environ["ELMAN_DATA"]), name)
    split = Split(drawn(split.train, size, 0), split.dev, split.test)
    folder = out / f"{name}-{size}"
    folder.mkdir(parents=True, exist_ok=True)
    ending = "txt" if one.task == "lm" else "jsonl"
    for part, examples in split._asdict().items():
        (folder / f"{part}.{ending}").write_text(written(one.task, examples), encoding="utf-8")
    command = [sys.executable, "-m", "elman", "tune", one.task, "--train", f"{folder}/train.{ending}"]
    command += ["--dev", f"{folder}/dev.{ending}", "--out", f"{folder}/search", "--json"]
    command += ["--trials", str(trials), "--seeds", str(seeds), "--jobs", str(jobs)]
    command += [part for setting in one.settings for part in ("--set", setting)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    figures = {
        who: tested(name, folder / "search" / run, split, folder / f"test.{ending}")
        for who, run in (("default", "runs/000"), ("tuned", "best"))
    }
    means = {one["trial"]: one["mean"] for one in found["finalists"]}
    best = found["best"]["trial"]
    return {"set": name, "size": size, "best": best, "dev": [means[0], means[best]], **figures}


def tested(name: str, run: Path, split: Split, file: Path) -> float:
    """The measure that is usual for a set, of one run."""
    import elman

    model = elman.load(run)
    if SETS[name].task == "lm":
        found, _ = model.evaluate(str(file))
        return -value("bits", np.array([found["loss"], 1.0]))
    said = model.predict([question for question, _ in split.test])
    counts = count(SETS[name].measure, said, [true for _, true in split.test])
    return value(SETS[name].measure, counts.sum(0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", metavar="SET:SIZE")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    for word in given.sets:
        name, _, size = word.partition(":")
        print(
            json.dumps(search(name, int(size or 0), given.out, given.trials, given.seeds, given.jobs)),
            flush=True,
        )
