"""``--to js``: an ES module with the model inside as WebAssembly, and its types."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from elman.errors import ExportError
from elman.export.c import BYTES, program_text, written_program
from elman.export.options import Answer, Answering, ExportOptions
from elman.export.program import TRACED, Program, Trace, source
from elman.export.searching import TOP
from elman.predictor import Predictor
from elman.storage.files import write_text

EXPORTS = (
    *("line", "answer", "numbers", "number_count", "tokens", "respond", "explain", "ids", "trace", "steps"),
    *("prompted", "came", "chances", "top", "top_chances", "attention", "attended"),
)
FLAGS = ("--target=wasm32", "-std=c99", "-O2", "-msimd128", "-nostdlib", "-ffreestanding", "-fno-builtin")
TYPES = """/** What a model says about a line. */
export interface Answer {
  text: string;
  /** Of a classifier those of all labels, of a tagger those of the tags, else that of the whole text. */
  logProbabilities: number[];
}
/** A token that came, what was most probable there, and where it came from. */
export interface Step {
  token: string;
  prompted: boolean;
  probability: number;
  top: [string, number][];
}
/** What a cell did at each step: all units of its gates and states, name by name. */
export interface Cell {
  network: string;
  /** Does it read the text, and not write? */
  reads: boolean;
  layer: number;
  direction: number;
  cell: string;
  units: number;
  names: string[];
  /** How many of the names, the last ones, are states. */
  states: number;
  /** steps × names × units */
  values: Float32Array;
}
export interface Explanation extends Answer {
  /** The tokens that were read. */
  read: string[];
  /** The tokens that were written, after those of a prompt. */
  written: Step[];
  /** For each token that was written, how much it looked at each token that was read. */
  attention?: number[][];
  /** How much each token that was read counts in the vector that is classified. */
  pooled?: number[];
  cells: Cell[];
}
export interface Model {
  about: { name: string; task: string; bytes: number; labels: string[] | null };
  /** A RangeError says why a line has no answer: it is too long, no text, or its class is unknown. */
  answer(text: string): Answer;
  /** The answer with what happened on the way to it, at the first 300 steps. */
  explain(text: string): Explanation;
}
export function load(): Promise<Model>;
"""
DRIVER = """
import { readFileSync } from "node:fs";
import { load } from "./model.mjs";
const model = await load();
const found = JSON.parse(readFileSync(0, "utf8")).map((text) => model.answer(text));
process.stdout.write(JSON.stringify(found.map((one) => [one.text, one.logProbabilities])));
"""


def write(predictor: Predictor, folder: Path, options: ExportOptions) -> None:
    write_text(folder / f"{options.name}.js", module_text(predictor, options))
    write_text(folder / f"{options.name}.d.ts", TYPES)


def module_text(predictor: Predictor, options: ExportOptions) -> str:
    """The module: its WebAssembly, what is known about the model, and how it is asked."""
    code, program = webassembly(predictor, options)
    wasm = base64.b64encode(code).decode()
    about = json.dumps(about_model(predictor, options, program), ensure_ascii=False).replace("</", "<\\/")
    return f'const WASM = "{wasm}";\nconst ABOUT = {about};\n{source("model.js")}'


def about_model(predictor: Predictor, options: ExportOptions, program: Program) -> dict[str, object]:
    task = predictor.task
    fields = list(task.text_fields.values())
    texts = [field.readable(field.vocabulary.tokens) for field in fields]
    return {
        "name": options.name,
        "task": predictor.config.task,
        "described": task.describe(predictor.model)[0],
        "bytes": max(4096, BYTES * options.max_length),
        "labels": task.label_names if predictor.config.task == "classify" else None,
        "traced": TRACED,
        "shownTop": TOP,
        "cells": [cell_of(trace, alone=not program.first_token) for trace in program.traces],
        "start": texts[-1][program.first_token] if program.first_token is not None else "",
        "cut": "" if fields[0].reverse else "listed" if task.listed else fields[0].unit_name,
        "tokens": texts[0],
        "written": None if texts[-1] == texts[0] else texts[-1],
    }


def cell_of(trace: Trace, *, alone: bool) -> dict[str, object]:
    """A cell as the module tells of it; ``alone``: there is but one network."""
    reads = trace.network == "encoder"
    told = {"network": "network" if reads and alone else trace.network, "reads": reads}
    return told | {key: value for key, value in trace._asdict().items() if key not in ("network", "field")}


def webassembly(predictor: Predictor, options: ExportOptions) -> tuple[bytes, Program]:
    """The C of a model, compiled by clang for browsers, and what it consists of."""
    clang = shutil.which("clang")
    if clang is None or shutil.which("wasm-ld") is None:
        raise ExportError("clang with wasm-ld makes WebAssembly, and is not there; install clang and lld")
    without_main = ExportOptions("own", options.int8, options.max_length, freestanding=True)
    program = written_program(predictor, without_main, traced=True)
    header, text = program_text(predictor, without_main, program)
    with TemporaryDirectory(prefix="elman-") as name:
        folder = Path(name)
        write_text(folder / "own.h", header)  # its functions are not called as those for browsers
        write_text(folder / "own.c", f"{text}\n{source('wasm.c')}")
        exported = [f"-Wl,--export-if-defined=model_{one}" for one in EXPORTS]
        command = [clang, *FLAGS, "-Wl,--no-entry", *exported, "own.c", "-o", "model.wasm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise ExportError(f"clang does not compile it: {done.stderr[:2000]}")
        return (folder / "model.wasm").read_bytes(), program


def open_written(folder: Path) -> Answering:
    [path] = folder.glob("*.js")
    return asked_by_node(path.read_text(encoding="utf-8"))


def asked_by_node(module: str) -> Answering:
    """A module that node asks, outside of any browser."""
    node = shutil.which("node")
    if node is None:
        raise ExportError("node proves the export, and is not there; install nodejs")

    def ask(texts: Sequence[str]) -> list[Answer]:
        with TemporaryDirectory(prefix="elman-") as name:
            write_text(Path(name) / "model.mjs", module)
            write_text(Path(name) / "driver.mjs", DRIVER)
            given = json.dumps(list(texts)).encode()
            done = subprocess.run([node, "driver.mjs"], cwd=name, input=given, capture_output=True)
        if done.returncode:
            raise ExportError(f"the module fails: {done.stderr.decode()[:1000]}")
        return [Answer(text, tuple(numbers)) for text, numbers in json.loads(done.stdout)]

    return ask
