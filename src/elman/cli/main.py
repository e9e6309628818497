"""``elman``: the commands and their options; the work is done elsewhere, imported on demand."""

from __future__ import annotations

import sys
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from elman.cli.output import flush, notices_told
from elman.errors import ArgumentError, ElmanError
from elman.registry import users_place

app = typer.Typer(
    help="Recurrent sequence models: write a cell as its equations, use it everywhere.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained run.")]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting, as model.hidden=200.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
Ensemble = Annotated[
    list[Path],
    typer.Option("--ensemble", metavar="RUN", help="A run that decides with the first; may be repeated."),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code", help="Import the code that a run names (see docs/runs.md), and remember it."
    ),
]


class Demonstration(StrEnum):
    dates = "dates"
    memory = "memory"


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


@app.command()
def train(
    task: Annotated[str | None, typer.Argument(help="lm, tag, classify, seq2seq or class2seq.")] = None,
    train: Annotated[str | None, typer.Option(help="Training file, or builtin:NAME (elman corpora).")] = None,
    train_target: Annotated[str | None, typer.Option(help="Second, line-aligned training file.")] = None,
    dev: Annotated[str | None, typer.Option(help="Validation file; a part is held out without.")] = None,
    dev_target: Annotated[str | None, typer.Option(help="Second, line-aligned validation file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings as TOML (elman init TASK).")] = None,
    columns: Annotated[str | None, typer.Option(help="Which column is what: text=1,label=0.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="tab, comma, space or one character.")] = None,
    separator: Annotated[
        str | None, typer.Option(help="What stands between the two sides of a line: ' <SEPARATOR> '.")
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="What every line begins with, as 'IN: '.")] = None,
    setting: Set = [],  # noqa: B006
    baseline: Annotated[
        str | None, typer.Option(help="A comparator instead of the network: ngram, window or bag.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run exactly where it was saved.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Sizes, memory, time and the first batch; no training.")
    ] = False,
    quiet: Annotated[bool, typer.Option(help="No progress.")] = False,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard files into the run.")] = False,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Train a model from a file; what is not set is chosen for the data."""
    from elman.cli import train as work

    files = {
        "train": train,
        "train_target": train_target,
        "dev": dev,
        "dev_target": dev_target,
        "delimiter": delimiter,
        "separator": separator,
        "prefix": prefix,
    }
    given = task or config or train
    if resume and not given and setting:
        raise typer.BadParameter("a continued run keeps its settings; leave out --set", param_hint="--set")
    settings = work.collect(task, config, files, columns, setting, baseline) if given else None
    if dry_run:
        if settings is None:
            raise typer.BadParameter("what should be tried? Name a task and --train", param_hint="--dry-run")
        work.dry_run(settings, as_json=as_json)
        return
    if out is None:
        raise typer.BadParameter("where should the run go? Name a folder", param_hint="--out")
    work.train(
        settings,
        out,
        resume=resume,
        as_json=as_json,
        quiet=quiet,
        tensorboard=tensorboard,
        trust_code=trust_code,
    )


@app.command()
def predict(
    run: Run,
    file: Annotated[str, typer.Argument(help="One text a line; - is stdin.")] = "-",
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
    as_json: Json = False,
) -> None:
    """One line in, one line out: labels, tags, sequences, continuations."""
    from elman.cli.use import predict as work

    work(
        run,
        file,
        setting,
        as_json=as_json,
        trace=trace,
        attention=attention,
        ensemble=ensemble,
        trust_code=trust_code,
    )


@app.command()
def evaluate(
    run: Run,
    file: Annotated[str, typer.Argument(help="A file laid out as the training data, or builtin:NAME/test.")],
    target: Annotated[str | None, typer.Option(help="Second, line-aligned file.")] = None,
    setting: Set = [],  # noqa: B006
    ensemble: Ensemble = [],  # noqa: B006
    against: Annotated[
        list[Path],
        typer.Option(metavar="RUN", help="Another run beside it, by the length of the source; repeatable."),
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="With --against: a picture (.png, .svg or .pdf).")] = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Figures on a file: loss, perplexity, accuracy, F1, BLEU, whatever the task has.

    Of an ensemble, losses are those of RUN alone; what is written is the ensemble's.
    """
    if against:
        if ensemble:
            raise typer.BadParameter("runs beside each other decide alone; leave out --ensemble")
        from elman.cli.lengths import compare

        compare([run, *against], file, target, setting, as_json=as_json, out=out, trust_code=trust_code)
        return
    if out is not None:
        raise typer.BadParameter("--out belongs to --against")
    from elman.cli.use import evaluate as work

    work(run, file, target, setting, as_json=as_json, ensemble=ensemble, trust_code=trust_code)


@app.command()
def generate(
    run: Run,
    prompt: Annotated[
        list[str], typer.Option(help="A beginning, a class or a source; may be repeated.")
    ] = [],  # noqa: B006
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="Sequences for each prompt.")] = 1,
    setting: Set = [],  # noqa: B006
    trace: Annotated[bool, typer.Option(help="Show the unrolling step by step.")] = False,
    ensemble: Ensemble = [],  # noqa: B006
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Let a model write: continuations, sequences of a class, outputs of a source."""
    from elman.cli.use import generate as work

    work(run, prompt, number, setting, as_json=as_json, trace=trace, ensemble=ensemble, trust_code=trust_code)


@app.command()
def score(
    run: Run,
    file: Annotated[str, typer.Argument(help="One text a line; - is stdin.")] = "-",
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
    as_json: Json = False,
) -> None:
    """Log-probabilities of texts by the chain rule, the end marker counted."""
    if probe is not None:
        if file != "-" or tokens or pairs:
            raise typer.BadParameter("a probe brings its own texts; name other runs with --against")
        from elman.cli.probe import probe as test

        test([run, *against], probe, as_json=as_json, out=out, trust_code=trust_code)
        return
    if against or out is not None:
        raise typer.BadParameter("--against and --out belong to --probe")
    from elman.cli.use import score as work

    work(run, file, tokens=tokens, pairs=pairs, as_json=as_json, trust_code=trust_code)


@app.command()
def init(
    task: Annotated[str | None, typer.Argument(help="lm, tag, classify, seq2seq or class2seq.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The settings of all tasks as a page instead.")
    ] = False,
) -> None:
    """Print a complete commented TOML of a task's settings."""
    if markdown == (task is not None):
        raise typer.BadParameter("name a task, or ask for the page of all with --markdown", param_hint="TASK")
    from elman.cli import show

    if task is None:
        show.markdown()
    else:
        show.init(task)


@app.command()
def corpora(as_json: Json = False) -> None:
    """List the built-in corpora with samples."""
    from elman.cli.show import corpora as work

    work(as_json=as_json)


@app.command()
def demo(
    what: Annotated[
        Demonstration, typer.Argument(help="Read dates with attention, or remember a word.")
    ] = Demonstration.dates,
    out: Annotated[Path, typer.Option(help="Folder for what it writes.")] = Path("elman-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and order.")] = 1,
) -> None:
    """Train a network that reads dates in 40 languages; or four that try to remember a word."""
    if what is Demonstration.dates:
        from elman.cli.demo import show
    else:
        from elman.cli.demo_memory import show
    show(out, seed)


@app.command()
def bench(
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    quick: Annotated[bool, typer.Option(help="Few sizes and repetitions: a look, not a result.")] = False,
    only: Annotated[str, typer.Option(help="Only groups whose name contains this.")] = "",
    device: Annotated[
        Device | None, typer.Option(help="What to measure; CUDA by default if torch sees such a device.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="CUDA: how each case would run, and why so; nothing is measured."),
    ] = False,
) -> None:
    """Measure this machine: the engine beside torch.nn, in one run, with the losses."""
    from elman.cli.bench.report import report

    report(device=device, explain=explain, as_json=json, quick=quick, only=only)


def run() -> None:
    """The entry of the command: what a user did wrong is a line on stderr and an exit code of its own."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=sys.stdout.errors)  # as files, whatever the locale
    try:
        try:
            with notices_told():
                app()
        finally:
            flush()
    except ElmanError as error:
        print(f"elman: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        place = users_place(error)
        if place is None or isinstance(error, (MemoryError, OSError)):
            raise
        number, name = ArgumentError.number, type(error).__name__
        print(f"elman: {place}: {number}: {name}: {error}", file=sys.stderr)
        raise SystemExit(ArgumentError.exit_code) from None
