"""``elman predict``: one line in, one line out."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli.options import (
    AsJson,
    Asked,
    Batch,
    Columns,
    Delimiter,
    Device,
    Encoding,
    Ensemble,
    Format,
    Machine,
    Quiet,
    Run,
    Set,
    Threads,
    TrustCode,
)
from elman.cli.output import say, tell_unseen, warn
from elman.cli.startup import quick_imports
from elman.errors import ArgumentError, FileError

if TYPE_CHECKING:
    from elman.config import DecodingSettings
    from elman.inspection.alignment import Alignment
    from elman.predictor import Predictor
    from elman.tasks.predictions import Prediction

TOP = 5  # of the most probable tokens of a step, in a trace
COLLECTED = 200  # alignments at most, so that memory does not grow with the file


def predict(
    run: Run,
    file: Asked = "-",
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file back with prediction and confidence: .csv, .tsv, .jsonl, .conll, .conllu."
        ),
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="So many answers, with their probabilities.")] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Answer ? where the label or tag is less probable, as 0.9.")
    ] = None,
    spans: Annotated[
        bool, typer.Option("--spans", help="Of a tagger: type, words, characters and text of each span.")
    ] = False,
    format: Format = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    setting: Set = [],  # noqa: B006
    attention: Annotated[
        Path | None,
        typer.Option(help="Write where attention looked: a .png, .svg, .pdf, .html or .json file (seq2seq)."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="With --json: every step of the search, and what else was likely.")
    ] = False,
    ensemble: Ensemble = [],  # noqa: B006
    device: Device = "cpu",
    threads: Threads = None,
    batch: Batch = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """One line in, one line out: labels, tags, sequences, continuations."""
    machine = Machine(device, threads, batch)
    if trace and not as_json:
        raise ArgumentError("a trace does not fit into one line of text; add --json to --trace")
    if output is not None and (as_json or spans):
        raise ArgumentError(
            "--output writes a file, --json and --spans standard output; leave out one of them"
        )
    with quick_imports():
        from elman.cli.answers import Lines, answers_in
        from elman.cli.opening import chunks, layout_of, open_run, tell
        from elman.predictor import check_threshold
        from elman.text.files import Repairs

    layout = layout_of(setting, format=format, columns=columns, delimiter=delimiter, encoding=encoding)
    predictor = open_run(
        run,
        setting,
        ensemble,
        machine=machine,
        trust_code=trust_code,
        files=layout,
    )
    if trace:
        predictor.generation("writes nothing; no trace")
    check_threshold(predictor, threshold)
    if spans and not predictor.task.listed:
        raise ArgumentError(f"{run} is a {predictor.config.task} model; --spans is for taggers")
    if top is not None and predictor.decoding is not None:
        predictor = predictor.with_settings(several(predictor.decoding, top))
    gallery = None if attention is None else Gallery(predictor, attention)
    if predictor.decoding is not None and predictor.decoding.n_best > 1 and not as_json and top is None:
        say("the best answer of each line is printed; --top and --json have all of decoding.n_best")
    repairs, unseen, withheld, total = Repairs(), 0, 0, 0
    lines = Lines(top=top, spans=spans, as_json=as_json)
    with nullcontext(lines) if output is None else answers_in(output, top=top) as answers:
        for records in chunks(file, predictor.read(file, layout, repairs), batch):  # of bounded memory
            depth = TOP if trace else 0 if gallery is not None and gallery.has_room else None
            depth = top if predictor.decoding is None else depth  # a tagger's other tags
            for record, one in predictor.answers(records, trace=depth, threshold=threshold):
                unseen += one.unseen
                if one.withheld is not None:
                    withheld, total = withheld + one.withheld.count, total + one.withheld.total
                if gallery is not None:
                    gallery.add(one)
                answers.add(record, one, traced=trace or gallery is None)
    tell(repairs)
    tell_unseen(unseen)
    if threshold is not None:
        answered = "tags" if predictor.task.listed else "answers"
        say(f"{withheld:,} of {total:,} {answered} withheld: less probable than {threshold:g}")
    if gallery is not None:
        gallery.write()


def several(decoding: DecodingSettings, count: int) -> dict[str, int]:
    """Settings with which a search keeps so many outputs."""
    beam = {"decoding.beam": max(decoding.beam or 1, count)} if decoding.strategy != "sample" else {}
    return {"decoding.n_best": count, **beam}


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
            warn(f"no line has a token, so there is no alignment; {self.path} is not written")
            return
        from elman.cli.pictures import draw_alignments
        from elman.inspection.alignment_figure import MOST

        draw_alignments(self.path, self.alignments)
        most = COLLECTED if self.path.suffix.lower() in (".html", ".json") else MOST
        few = f" (the first {most})" if len(self.alignments) > most or self.left_out else ""
        say(f"alignments: {self.path}{few}")
