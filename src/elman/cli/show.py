"""``elman init`` and ``elman corpora``: what there is to set and to train on."""

from __future__ import annotations

import itertools

from elman.cli.output import put, put_json
from elman.config import Config, Section, describe, to_toml, validate
from elman.errors import ArgumentError
from elman.registry import CORPORA, TASKS
from elman.training.run import settings_class

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


def init(task: str) -> None:
    """A complete commented TOML on stdout."""
    config = validate(settings_class(task), {"task": task})
    put(f"# All settings of elman train {task}. What is unset is chosen from the data.\n")
    put(to_toml(config, comments=True).rstrip("\n"))


def markdown() -> None:
    """The reference of all tasks on stdout."""
    put(reference().rstrip("\n"))


def reference() -> str:
    """All settings of all tasks as a page; a row that is not the same for all says whose it is."""
    sections: dict[str, str] = {}
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for config in (Config(task=""), *(settings_class(task)(task=task) for task in TASKS.names())):
        for name, value in config:
            if isinstance(value, Section):
                sections.setdefault(name, (type(value).__doc__ or "").strip())
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
    only = "" if tasks == TASKS.names() else ", ".join(tasks)
    cells = [
        f"`{key}`",
        f"`{kind}`".replace(" | ", "` or `"),
        "—" if default == "from the data" else f"`{default}`",
        description.replace("|", "&#124;").replace("<", "&lt;"),
        only,
    ]
    return f"| {' | '.join(cells)} |"


def corpora(*, as_json: bool) -> None:
    """The built-in corpora, each with a sample; or with what it lacks on this machine."""
    for name in CORPORA.names():
        corpus = CORPORA.find(name)()
        samples, missing = [], ""
        try:
            samples = list(itertools.islice(corpus.examples("train"), 2))
        except ArgumentError as error:
            missing = str(error)
        if as_json:
            put_json({"name": name, "task": corpus.task, "summary": corpus.summary, "samples": samples})
            continue
        put(f"builtin:{name}  ({corpus.task})\n  {corpus.summary}")
        for sample in samples:
            put(f"    {'  ⇥  '.join(shown(value) for value in sample.values())}")
        if missing:
            put(f"    {missing}")
        put("")


def shown(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 70 else f"{text[:69]}…"
