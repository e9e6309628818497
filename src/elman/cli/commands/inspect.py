"""``elman inspect``: look inside a trained run while it reads or writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from elman.cli.completion import run_folders
from elman.cli.options import AsJson, Device, Machine, Quiet, Run, Set, Threads, TrustCode
from elman.cli.output import fonts_told, put, say
from elman.cli.startup import quick_imports
from elman.errors import ArgumentError

if TYPE_CHECKING:
    from elman.inspection.inspection import Inspection
    from elman.predictor import Predictor

T = TypeVar("T")
PARTS = "unrolled, gates, gradients, attention, beam, influence, neighbours or example"


def inspect(
    run: Run,
    text: Annotated[
        list[str] | None, typer.Argument(help="What it reads, or writes from; several become several pages.")
    ] = None,
    html: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("page.html"),
    part: Annotated[str | None, typer.Option(help=f"One part alone: {PARTS}.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A file instead of the page: .png, .svg, .pdf (with --part), .json or .html."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="What should come out: a label, tags, or a text, whose tokens are fed then."),
    ] = None,
    against: Annotated[
        list[Path],
        typer.Option(metavar="RUN", help="Another run beside it; repeatable.", autocompletion=run_folders),
    ] = [],  # noqa: B006
    replace: Annotated[
        list[str], typer.Option(metavar="N=TOKEN", help="What if token N, counted from 1, were another.")
    ] = [],  # noqa: B006
    remove: Annotated[list[int], typer.Option(metavar="N", help="What if token N were not there.")] = [],  # noqa: B006
    force: Annotated[
        list[str], typer.Option(metavar="N=TOKEN", help="What if the N-th token that is written were this.")
    ] = [],  # noqa: B006
    clamp: Annotated[
        list[str],
        typer.Option(
            metavar="NAME:UNIT=VALUE", help="Hold a unit of a gate or state: c:3=0, 2.c:3=0 in layer 2."
        ),
    ] = [],  # noqa: B006
    file: Annotated[
        Path | None, typer.Option(help="Texts, one a line, whose states lie on the map of states, too.")
    ] = None,
    setting: Set = [],  # noqa: B006
    device: Device = "cpu",
    threads: Threads = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """See inside: the network unrolled, gates, gradients, attention, beam, influence, as one page.

    What if: a changed text, a forced token or a clamped unit is shown beside the original.
    """
    with quick_imports():
        from elman.cli.opening import open_run
        from elman.inspection.inspection import Question
        from elman.inspection.saving import check_ending, check_parts, save, written
        from elman.inspection.watching import Clamp

    path = out or html
    if as_json and out is not None:
        raise ArgumentError(f"--json prints the numbers; --out {out} writes a file: give one of them")
    if not as_json:
        check_ending(path)
        if path.suffix.lower() in (".png", ".svg", ".pdf") and part is None:
            raise ArgumentError(f"{path}: a picture is of one part; add --part, as in --part gates")
    parts = None if part is None else check_parts([part])
    changes = Question(
        "",
        replaced=_once("token", [*map(_pair, replace), *((number, None) for number in remove)]),
        forced=_once("written token", [*map(_pair, force)]),
        clamps=[Clamp.read(one) for one in clamp],
    )
    predictors = [
        open_run(one, setting, machine=Machine(device, threads), trust_code=trust_code)
        for one in (run, *against)
    ]
    around = [] if file is None else texts_of(predictors[0], file)
    texts = text or usual_texts(predictors[0])
    pages = []
    for asked in texts:
        found: list[Inspection] = []
        for predictor in predictors:
            plain = Question(asked, target, parts=parts, around=around)
            found.append(predictor.inspect(plain))
            if changes.replaced or changes.forced or changes.clamps:
                what_if = Question(
                    asked, target, changes.replaced, changes.forced, changes.clamps, parts, around
                )
                found.append(predictor.inspect(what_if))
        pages.append(found)
    if as_json:
        for found in pages:
            put(written(found).rstrip("\n"))
        return
    for number, found in enumerate(pages, 1):
        place = path if len(pages) == 1 else path.with_stem(f"{path.stem}-{number}")
        with fonts_told():
            save(place, found, part)
        what = {".html": "page", ".json": "numbers"}.get(place.suffix.lower(), "picture")
        say(f"{what}: {place}")
        for one in found:
            for flow in (one.gradients or ())[:1]:
                say(flow.sentence)


def usual_texts(predictor: Predictor) -> list[str]:
    """What is looked at where nobody says it: a first prompt or class."""
    generation = predictor.task.generation
    usual = [] if generation is None else generation.writer.usual_prompts()[:1]
    if not usual:
        raise ArgumentError(f"{predictor.run} is a {predictor.config.task} model; give a text that it reads")
    return usual


def texts_of(predictor: Predictor, file: Path) -> list[str]:
    """The texts of a file, read as for predict."""
    asked = (record.fields[predictor.task.roles[0]] for record in predictor.read(file))
    return [text for one in asked if (text := one if isinstance(one, str) else " ".join(one)).strip()]


def _once(what: str, pairs: Sequence[tuple[int, T]]) -> dict[int, T]:
    """By number what becomes of a token; nothing else may become of it, too."""
    found: dict[int, T] = {}
    for number, token in pairs:
        if number in found:
            raise ArgumentError(f"{what} {number} is changed twice; give one change of it")
        found[number] = token
    return found


def _pair(text: str) -> tuple[int, str]:
    number, sign, token = text.partition("=")
    if not sign or not number.strip().isdecimal():
        raise ArgumentError(f"{text!r} is not as 3=word: the number of a token, counted from 1, and a token")
    return int(number), token
