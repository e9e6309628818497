"""``elman predict``: one line in, one line out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli.options import AsJson, Ensemble, Lines, Run, Set, TrustCode
from elman.cli.output import put, put_json, say
from elman.cli.startup import quick_imports
from elman.errors import ArgumentError, DataError, FileError

if TYPE_CHECKING:
    from elman.inspection.alignment import Alignment
    from elman.predictor import Predictor
    from elman.tasks.predictions import Prediction

TOP = 5  # of the most probable tokens of a step, in a trace
COLLECTED = 200  # alignments at most, so that memory does not grow with the file


def predict(
    run: Run,
    file: Lines = "-",
    setting: Set = [],  # noqa: B006
    attention: Annotated[
        Path | None,
        typer.Option(help="Write where attention looked: a .png, .svg, .pdf, .html or .json file (seq2seq)."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="With --json: every step of the search, and what else was likely.")
    ] = False,
    ensemble: Ensemble = [],  # noqa: B006
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """One line in, one line out: labels, tags, sequences, continuations."""
    if trace and not as_json:
        raise ArgumentError("a trace does not fit into one line of text; add --json to --trace")
    with quick_imports():
        from elman.cli.opening import line_chunks, open_run

    predictor = open_run(run, setting, ensemble, trust_code=trust_code)
    gallery = None if attention is None else Gallery(predictor, attention)
    if predictor.decoding is not None and predictor.decoding.n_best > 1 and not as_json:
        say("the best answer of each line is printed; --json has all of decoding.n_best")
    for lines in line_chunks(file):  # memory does not grow with the file
        texts = [line.text for line in lines]
        depth = TOP if trace else 0 if gallery is not None and gallery.has_room else None
        try:
            answers = predictor.details(texts, trace=depth)
        except DataError as error:  # a task counts the texts that it was given
            error.path, error.line = lines[0].path, lines[(error.line or 1) - 1].number
            raise
        for one in answers:
            if gallery is not None:
                gallery.add(one)
            if as_json:
                put_json(one.as_json(traced=trace or gallery is None))
            else:
                put(one.line.replace("\n", "⏎"))  # one line in, one line out
    if gallery is not None:
        gallery.write()


class Gallery:
    """The alignments of the first lines, for one picture, one page or one file of numbers."""

    def __init__(self, predictor: Predictor, path: Path) -> None:
        from elman.inspection.alignment_file import ENDINGS

        predictor.check_attention()
        if path.suffix.lower() not in ENDINGS:
            raise ArgumentError(f"--attention is '{path}'; its ending must be one of {', '.join(ENDINGS)}")
        if not path.parent.is_dir():
            raise FileError("there is no such folder", path=path.parent, remedy="create it, or name another")
        self.predictor, self.path = predictor, path
        self.alignments: list[Alignment] = []
        self.left_out = 0  # lines

    @property
    def has_room(self) -> bool:
        return len(self.alignments) < COLLECTED

    def add(self, answer: Prediction) -> None:
        """What was traced; a line without a token has nothing to look at."""
        if not self.has_room:
            self.left_out += 1
        elif answer.written is not None and answer.written.looked is not None:
            self.alignments.append(self.predictor.alignment(answer))

    def write(self) -> None:
        if not self.alignments:
            say(f"no line has a token, so there is no alignment; {self.path} is not written")
            return
        from elman.cli.pictures import draw_alignments
        from elman.inspection.alignment_figure import MOST

        draw_alignments(self.path, self.alignments)
        most = COLLECTED if self.path.suffix.lower() in (".html", ".json") else MOST
        few = f" (the first {most})" if len(self.alignments) > most or self.left_out else ""
        say(f"alignments: {self.path}{few}")
