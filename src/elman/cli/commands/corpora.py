"""``elman corpora``: what there is to train on."""

import itertools

from elman.cli.options import AsJson
from elman.cli.output import Json, put, put_json
from elman.errors import ArgumentError
from elman.registry import CORPORA


def corpora(as_json: AsJson = False) -> None:
    """List the built-in corpora with samples."""
    for name in CORPORA.names():
        corpus = CORPORA.find(name)()
        samples, missing = [], ""
        try:
            samples = list(itertools.islice(corpus.examples("train"), 2))
        except ArgumentError as error:  # it lacks something on this machine
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


def shown(value: Json) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 70 else f"{text[:69]}…"
