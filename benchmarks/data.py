"""How fast large data are read, counted and encoded, in how much memory, and what a kill costs.

    python benchmarks/data.py make 100000000 /tmp/100.txt [--task lm] [--types 15000000]
    python benchmarks/data.py prepare /tmp/100.txt [--task lm] [--unit word] [--kills 3]
    python benchmarks/data.py train /tmp/100.txt [--task lm] [--unit word] [--updates 1000]

``make`` writes words whose frequencies are Zipf's, with a long tail of types, 5 to 40 of them a line, the
same ones for the same seed. ``prepare`` is what a training does before its first update. Rates are bytes of
the file by seconds of a processor, all processes together, so that others matter little; memory is
that of the largest process.
"""

import argparse
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

CONSONANTS, VOWELS, KNOWN = "bcdfghjklmnprstvwxyz", "aeiou", 1_000_000


def spelled(rank: int) -> str:
    """The word of a rank: frequent ones are short."""
    parts = []
    while True:
        rank, low = divmod(rank, 100)
        parts.append(CONSONANTS[low // 5] + VOWELS[low % 5])
        if not rank:
            return "".join(parts)
        rank -= 1


def lines(types: int, seed: int) -> Iterator[str]:
    random = np.random.Generator(np.random.PCG64(seed))
    mass = (1.0 / np.arange(1, types + 1)).cumsum()
    mass /= mass[-1]
    known = [spelled(rank) for rank in range(min(types, KNOWN))]
    while True:
        lengths = random.integers(5, 41, 20_000)
        ranks = np.searchsorted(mass, random.random(int(lengths.sum())), side="right").tolist()
        words = [known[rank] if rank < len(known) else spelled(rank) for rank in ranks]
        for place in (random.random(len(words)) < 0.06).nonzero()[0].tolist():
            words[place] += ","
        rest = iter(words)
        for length in lengths.tolist():
            line = " ".join(islice(rest, length))
            yield f"{line[0].upper()}{line[1:]}."


def make(path: Path, size: int, task: str, types: int, seed: int) -> None:
    done = 0
    with path.open("w", encoding="ascii") as file:
        for line in lines(types, seed):
            second = {"classify": f"\t{'abcde'[len(line) % 5]}", "seq2seq": f"\t{line[::-2]}"}.get(task, "")
            done += file.write(f"{line}{second}\n")
            if done >= size:
                return


def stages(path: Path, task: str, unit: str, cache: Path) -> None:
    """Prepare, and print what each stage took, as JSON."""
    from elman.config import merge, validate
    from elman.training import preparing
    from elman.training.parts import Parts
    from elman.training.settings import make_task, nested, settings_class

    took: dict[str, float] = {}
    each = Parts.each

    def timed(self, doing, *given):  # type: ignore[no-untyped-def]
        before = used()
        yield from each(self, doing, *given)
        took[doing] = used() - before

    Parts.each = timed  # type: ignore[method-assign]
    table = merge({"task": task}, nested({"data.train": str(path), "text.unit": unit}))
    before, began = used(), time.perf_counter()
    found = preparing.prepare(make_task(validate(settings_class(task), table)), cache)
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    took |= {"all": used() - before, "seconds": time.perf_counter() - began}
    about = {"types": found.statistics.types, "examples": len(found.train), "peak MB": peak / 1024}
    print(json.dumps({"MB": path.stat().st_size / 1e6, "took": took, **about}))


def used() -> float:
    """Seconds of a processor, of this process and those that it has seen to their end."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in usage)


def digest(cache: Path) -> str:
    files = sorted(one for name in ("train", "dev") for one in (cache / name).rglob("*.values"))
    return hashlib.sha256(b"".join(hashlib.sha256(one.read_bytes()).digest() for one in files)).hexdigest()


def prepare(path: Path, task: str, unit: str, kills: int) -> None:
    command = [sys.executable, __file__, "stages", str(path), "--task", task, "--unit", unit, "--cache"]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        done = subprocess.run([*command, f"{folder}/whole"], stdout=subprocess.PIPE, check=True, text=True)
        found = json.loads(done.stdout)
        for name, seconds in found["took"].items():
            print(f"{name}: {seconds:.1f} s" + f", {found['MB'] / seconds:.1f} MB/s" * (name != "seconds"))
        print(
            f"{found['examples']:,} examples, {found['types']:,} types, {found['peak MB']:,.0f} MB",
            flush=True,
        )
        for kill in range(kills):
            process = subprocess.Popen([*command, f"{folder}/killed"], stdout=subprocess.DEVNULL)
            time.sleep(found["took"]["seconds"] * (kill + 1) / (2 * kills))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        if kills:
            done = subprocess.run(
                [*command, f"{folder}/killed"], stdout=subprocess.PIPE, check=True, text=True
            )
            same = digest(Path(folder) / "whole") == digest(Path(folder) / "killed")
            seconds = json.loads(done.stdout)["took"]["seconds"]
            print(f"after {kills} kills: the rest took {seconds:.0f} s; the same bytes: {same}")


def train(path: Path, task: str, unit: str, updates: int) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        run = Path(folder) / "run"
        dev = Path(folder) / "dev.txt"
        with path.open("rb") as file:
            dev.write_bytes(b"".join(islice(file, 1000)))  # validation is not what is measured
        settings = [
            f"data.dev={dev}",
            f"text.unit={unit}",
            f"training.max_steps={updates}",
            f"training.validate_every={updates}",
        ]
        command = [sys.executable, "-m", "elman", "train", task, "--train", str(path), "--out", str(run)]
        subprocess.run([*command, *(word for one in settings for word in ("--set", one))], check=True)
        log = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        shares = [one["time"]["data_share"] for one in log if one["event"] == "update"]
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"data: {np.mean(shares):.2%} of the time, at most {max(shares):.2%}; peak {peak:,.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("make", "prepare", "stages", "train"))
    parser.add_argument("given", nargs="+", help="make: bytes and a file; else a file")
    parser.add_argument("--task", default="lm", choices=("lm", "classify", "seq2seq"))
    parser.add_argument("--unit", default="word")
    parser.add_argument("--types", type=int, default=15_000_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--cache", type=Path, help="of stages")
    asked = parser.parse_args()
    path = Path(asked.given[-1])
    match asked.what:
        case "make":
            make(path, int(asked.given[0]), asked.task, asked.types, asked.seed)
        case "prepare":
            prepare(path, asked.task, asked.unit, asked.kills)
        case "stages":
            stages(path, asked.task, asked.unit, asked.cache)
        case "train":
            train(path, asked.task, asked.unit, asked.updates)


if __name__ == "__main__":
    main()
