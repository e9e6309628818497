"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from elman.cli.completion import format_names, run_folders, task_names
from elman.cli.output import quietly

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a trained run.", autocompletion=run_folders)
]
Asked = Annotated[
    str, typer.Argument(help="A text a line, or a .csv, .tsv, .jsonl, .conll, .conllu file; - is stdin.")
]
Set = Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting, as model.hidden=200.")]
TrainFiles = Annotated[list[str], typer.Option(help="Training file; repeatable.")]
TrainTargets = Annotated[list[str], typer.Option(help="Second, line-aligned training file.")]
DevFiles = Annotated[list[str], typer.Option(help="Validation file; a part is held out without.")]
DevTargets = Annotated[list[str], typer.Option(help="Second, line-aligned validation file.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Trainings at a time; unset, a core each.")]
Format = Annotated[
    str | None,
    typer.Option(
        help="Layout of the file: lines, delimited, jsonl, columns or conllu.", autocompletion=format_names
    ),
]
Columns = Annotated[str | None, typer.Option(help="Which column is what: text=1,label=0, text=title+body.")]
Delimiter = Annotated[str | None, typer.Option(help="tab, comma, space or one character.")]
LabelsSeparator = Annotated[
    str | None, typer.Option(help="What stands between several labels of a text, as '|' (classify).")
]
Separator = Annotated[
    str | None, typer.Option(help="What stands between the two sides of a line: ' <SEPARATOR> '.")
]
Prefix = Annotated[str | None, typer.Option(help="What every line begins with, as 'IN: '.")]
Encoding = Annotated[
    str | None, typer.Option(help="Of the file, if it is not UTF-8: latin-1, cp1252, utf-16.")
]
Device = Annotated[str, typer.Option(help="Where it computes: cpu or cuda.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Cores that it may use; unset: one, or more for a large model.")
]
Batch = Annotated[int | None, typer.Option(min=1, help="Texts that are computed together, at most.")]
Dynamic = Annotated[
    bool, typer.Option("--dynamic", help="A language model also learns from the text that it reads.")
]
Cache = Annotated[
    bool, typer.Option("--cache", help="A language model also repeats tokens that came lately.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]


def _hush(context: typer.Context, quiet: bool) -> bool:
    if quiet:
        context.with_resource(quietly())  # until the command ends
    return quiet


Quiet = Annotated[
    bool, typer.Option("--quiet", callback=_hush, help="Nothing on stderr but what goes wrong.")
]
Ensemble = Annotated[
    list[Path],
    typer.Option(
        "--ensemble",
        metavar="RUN",
        help="A run that decides with the first; may be repeated.",
        autocompletion=run_folders,
    ),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code", help="Import the code that a run names (see docs/runs.md), and remember it."
    ),
]
TaskName = Annotated[
    str | None,
    typer.Argument(help="lm, tag, classify, seq2seq or class2seq.", autocompletion=task_names),
]


class Machine(NamedTuple):
    """What a model may use: a device, cores, and so much memory as so many texts at once take."""

    device: str = "cpu"
    threads: int | None = None
    batch: int | None = None


THIS_MACHINE = Machine()
