"""Sequence to sequence beside plain PyTorch: ``python benchmarks/seq2seq.py [--data FOLDER]``.

Both sides have the same weights, so that they have to write the same: decoding is timed from text to text,
training from batches of numbers to the optimiser's step. Besides: what a token costs in long outputs, and
the memory of beam search.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import corpus
import torch
from sides import SCORES, Bench, PlainWriter, Training, fresh, ours_loss, plain_loss, prepare, trained
from weights import to_plain

from elman import __version__
from elman.cli.bench.machine import describe_machine
from elman.cli.bench.measure import Times
from elman.config import DecodingSettings
from elman.models.seq2seq import Seq2Seq as Model
from elman.tasks.seq2seq import TOGETHER, Seq2Seq

GROUPS = ("decoding", "training", "lengths", "memory")
SEARCHES = {
    "greedy": DecodingSettings(strategy="greedy", max_length=60, copy_unknown=False),
    "beam 5": DecodingSettings(strategy="beam", beam=5, max_length=60, copy_unknown=False),
}
TARGETS = {  # of the ratio
    ("greedy", "one by one"): 8.0,
    ("greedy", "batched"): 1.5,
    ("beam 5", "one by one"): 5.0,
    ("beam 5", "batched"): 1.15,
    ("training", "after"): 1.3,
    ("training", "before"): 1.0,
}
FORCED = (10, 20, 40, 80, 160)  # tokens of an output
BEAMS = (1, 5, 20)
METHOD = (
    "one layer, 256 units, embeddings of 256, bidirectional encoder, no dropout; float32, the same weights",
    "ours, plain: medians of runs in turn in one process; ratio: above 1 we are faster",
    "decoding: from text to text, splitting and joining included on both sides; <unk> is not written",
    f"batched: {TOGETHER} sentences at once; ours by length, plain as given or by length: the better one",
    "training: forward, backward, clipping and fused Adam on the same batches; real source and target tokens",
    "agreement: decoding, the share of equal outputs; training, the relative difference of the first loss",
    "lengths: ours, every output forced to the length; memory: of a process, over that before decoding",
)


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    H: int = 256
    batch: int = 64
    pairs: int = corpus.PAIRS
    sentences: int = corpus.SENTENCES
    updates: int = 400  # before decoding
    batches: int = 20  # of a timed run of training
    rounds: int = 5

    def prepare(self, data: corpus.Corpus, placement: str) -> Bench:
        return prepare(
            data, placement, H=self.H, batch=self.batch, pairs=self.pairs, sentences=self.sentences
        )


QUICK = Scale(updates=150, sentences=200, batches=8, rounds=3)


@dataclass(frozen=True)
class Comparison:
    """One line: ``work`` units in the seconds of either side. METHOD says what agreement is."""

    group: str
    name: str
    unit: str
    work: int
    ours: Times
    peer: Times
    target: float
    agreement: float

    def as_json(self) -> dict[str, Any]:
        ratio = self.peer.median / self.ours.median
        return asdict(self) | {
            "ours_per_second": self.work / self.ours.median,
            "peer_per_second": self.work / self.peer.median,
            "ratio": ratio,
            "reached": ratio >= self.target,
        }


# ---- measuring -----------------------------------------------------------------------------------


def in_turn(calls: Sequence[Callable[[], Any]], rounds: int) -> list[Times]:
    """All of them round by round, each round beginning with another; garbage is collected in between."""
    seconds: list[list[float]] = [[] for _ in calls]
    for number in range(rounds):
        for place in range(len(calls)):
            chosen = (place + number) % len(calls)
            gc.collect()
            start = time.perf_counter()
            calls[chosen]()
            seconds[chosen].append(time.perf_counter() - start)
    return [Times.of(one) for one in seconds]


def compare_decoding(bench: Bench, model: Model, search: str, rounds: int) -> Iterator[Comparison]:
    """Ours beside the peer sentence by sentence, and in batches in whichever order suits it."""
    sources, settings = bench.sources, SEARCHES[search]
    writer = PlainWriter(to_plain(model), bench.task, settings)
    batched = {
        "as given": partial(writer.write, sources, together=TOGETHER),
        "by length": partial(writer.write, sources, together=TOGETHER, by_length=True),
    }
    ours = partial(bench.task.generate, model, sources, settings)
    written = [answer["text"] for answer in ours()]
    tries = dict(zip(batched, in_turn(list(batched.values()), 2), strict=True))
    order = min(tries, key=lambda name: tries[name].median)
    peers = {"one by one": partial(writer.write, sources, together=1), "batched": batched[order]}
    times, *peer_times = in_turn([ours, *peers.values()], rounds)
    for (way, peer), its in zip(peers.items(), peer_times, strict=True):
        equal = sum(a == b for a, b in zip(written, peer(), strict=True)) / len(sources)
        name = f"{search}, {bench.attention} vs {way}" + (f" {order}" if way == "batched" else "")
        target = TARGETS[search, way]
        yield Comparison("decoding", name, "sentences", len(sources), times, its, target, equal)


def compare_training(bench: Bench, scale: Scale) -> Comparison:
    """The same batches, from the same fresh weights."""
    model = fresh(bench.task)
    peer = to_plain(model)
    batches = list(bench.batches(scale.batches))
    sides = [
        Training(model, partial(ours_loss, bench.task, model)),
        Training(peer, partial(plain_loss, peer)),
    ]
    ours_first, first = (float(side.loss(batches[0]).detach()) for side in sides)
    calls = [partial(update_all, side, batches) for side in sides]
    in_turn(calls, 1)
    ours, its = in_turn(calls, scale.rounds)
    return Comparison(
        "training",
        f"{bench.attention}, batches of {scale.batch}",
        "tokens",
        sum(int(batch[1].sum()) + int(batch[4].sum()) for batch in batches),
        ours,
        its,
        TARGETS["training", bench.task.config.model.placement],
        abs(ours_first - first) / first,
    )


def update_all(update: Training, batches: Sequence[Any]) -> None:
    for batch in batches:
        update(batch)


def measure_lengths(bench: Bench, model: Model, rounds: int) -> list[dict[str, Any]]:
    """What a token costs, by the length of the outputs: it should not grow with it."""
    sources = bench.sources[:TOGETHER]
    found = []
    for search, usual in SEARCHES.items():
        forced = [usual.model_copy(update={"min_length": n, "max_length": n}) for n in FORCED]
        calls = [partial(bench.task.generate, model, sources, settings) for settings in forced]
        for length, times in zip(FORCED, in_turn(calls, rounds), strict=True):
            cost = 1e6 * times.median / (len(sources) * length)
            found.append({"search": search, "length": length, "microseconds_a_token": cost})
    return found


def measure_memory(bench: Bench, model: Model) -> list[dict[str, Any]]:
    """The peak of beam search by its width, each in a process of its own."""
    task, sources = bench.task, bench.sources[:TOGETHER]
    found = []
    for beam in BEAMS:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            given = task.config, task.tables(), model.state_dict(), sources, beam
            spent = pool.submit(peak_memory, *given).result()
        rows = len(sources) * beam
        found.append({"beam": beam, "rows": rows, "megabytes": spent / 1e6})
    return found


def peak_memory(config: Any, tables: Any, weights: Any, sources: list[str], beam: int) -> int:
    """Bytes that decoding adds to the greatest size of this process."""
    torch.set_num_threads(1)
    task = Seq2Seq(config)
    task.restore(tables)
    model = fresh(task).eval()
    model.load_state_dict(weights)
    settings = SEARCHES["beam 5"].model_copy(update={"beam": beam})
    task.generate(model, sources[:1], SEARCHES["greedy"])
    before = peak_bytes()
    task.generate(model, sources, settings)
    return peak_bytes() - before


def peak_bytes() -> int:
    """The most memory that this process has had; what it inherits from its parent's peak does not count."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise SystemExit("the peak of memory is read from /proc; measure on Linux")


