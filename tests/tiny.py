"""Tiny data for every task, and settings with which a run over them takes a second or two."""

import io
import json
import os
import random
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from typing import NamedTuple
from unittest import mock

import torch
import typer.main

from elman.cli.main import run as run_command
from elman.config import parse_settings, validate
from elman.config.reading import has_key
from elman.training.checkpoint import load_checkpoint
from elman.training.position import Update
from elman.training.preparing import prepare
from elman.training.run import build
from elman.training.settings import make_task, settings_class

LONG = int(os.environ.get("ELMAN_LONG", "0"))  # each is 1,000 flipped bits and a chain of kills of every run
COMMAND = [sys.executable, "-c", "from elman.cli.main import run; run()"]
made_once = cache(typer.main.get_command)  # else half of the time of a small command goes there
NOUNS = {"dog": "Rex", "cat": "Tom", "horse": "Star", "bird": "Kiki"}
VERBS = ("sees", "likes", "finds", "feeds")
ADVERBS = ("often", "never", "gladly", "today", "again")

SMALL = {
    "training.threads": 1,
    "training.epochs": 100_000,
    "training.max_steps": 400,
    "training.validate_every": 40,
    "training.log_every": 3,
    "training.save_seconds": 0.05,
    "training.averaging": "ema",
    "training.batch_size": 8,
    "model.hidden": 12,
    "model.embedding": 8,
    "model.dropout": 0.3,
}
AWD = {  # what AWD-LSTM adds to a language model
    "model.hidden": "[12,8]",
    "model.layer_dropout": 0.2,
    "model.embedding_dropout": 0.1,
    "model.weight_drop": 0.3,
    "training.truncate": 14,
    "training.vary_truncate": True,
    "training.activation_regularisation": 2.0,
    "training.temporal_regularisation": 1.0,
}
RUNS = {  # name: (task, settings)
    "lm-stream": (
        "lm",
        {"training.accumulate": 2, "training.truncate": 7, "model.zoneout": 0.1, "model.input_dropout": 0.2},
    ),
    "lm-sentence": (
        "lm",
        {
            "text.context": "sentence",
            "training.optimizer": "sgd",
            "training.momentum": 0.9,
            "training.learning_rate": 0.3,
            "training.schedule": "plateau",
            "training.batch_tokens": 60,
            "model.cell": "gru",
        },
    ),
    "tag": ("tag", {"model.crf": True, "model.characters": 6, "model.cell": "gru"}),
    "classify": (
        "classify",
        {
            "training.optimizer": "asgd",
            "training.learning_rate": 0.5,
            "training.class_weights": "balanced",
            "model.token_dropout": 0.5,
            "text.vectors": "vectors.txt",
        },
    ),
    "class2seq": ("class2seq", {"training.optimizer": "adamw", "model.initial_state": "learned"}),
    "seq2seq": (
        "seq2seq",
        {
            "training.max_steps": 160,  # step by step is slower
            "training.teacher_forcing": 0.4,
            "training.teacher_forcing_schedule": "linear",
            "text.source.unit": "bpe",
            "text.source.vocabulary_size": 270,
            "text.target.vectors": "vectors.txt",
            "model.cell": "gru",
            "model.attention": "location",
            "model.rare_dropout": 0.5,
            "model.zoneout": 0.1,
        },
    ),
}


