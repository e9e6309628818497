"""How fast a trained run answers: ``python benchmarks/predict.py [--lines 100000] [--rounds 5]``.

The same short lines go through ``elman predict`` from a file and through a pipe, and through the same model
as batches that were encoded before, in turns; each in a process of its own with one thread. Besides: a
start, beside ``import torch``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = [sys.executable, "-c", "from elman.cli.main import run; run()"]
ENCODED = """
import sys, time
import torch
import elman
from elman.tasks.examples import Examples, device_of
torch.set_num_threads(1)
run, path = sys.argv[1:]
predictor = elman.load(run)
task, model = predictor.task, predictor.model
texts = [task.words.text.split(line) for line in open(path, encoding="utf-8")]
examples = Examples.asked(texts, task.lexicon())
keys = examples.in_order(*task.measured, tokens=task.positions)
batches = [task._word_batch(examples, key, device_of(model)) for key in keys]
with torch.no_grad():
    model(batches[0])
    start = time.perf_counter()
    for batch in batches:
        model(batch).softmax(-1)
    print(time.perf_counter() - start)
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--lines", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), given.lines, given.rounds)


def measure(folder: Path, lines: int, rounds: int) -> None:
    run, path = folder / "run", folder / "lines.txt"
    write(folder / "train.tsv", path, lines)
    training = ["train", "classify", "--train", folder / "train.tsv", "--out", run, "--quiet"]
    call(*COMMAND, *training, "--set", "training.max_steps=50")
    ways = {
        "import torch": lambda: seconds(sys.executable, "-c", "import torch"),
        "one line": lambda: seconds(*COMMAND, "predict", run, "--quiet", given=b"a line\n"),
        "encoded": lambda: float(call(sys.executable, "-c", ENCODED, run, path)),
        "file": lambda: seconds(*COMMAND, "predict", run, path, "--quiet"),
        "pipe": lambda: seconds(*COMMAND, "predict", run, "--quiet", given=path.read_bytes()),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(way())
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:>12}  {medians[name]:8.2f} s  ({min(values):.2f} to {max(values):.2f})")
    start = medians["one line"]
    print(f"starting: {start / medians['import torch']:.2f} of import torch (at most 1.3)")
    print(f"pipe: {medians['pipe'] / medians['file']:.2f} of the file's time (at most 1.3)")
    for name in ("file", "pipe"):
        whole, rest = medians["encoded"] / medians[name], medians["encoded"] / (medians[name] - start)
        print(
            f"{name}: {whole:.0%} of the lines a second of encoded batches (at least 70 %), "
            f"{rest:.0%} without starting"
        )


def write(train: Path, path: Path, lines: int) -> None:
    """Short lines of 8,000 distinct words, whose letters are not read."""
    draw = random.Random(3)
    words = [f"{draw.choice('bdgklmnprst')}{draw.choice('aeiou')}{n}" for n in range(8000)]

    def line() -> str:
        return " ".join(draw.choices(words, k=draw.randint(3, 15)))

    train.write_text("".join(f"{line()}\t{draw.choice(('good', 'bad', 'so'))}\n" for _ in range(3000)))
    path.write_text("".join(f"{line()}\n" for _ in range(lines)))


def seconds(*command: object, given: bytes | None = None) -> float:
    start = time.perf_counter()
    call(*command, given=given)
    return time.perf_counter() - start


def call(*command: object, given: bytes | None = None) -> str:
    return subprocess.run([*map(str, command)], input=given, capture_output=True, check=True).stdout.decode()


if __name__ == "__main__":
    main()
