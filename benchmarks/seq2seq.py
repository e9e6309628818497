"""Sequence to sequence beside plain PyTorch: ``python benchmarks/seq2seq.py [--data FOLDER]``.

Both sides have the same weights, so that they have to write the same: decoding is timed from text to text,
training from batches of numbers to the optimiser's step. Besides: what a token costs in long outputs, and
the memory of beam search.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import corpus
import torch
from contenders import (
    SCORES,
    PlainWriter,
    Training,
    Workload,
    fresh,
    ours_loss,
    ours_write,
    plain_loss,
    prepare,
    to_plain,
    trained,
)

from elman import __version__
from elman.bench.machine import describe_machine
from elman.bench.report import print_json, say
from elman.bench.tables import align
from elman.bench.timing import Rounds, Times, host_clock, take_turns
from elman.config import DecodingSettings
from elman.models.seq2seq import Seq2Seq as Model
from elman.tasks.seq2seq import Seq2Seq
from elman.tasks.seq2seq_writer import Seq2SeqWriter

TOGETHER = Seq2SeqWriter.together

GROUPS = ("decoding", "training", "lengths", "memory")
SEARCHES = {
    "greedy": DecodingSettings(strategy="greedy", max_length=60),
    "beam 5": DecodingSettings(strategy="beam", beam=5, max_length=60),
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

    def prepare(self, data: corpus.Corpus, placement: str) -> Workload:
        sizes = {"H": self.H, "batch": self.batch, "pairs": self.pairs, "sentences": self.sentences}
        return prepare(data, placement, **sizes)


QUICK = Scale(updates=150, sentences=200, batches=8, rounds=3)


@dataclass(frozen=True)
class Comparison:
    """One line: ``work`` units in the seconds of either. METHOD says what agreement is."""

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


def in_turn(calls: Sequence[Callable[[], Any]], rounds: int) -> tuple[Times, ...]:
    """All of them in so many rounds; garbage is collected in between."""

    def clock(call: Callable[[], Any]) -> float:
        gc.collect()
        return host_clock(call)

    gc.freeze()  # what is there already is no garbage, and need not be looked through each time
    try:
        return take_turns(calls, clock, Rounds(0, rounds, 0.0))
    finally:
        gc.unfreeze()


def compare_decoding(work: Workload, model: Model, search: str, rounds: int) -> Iterator[Comparison]:
    """Ours beside the peer sentence by sentence, and in batches in whichever order suits it."""
    sources, settings = work.sources, SEARCHES[search]
    writer = PlainWriter(to_plain(model), work.task, settings)
    batched = {
        "as given": partial(writer.write, sources, together=TOGETHER),
        "by length": partial(writer.write, sources, together=TOGETHER, by_length=True),
    }
    ours = partial(ours_write, work.task, model, sources, settings)
    written = ours()
    tries = dict(zip(batched, in_turn(list(batched.values()), 2), strict=True))
    order = min(tries, key=lambda name: tries[name].median)
    peers = {"one by one": partial(writer.write, sources, together=1), "batched": batched[order]}
    times, *peer_times = in_turn([ours, *peers.values()], rounds)
    for (way, peer), its in zip(peers.items(), peer_times, strict=True):
        equal = sum(a == b for a, b in zip(written, peer(), strict=True)) / len(sources)
        name = f"{search}, {work.attention} vs {way}" + (f" {order}" if way == "batched" else "")
        target = TARGETS[search, way]
        yield Comparison("decoding", name, "sentences", len(sources), times, its, target, equal)


def compare_training(work: Workload, scale: Scale) -> Comparison:
    """The same batches, from the same fresh weights."""
    model = fresh(work.task)
    peer = to_plain(model)
    batches = list(work.batches(scale.batches))
    both = [
        Training(model, partial(ours_loss, work.task, model)),
        Training(peer, partial(plain_loss, peer)),
    ]
    ours_first, first = (float(training.loss(batches[0]).detach()) for training in both)
    calls = [partial(update_all, training, batches) for training in both]
    in_turn(calls, 1)
    ours, its = in_turn(calls, scale.rounds)
    return Comparison(
        "training",
        f"{work.attention}, batches of {scale.batch}",
        "tokens",
        sum(int(batch[1].sum()) + int(batch[4].sum()) for batch in batches),
        ours,
        its,
        TARGETS["training", work.task.config.model.placement],
        abs(ours_first - first) / first,
    )


def update_all(update: Training, batches: Sequence[Any]) -> None:
    for batch in batches:
        update(batch)


def measure_lengths(work: Workload, model: Model, scale: Scale) -> list[dict[str, Any]]:
    """What a token costs, by the length of the outputs: it should not grow with it."""
    sources = work.sources[:TOGETHER]
    found = []
    for search, usual in SEARCHES.items():
        forced = [usual.model_copy(update={"min_length": n, "max_length": n}) for n in FORCED]
        calls = [partial(ours_write, work.task, model, sources, settings) for settings in forced]
        for length, times in zip(FORCED, in_turn(calls, scale.rounds), strict=True):
            cost = 1e6 * times.median / (len(sources) * length)
            found.append({"search": search, "length": length, "microseconds_a_token": cost})
    return found


def measure_memory(work: Workload, model: Model, scale: Scale) -> list[dict[str, Any]]:
    """The peak of beam search by its width, each in a process of its own."""
    task, sources = work.task, work.sources[:TOGETHER]
    found = []
    for beam in BEAMS:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            given = task.config, task.state(), model.state_dict(), sources, beam
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
    ours_write(task, model, sources[:1], SEARCHES["greedy"])
    before = peak_bytes()
    ours_write(task, model, sources, settings)
    return peak_bytes() - before


def peak_bytes() -> int:
    """The most memory that this process has had; what it inherits from its parent's peak does not count."""
    for line in Path("/proc/self/status").read_text().split("\n"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise SystemExit("the peak of memory is read from /proc; measure on Linux")


# ---- the report ----------------------------------------------------------------------------------


def run(data: corpus.Corpus, scale: Scale, kept: Path, groups: Sequence[str]) -> dict[str, Any]:
    """Measure the groups; everything that was found, for programs. ``kept``: folder of trained weights."""
    comparisons: list[Comparison] = []
    found: dict[str, Any] = {}
    for placement in SCORES:
        work = scale.prepare(data, placement)
        if "training" in groups:
            say(f"training, attention {placement}")
            comparisons.append(compare_training(work, scale))
        if set(groups) <= {"training"}:
            continue
        name = f"{data.name}-{placement}-{scale.H}-{scale.pairs}-{scale.updates}.pt"
        say(f"a model to decode with, attention {placement}: {scale.updates} updates")
        model = trained(work, scale.updates, kept / name)
        for search in SEARCHES if "decoding" in groups else ():
            say(f"decoding, attention {placement}, {search}")
            comparisons += compare_decoding(work, model, search, scale.rounds)
        if placement == "after":  # the rest is of the search, not of the model
            for group, measured in (("lengths", measure_lengths), ("memory", measure_memory)):
                if group in groups:
                    say(group)
                    found[group] = measured(work, model, scale)
    return {
        "version": __version__,
        "data": data.name,
        "scale": asdict(scale),
        "machine": describe_machine(),
        "method": METHOD,
        "cases": [one.as_json() for one in sorted(comparisons, key=lambda one: one.group)],
        **found,
    }


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The report for people."""
    for group in ("decoding", "training"):
        cases = [case for case in report["cases"] if case["group"] == group]
        if cases:
            unit = cases[0]["unit"]
            header = (group, f"ours {unit}/s", f"plain {unit}/s", "ratio", "target", "agreement")
            yield from ("", *align([header, *map(comparison_row, cases)]))
    costs = [
        (f"{one['search']}, {one['length']} tokens", one["microseconds_a_token"])
        for one in report.get("lengths", ())
    ]
    if costs:
        yield from ("", *align([("lengths", "µs a token"), *((name, f"{cost:.1f}") for name, cost in costs)]))
    sizes = [
        (f"beam {one['beam']}", str(one["rows"]), f"{one['megabytes']:.0f}")
        for one in report.get("memory", ())
    ]
    if sizes:
        yield from ("", *align([("memory", "rows", "MB"), *sizes]))
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
        print_json(report)
    else:
        print("\n".join(lines(report)))


if __name__ == "__main__":
    main()