# ---- the report ----------------------------------------------------------------------------------


def run(data: corpus.Corpus, scale: Scale, kept: Path, groups: Sequence[str]) -> dict[str, Any]:
    """Measure the groups; everything that was found, for programs. ``kept``: folder of trained weights."""
    comparisons: list[Comparison] = []
    found: dict[str, Any] = {}
    for placement in SCORES:
        bench = scale.prepare(data, placement)
        if "training" in groups:
            say(f"training, attention {placement}")
            comparisons.append(compare_training(bench, scale))
        if set(groups) <= {"training"}:
            continue
        name = f"{data.name}-{placement}-{scale.H}-{scale.pairs}-{scale.updates}.pt"
        say(f"a model to decode with, attention {placement}: {scale.updates} updates")
        model = trained(bench, scale.updates, kept / name)
        for search in SEARCHES if "decoding" in groups else ():
            say(f"decoding, attention {placement}, {search}")
            comparisons += compare_decoding(bench, model, search, scale.rounds)
        if placement == "after":  # the rest is of the search, not of the model
            found |= measure_search(bench, model, scale.rounds, groups)
    return {
        "version": __version__,
        "data": data.name,
        "scale": asdict(scale),
        "machine": describe_machine(),
        "method": METHOD,
        "cases": [one.as_json() for one in sorted(comparisons, key=lambda one: one.group)],
        **found,
    }


