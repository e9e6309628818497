"""``elman generate``: let a trained run write."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli.options import AsJson, Batch, Device, Ensemble, Machine, Quiet, Run, Set, Threads, TrustCode
from elman.cli.output import put, put_json, tell_unseen
from elman.cli.startup import quick_imports
from elman.errors import ArgumentError

if TYPE_CHECKING:
    from elman.tasks.predictions import Prediction


def generate(
    run: Run,
    prompt: Annotated[
        list[str], typer.Option(help="A beginning, a class or a source; may be repeated.")
    ] = [],  # noqa: B006
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Sequences for each prompt.")] = 1,
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
    with quick_imports():
        from elman.cli.opening import open_run

    predictor = open_run(run, setting, ensemble, machine=machine, trust_code=trust_code)
    writer, settings = predictor.generation().writer, predictor.decoding
    prompts = prompt or writer.usual_prompts()
    if not prompts:
        kind = f"{run} is a {predictor.config.task} model"
        raise ArgumentError(f"{kind}, which writes from {writer.wanted}; give one with --prompt")
    seed = 0 if settings is None else settings.seed
    unseen = set()
    for beginning, copy in itertools.product(prompts, range(number)):
        # What is drawn differs from copy to copy, because the seed goes on.
        drawn = predictor.with_settings({"decoding.seed": (seed + copy) % 2**64})
        [one] = drawn.generate([beginning], trace=0 if trace else None)
        unseen |= {beginning} if one.unseen else set()
        if as_json:
            put_json({key: value for key, value in one.as_json().items() if key != "prediction"})
            continue
        before = f"{one.asked}{writer.gap(beginning)}" if writer.goes_on else ""
        others = [] if one.written is None else [best.text for best in one.written.n_best]
        for text in others or [one.line]:
            put(f"{before}{text}")
        if trace:
            put(unrolled(one))
    tell_unseen(len(unseen))


def unrolled(one: Prediction) -> str:
    """The network step by step: t, what was fed, what came out."""
    rows = [f"  t 0       class {one.asked}"] if one.role == "class" else []
    steps = [] if one.written is None or one.written.steps is None else one.written.steps
    for s in steps:
        rows.append(f"  t {s.t - 1} → {s.t}   {s.fed} → {s.output}  ({s.probability:.3f})")
    return "\n".join(rows)
