"""The door to an exported model."""

import json
from pathlib import Path

from elman.errors import RunError
from elman.runtime.base import MANIFEST, VERSION, Exported
from elman.runtime.labelling import Classifier, Tagger
from elman.runtime.writing import Class2Seq, LanguageModel, Seq2Seq

KINDS: dict[str, type[Exported]] = {
    kind.task: kind for kind in (Classifier, Tagger, LanguageModel, Seq2Seq, Class2Seq)
}


def load(folder: str | Path, *, threads: int | None = None) -> Exported:
    """A model that ``elman export --to onnx`` wrote; ``threads``: that answer, all of them if it is None."""
    path = Path(folder) / MANIFEST
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}; give a folder of elman export --to onnx") from None
    if not isinstance(said, dict) or said.get("version") != VERSION or said.get("task") not in KINDS:
        raise RunError(f"{path} is no export that this version reads; export the run again")
    return KINDS[said["task"]](Path(folder), said, threads)
