"""``elman generate``: let a trained run write."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elman.cli.options import (
    AsJson,
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
from elman.cli.output import put, put_json, tell_unseen
from elman.cli.startup import quick_imports
from elman.errors import ArgumentError

if TYPE_CHECKING:
    from elman.predictor import Predictor
    from elman.tasks.generation import Writer
    from elman.tasks.predictions import Prediction
    from elman.text.records import Record


def generate(
    run: Run,
    file: Annotated[
        str | None,
        typer.Argument(help="Prompts: one a line, or a .csv, .tsv, .jsonl file; - is stdin."),
    ] = None,
    prompt: Annotated[
        list[str], typer.Option(help="A beginning, a class or a source; may be repeated.")
    ] = [],  # noqa: B006
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Sequences for each prompt.")] = 1,
    format: Format = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    setting: Set = [],  # noqa: B006
    trace: Annotated[bool, typer.Option(help="Show the unrolling step by step.")] = False,
    ensemble: Ensemble = [],  # noqa: B006
    device: Device = "cpu",
    threads: Threads = None,
    batch: Batch = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Let a model write: continuations, sequences of a class, outputs of a source."""
    machine = Machine(device, threads, batch)
    if file is not None and prompt:
        raise typer.BadParameter("prompts come from a file or from --prompt; leave out one of them")
    with quick_imports():
        from elman.cli.opening import chunks, layout_of, open_run, tell
        from elman.text.files import Repairs

    layout = layout_of(setting, format=format, columns=columns, delimiter=delimiter, encoding=encoding)
    predictor = open_run(run, setting, ensemble, machine=machine, trust_code=trust_code, files=layout)
    writer, repairs, unseen = predictor.generation().writer, Repairs(), set[str]()
    if file is None:
        parts = iter([prompts_of(predictor, prompt)])
    else:
        parts = chunks(file, predictor.read(file, layout, repairs), batch)
    for records in parts:
        for one in written(predictor, records, number, trace=0 if trace else None):
            unseen |= {str(one.asked)} if one.unseen else set()
            if as_json:
                put_json({key: value for key, value in one.as_json().items() if key != "prediction"})
                continue
            others = [] if one.written is None else [best.text for best in one.written.n_best]
            for text in others or [one.line]:
                shown = whole_text(writer, str(one.asked), text)
                put(shown.replace("\n", "⏎") if file is not None else shown)
            if trace:
                put(unrolled(one))
    tell(repairs)
    tell_unseen(len(unseen))


def whole_text(writer: Writer[Any], prompt: str, text: str) -> str:
    """What was written, with the prompt where both are one text: before it, or after it."""
    if not writer.goes_on:
        return text
    before, after = (text, prompt) if writer.field.reverse else (prompt, text)
    return f"{before}{writer.gap(before, after)}{after}"


def prompts_of(predictor: Predictor, prompts: list[str]) -> list[Record]:
    """The prompts of the command line, or those that are usual."""
    from elman.text.asked import checked
    from elman.text.records import Record

    writer = predictor.generation().writer
    found = checked(prompts, "prompts") or writer.usual_prompts()
    if not found:
        kind = f"{predictor.run} is a {predictor.config.task} model"
        raise ArgumentError(f"{kind}, which writes from {writer.wanted}; give one with --prompt")
    role = predictor.task.roles[0]
    return [Record({role: text}, "--prompt", number) for number, text in enumerate(found, 1)]


def written(
    predictor: Predictor, records: list[Record], number: int, *, trace: int | None
) -> Iterator[Prediction]:
    """What each prompt becomes, so many times."""
    seed = 0 if predictor.decoding is None else predictor.decoding.seed
    for record, copy in itertools.product(records, range(number)):
        # What is drawn differs from copy to copy, because the seed goes on.
        drawn = predictor.with_settings({"decoding.seed": (seed + copy) % 2**64})
        yield from (answer for _, answer in drawn.answers([record], trace=trace))


def unrolled(one: Prediction) -> str:
    """The network step by step: t, what was fed, what came out."""
    rows = [f"  t 0       class {one.asked}"] if one.role == "class" else []
    steps = [] if one.written is None or one.written.steps is None else one.written.steps
    for s in steps:
        rows.append(f"  t {s.t - 1} → {s.t}   {s.fed} → {s.output}  ({s.probability:.3f})")
    return "\n".join(rows)
