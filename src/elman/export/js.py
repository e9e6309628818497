"""``--to js``: an ES module with the model inside as WebAssembly, and its types."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from elman.errors import ExportError
from elman.export.c import BYTES, program_text
from elman.export.options import Answer, Answering, ExportOptions
from elman.export.program import source
from elman.predictor import Predictor
from elman.storage.files import write_text

EXPORTS = ("line", "answer", "numbers", "number_count", "tokens", "respond", "attention", "looks")
FLAGS = ("--target=wasm32", "-std=c99", "-O2", "-msimd128", "-nostdlib", "-ffreestanding", "-fno-builtin")
TYPES = """/** What a model says about a line. */
export interface Answer {
  text: string;
  /** Of a classifier those of all labels, of a tagger those of the tags, else that of the whole text. */
  logProbabilities: number[];
  /** For each token that was written, how much it looked at each token of the source. */
  attention?: number[][];
}
export interface Model {
  about: { name: string; task: string; bytes: number; labels: string[] | null };
  /** A RangeError says why a line has no answer: it is too long, or its class is unknown. */
  answer(text: string): Answer;
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
    wasm = base64.b64encode(webassembly(predictor, options)).decode()
    about = json.dumps(about_model(predictor, options), ensure_ascii=False).replace("</", "<\\/")
    return f'const WASM = "{wasm}";\nconst ABOUT = {about};\n{source("model.js")}'


def about_model(predictor: Predictor, options: ExportOptions) -> dict[str, Any]:
    task = predictor.task
    fields = list(task.text_fields.values())
    return {
        "name": options.name,
        "task": predictor.config.task,
        "described": task.describe(predictor.model)[0],
        "bytes": max(4096, BYTES * options.max_length),
        "labels": task.label_names if predictor.config.task == "classify" else None,
        "sourceUnit": fields[0].unit_name if fields else "",
        "targetUnit": fields[-1].unit_name if fields else "",
    }


def webassembly(predictor: Predictor, options: ExportOptions) -> bytes:
    """The C of a model, compiled by clang for browsers."""
    clang = shutil.which("clang")
    if clang is None or shutil.which("wasm-ld") is None:
        raise ExportError("clang with wasm-ld makes WebAssembly, and is not there; install clang and lld")
    without_main = ExportOptions("own", options.int8, options.max_length, freestanding=True)
    header, text = program_text(predictor, without_main, traced=True)
    with TemporaryDirectory(prefix="elman-") as name:
        folder = Path(name)
        write_text(folder / "own.h", header)  # its functions are not called as those for browsers
        write_text(folder / "own.c", f"{text}\n{source('wasm.c')}")
        exported = [f"-Wl,--export-if-defined=model_{one}" for one in EXPORTS]
        command = [clang, *FLAGS, "-Wl,--no-entry", *exported, "own.c", "-o", "model.wasm"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise ExportError(f"clang does not compile it: {done.stderr[:2000]}")
        return (folder / "model.wasm").read_bytes()


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
