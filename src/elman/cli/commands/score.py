"""``elman score``: log-probabilities of texts, and what a language model remembers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli.options import AsJson, Lines, Run, TrustCode
from elman.cli.output import Json, put, put_json, say
from elman.cli.startup import quick_imports
from elman.errors import ColumnError

if TYPE_CHECKING:
    from elman.predictor import Predictor
    from elman.text.files import Line


def score(
    run: Run,
    file: Lines = "-",
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
            metavar="RUN", help="With --probe: another run beside it; may be repeated, seeds together."
        ),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="With --probe: a picture (.png, .svg or .pdf).")] = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Log-probabilities of texts by the chain rule, the end marker counted."""
    if probe is not None:
        if file != "-" or tokens or pairs:
            raise typer.BadParameter("a probe brings its own texts; name other runs with --against")
        with quick_imports():
            from elman.cli.probe import probe as compare

        compare([run, *against], probe, as_json=as_json, out=out, trust_code=trust_code)
        return
    if against or out is not None:
        raise typer.BadParameter("--against and --out belong to --probe")
    with quick_imports():
        from elman.cli.opening import line_chunks
        from elman.predictor import load

    predictor = load(run, trust_code=trust_code)
    if pairs:
        score_pairs(predictor, line_chunks(file), as_json=as_json)
    else:
        score_lines(predictor, line_chunks(file), tokens=tokens, as_json=as_json)


def score_lines(predictor: Predictor, chunks: Iterator[list[Line]], *, tokens: bool, as_json: bool) -> None:
    for lines in chunks:
        texts = [line.text for line in lines]
        for text, scored in zip(texts, predictor.score(texts), strict=True):
            total = sum(value for _, value in scored)
            if as_json:
                detail: list[Json] = [{"token": token, "log_probability": value} for token, value in scored]
                put_json({"text": text, "log_probability": total, "tokens": detail})
            elif tokens:
                put("\t".join(f"{token} {value:.6f}" for token, value in scored))
            else:
                put(f"{total:.6f}")


def score_pairs(predictor: Predictor, chunks: Iterator[list[Line]], *, as_json: bool) -> None:
    right = count = 0
    for lines in chunks:
        scored = predictor.score([text for line in lines for text in both_texts(line)])
        totals = iter([sum(value for _, value in one) for one in scored])
        for good, bad in zip(totals, totals, strict=True):
            right, count = right + (good > bad), count + 1
            if as_json:
                put_json({"first": good, "second": bad, "first_is_better": good > bad})
            else:
                better = "neither" if good == bad else "first" if good > bad else "second"
                put(f"{good:.6f}\t{bad:.6f}\t{better}")
    say(f"the first is more probable in {right:,} of {count:,} pairs ({right / max(1, count):.1%})")


def both_texts(line: Line) -> list[str]:
    texts = line.text.split("\t")
    if len(texts) != 2:
        problem, remedy = (
            f"{len(texts)} columns instead of 2",
            "a pair is the better text, a tab, the worse text",
        )
        raise ColumnError(problem, path=line.path, line=line.number, text=line.text, remedy=remedy)
    return texts
