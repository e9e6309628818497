"""``elman export``: a folder that appears whole and proven, or not at all."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import cast

from elman.errors import ArgumentError, ExportError, FileError, nearest
from elman.export.options import ExportOptions, Format
from elman.export.parity import Line, Proof, check_proof, prove
from elman.export.refusal import check_exportable
from elman.predictor import Predictor
from elman.storage.files import explained, write_text

FORMATS = ("c", "html", "js", "onnx")
PROOF = "proof.json"


def find_format(name: str) -> Format:
    """The module of a format."""
    if name not in FORMATS:
        raise ArgumentError(f"--to is {name!r}; {nearest(name, FORMATS)}")
    try:
        return cast(Format, import_module(f"elman.export.{name}"))
    except ModuleNotFoundError as error:
        remedy = "pip install 'elman[export]'" if name == "onnx" else "install Elman anew"
        raise ExportError(f"--to {name} needs {error.name}, which is not installed; {remedy}") from None


def export(
    predictor: Predictor,
    to: str,
    folder: Path,
    options: ExportOptions,
    lines: Sequence[Line],
) -> Proof:
    """Write a model as ``to`` into a new folder, and prove on the lines that it answers as the model does."""
    form = find_format(to)
    check_options(options)
    check_exportable(predictor)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileError("is there already", path=folder, remedy="name a new folder with --out")
    with explained(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        os.chmod(beside, 0o755)  # as a folder that mkdir makes
        form.write(predictor, beside, options)
        size = sum(path.stat().st_size for path in beside.rglob("*") if path.is_file())
        proof = prove(predictor, form.open_written(beside), lines, options, size=size)
        check_proof(proof, options)
        write_text(beside / PROOF, json.dumps({"format": to, **proof.as_json()}, indent=2) + "\n")
        with explained(folder):
            if folder.exists():
                folder.rmdir()
            beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return proof


def check_options(options: ExportOptions) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", options.name):
        raise ArgumentError(f"--name is {options.name!r}; it is letters, digits and _, a letter first")
    if not 1 <= options.max_length <= 1_000_000:
        raise ArgumentError(f"--max-length is {options.max_length}; it is at least 1, at most 1,000,000")