def measure_search(bench: Bench, model: Model, rounds: int, groups: Sequence[str]) -> dict[str, Any]:
    """What the search itself costs in time and memory."""
    found = {}
    if "lengths" in groups:
        say("lengths")
        found["lengths"] = measure_lengths(bench, model, rounds)
    if "memory" in groups:
        say("memory")
        found["memory"] = measure_memory(bench, model)
    return found


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    for group in ("decoding", "training"):
        cases = [case for case in report["cases"] if case["group"] == group]
        if cases:
            unit = cases[0]["unit"]
            header = (group, f"ours {unit}/s", f"plain {unit}/s", "ratio", "target", "agreement")
            yield from ("", *table(header, [comparison_row(case) for case in cases]))
    if "lengths" in report:
        rows = [
            (f"{one['search']}, {one['length']} tokens", f"{one['microseconds_a_token']:.1f}")
            for one in report["lengths"]
        ]
        yield from ("", *table(("lengths", "µs a token"), rows))
    if "memory" in report:
        sizes = [
            (f"beam {one['beam']}", str(one["rows"]), f"{one['megabytes']:.0f}") for one in report["memory"]
        ]
        yield from ("", *table(("memory", "rows", "MB"), sizes))
    yield from ("", f"How it was measured ({report['data']})", *(f"  {line}" for line in report["method"]))
    yield from ("", "Machine", *(f"  {name}: {value}" for name, value in report["machine"].items()))


def comparison_row(case: dict[str, Any]) -> tuple[str, ...]:
    agreement = f"{case['agreement']:.1%}" if case["group"] == "decoding" else f"{case['agreement']:.0e}"
    return (
        case["name"],
        f"{case['ours_per_second']:,.0f}",
        f"{case['peer_per_second']:,.0f}",
        f"{case['ratio']:.2f}×",
        f"{case['target']:g}×" + ("" if case["reached"] else " missed"),
        agreement,
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (header, *rows)
    ]


def say(what: str) -> None:
    print(f"· {what}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sequence to sequence beside plain PyTorch.")
    usual = os.environ.get("ELMAN_DATA")
    parser.add_argument("--data", type=Path, default=usual, help="folder of the corpora; unset: $ELMAN_DATA")
    parser.add_argument("--cache", type=Path, help="folder that keeps trained weights; unset: none does")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="what to measure")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    parser.add_argument("--quick", action="store_true", help="less of everything: a look, not a result")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as scratch:
        scale = QUICK if given.quick else Scale()
        report = run(corpus.find(given.data), scale, given.cache or Path(scratch), given.only)
    if given.json:
        print(json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print("\n".join(lines(report)))


if __name__ == "__main__":
    main()
