"""How fast is an export beside torch, onnxruntime and the engine's own kernel, and what memory does it take?

    python benchmarks/export_speed.py elman-demo/run [--keep FOLDER]

All take turns on one core; a number is a median. ``--keep``: exports are written there, or found there.
"""

import argparse
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

import elman
from elman.export.c import compiler, program_text
from elman.export.exporting import export
from elman.export.options import ExportOptions
from elman.export.parity import one_by_one, validation_lines
from elman.recurrence.cpu.kernel import Kernel
from elman.runtime import load

ROUNDS, TIMED, SINGLY = 5, 1000, 100
KINDS = {"c": ("c", False), "c-int8": ("c", True), "onnx": ("onnx", False), "js-int8": ("js", True)}
KINDS |= {"js": ("js", False), "onnx-int8": ("onnx", True)}
LOOP = """
void loop(void (*call)(void *, void *), void *a, void *b, long times) {
  while (times--) call(a, b);
}
"""
STEP = """#define NO_MAIN
#include "own.c"
static own_memory memory;
static own_state state;
static float x[1024], y[4096];
void step_begin(void) { own_begin(&state); }
void step_loop(long times) {
  while (times--) network_advance(&memory, x, state.values, y);
}
"""
NODE = """
import { readFileSync } from "node:fs";
import { load } from "./model.mjs";
const model = await load(), texts = JSON.parse(readFileSync(0, "utf8"));
texts.slice(0, 50).forEach((text) => model.answer(text));
const start = performance.now();
texts.forEach((text) => model.answer(text));
console.log((1000 * texts.length) / (performance.now() - start));
"""


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def turns(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of what each says, who take turns."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, ask in contenders.items():
            found[name].append(ask())
    return {name: statistics.median(values) for name, values in found.items()}


def compiled(folder: Path) -> Path:
    [path] = folder.glob("*.c")
    binary = folder / "program"
    if not binary.exists():
        subprocess.run([compiler(), "-O2", str(path), "-lm", "-o", str(binary)], check=True)
    return binary


def program_rate(binary: Path, given: bytes, count: int) -> float:
    """Lines a second of a process, less its start with one line."""
    first = given[: given.index(b"\n") + 1]
    one = min(timed(lambda: subprocess.run([binary], input=first, capture_output=True)) for _ in range(3))
    return (count - 1) / (timed(lambda: subprocess.run([binary], input=given, capture_output=True)) - one)


def dates(run: Path, keep: Path) -> None:
    predictor = elman.load(str(run))
    lines = validation_lines(predictor)[:TIMED]
    texts = [line.text for line in lines]
    given = "".join(f"{text}\n" for text in texts).encode()
    for name, (to, int8) in KINDS.items():
        if not (keep / name).exists() and (to != "js" or shutil.which("clang")):
            export(predictor, to, keep / name, ExportOptions("own", int8=int8), lines)
    binaries = {name: compiled(keep / name) for name in ("c", "c-int8")}
    for name, binary in binaries.items():
        print(f"{name}: the C file has {size_of(keep / name / 'own.c')}, the program {size_of(binary)}")
    for name in ("js", "js-int8", "onnx", "onnx-int8"):
        if (keep / name).exists():
            parts = [path for path in (keep / name).iterdir() if path.name != "proof.json"]
            print(f"{name}: {sum(path.stat().st_size for path in parts) / 1e6:.2f} MB")
    torch.set_num_threads(1)
    runtime = {name: load(keep / name, threads=1) for name in ("onnx", "onnx-int8")}

    def torch_singly() -> float:
        with one_by_one(predictor):
            return SINGLY / timed(lambda: predictor.predict(texts[:SINGLY]))

    def singly(name: str) -> float:
        return SINGLY / timed(lambda: [runtime[name].predict([text]) for text in texts[:SINGLY]])

    contenders: dict[str, Callable[[], float]] = {
        name: lambda binary=binary: program_rate(binary, given, len(texts))
        for name, binary in binaries.items()
    }
    contenders["torch, one by one"] = torch_singly
    contenders["torch, in batches"] = lambda: len(texts) / timed(lambda: predictor.predict(texts))
    for name in runtime:
        contenders[f"{name}, one by one"] = lambda name=name: singly(name)
    contenders["onnx, in batches"] = lambda: len(texts) / timed(lambda: runtime["onnx"].predict(texts))
    for name in ("js", "js-int8"):
        if (keep / name).exists():
            contenders[f"{name}, in node"] = lambda name=name: in_node(keep / name, texts)
    found = turns(contenders, ROUNDS)
    for name, rate in found.items():
        print(f"{name}: {rate:,.0f} lines a second")
    print(f"c beside torch, one by one: {found['c'] / found['torch, one by one']:.1f} times")
    print(f"c beside torch, in batches: {found['c'] / found['torch, in batches']:.2f} times")
    print(f"c beside onnxruntime, one by one: {found['c'] / found['onnx, one by one']:.2f} times")
    print(f"c beside onnxruntime, in batches: {found['c'] / found['onnx, in batches']:.2f} times")
    empty = [
        timed(lambda: subprocess.run([binaries["c"]], input=b"", capture_output=True)) for _ in range(30)
    ]
    print(f"start of the program: {1000 * statistics.median(empty):.1f} ms")
    print(f"memory of the program: {memory_of(binaries['c'], given)}")


def in_node(folder: Path, texts: list[str]) -> float:
    import json

    (folder / "model.mjs").write_bytes(next(folder.glob("*.js")).read_bytes())
    (folder / "rate.mjs").write_text(NODE)
    given = json.dumps(texts).encode()
    done = subprocess.run(["node", "rate.mjs"], cwd=folder, input=given, capture_output=True, check=True)
    return float(done.stdout)


def size_of(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.2f} MB"


def memory_of(binary: Path, given: bytes) -> str:
    """What a process has of its own after all lines, and what of its files it has looked at."""
    process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(given)
    process.stdin.flush()
    time.sleep(1.0)
    said = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    process.stdin.close()
    process.wait()
    return f"{said['RssAnon'].strip()} of its own, {said['RssFile'].strip()} of files: weights, C library"


def step(H: int = 256) -> None:
    """One step of a streaming LSTM, beside the engine's kernel without the Python around it."""
    settings = {"model.hidden": H, "model.embedding": 64, "training.max_steps": 1, "text.unit": "character"}
    predictor = elman.fit("lm", ["some text, and more of it"] * 20, settings=settings)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        header, text = program_text(predictor, ExportOptions("own"))
        for file, written in (("own.h", header), ("own.c", text), ("step.c", STEP), ("loop.c", LOOP)):
            (folder / file).write_text(written, encoding="utf-8")
        for one in ("step", "loop"):
            command = [compiler(), "-O2", "-shared", "-fPIC", f"{one}.c", "-lm", "-o", f"{one}.so"]
            subprocess.run(command, cwd=folder, check=True)
        own, loop = (ctypes.CDLL(str(folder / f"{one}.so")) for one in ("step", "loop"))
        network = predictor.model.encoder.network
        words: list[tuple[object, int, int]] = []
        usual = Kernel.stream

        def noted(kernel: Kernel, x: object, weights: object, state: object) -> object:
            call = kernel._stream

            def kept(task: int, pool: int) -> None:
                size = 8 * len(kernel._empty)
                words.append((ctypes.create_string_buffer(ctypes.string_at(task, size), size), pool, size))
                words.append((ctypes.cast(call, ctypes.c_void_p), 0, 0))
                call(task, pool)

            kernel._stream = kept  # type: ignore[assignment]
            try:
                return usual(kernel, x, weights, state)  # type: ignore[arg-type]
            finally:
                kernel._stream = call

        Kernel.stream = noted  # type: ignore[method-assign, assignment]
        with torch.no_grad():
            x = torch.zeros(1, network.input_size)
            states = [network.start(1) for _ in range(2)]
            kept = [states, *(network.step(x, state) for state in states)]
        Kernel.stream = usual  # type: ignore[method-assign]
        task, pool, _ = words[-2]
        call = words[-1][0]
        times = 20_000
        loop.loop.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
        own.step_loop.argtypes = (ctypes.c_long,)
        own.step_begin()
        found = turns(
            {
                "export": lambda: timed(lambda: own.step_loop(times)) / times,
                "engine": lambda: timed(lambda: loop.loop(call, task, pool, times)) / times,
            },
            11,
        )
        del kept
    said = f"a step of {H} units: {1e6 * found['export']:.2f} µs"
    print(f"{said}; the engine's kernel {1e6 * found['engine']:.2f} µs")
    print(f"a step beside the engine's kernel: {found['export'] / found['engine']:.2f} times as long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    step()
    if given.run is not None:
        with tempfile.TemporaryDirectory() as name:
            dates(given.run, given.keep or Path(name))


if __name__ == "__main__":
    sys.exit(main())
