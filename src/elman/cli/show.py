"""``elman init`` and ``elman corpora``: what there is to set and to train on."""

from __future__ import annotations

import itertools

from elman.cli.talk import put, put_json
from elman.config import to_toml, validate
from elman.registry import CORPORA
from elman.training.run import settings_class


def init(task: str) -> None:
    """A complete commented TOML on stdout."""
    config = validate(settings_class(task), {"task": task})
    put(f"# All settings of elman train {task}. What is unset is chosen from the data.\n")
    put(to_toml(config, comments=True).rstrip("\n"))


def corpora(*, as_json: bool) -> None:
    """The built-in corpora, each with a sample."""
    for name in CORPORA.names():
        corpus = CORPORA.find(name)()
        samples = list(itertools.islice(corpus.examples("train"), 2))
        if as_json:
            put_json({"name": name, "task": corpus.task, "summary": corpus.summary, "samples": samples})
            continue
        put(f"builtin:{name}  ({corpus.task})\n  {corpus.summary}")
        for sample in samples:
            put(f"    {'  ⇥  '.join(shown(value) for value in sample.values())}")
        put("")


def shown(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 70 else f"{text[:69]}…"
