"""``elman init``: what there is to set."""

from inspect import getdoc
from typing import Annotated

import typer

from elman.cli.options import TaskName
from elman.cli.output import put
from elman.registry import TASKS

REFERENCE = """# Settings

This page is what `elman init --markdown` prints. `elman init TASK` prints the settings of one task as a
commented TOML file, to be edited and given to `elman train --config`.

```toml
task = "classify"

[model]
cell = "gru"
hidden = [128, 64]
```

On the command line the same are `--set model.cell=gru --set model.hidden=[128,64]`. A value is TOML; what is
not TOML is a word. A built-in corpus brings a few settings that suit it. The file goes over these, `--train`
and the other options over the file, `--set` over all. An unknown key is an error that names the nearest one,
and all mistakes are reported at once. In both, `$ELMAN_DATA/` at the beginning of a path is the folder that
this variable names. `model.cell` may also be a class of your own: `cells.py:Leaky`, `package.module:Leaky`.

A setting without a default (—) is chosen for the data when training starts, where the page of the task says
so; otherwise it is off. What was chosen is written into `config.toml` of the run. *Only* names the tasks that
have the setting, or have it so; nothing there means all of them.
"""


def init(
    task: TaskName = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The settings of all tasks as a page instead.")
    ] = False,
) -> None:
    """Print a complete commented TOML of a task's settings."""
    if markdown == (task is not None):
        raise typer.BadParameter("name a task, or ask for the page of all with --markdown", param_hint="TASK")
    if task is None:
        put(reference().rstrip("\n"))
        return
    from elman.config import to_toml, validate
    from elman.training.settings import settings_class

    config = validate(settings_class(task), {"task": task})
    put(f"# All settings of elman train {task}. What is unset is chosen from the data.\n")
    put(to_toml(config, comments=True).rstrip("\n"))


def reference() -> str:
    """All settings of all tasks as a page; a row that is not the same for all says whose it is."""
    from elman.config import Config, Section, describe
    from elman.training.settings import settings_class

    sections: dict[str, str] = {}
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    kinds: list[type[Config]] = [Config, *map(settings_class, TASKS.names())]
    for kind in kinds:
        for name, field in kind.model_fields.items():
            if isinstance(field.get_default(), Section):
                sections.setdefault(name, getdoc(type(field.get_default())) or "")
    for task in TASKS.names():
        for row in describe(settings_class(task)):
            rows.setdefault(row, []).append(task)
    lines = [REFERENCE]
    for section, summary in sections.items():
        lines += [f"## {section}", "", summary, ""]
        lines += ["| key | value | default | what | only |", "|---|---|---|---|---|"]
        keys = dict.fromkeys(key for key, *_ in rows if key.startswith(f"{section}."))
        lines += [_row(row, tasks) for key in keys for row, tasks in rows.items() if row[0] == key]
        lines.append("")
    return "\n".join(lines)


def _row(row: tuple[str, str, str, str], tasks: list[str]) -> str:
    key, kind, default, description = row
    kinds, usual = kind.replace(" | ", "` or `"), "—" if default == "from the data" else f"`{default}`"
    what = description.replace("|", "&#124;").replace("<", "&lt;")
    only = "" if tasks == TASKS.names() else ", ".join(tasks)
    return f"| `{key}` | `{kinds}` | {usual} | {what} | {only} |"
