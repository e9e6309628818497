"""What several workers on this machine are worth: ``ELMAN_DATA=…/data python benchmarks/workers.py``.

A language model (Penn Treebank) and a translator (Multi30k) with 256 units are trained by one process, by one
under torchrun and by several workers, each with one thread, in turns. Updates a second are those between
lines of the log, without start, validation and checkpoints. The batches are the same however many workers
there are, so of each two updates the fastest of all turns counts: what else runs on the machine matters
little.
``--exchange`` measures by itself what adding up so many numbers takes, ``--cost`` what an update takes a
processor, of language models of so many units and of any number of workers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

FILES = {
    "lm": ["--train", "lm/ptb/ptb.train.txt.xz", "--dev", "lm/ptb/ptb.valid.txt"],
    "seq2seq": [
        *(
            "--train",
            "seq2seq/multi30k/raw/train.de.gz",
            "--train-target",
            "seq2seq/multi30k/raw/train.en.gz",
        ),
        *("--dev", "seq2seq/multi30k/raw/val.de.gz", "--dev-target", "seq2seq/multi30k/raw/val.en.gz"),
    ],
}
SETTINGS = {
    "model.hidden": 256,
    "training.log_every": 2,
    "training.validate_every": 100_000,
    "training.save_seconds": 100_000.0,
}
ELMAN = [sys.executable, "-m", "elman"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--master-port", "29417"]


def times(task: str, way: str, updates: int, extra: list[str]) -> dict[int, float]:
    """The seconds up to every line of the log from the one before, in one training of so many updates."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        pairs = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
        told = [part for one in extra for part in ("--set", one)]
        arguments = ["train", task, *FILES[task], "--out", str(run), "--quiet", *pairs, *told]
        if way == "torchrun":
            command = [*TORCHRUN, "-m", "elman", *arguments]
        else:
            command = [*ELMAN, *arguments, *([] if way == "1" else ["--workers", way])]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
        seen: list[tuple[int, float]] = []
        while process.poll() is None and (not seen or seen[-1][0] < updates):
            time.sleep(0.2)
            seen = lines(run)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
        if not seen or seen[-1][0] < updates:
            raise SystemExit(said.decode())
    between = pairwise(seen[1:])  # before it, kernels are compiled
    return {last: ended - begun for (_, begun), (last, ended) in between if last <= updates}


def lines(run: Path) -> list[tuple[int, float]]:
    """The updates of the log, and when they were."""
    log = run / "metrics.jsonl"
    whole = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    found = (json.loads(line) for line in whole)
    return [(one["update"], one["time"]["seconds"]) for one in found if one["event"] == "update"]


EXCHANGE = """
import os, time, torch
from elman.distributed.group import Group
from elman.distributed.place import find_place
from elman.distributed.sums import NetworkSums
torch.set_num_threads(1)
with Group(find_place()) as group:
    for count in (100_000, 1_000_000, 5_000_000, 20_000_000):
        for kind in ("memory", "network"):
            sums = group.sums(count, torch.device("cpu"))
            if kind == "network":
                sums = NetworkSums(group, -(-count // group.size), torch.device("cpu"))
            given, times = torch.randn(count), []
            for _ in range(12):
                group.meet()
                begun = time.perf_counter()
                sums.own(count).copy_(given)
                group.meet()
                sums.total(count).clone()
                times.append(time.perf_counter() - begun)
            if group.rank == 0:
                took = min(times[2:])
                print(f"{group.size} {kind} {count} {took:.6f}", flush=True)
"""


COST = """
import json, os, sys, time, torch
from contextlib import nullcontext
from elman.config import merge, validate
from elman.distributed.group import Group
from elman.distributed.place import find_place
from elman.training.building import build
from elman.training.preparing import prepare
from elman.training.settings import make_task, nested, settings_class
torch.set_num_threads(1)
task, settings = sys.argv[1], json.loads(sys.argv[2])
place = find_place()
prepared = prepare(make_task(validate(settings_class(task), merge({"task": task}, nested(settings)))))
with nullcontext() if place.size == 1 else Group(place) as group:
    trainer = build(prepared, group=group)
    for number, _ in enumerate(trainer.run()):
        if number == 4:
            begun, before = time.process_time(), trainer.position.log_tokens
        if number == 16:
            break
    took, tokens = time.process_time() - begun, trainer.position.log_tokens - before
    if place.rank == 0:
        weights = sum(one.numel() for one in trainer.model.parameters())
        print(f"{weights:,} | {1e3 * took / 12:.1f} ms | {1e6 * took / tokens:.1f} µs", flush=True)
    if group is not None:
        group.leave()
"""


def started(script: str, size: int, *words: str) -> list[str]:
    """What so many workers say, each a process with one thread."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-c", script, *words]
    workers = [
        subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(size)
    ]
    return [worker.communicate()[0].decode() for worker in workers]


def cost(task: str, units: list[int], ways: list[int]) -> None:
    """What an update takes each of so many workers, as its processor counts it: others matter little."""
    print("| task | units | workers | parameters | an update | a token |\n|---|---|---|---|---|---|")
    files = dict(
        zip([word[2:].replace("-", "_") for word in FILES[task][::2]], FILES[task][1::2], strict=True)
    )
    for hidden in units:
        settings = {f"data.{name}": path for name, path in files.items()} | {"model.hidden": hidden}
        for size in ways:
            said = started(COST, size, task, json.dumps(settings))[0].strip()
            print(f"| {task} | {hidden} | {size} | {said} |", flush=True)


def exchange(sizes: list[int]) -> None:
    """Seconds to add up so many numbers of each worker, in shared memory and by messages over loopback."""
    print("| workers | numbers | shared memory | messages |\n|---|---|---|---|")
    for size in sizes:
        found = [line.split() for line in started(EXCHANGE, size)[0].split("\n")[:-1]]
        for memory, network in zip(found[::2], found[1::2], strict=True):
            times = (f"{1e3 * float(one[3]):.2f} ms" for one in (memory, network))
            print(f"| {size} | {int(memory[2]):,} | {' | '.join(times)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default="lm,seq2seq")
    parser.add_argument("--ways", default="1,2,torchrun", help="numbers of workers, and torchrun with one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=60, help="of each training")
    parser.add_argument("--set", action="append", default=[], help="a setting of both tasks")
    parser.add_argument("--exchange", metavar="SIZES", help="numbers of workers, as in 2,4")
    parser.add_argument(
        "--cost", metavar="UNITS", help="units of networks, as in 64,256,1024; with --ways 1,2,4"
    )
    given = parser.parse_args()
    if given.exchange:
        exchange([int(size) for size in given.exchange.split(",")])
        return
    os.chdir(os.environ["ELMAN_DATA"])
    if given.cost:
        for task in given.tasks.split(","):
            cost(
                task, [int(one) for one in given.cost.split(",")], [int(one) for one in given.ways.split(",")]
            )
        return
    print("| task | processes | updates a second | of one process |\n|---|---|---|---|")
    for task in given.tasks.split(","):
        fastest: dict[str, dict[int, float]] = {way: {} for way in given.ways.split(",")}
        for _ in range(given.rounds):
            for way, best in fastest.items():
                for update, seconds in times(task, way, given.updates, given.set).items():
                    best[update] = min(seconds, best.get(update, seconds))
        rates = {
            way: SETTINGS["training.log_every"] * len(best) / sum(best.values())
            for way, best in fastest.items()
        }
        for way, rate in rates.items():
            print(f"| {task} | {way} | {rate:.2f} | {rate / next(iter(rates.values())):.3f} |", flush=True)


if __name__ == "__main__":
    main()
