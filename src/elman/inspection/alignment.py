"""Which source tokens each output token looked at, and how that becomes a file: picture, page or numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elman.errors import ArgumentError, FileError, ShapeError
from elman.text.files import write_text

FORMAT = 1  # of the JSON file
ENDINGS = (".html", ".json", ".pdf", ".png", ".svg")


@dataclass(frozen=True, eq=False)
class Alignment:
    """The attention of one prediction: ``weights[i, j]`` is what output i gave to source j.

    >>> found = Alignment(["das", "Haus"], ["the", "house", "</s>"], np.array([[1, 0], [0, 1], [0.5, 0.5]]))
    >>> found.weights.shape
    (3, 2)
    """

    source: list[str]
    output: list[str]
    weights: np.ndarray[Any, Any]  # (T, S)
    title: str = ""

    def __post_init__(self) -> None:
        T, S = len(self.output), len(self.source)
        if np.shape(self.weights) != (T, S):
            raise ShapeError(
                f"weights has shape {np.shape(self.weights)}; {T} output tokens and {S} source tokens "
                f"need ({T}, {S}): a row for every output token"
            )
        sums = np.sum(self.weights, axis=1, dtype=float)
        wrong = np.flatnonzero(~(np.abs(sums - 1) < 0.01) | (np.asarray(self.weights) < 0).any(axis=1))
        if len(wrong):
            raise ArgumentError(
                f"weights: row {wrong[0]} has the sum {sums[wrong[0]]:.4g} and the smallest value "
                f"{np.min(self.weights[wrong[0]], initial=0):.4g}; a row must sum to 1 with nothing below 0"
            )


def write_alignments(path: Path, alignments: Sequence[Alignment]) -> None:
    """Write a picture (.png, .svg, .pdf), a page (.html) or the numbers (.json), by the ending of ``path``.

    A picture shows the first eight alignments; a page and the numbers hold all of them. The file is
    written whole or not at all.

    >>> found = Alignment(["das", "Haus"], ["the", "house"], np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> write_alignments(Path("house.png"), [found])  # doctest: +SKIP
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ArgumentError(f"path is '{path}'; its ending must be one of {', '.join(ENDINGS)}")
    if not alignments:
        raise ArgumentError("alignments is empty; it must hold at least one")
    try:
        if ending == ".json":
            write_text(path, _numbers(alignments))
        elif ending == ".html":
            from elman.inspection.alignment_page import alignment_page

            write_text(path, alignment_page(alignments))
        else:
            from elman.inspection.alignment_figure import alignment_figure  # alone needs matplotlib

            temporary = path.with_name(f".{path.name}.tmp")
            alignment_figure(alignments).savefig(temporary, format=ending[1:])
            temporary.replace(path)
    except OSError as problem:
        said = problem.strerror or str(problem)
        raise FileError(
            f"cannot be written: {said}", path=path, remedy="check the folder and its rights"
        ) from problem


def _numbers(alignments: Sequence[Alignment]) -> str:
    rows = [
        {
            "title": one.title,
            "source": one.source,
            "output": one.output,
            "weights": [[round(float(weight), 6) for weight in row] for row in one.weights],
        }
        for one in alignments
    ]
    text = json.dumps({"format": FORMAT, "alignments": rows}, ensure_ascii=False)
    # Half of a surrogate pair is no UTF-8; as \udXXX it is JSON.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"