class Answer(NamedTuple):
    """What a command left: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str


def elman(*arguments, stdin=b""):
    """The command in this process, as a shell would see it; a traceback is raised, not swallowed."""
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    code, threads = 0, torch.get_num_threads()  # which a command may set
    with (
        mock.patch.object(sys, "argv", ["elman", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", given),
        mock.patch.object(typer.main, "get_command", made_once),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            run_command()
        except SystemExit as end:
            code = end.code or 0
        finally:
            torch.set_num_threads(threads)
    return Answer(code, out.getvalue(), err.getvalue())


def write_data(folder, seed=1):
    """``train`` and ``dev`` files of all tasks, and pretrained vectors."""
    draw = random.Random(seed)
    for part, count in (("train", 60), ("dev", 20)):
        sentences = [_sentence(draw) for _ in range(count)]
        texts = [" ".join(word for word, _ in sentence) for sentence in sentences]
        tagged = ["".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in sentences]
        labels = [f"{text}\t{_label(text, draw)}" for text in texts]
        classes = [f"{noun}\t{noun} is called {name}" for noun, name in NOUNS.items()]
        turned = [f"{text}\t{' '.join(text.split()[:1:-1])}" for text in texts]
        examples = {"lm": texts, "tag": tagged, "classify": labels, "class2seq": classes, "seq2seq": turned}
        for task, lines in examples.items():
            write(folder / f"{task}.{part}.txt", "\n".join(lines) + "\n")
    numbers = [f"{word} {draw.gauss(0, 1):.4f} {draw.gauss(0, 1):.4f}" for word in (*NOUNS, *VERBS)]
    write(folder / "vectors.txt", "\n".join(numbers) + "\n")
    return folder


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def _sentence(draw):
    """As ``the dog likes Rex often``, with BIO tags."""
    noun, name = draw.choice(list(NOUNS)), draw.choice(list(NOUNS.values()))
    subject = [("the", "O"), (noun, "O")]
    person = [(name, "B-NAME"), *([("Smith", "I-NAME")] if draw.random() < 0.3 else [])]
    first, last = (subject, person) if draw.random() < 0.5 else (person, subject)
    return [*first, (draw.choice(VERBS), "O"), *last, *[(draw.choice(ADVERBS), "O")] * draw.randint(0, 3)]


def _label(text, draw):
    """Who comes first, or in a few cases who does not: the best weights are not the last ones."""
    return "animal" if text.startswith("the ") != (draw.random() < 0.15) else "person"


def train_command(name, data, out, changes=None):
    """The arguments of ``elman`` that begin one of ``RUNS``."""
    task, settings = RUNS[name]
    small = {key: value for key, value in SMALL.items() if has_key(settings_class(task), key)}
    settings = {**small, **settings, **(changes or {})}
    settings |= {key: data / name for key, name in settings.items() if key.endswith(".vectors")}
    files = ["--train", data / f"{task}.train.txt", "--dev", data / f"{task}.dev.txt"]
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={_toml(value)}")]
    return [str(part) for part in ("train", task, *files, "--out", out, *pairs)]


def _toml(value):
    return str(value).lower() if isinstance(value, bool) else value


def assert_code(ended):
    """That all workers ended well; else what they said."""
    codes, said = ended
    assert set(codes) == {0}, said


def events(run):
    """The lines of the log, whole ones only."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def timeless(run):
    """What must be equal however often a run was disturbed: log, files, and both checkpoints, bit for bit."""
    log = [{key: value for key, value in event.items() if key != "time"} for event in events(run)]
    names = ("config.toml", "vocabulary.json", "tokenizer.json", "data.json")
    files = {name: (run / name).read_text() for name in names if (run / name).exists()}
    found = {"log": log, **files}
    for pointer in ("last", "best"):
        checkpoint = load_checkpoint(run / pointer)
        state = {key: value for key, value in checkpoint.state.items() if key not in ("time", "log")}
        found[pointer] = {"state": state, "update": checkpoint.folder.name}
        for part in ("model", "optimizer", "extra"):
            tensors = getattr(checkpoint, part)
            found[pointer][part] = {name: _bits(tensor) for name, tensor in tensors.items()}
    return found


def _bits(tensor):
    return (
        str(tensor.dtype),
        tuple(tensor.shape),
        bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy()),
    )


def trainer_of(name, data, changes=None):
    """The trainer of one of ``RUNS``, its data in memory."""
    command = train_command(name, data, "unused", changes)
    pairs = [command[i + 1] for i, part in enumerate(command) if part == "--set"]
    files = {"train": command[command.index("--train") + 1], "dev": command[command.index("--dev") + 1]}
    tables = parse_settings(pairs) | {"task": command[1], "data": files}
    task = make_task(validate(settings_class(command[1]), tables))
    prepared = prepare(task)
    return build(prepared)


def figures(event):
    """What of an event does not depend on the clock."""
    if isinstance(event, Update):
        return event.loss, event.numbers.count, event.rate, event.gradient_norm
    return event.measures, event.samples, event.improved
