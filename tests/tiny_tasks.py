"""Tiny data for every task, and a task made ready with it: read, counted, filled, encoded, with a model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from elman.config import merge, put, to_toml, validate
from elman.config.reading import has_key
from elman.models.counting import CountedModel
from elman.tasks.base import AnyTask, Measures
from elman.tasks.examples import Examples, encoded
from elman.tasks.statistics import Statistics
from elman.text.files import Repairs
from elman.training.checkpoint import checkpoint_name, point, save_checkpoint
from elman.training.learned import save_learned
from elman.training.loop import Trainer
from elman.training.position import Validation
from elman.training.settings import make_task, settings_class
from elman.training.sources import source_of

CPU = torch.device("cpu")
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
    task: AnyTask
    examples: Examples
    model: Any
    path: Path
    statistics: Statistics

    @property
    def batch(self) -> Any:
        """All examples; of a stream, its first segment."""
        whole = range(len(self.examples))
        key = self.task.epoch(self.examples, 0)[0] if getattr(self.task, "streams", False) else whole
        return self.task.collate(self.examples, key, CPU)

    def records(self) -> list[Any]:
        return list(self.task.read(source_of(self.task.config.data, str(self.path)), Repairs()))


def settings_of(task: str, path: Path | None = None, settings: dict[str, Any] | None = None) -> Any:
    """Small settings of a task; dotted keys change them."""
    tables: dict[str, Any] = {"task": task}
    small = {key: value for key, value in SMALL.items() if has_key(settings_class(task), key)}
    for key, value in (small | OWN[task] | ({"data.train": str(path)} if path else {})).items():
        put(tables, key, value)
    changes: dict[str, Any] = {}
    for key, value in (settings or {}).items():
        put(changes, key, value)
    return validate(settings_class(task), merge(tables, changes))


def ready(task: str, folder: Path, settings: dict[str, Any] | None = None, data: str | None = None) -> Ready:
    """The task of that name with its data, its vocabularies, its filled settings and a fresh model."""
    path = folder / f"{task}.{'txt' if task in ('lm', 'tag') else 'tsv'}"
    path.write_text(DATA[task] if data is None else data, encoding="utf-8")
    made = make_task(settings_of(task, path, settings))
    records = list(made.read(source_of(made.config.data, str(path)), Repairs()))
    statistics = made.build_vocabularies(records)
    made.fill_defaults(statistics)
    examples = encoded(made, records)
    torch.manual_seed(1)
    model = made.build_model(fresh=True)
    if isinstance(model, CountedModel):
        model.fit(lambda: made.evaluation_batches(examples, CPU))
    return Ready(made, examples, model.eval(), path, statistics)


def save(one: Ready, run: Path) -> Path:
    """A run folder as training leaves it."""
    run.mkdir()
    (run / "config.toml").write_text(to_toml(one.task.config), encoding="utf-8")
    save_learned(one.task, run)
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


def train(one: Ready) -> Measures:
    """Train to the end as the settings say; the last figures."""
    torch.manual_seed(one.task.config.training.seed)
    *_, last = Trainer(one.task, one.model, one.examples, one.examples, CPU).run()
    assert isinstance(last, Validation)
    one.model.eval()
    return last.measures
