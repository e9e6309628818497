"""A search: its plan, its trials, each a run in a process of its own, and the choice among the best."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from elman.comparing.contenders import flat, with_threads
from elman.comparing.processes import Ended, Processes, last_words
from elman.comparing.running import Job, kept_plan, log_of, run_all, training, until_free, write_plan
from elman.config import Config, Range, Tables, Value, lookup, parse_toml, to_toml, validate
from elman.errors import ConfigError, DivergedError, RunError
from elman.presentation.events import read_events
from elman.presentation.summary import Summary
from elman.storage.files import write_bytes
from elman.storage.folders import set_link
from elman.tasks.base import chosen_metric
from elman.training.building import build
from elman.training.preparing import prepare
from elman.training.settings import make_task, settings_class
from elman.tuning.space import Space, as_json, check_values, from_json, space_of, with_values
from elman.tuning.study import Study, Trial

FINALISTS = 3  # trials that are trained with more seeds, besides the default


@dataclass(frozen=True)
class Budget:
    """How many trials there are, or minutes in which they begin, and how many seeds the best ones get."""

    trials: int | None
    minutes: float | None
    seeds: int
    at_once: int

    def allows(self, number: int, done: Sequence[Trial], spent: float) -> bool:
        """May one more begin? Of minutes, as many are kept as the trainings with more seeds will take."""
        if number >= (self.trials or number + 1):
            return False
        whole = [one.seconds for one in done if one.state == "complete"]
        if self.minutes is None or not whole:
            return self.minutes is None or number < self.at_once
        checks = -(-(FINALISTS + 1) * (self.seeds - 1) // self.at_once)
        return spent + fmean(one.seconds for one in done) + checks * fmean(whole) <= 60 * self.minutes


@dataclass(frozen=True)
class Plan:
    """What is decided before the first trial, and kept: the default for these data, and what is searched."""

    out: Path
    default: Config
    space: Space
    metric: str
    higher_is_better: bool
    every: int  # updates between validations of the default
    validations: int  # that it has

    @classmethod
    def of(cls, out: Path, common: Config, searched: Mapping[str, Range], threads: int) -> "Plan":
        """The plan of a folder, or a new one, written down."""
        said = {
            "settings": common.model_dump(mode="json", exclude_unset=True),
            "searched": as_json(dict(searched)),
        }
        kept = kept_plan(out, said, "search")
        if kept is None:
            kept = write_plan(out, "search", {"said": said, **_decided(common, searched, threads)})
        default = config_of(kept["default"], out)
        space = from_json(kept["space"])
        own = {key: kept[key] for key in ("metric", "higher_is_better", "every", "validations")}
        return cls(out, default, space, **own)

    def file(self, number: int) -> Path:
        return self.out / "trials" / f"{number:03}.toml"

    def run(self, number: int, seed: int | None = None) -> Path:
        return self.out / "runs" / (f"{number:03}" if seed is None else f"{number:03}-seed-{seed}")

    def study(self) -> Study:
        seed = self.default.training.seed
        return Study(
            self.out,
            self.space,
            higher_is_better=self.higher_is_better,
            seed=seed,
            validations=self.validations,
        )

    def begun(self) -> list[Trial]:
        """All trials that ever began, by the files of their settings."""
        found = []
        for path in sorted((self.out / "trials").glob("*.toml")):
            config = config_of(path.read_text("utf-8"), path)
            found.append(Trial(int(path.stem), self.values(config)))
        return found

    def values(self, config: Config) -> dict[str, Value]:
        return {key: lookup(config, key) for key in self.space}

    def begin(self, trial: Trial) -> None:
        config = with_values(self.default, trial.values, self.every) if trial.number else self.default
        self.file(trial.number).parent.mkdir(exist_ok=True)
        write_bytes(self.file(trial.number), to_toml(config).encode())


def _decided(common: Config, searched: Mapping[str, Range], threads: int) -> Tables:
    """Read the data once, to see what is chosen for them."""
    if common.training.minutes is not None:
        problem = f"training.minutes is {common.training.minutes:g}, but trials are as long as is usual"
        raise ConfigError(f"{problem}; --minutes is the time of the search, training.epochs that of a trial")
    check_values(common, searched)
    prepared = prepare(make_task(common))
    if common.training.threads is None:
        prepared.task.config = with_threads(prepared.task.config, threads)
    trainer = build(prepared)
    if trainer.counted:
        raise ConfigError(f"{common.task} by counting has nothing to search; leave the comparator out")
    default = prepared.task.config
    fixed = [key for key, value in flat(common.model_dump(exclude_unset=True)) if value is not None]
    metric, higher_is_better = chosen_metric(prepared.task)
    return {
        "space": as_json(space_of(default, fixed, searched)),
        "default": to_toml(default),
        "metric": metric,
        "higher_is_better": higher_is_better,
        "every": trainer.validate_every,
        "validations": max(1, trainer.total // trainer.validate_every),
    }


def config_of(text: str, path: Path) -> Config:
    tables = parse_toml(text, path)
    return validate(settings_class(str(tables["task"])), tables, path)


def search(plan: Plan, budget: Budget, *, trust_code: bool, told: Callable[[Trial], None]) -> list[Trial]:
    """Train trial by trial until the budget is spent; all that are over, by number.

    A signal stops those that run: each saves itself, and the next search in the folder goes on with them.
    """
    study, began = plan.study(), time.monotonic()
    before = sum(one.seconds for one in study.trials) / budget.at_once
    over = {one.number for one in study.trials}
    waiting = [one for one in plan.begun() if one.number not in over]
    following = max([*over, *(one.number for one in waiting)], default=-1) + 1
    running: dict[int, LiveTrial] = {}
    with Processes[int](budget.at_once) as processes:
        while True:
            while processes.free:
                spent = before + time.monotonic() - began
                if waiting:
                    trial = waiting.pop(0)
                elif budget.allows(following, study.trials, spent):
                    live = [one.trial for one in running.values()]
                    trial = study.next(following, live) if following else Trial(0, plan.values(plan.default))
                    plan.begin(trial)
                    following += 1
                else:
                    break
                run = plan.run(trial.number)
                until_free(run)
                running[trial.number] = LiveTrial(trial, run)
                words = [*training(plan.file(trial.number), run), *(["--trust-code"] if trust_code else [])]
                processes.start(trial.number, words, log_of(run))
            if not running:
                return study.trials
            for ended in processes.ended():
                one = running.pop(ended.key)
                one.look(study, plan.metric)
                trial = one.over(ended, plan)
                study.keep(trial)
                told(trial)
            for number, one in running.items():
                if one.look(study, plan.metric):
                    processes.stop(number)


class LiveTrial:
    """A trial whose process runs: its validations so far, and whether they are hopeless.

    What is judged is what the log says, one validation after the other, so that it does not matter when it
    is looked at.
    """

    def __init__(self, trial: Trial, run: Path) -> None:
        self.trial, self.run, self.size = trial, run, -1
        self.pruned = False

    def look(self, study: Study, metric: str) -> bool:
        """Judge the validations that training went on after; whether it has just become hopeless."""
        log = self.run / "metrics.jsonl"
        size = log.stat().st_size if log.exists() else -1
        if self.pruned or size == self.size:
            return False
        self.size = size
        events = [one for one in read_events(log) if one["event"] in ("validation", "update", "end")]
        validations = [place for place, one in enumerate(events) if one["event"] == "validation"]
        for number, place in enumerate(validations, start=1):
            if number in self.trial.validations:
                continue
            followed = [one["event"] for one in events[place + 1 : place + 2]]
            if not followed:
                return False
            known = self.trial.validations | {number: float(events[place][metric])}
            self.trial = replace(self.trial, validations=known)
            if followed != ["end"] and study.hopeless(self.trial):
                self.pruned = True
                return True
        return False

    def over(self, ended: Ended[int], plan: Plan) -> Trial:
        """The trial with its end; what it was stopped by, or failed of."""
        best = max if plan.higher_is_better else min
        trial = replace(self.trial, seconds=round(ended.seconds, 1))
        if self.pruned:
            return replace(trial, state="pruned", value=best(trial.validations.values()))
        if not ended.code:
            return replace(trial, state="complete", value=best(trial.validations.values()))
        log = log_of(self.run)
        if ended.code == DivergedError.exit_code and trial.number:
            return replace(trial, state="failed", validations={})
        problem = f"trial {trial.number} failed: {last_words(log)}"
        raise RunError(f"{problem}\n  all it said is in {log}")


@dataclass(frozen=True)
class Finalist:
    """A trial, and its figures with several seeds, its own the first."""

    trial: Trial
    figures: list[float]

    @property
    def mean(self) -> float:
        return fmean(self.figures)


def finalists(
    plan: Plan,
    trials: Sequence[Trial],
    budget: Budget,
    *,
    trust_code: bool,
    told: Callable[[Job, float], None],
) -> list[Finalist]:
    """The best trials and the default with more seeds, the best mean first: one seed may be lucky."""
    sign = -1 if plan.higher_is_better else 1
    order = sorted(_complete(trials), key=lambda one: sign * (one.value or 0.0))
    chosen = [one for one in order if one.number][:FINALISTS] + [one for one in order if not one.number]
    own = plan.default.training.seed
    jobs = [
        Job(f"trial {one.number}", seed, plan.file(one.number), plan.run(one.number, seed), plan.out)
        for seed in range(own + 1, own + budget.seeds)
        for one in chosen
    ]
    run_all(jobs, [], at_once=budget.at_once, trust_code=trust_code, told=told)
    found = []
    for one in chosen:
        runs = [Summary.of(job.run) for job in jobs if job.name == f"trial {one.number}"]
        more = [float((run.best or {})[plan.metric]) for run in runs]
        found.append(Finalist(one, [one.value or 0.0, *more]))
    return sorted(found, key=lambda one: (sign * one.mean, one.trial.number))


def _complete(trials: Sequence[Trial]) -> Iterator[Trial]:
    return (one for one in trials if one.state == "complete" and one.value is not None)


def keep_best(plan: Plan, best: Trial) -> None:
    """``best.toml``, and ``best``, a link to the run of the trial."""
    write_bytes(plan.out / "best.toml", plan.file(best.number).read_bytes())
    set_link(plan.out / "best", plan.run(best.number).relative_to(plan.out))
