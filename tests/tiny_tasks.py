"""Tiny data for every task, and a task made ready with it: read, learned, settled, encoded, with a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elman.config import merge, put, to_toml, validate
from elman.models.counting import CountedModel
from elman.tasks.base import Examples, Task
from elman.text.readers import Repairs
from elman.training.checkpoint import checkpoint_name, point, save_checkpoint
from elman.training.loop import Trainer, Validation
from elman.training.run import make_task, settings_class
from elman.training.sources import source_of

DATA = {
    "lm": "the cat sees the dog\nthe dog sees a cat\na dog runs\nthe cat runs and the dog runs\nit runs\n",
    "tag": (
        "The\tDET\nCat\tNOUN\nsees\tVERB\n\na\tDET\ndog\tNOUN\nruns\tVERB\nhome\tADV\n\nruns\tVERB\n\n"
        "the\tDET\ndog\tNOUN\nsees\tVERB\na\tDET\ncat\tNOUN\n"
    ),
    "classify": (
        "the cat sees the dog\tanimal\nstones lie there\tthing\na dog\tanimal\nthe stones and a cat\tanimal\n"
        "a chair and a table lie there\tthing\ndogs\tanimal\n"
    ),
    "class2seq": "I\tlove my cat\ncats\tand dogs lap water\nit\tis raining cats and dogs\n",
    "seq2seq": (
        "the cat sees the dog\tdie Katze sieht den Hund\na dog\tein Hund\nthe dog runs\tder Hund läuft\n"
        "the cat runs and the dog runs\tdie Katze läuft und der Hund läuft\nit runs\tes läuft\n"
    ),
}
TEXTS = {
    "lm": ["the", "a dog", ""],
    "tag": ["the cat runs", "", "an Unknown dog"],
    "classify": ["a dog", "", "unknown stones lie there"],
    "class2seq": ["it", "I"],
    "seq2seq": ["the cat runs", "", "an Unknown dog sees it"],
}
SMALL = {
    "data.held_out": 0.0,
    "model.hidden": 5,
    "model.embedding": 4,
    "model.dropout": 0.0,
    "model.input_dropout": 0.0,
    "model.token_dropout": 0.0,
    "model.rare_dropout": 0.0,
    "decoding.max_length": 6,
}
OWN = {
    "lm": {"text.min_count": 1},
    "tag": {"model.characters": 3, "training.batch_size": 2},
    "classify": {"training.batch_size": 2},
    "class2seq": {},
    "seq2seq": {"training.batch_size": 2},
}


@dataclass
class Ready:
    task: Task[Any]
    examples: Examples
    model: Any
    path: Path

    @property
    def batch(self) -> Any:
        """All examples; of a stream, its first segment."""
        if getattr(self.task, "streams", False):
            return self.task.collate(self.examples, self.task.plan(self.examples, 0)[0])
        return self.task.collate(self.examples, range(len(self.examples)))

    def records(self) -> list[Any]:
        return list(self.task.read(source_of(self.task.config.data, str(self.path)), Repairs()))


def settings_of(task: str, path: Path | None = None, settings: dict[str, Any] | None = None) -> Any:
    """Small settings of a task; dotted keys change them."""
    tables: dict[str, Any] = {"task": task}
    for key, value in (SMALL | OWN[task] | ({"data.train": str(path)} if path else {})).items():
        put(tables, key, value)
    changes: dict[str, Any] = {}
    for key, value in (settings or {}).items():
        put(changes, key, value)
    return validate(settings_class(task), merge(tables, changes))


def ready(task: str, folder: Path, settings: dict[str, Any] | None = None, data: str | None = None) -> Ready:
    """The task of that name with its data, its vocabularies, its settled settings and a fresh model."""
    path = folder / f"{task}.{'txt' if task in ('lm', 'tag') else 'tsv'}"
    path.write_text(DATA[task] if data is None else data, encoding="utf-8")
    made = make_task(settings_of(task, path, settings))
    records = list(made.read(source_of(made.config.data, str(path)), Repairs()))
    made.learn(records)
    made.fill_defaults()
    examples = made.examples(records)
    torch.manual_seed(1)
    model = made.build_model()
    made.initialise(model)
    if isinstance(model, CountedModel):
        model.fit(lambda: made.batches(examples))
    return Ready(made, examples, model.eval(), path)


def save(one: Ready, run: Path) -> Path:
    """A run folder as training leaves it."""
    run.mkdir()
    (run / "config.toml").write_text(to_toml(one.task.config), encoding="utf-8")
    one.task.save(run)
    name = checkpoint_name(1)
    state = {"position": {"update": 1, "best_update": 1}}
    save_checkpoint(run, name, model=one.model.state_dict(), optimizer={}, state=state, extra={})
    point(run, "best", name)
    return run


def descend(one: Ready, updates: int, rate: float = 0.02) -> float:
    """A few updates on all examples at once; the mean loss before the last."""
    optimizer = torch.optim.Adam(one.model.parameters(), rate)
    one.model.train()
    value = float("nan")
    for _ in range(updates):
        optimizer.zero_grad()
        loss = one.task.loss(one.model, one.batch)
        (loss.total / loss.count).backward()
        optimizer.step()
        value = float(loss.total.detach()) / loss.count
    one.model.eval()
    return value


def train(one: Ready) -> dict[str, Any]:
    """Train to the end as the settings say; the last figures."""
    torch.manual_seed(one.task.config.training.seed)
    *_, last = Trainer(one.task, one.model, one.examples, one.examples).run()
    assert isinstance(last, Validation)
    one.model.eval()
    return last.figures
