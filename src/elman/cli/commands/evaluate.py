"""``elman evaluate``: how good a trained run is on a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from elman.cli.completion import run_folders
from elman.cli.options import (
    AsJson,
    Batch,
    Cache,
    Columns,
    Delimiter,
    Device,
    Dynamic,
    Encoding,
    Ensemble,
    Format,
    LabelsSeparator,
    Machine,
    Quiet,
    Run,
    Set,
    Threads,
    TrustCode,
)
from elman.cli.output import Bucket, measures_table, put, put_json, say, span
from elman.cli.startup import quick_imports


def evaluate(
    run: Run,
    file: Annotated[str, typer.Argument(help="A file laid out as the training data, or builtin:NAME/test.")],
    target: Annotated[str | None, typer.Option(help="Second, line-aligned file.")] = None,
    format: Format = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    labels_separator: LabelsSeparator = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Accuracy of the answers that are at least so probable, and their share."),
    ] = None,
    dynamic: Dynamic = False,
    cache: Cache = False,
    setting: Set = [],  # noqa: B006
    ensemble: Ensemble = [],  # noqa: B006
    against: Annotated[
        list[Path],
        typer.Option(
            metavar="RUN",
            help="Another run beside it, by the length of the source; repeatable.",
            autocompletion=run_folders,
        ),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="With --against: a picture (.png, .svg or .pdf).")] = None,
    device: Device = "cpu",
    threads: Threads = None,
    batch: Batch = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Figures on a file: loss, perplexity, accuracy, F1, BLEU, whatever the task has.

    With --dynamic and --cache, those of a language model while it learns from the text stand beside its own.
    Of an ensemble, losses are those of RUN alone; what is written is the ensemble's.
    """
    machine = Machine(device, threads, batch)
    if against and ensemble:
        raise typer.BadParameter("runs beside each other decide alone; leave out --ensemble")
    if against and threshold is not None:
        raise typer.BadParameter("runs beside each other are compared in all answers; leave out --threshold")
    if out is not None and not against:
        raise typer.BadParameter("--out belongs to --against")
    with quick_imports():
        from elman.cli.opening import adaptation, check_target, layout_of, open_run, tell

    layout = layout_of(setting, format=format, columns=columns, delimiter=delimiter, encoding=encoding)
    if labels_separator is not None:
        layout["data.labels_separator"] = labels_separator
    if against:
        from elman.cli.lengths import compare

        compare(
            [run, *against],
            file,
            target,
            setting,
            layout,
            as_json=as_json,
            out=out,
            trust_code=trust_code,
            machine=machine,
        )
        return
    given = layout | adaptation(dynamic=dynamic, cache=cache)
    predictor = open_run(run, setting, ensemble, machine=machine, trust_code=trust_code, files=given)
    check_target(target, layout)
    measures, repairs = predictor.evaluate(file, target, layout, threshold=threshold)
    tell(repairs)
    if ensemble:
        say(f"losses and accuracy are those of {run} alone; what is written is the ensemble's")
    report = measures.pop("report", None)
    if as_json:
        put_json(measures)
        return
    put(measures_table(measures))
    remarks = [f"  {name:<4}  {signature}" for name, signature in measures.get("signatures", {}).items()]
    remarks += [f"  {note}" for note in measures.get("notes", [])]
    for part in ("\n".join(remarks), report, length_table(measures.get("by_length", []))):
        if part:
            put(f"\n{part}")


def length_table(buckets: Sequence[Bucket]) -> str:
    if not buckets:
        return ""
    rows = [f"  {'source tokens':>13}  {'count':>7}  {'exact match':>11}  {'error rate':>10}"]
    for one in buckets:
        scores = f"{one['exact_match']:>11.4f}  {one['error_rate']:>10.4f}"
        rows.append(f"  {span(one):>13}  {one['count']:>7,}  {scores}")
    return "\n".join(rows)
