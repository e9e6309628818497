"""A training that is killed at any moment and continued is the undisturbed one, bit for bit."""

import json
import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import pytest

from elman.training.checkpoint import newest_checkpoint
from forked import Forked
from tiny import COMMAND, LONG, RUNS, timeless, train_command, write_data

LIMIT = 600  # seconds after which a process that waits for its moment has gone wrong


# Moments: each is a function of (run, seconds since the start) that says whether it has come.


@dataclass
class After:
    """At any time since an interpreter starts: while it imports, reads files, builds the network."""

    seconds: float

    def __call__(self, run, passed):
        return passed >= self.seconds


def there_is(pattern):
    """As soon as a file or folder is there: config.toml, data.json, a checkpoint half written."""
    return lambda run, passed: any(run.glob(pattern))


def logged(update, kind="update"):
    """As soon as the log has come to an update, or to a validation: before it is saved."""
    return lambda run, passed: any(
        event["event"] == kind and event["update"] >= update for event in last_events(run)
    )


def last_events(run):
    """Of a log that is being written: it is looked at often, so only its end is read."""
    log = run / "metrics.jsonl"
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65_536))
        *lines, _ = file.read().split(b"\n")
    return [json.loads(line) for line in lines[-3:] if line.startswith(b"{")]


SAVING = "checkpoints/.*.tmp-*"
CHAINS = [(name, number) for number in range(LONG or 1) for name in RUNS]


def moments(name, draw):
    """Three or four moments for the chain of one run, each later than the one before."""
    early, middle, late = draw.randint(2, 60), draw.randint(90, 190), draw.randint(220, 330)
    return {
        "lm-stream": [After(draw.uniform(0.2, 3.0)), logged(early), there_is(SAVING), logged(late)],
        "lm-sentence": [there_is("config.toml"), logged(early), logged(middle // 40 * 40, "validation")],
        "tag": [there_is("cache/train/*"), logged(2), there_is(SAVING), logged(late)],
        "classify": [there_is("data.json"), logged(1), logged(middle), logged(late // 40 * 40, "validation")],
        "class2seq": [After(draw.uniform(0.5, 3.5)), there_is(SAVING), logged(middle), there_is(SAVING)],
        "seq2seq": [
            there_is("tokenizer.json"),
            logged(early // 2),
            there_is(SAVING),
            logged(80, "validation"),
        ],
    }[name]


@dataclass
class Chain:
    """A run that was stopped several times."""

    run: Path
    codes: list[int] = field(default_factory=list)  # of every process
    talk: list[str] = field(default_factory=list)  # its stderr

    def start(self, begin, fresh):
        """Begin, or continue with no more than the folder if that is possible."""
        begun = (self.run / "config.toml").exists()
        arguments = ["train", "--out", str(self.run), "--resume"] if begun else [*begin, "--resume"]
        if fresh:
            return subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True)
        return Forked(COMMAND[-1], arguments)

    def play(self, begin, when=None, number=signal.SIGKILL):
        """One process, up to a moment or to its end."""
        started = time.monotonic()
        process = self.start(begin, fresh=isinstance(when, After))
        while when is not None and process.poll() is None:
            passed = time.monotonic() - started
            if when(self.run, passed) or passed > LIMIT:
                os.kill(process.pid, number)
                break
            time.sleep(0.0005)
        _, talk = process.communicate(timeout=LIMIT)
        self.codes.append(process.returncode)
        self.talk.append(talk)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def played(data, tmp_path_factory):
    """Every run in one go, and again, killed at three or four moments; some at once: they wait for disks."""
    folder = tmp_path_factory.mktemp("runs")

    def play(one):
        name, number = one
        chain = Chain(folder / f"{name}-{number}")
        begin = train_command(name, data, chain.run)
        if number is not None:
            for moment in moments(name, random.Random(f"kill {name} {number}" if number else f"kill {name}")):
                chain.play(begin, moment)
        chain.play(begin)
        return chain

    runs = [*((name, None) for name in RUNS), *CHAINS]
    with ThreadPoolExecutor(3) as pool:
        return dict(zip(runs, pool.map(play, runs), strict=True))


@pytest.fixture(scope="module")
def undisturbed(played):
    whole = {name: played[name, None] for name in RUNS}
    for chain in whole.values():
        assert chain.codes == [0], chain.talk
    return {name: timeless(chain.run) for name, chain in whole.items()}


@pytest.fixture(scope="module")
def chains(played):
    return {one: played[one] for one in CHAINS}


@pytest.mark.parametrize(("name", "number"), CHAINS)
def test_killed_and_continued_is_undisturbed(name, number, chains, undisturbed):
    chain = chains[name, number]
    assert chain.codes[-1] == 0, chain.talk[-1]
    assert_same(timeless(chain.run), undisturbed[name])
    left = [path for path in chain.run.rglob("*") if ".tmp-" in path.name or path.suffix in (".old", ".part")]
    assert left == []


def test_the_kills_came(chains):
    """At least twelve a round, before, in and after the first checkpoint; no process ended in another way."""
    codes = [code for chain in chains.values() for code in chain.codes[:-1]]
    assert codes.count(-signal.SIGKILL) >= 12 * (LONG or 1)
    assert set(codes) <= {-signal.SIGKILL, 0}
    talk = [talk for chain in chains.values() for talk in chain.talk]
    assert sum("continuing after update" in one for one in talk) >= 8
    assert not any("Traceback" in one for one in talk)


def test_a_signal_is_obeyed_saved_and_answered_by_the_command_that_continues(data, undisturbed, tmp_path):
    chain = Chain(tmp_path / "run")
    changes = {"training.save_seconds": 1000}  # what is saved is saved for the signal
    begin = train_command("lm-stream", data, chain.run, changes)
    for number, update in ((signal.SIGTERM, 55), (signal.SIGINT, 130)):
        chain.play(begin, logged(update), number)
        assert chain.codes[-1] == 128 + number, chain.talk[-1]
        saved = newest_checkpoint(chain.run).state["position"]["update"]
        assert saved >= update
        assert f"stopped by {number.name} after update {saved}; saved" in chain.talk[-1]
        assert f"\n  elman train --out {chain.run} --resume\n" in chain.talk[-1]
    chain.play(begin)
    assert chain.codes[-1] == 0, chain.talk[-1]
    found, expected = timeless(chain.run), dict(undisturbed["lm-stream"])
    assert "save_seconds = 1000.0" in found.pop("config.toml")
    del expected["config.toml"]
    for one, pointer in product((found, expected), ("last", "best")):
        one[pointer] = one[pointer] | {"state": one[pointer]["state"] | {"settings": None}}
    assert_same(found, expected)


def assert_same(found, expected):
    """Part by part, so that a failure names the first difference and not two megabytes."""
    assert found.keys() == expected.keys()
    for number, (one, other) in enumerate(zip(found["log"], expected["log"], strict=False), 1):
        assert one == other, f"line {number} of the log"
    for part in found:
        if isinstance(found[part], dict):
            for inner in found[part]:
                assert found[part][inner] == expected[part][inner], f"{part}: {inner}"
        else:
            assert found[part] == expected[part], part
