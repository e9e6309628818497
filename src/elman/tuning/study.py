"""Trials as optuna keeps them in the folder: which values come next, and which trial is hopeless."""

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from elman.config import Numbers, Value
from elman.errors import ArgumentError
from elman.storage.files import read_plain, remove, write_bytes
from elman.tuning.space import Space

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

JOURNAL = "optuna.journal"
DRAWN = 8  # trials at the beginning whose values are drawn; later ones learn from those before
UNJUDGED = 5  # trials that come to their end before one is pruned
WARM = 3  # no trial is pruned in the first third of its validations

State = Literal["running", "complete", "pruned", "failed"]


@dataclass(frozen=True)
class Trial:
    """Values of the settings that are searched, and what came of them."""

    number: int
    values: dict[str, Value]
    state: State = "running"
    validations: dict[int, float] = field(
        default_factory=dict
    )  # by their number, from 1; those that were judged
    value: float | None = None  # of the best of them
    seconds: float = 0.0


class Study:
    """The trials that are over, as optuna's journal in the folder has them, and what optuna makes of them.

    What comes next is drawn anew for every trial, by its number, the seed, and the trials before it: so a
    search that was stopped goes on as it would have.
    """

    def __init__(
        self, out: Path, space: Space, *, higher_is_better: bool, seed: int, validations: int
    ) -> None:
        self.optuna = found_optuna()
        self.space, self.seed = space, seed
        self.direction = "maximize" if higher_is_better else "minimize"
        self.higher_is_better = higher_is_better
        self.distributions = {key: self._distribution(key) for key in space}
        path = out / JOURNAL
        remove(path.with_name(f"{JOURNAL}.lock"))  # of a process that was killed; the folder is ours
        _cut_torn(path)
        journal = self.optuna.storages.journal.JournalFileBackend(str(path))
        self._kept = self.optuna.create_study(
            storage=self.optuna.storages.JournalStorage(journal),
            study_name="elman",
            direction=self.direction,
            load_if_exists=True,
        )
        self.pruner = self.optuna.pruners.MedianPruner(
            n_startup_trials=UNJUDGED, n_warmup_steps=validations // WARM
        )
        self.trials = sorted(map(_trial, self._kept.get_trials()), key=lambda one: one.number)

    def next(self, number: int, running: Sequence[Trial]) -> Trial:
        """The values of a trial, after those that are over and those that run."""
        digest = hashlib.sha256(f"{self.seed} {number}".encode()).digest()
        sampler = self.optuna.samplers.TPESampler(
            seed=int.from_bytes(digest[:4]), n_startup_trials=DRAWN, multivariate=True, constant_liar=True
        )
        study = self._study((*self.trials, *running), sampler)
        drawn = study.ask(self.distributions).params
        return Trial(number, {key: self._neat(key, value) for key, value in drawn.items()})

    def hopeless(self, trial: Trial) -> bool:
        """Whether its last validation is worse than the median of the others there."""
        return bool(self.pruner.prune(self._study(self.trials), self._frozen(trial)))

    def keep(self, trial: Trial) -> None:
        """Write down a trial that is over, at once or not at all."""
        self._kept.add_trial(self._frozen(trial))
        self.trials = sorted((*self.trials, trial), key=lambda one: one.number)

    def _study(
        self, trials: Sequence[Trial], sampler: "optuna.samplers.BaseSampler | None" = None
    ) -> "optuna.Study":
        study: optuna.Study = self.optuna.create_study(direction=self.direction, sampler=sampler)
        study.add_trials([self._frozen(one) for one in trials if self._inside(one)])
        return study

    def _frozen(self, trial: Trial) -> "FrozenTrial":
        inside = self._inside(trial)
        state = {"running": "RUNNING", "complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}[
            trial.state
        ]
        found: FrozenTrial = self.optuna.trial.create_trial(
            state=self.optuna.trial.TrialState[state],
            value=None if trial.state in ("running", "failed") else trial.value,
            params=trial.values if inside else {},
            distributions=self.distributions if inside else {},
            intermediate_values=trial.validations,
            user_attrs={"number": trial.number, "values": json.dumps(trial.values), "seconds": trial.seconds},
        )
        return found

    def _inside(self, trial: Trial) -> bool:
        """The default may lie outside of a user's ranges; then optuna does not hear of it."""
        for key, one in self.space.items():
            value = trial.values[key]
            if isinstance(one, Numbers):
                if not isinstance(value, (int, float)) or not one.low <= value <= one.high:
                    return False
            elif value not in one.values:
                return False
        return True

    def _distribution(self, key: str) -> "BaseDistribution":
        one, kinds = self.space[key], self.optuna.distributions
        found: BaseDistribution
        if not isinstance(one, Numbers):
            found = kinds.CategoricalDistribution(one.values)
        elif one.whole:
            found = kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
        else:
            found = kinds.FloatDistribution(one.low, one.high, log=one.log)
        return found

    def _neat(self, key: str, value: Value) -> Value:
        one = self.space[key]
        return one.neat(value) if isinstance(one, Numbers) and not isinstance(value, str) else value


def found_optuna() -> ModuleType:
    """The package, which an extra brings, and which shall say nothing."""
    try:
        with warnings.catch_warnings(action="ignore"):
            import optuna
            import optuna.storages.journal
    except ImportError:
        problem = "elman tune needs optuna, which is missing"
        raise ArgumentError(f"{problem}; pip install elman[tune]") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _trial(kept: "FrozenTrial") -> Trial:
    states: Mapping[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned"}
    told = kept.user_attrs
    return Trial(
        told["number"],
        json.loads(told["values"]),
        states.get(kept.state.name, "failed"),
        kept.intermediate_values,
        kept.value,
        told["seconds"],
    )


def _cut_torn(path: Path) -> None:
    """Drop a last line that a kill left unfinished."""
    data = read_plain(path) if path.exists() else b""
    if data and not data.endswith(b"\n"):
        write_bytes(path, data[: data.rfind(b"\n") + 1])
