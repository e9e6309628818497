"""The runs that a run starts from: opened, verified, and recorded in its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch import nn

from elman.config import Config
from elman.errors import ConfigError, RunError
from elman.models.counting import CountedModel
from elman.storage.files import explained, read_plain, write_bytes
from elman.storage.sealed import sealed, unsealed
from elman.tasks.base import AnyTask
from elman.training.checkpoint import MANIFEST
from elman.training.folder import ORIGIN
from elman.training.learned import load_learned
from elman.training.loading import best_checkpoint, load_weights
from elman.training.settings import check_code, make_task, read_config
from elman.trust import Trust

FORMAT = 1


@dataclass(frozen=True)
class Origin:
    """A run whose weights another one starts from: its task, and its model as it is used.

    checkpoint, digest: the name of the checkpoint, and the SHA-256 of its manifest, which knows all files.
    """

    run: Path
    task: AnyTask
    model: nn.Module
    checkpoint: str
    digest: str
    trust: Trust

    @property
    def config(self) -> Config:
        return self.task.config

    @property
    def backwards(self) -> bool:
        """Does its network read texts from their end?"""
        return bool(getattr(self.config.text, "reversed", False))

    def recorded(self) -> dict[str, str]:
        return {
            "run": str(self.run),
            "task": str(self.config.task),
            "checkpoint": self.checkpoint,
            "sha256": self.digest,
        }


def open_origin(run: Path, *, trust_code: bool = False) -> Origin:
    """A run with its best weights; nothing in its folder is changed."""
    trust = Trust(run, everything=trust_code)
    config = read_config(run, trust)
    check_code(config, trust)
    task = make_task(config)
    checkpoint = best_checkpoint(run)
    load_learned(task, run)
    model = load_weights(checkpoint, task)
    if isinstance(model, CountedModel):
        raise ConfigError(f"{run} is a model that was counted; it has no weights to start from")
    with explained(checkpoint.folder):
        digest = sha256(read_plain(checkpoint.folder / MANIFEST)).hexdigest()
    name = checkpoint.state["position"]["update"]
    return Origin(run, task, model, f"update-{name:08d}", digest, trust)


def record_origins(run: Path, origins: Sequence[Origin], taken: Sequence[str] = ()) -> None:
    """Write down in the folder of a run where it starts from and, once it is known, what was taken."""
    content = {"format": FORMAT, "runs": [one.recorded() for one in origins], "taken": list(taken)}
    with explained(run / ORIGIN):
        write_bytes(run / ORIGIN, sealed(content))


def read_record(run: Path) -> list[Mapping[str, str]]:
    """What ``record_origins`` wrote of the runs; nothing where a run starts from none."""
    path = run / ORIGIN
    try:
        content: Any = unsealed(read_plain(path))
        if content.get("format") != FORMAT:
            raise ValueError(f"format {content.get('format')!r}; this version reads {FORMAT}")
        return [
            {key: str(one[key]) for key in ("run", "task", "checkpoint", "sha256")} for one in content["runs"]
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}; restore the file or train again") from None


def recorded_origins(run: Path, *, trust_code: bool = False) -> list[Origin]:
    """The runs that this one starts from, which must be as they were when it began."""
    found = []
    for one in read_record(run):
        origin = open_origin(Path(one["run"]), trust_code=trust_code)
        if origin.digest != one["sha256"]:
            raise RunError(
                f"{one['run']} has changed since {run} began from its {one['checkpoint']}, and nothing is "
                f"saved yet; train anew with --from {one['run']} and another --out"
            )
        found.append(origin)
    return found


def check_same_origins(run: Path, said: Sequence[Path]) -> None:
    """A continued run has started; what is said again of where must be the same."""
    kept = [one["run"] for one in read_record(run)]
    if said and [str(path) for path in said] != kept:
        has = " ".join(kept) if kept else "none"
        raise ConfigError(
            f"a continued run keeps its settings\n  --from is {' '.join(map(str, said))}, the run has {has}"
        )
