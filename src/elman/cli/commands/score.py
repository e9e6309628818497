"""``elman score``: log-probabilities of texts, and what a language model remembers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli.completion import run_folders
from elman.cli.options import (
    AsJson,
    Asked,
    Batch,
    Cache,
    Columns,
    Delimiter,
    Device,
    Dynamic,
    Encoding,
    Format,
    Machine,
    Quiet,
    Run,
    Set,
    Threads,
    TrustCode,
)
from elman.cli.output import Json, put, put_json, say, tell_unseen
from elman.cli.startup import quick_imports
from elman.errors import ColumnError

if TYPE_CHECKING:
    from elman.predictor import Predictor
    from elman.text.records import Record

WAYS = ("log_probability", "adapted_log_probability")


def score(
    run: Run,
    file: Asked = "-",
    tokens: Annotated[bool, typer.Option(help="Every token with its log-probability.")] = False,
    pairs: Annotated[
        bool, typer.Option(help="Two texts a line, apart by a tab: which is more probable?")
    ] = False,
    probe: Annotated[
        str | None, typer.Option(help="agreement or recall: how often the right word wins, by distance.")
    ] = None,
    against: Annotated[
        list[Path],
        typer.Option(
            metavar="RUN",
            help="With --probe: another run beside it; may be repeated, seeds together.",
            autocompletion=run_folders,
        ),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="With --probe: a picture (.png, .svg or .pdf).")] = None,
    dynamic: Dynamic = False,
    cache: Cache = False,
    setting: Set = [],  # noqa: B006
    format: Format = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    device: Device = "cpu",
    threads: Threads = None,
    batch: Batch = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Log-probabilities of texts by the chain rule, the end marker counted.

    With --dynamic and --cache a second column is that of the model which learns from line to line.
    """
    machine = Machine(device, threads, batch)
    if probe is not None:
        if file != "-" or tokens or pairs:
            raise typer.BadParameter("a probe brings its own texts; name other runs with --against")
        with quick_imports():
            from elman.cli.probe import probe as compare

        compare([run, *against], probe, as_json=as_json, out=out, trust_code=trust_code, machine=machine)
        return
    if against or out is not None:
        raise typer.BadParameter("--against and --out belong to --probe")
    if pairs and (dynamic or cache):
        raise typer.BadParameter("pairs are compared text by text; leave out --dynamic and --cache")
    with quick_imports():
        from elman.cli.opening import adaptation, chunks, layout_of, open_run, tell
        from elman.text.files import Repairs

    layout = layout_of(
        setting, format="lines" if pairs else format, columns=columns, delimiter=delimiter, encoding=encoding
    )
    given = layout | adaptation(dynamic=dynamic, cache=cache)
    predictor = open_run(run, setting, machine=machine, trust_code=trust_code, files=given)
    predictor.scorer()  # a model that scores nothing reads nothing
    repairs = Repairs()
    parts = chunks(file, predictor.read(file, layout, repairs), batch)
    if pairs:
        score_pairs(predictor, parts, as_json=as_json)
    else:
        score_lines(predictor, parts, tokens=tokens, as_json=as_json)
    tell(repairs)


def score_lines(predictor: Predictor, chunks: Iterator[list[Record]], *, tokens: bool, as_json: bool) -> None:
    unseen, field, adapted = 0, predictor.scorer().field, predictor.adapted()
    for records in chunks:
        texts = [record.fields["text"] for record in records]
        ways = [predictor.score(texts)] if adapted is None else [predictor.score(texts), adapted(texts)]
        for text, *scores in zip(texts, *ways, strict=True):
            totals = [sum(value for _, value in scored) for scored in scores]
            read, unknown = field.read(text)
            unseen += bool(read) and unknown == read
            if as_json:
                named = [dict(zip(WAYS, values, strict=False)) for values in by_token(scores)]
                detail: list[Json] = [
                    {"token": token, **values} for (token, _), values in zip(scores[0], named, strict=True)
                ]
                found: dict[str, Json] = {"text": text, **dict(zip(WAYS, totals, strict=False))}
                put_json({**found, "tokens": detail, "read": read, "unknown": unknown})
            elif tokens:
                numbers = (" ".join(f"{value:.6f}" for value in values) for values in by_token(scores))
                put("\t".join(f"{t} {shown}" for (t, _), shown in zip(scores[0], numbers, strict=True)))
            else:
                put("\t".join(f"{total:.6f}" for total in totals))
    tell_unseen(unseen)


def by_token(scores: list[list[tuple[str, float]]]) -> list[list[float]]:
    """For each token its log-probability, and a second one where it was scored in two ways."""
    return [[value for _, value in each] for each in zip(*scores, strict=True)]


def score_pairs(predictor: Predictor, chunks: Iterator[list[Record]], *, as_json: bool) -> None:
    right = count = 0
    for part in chunks:
        texts, problem = [], None
        for record in part:
            try:
                texts += both_texts(record)
            except ColumnError as error:  # the pairs before it are scored first
                problem = error
                break
        scored = predictor.score(texts)
        totals = iter([sum(value for _, value in one) for one in scored])
        for good, bad in zip(totals, totals, strict=True):
            right, count = right + (good > bad), count + 1
            if as_json:
                put_json({"first": good, "second": bad, "first_is_better": good > bad})
            else:
                better = "neither" if good == bad else "first" if good > bad else "second"
                put(f"{good:.6f}\t{bad:.6f}\t{better}")
        if problem is not None:
            raise problem
    say(f"the first is more probable in {right:,} of {count:,} pairs ({right / max(1, count):.1%})")


def both_texts(record: Record) -> list[str]:
    whole: str = record.fields["text"]
    texts = whole.split("\t")
    if len(texts) != 2:
        problem, remedy = (
            f"{len(texts)} columns instead of 2",
            "a pair is the better text, a tab, the worse text",
        )
        raise record.error(ColumnError, problem, text=whole, remedy=remedy)
    return texts
