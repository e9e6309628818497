"""What exported models have in common: their folder, their graphs, and the answers that they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from elman.text.asked import checked
from elman.text.fields import TextField

MANIFEST, ARRAYS = "model.json", "arrays.npz"
VERSION = 1  # of what a folder has


@dataclass(frozen=True)
class Prediction:
    """The answer to one text: a label, several labels, tags, or a text.

    probabilities: of all labels, or of the tags that were given. log_probability and n_best (text,
    log-probability, score): of what is written.
    """

    value: str | list[str]
    asked: str | Sequence[str]
    probabilities: dict[str, float] | list[float] | None = None
    log_probability: float | None = None
    n_best: Sequence[tuple[str, float, float]] = ()
    between: str = " "

    @property
    def line(self) -> str:
        """The answer in one line."""
        return self.value if isinstance(self.value, str) else self.between.join(self.value)


def field_of(said: Mapping[str, Any]) -> TextField:
    """A text field as an export keeps it."""
    settings: Any = SimpleNamespace(**{key: said[key] for key in ("unit", "lowercase", "unit_options")})
    field = TextField(settings, remove=said["remove"], reverse=said["reverse"])
    field.whole = said["whole"]
    field.restore({"tokens": said["tokens"]})
    if said["learned"] is not None:
        field.restore_unit(said["learned"])
    return field


class Exported(ABC):
    """A folder of ``elman export --to onnx``, ready for use."""

    task: ClassVar[str]

    def __init__(self, folder: Path, said: Mapping[str, Any], threads: int | None) -> None:
        self.folder, self.said = folder, said
        self._options = onnxruntime.SessionOptions()
        self._options.log_severity_level = 3
        if threads is not None:
            self._options.intra_op_num_threads = self._options.inter_op_num_threads = threads

    def predict(self, texts: Iterable[str | Sequence[str]]) -> list[str | list[str]]:
        """One answer a text: a label, a list of tags, a text."""
        return [one.value for one in self.details(texts)]

    def details(self, texts: Iterable[str | Sequence[str]]) -> list[Prediction]:
        """The same with all probabilities."""
        return self._details(checked(texts, "texts", lists=self.task == "tag"))

    @abstractmethod
    def _details(self, texts: Sequence[Any]) -> list[Prediction]: ...

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        path = self.folder / ARRAYS
        if not path.exists():
            return {}
        with np.load(path, allow_pickle=False) as kept:
            found = dict(kept)
        for name in [name for name in found if f"{name}_scales" in found]:
            found[name] = found[name] * found[f"{name}_scales"][:, None]
        return found

    def session(self, name: str) -> Any:
        path = str(self.folder / f"{name}.onnx")
        return onnxruntime.InferenceSession(path, self._options, providers=["CPUExecutionProvider"])

    @cached_property
    def sequence(self) -> Any:
        return self.session("sequence")

    @cached_property
    def step(self) -> Any:
        return self.session("step")
