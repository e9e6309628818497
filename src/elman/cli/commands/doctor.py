"""``elman doctor``: a look at the data before training, with what is wrong and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli.completion import task_names
from elman.cli.options import (
    AsJson,
    Columns,
    Delimiter,
    Encoding,
    Format,
    LabelsSeparator,
    Prefix,
    Quiet,
    Separator,
    Set,
)
from elman.cli.output import put, put_json
from elman.cli.startup import quick_imports
from elman.errors import DataError

if TYPE_CHECKING:
    from elman.config import Files
    from elman.examination.examination import Examination


def doctor(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="Training files, folders, patterns ('*.csv') or builtin:NAME."),
    ],
    task: Annotated[
        str, typer.Option(help="lm, tag, classify, seq2seq or class2seq.", autocompletion=task_names)
    ],
    target: Annotated[
        list[str], typer.Option(help="Second, line-aligned training file; as many as FILE.")
    ] = [],  # noqa: B006
    dev: Annotated[list[str], typer.Option(help="Validation file, repeatable.")] = [],  # noqa: B006
    dev_target: Annotated[
        list[str], typer.Option(help="Second, line-aligned validation file; as many as --dev.")
    ] = [],  # noqa: B006
    format: Format = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    encoding: Encoding = None,
    separator: Separator = None,
    labels_separator: LabelsSeparator = None,
    prefix: Prefix = None,
    setting: Set = [],  # noqa: B006
    picture: Annotated[
        Path | None, typer.Option(help="Lengths and labels as a picture (.png, .svg or .pdf).")
    ] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Look at data as training would read them: what is wrong or strange, where, and what to do.

    Ends with 0 where there is nothing, or only notes; with 1 where there are warnings; and where training
    would stop with the code that it would stop with (2 or 3).
    """
    with quick_imports():
        from elman.examination.telling import told

        if picture is not None:
            from elman.cli.pictures import check_picture

            check_picture(picture)
    named: dict[str, Files] = {"train": files, "train_target": target, "dev": dev, "dev_target": dev_target}
    layout = {"delimiter": delimiter, "separator": separator, "prefix": prefix, "format": format}
    layout |= {"labels_separator": labels_separator, "encoding": encoding}
    done = look(task, {**named, **layout}, columns, setting)
    if as_json:
        put_json(done.as_json())
    else:
        put(told(done))
    if picture is not None:
        draw(done, picture)
    if done.exit_code:
        raise typer.Exit(done.exit_code)


def look(task: str, files: dict[str, Files], columns: str | None, pairs: list[str]) -> Examination:
    """The examination; a file that is not there is one of its findings, a wrong option is not."""
    from elman.cli.training import collect
    from elman.examination.examination import Examination, examine
    from elman.examination.findings import refused

    try:
        config = collect(task, None, files, columns, pairs, None)
    except DataError as error:
        return Examination(task, findings=[refused(error)])
    return examine(config)


def draw(done: Examination, out: Path) -> None:
    from elman.cli.output import say
    from elman.cli.pictures import save_picture
    from elman.inspection.data_figure import data_figure

    read = [(role, texts) for role, texts in done.texts.items() if texts.count]
    if not read:
        say("nothing was read, so there is no picture")
        return
    lengths = {texts.view.noun(role): texts.lengths.sizes for role, texts in read}
    units = {texts.view.noun(role): texts.view.unit_noun(role) for role, texts in read}
    labels = done.labels
    counts = {} if labels is None else dict(labels.train)
    noun = "" if labels is None else labels.nouns
    if done.scheme is not None:  # what is outside of spans would dwarf all others
        counts.pop("O", None)
        noun = f"{noun} besides O"
    save_picture(out, lambda: data_figure(lengths, units, counts, noun=noun))
