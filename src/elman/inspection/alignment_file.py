"""This module writes alignments into a file: a figure, a page or the numbers."""

import json
from collections.abc import Sequence
from pathlib import Path

from elman.errors import ArgumentError, FileError
from elman.inspection.alignment import Alignment
from elman.inspection.alignment_page import alignment_page
from elman.storage.files import replacing, write_text

FORMAT = 1  # of the JSON file
ENDINGS = (".html", ".json", ".pdf", ".png", ".svg")


def write_alignments(path: Path, alignments: Sequence[Alignment]) -> None:
    """Write a figure (.png, .svg, .pdf), a page (.html) or the numbers (.json), by the ending of ``path``.

    A figure shows the first eight alignments; a page and the numbers hold all of them. The file is
    written whole or not at all.

    >>> import numpy as np
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
            write_text(path, alignment_page(alignments))
        else:
            from elman.inspection.alignment_figure import alignment_figure  # alone needs matplotlib

            with replacing(path) as temporary:
                alignment_figure(alignments).savefig(temporary, format=ending[1:])
    except OSError as problem:
        said, remedy = problem.strerror or problem, "check the folder and its rights"
        raise FileError(f"cannot be written: {said}", path=path, remedy=remedy) from problem


def _numbers(alignments: Sequence[Alignment]) -> str:
    rows = []
    for one in alignments:
        weights = [[round(float(weight), 6) for weight in row] for row in one.weights]
        rows.append({"title": one.title, "source": one.source, "output": one.output, "weights": weights})
    text = json.dumps({"format": FORMAT, "alignments": rows}, ensure_ascii=False)
    # Half of a surrogate pair is no UTF-8; as \udXXX it is JSON.
    return text.encode("utf-8", "backslashreplace").decode() + "\n"
