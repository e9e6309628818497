"""All runs of a comparison, several at a time, each a process of its own; what is finished stays."""

import json
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elman.comparing.contenders import Entry
from elman.comparing.processes import Processes, last_words
from elman.config import Tables, to_toml
from elman.errors import ConfigError, RunError
from elman.presentation.summary import Summary
from elman.storage.files import open_own, write_bytes
from elman.storage.locks import take_lock
from elman.training.folder import LOCK

FORMAT = 1
PLAN = "plan.json"
SAVING = 60.0  # seconds that a training needs to save itself, at most


@dataclass(frozen=True)
class Job:
    """One run: a contender with a seed."""

    name: str
    seed: int
    config: Path
    run: Path
    figures: Path  # of test data, once they were asked for

    @property
    def trained(self) -> bool:
        return (self.run / "metrics.jsonl").is_file() and Summary.of(self.run).end is not None

    def finished(self, tested: bool) -> bool:
        return self.trained and (self.figures.is_file() or not tested)


def jobs(out: Path, names: Sequence[str], seeds: int) -> list[Job]:
    """Seed by seed, so that an unfinished comparison has something of everybody."""
    folders = {name: f"{place}-{_plain(name)}" for place, name in enumerate(names, start=1)}
    return [
        Job(name, seed, out / f"{at}.toml", out / "runs" / f"{at}-{seed}", out / "test" / f"{at}-{seed}.json")
        for seed in range(1, seeds + 1)
        for name, at in folders.items()
    ]


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)[:40]


def begin(out: Path, plan: Tables, make: Callable[[], tuple[list[Entry], bool]]) -> Tables:
    """Write down what is to be compared, or find it written: then it must be the same. The plan, whole."""
    whole = kept_plan(out, plan, "comparison")
    if whole is None:
        entries, higher_is_better = make()
        told = [
            {"name": one.name, "parameters": one.parameters, "config": to_toml(one.config)} for one in entries
        ]
        rest = {"said": plan, "higher_is_better": higher_is_better, "entries": told}
        whole = write_plan(out, "comparison", rest)
    for entry, job in zip(
        whole["entries"], jobs(out, [one["name"] for one in whole["entries"]], 1), strict=True
    ):
        write_bytes(job.config, entry["config"].encode())
    return whole


def kept_plan(out: Path, said: Tables, noun: str) -> Tables | None:
    """The plan of a folder, which must be of what is said; None of a folder that is yet to be filled."""
    path = out / PLAN
    if path.is_file():
        kept: Tables = json.loads(path.read_text("utf-8"))
        if kept.get("format") != FORMAT or kept.get("of", "comparison") != noun:
            raise RunError(f"{path} is no {noun} of this version; name another folder")
        wrong = [key for key, value in said.items() if kept["said"].get(key) != value]
        if wrong:
            problem = f"{out} holds a {noun} with other {', '.join(wrong)}"
            raise ConfigError(f"{problem}; say the same to go on with it, or name another folder")
        return kept
    if out.is_dir() and any(entry.name != LOCK for entry in out.iterdir()):
        raise ConfigError(f"{out} is not empty; name a new folder for the {noun}")
    return None


def write_plan(out: Path, noun: str, rest: Tables) -> Tables:
    """The plan, written before anything else is in the folder: all that follows can be made of it again."""
    plan = {"format": FORMAT, "of": noun, **rest}
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / PLAN, json.dumps(plan, indent=1, ensure_ascii=False).encode() + b"\n")
    return plan


def run_all(
    todo: Sequence[Job],
    test: Sequence[str],
    *,
    at_once: int,
    trust_code: bool,
    told: Callable[[Job, float], None],
) -> None:
    """Train what is not finished, ``at_once`` processes at a time; one that fails stops the others.

    ``test``: what ``elman evaluate`` is told of the test data, if there are any. A signal stops them
    all: each saves itself, and the same command goes on with them.
    """
    waiting = deque(job for job in todo if not job.finished(bool(test)))
    trust = ["--trust-code"] if trust_code else []
    with Processes[Job](at_once) as processes:
        while waiting or processes.active:
            while processes.free and waiting:
                job = waiting.popleft()
                if not job.trained:
                    until_free(job.run)
                    seed = ["--set", f"training.seed={job.seed}"]
                    processes.start(job, [*training(job.config, job.run), *seed, *trust], log_of(job.run))
                    continue
                job.figures.parent.mkdir(exist_ok=True)
                said = ["evaluate", str(job.run), *test, "--json", *trust]
                processes.start(job, said, log_of(job.run), _unfinished(job))
            for job, code, seconds in processes.ended():
                if code:
                    log = log_of(job.run)
                    problem = f"{job.name} with seed {job.seed} failed: {last_words(log)}"
                    raise RunError(f"{problem}\n  all it said is in {log}")
                if _unfinished(job).is_file():
                    _unfinished(job).replace(job.figures)
                if job.finished(bool(test)):
                    told(job, seconds)
                else:
                    waiting.appendleft(job)


def training(config: Path, run: Path) -> list[str]:
    """The words of a training that begins, or goes on where it was stopped."""
    return ["train", "--config", str(config), "--quiet", "--out", str(run), "--resume"]


def until_free(run: Path) -> None:
    """Wait for a training that is left of a comparison that was killed: it saves itself."""
    with suppress(FileNotFoundError), open_own(run / LOCK, "r") as lock:
        take_lock(lock, SAVING)


def log_of(run: Path) -> Path:
    """Where the processes of a run write what they say."""
    return run.with_suffix(".log")


def _unfinished(job: Job) -> Path:
    return job.figures.with_suffix(".part")
