"""Workers that are killed or stopped at any moment, and another number of them: nothing changes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from elman.training.checkpoint import load_checkpoint
from tiny import AWD, LONG, events, timeless, train_command, write_data

LIMIT = 600  # seconds after which something hangs
NOTICED = 60  # seconds within which a worker that stands still has to be noticed
CHAOS = ("lm-stream", "tag", "classify", "seq2seq")
KILLS, STOPS = 5, 1  # of random workers at random moments, in each round


class Supervised:
    """``elman train --workers``: a supervisor and its workers."""

    def __init__(self, arguments, workers):
        command = [sys.executable, "-m", "elman", *arguments, "--workers", str(workers)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def workers(self):
        pid = self.process.pid
        try:
            return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except FileNotFoundError:
            return []

    def wait(self, happened):
        """Until something has happened, or it has ended."""
        begun = time.monotonic()
        while not happened() and self.process.poll() is None:
            assert time.monotonic() - begun < LIMIT
            time.sleep(0.01)

    def strike(self, worker, number):
        """A signal to one of them; the seconds until it is gone."""
        begun = time.monotonic()
        os.kill(worker, number)
        self.wait(lambda: worker not in self.workers())
        return time.monotonic() - begun

    def end(self):
        _, said = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, said


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def updates(run):
    return [event for event in events(run) if event["event"] == "update"]


def has_come_to(run, update):
    return lambda: any(event["update"] >= update for event in updates(run))


@pytest.mark.slow
def test_a_killed_worker_changes_nothing_and_a_signal_is_obeyed(data, tmp_path):
    changes = {**AWD, "training.max_steps": 60, "training.validate_every": 30}
    whole, disturbed = tmp_path / "whole", tmp_path / "disturbed"
    code, said = Supervised(train_command("lm-stream", data, whole, changes), 2).end()
    assert code == 0, said
    one = Supervised(train_command("lm-stream", data, disturbed, changes), 2)
    one.wait(has_come_to(disturbed, 12))
    one.strike(one.workers()[-1], signal.SIGKILL)
    one.wait(has_come_to(disturbed, 36))
    one.process.send_signal(signal.SIGTERM)
    code, said = one.end()
    assert code == 143, said
    assert "was ended by SIGKILL; all 2 begin again, from the last checkpoint" in said
    assert "stopped by SIGTERM after update" in said
    code, said = Supervised(["train", "--out", str(disturbed), "--resume"], 2).end()
    assert code == 0, said
    assert timeless(disturbed) == timeless(whole)
    assert [path for path in disturbed.rglob("*") if ".tmp-" in path.name] == []


@pytest.mark.slow
def test_the_number_of_workers_may_change(data, tmp_path):
    """2 → 1 → 2: the examples come as to one worker, and the weights differ by rounding."""
    changes = {**AWD, "training.max_steps": 45, "training.validate_every": 15, "training.log_every": 1}
    alone, changing = tmp_path / "alone", tmp_path / "changing"
    code, said = Supervised(train_command("lm-stream", data, alone, changes), 1).end()
    assert code == 0, said
    begin = train_command("lm-stream", data, changing, changes)
    for workers, until in ((2, 12), (1, 27), (2, None)):
        one = Supervised(begin, workers)
        if until is not None:
            one.wait(has_come_to(changing, until))
            one.process.send_signal(signal.SIGINT)
        code, said = one.end()
        assert code == (0 if until is None else 130), said
        begin = ["train", "--out", str(changing), "--resume"]
    expected, found = updates(alone), updates(changing)
    assert [event["tokens"] for event in found] == [event["tokens"] for event in expected]
    for one, other in zip(found, expected, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
    first, second = (load_checkpoint(run / "last") for run in (alone, changing))
    assert first.extra["rng.cpu"].equal(second.extra["rng.cpu"])
    assert all(torch.allclose(second.model[n], value, atol=2e-5) for n, value in first.model.items())


def test_a_mistake_ends_all_workers_with_its_code(tmp_path):
    code, said = Supervised(
        ["train", "lm", "--train", "missing.txt", "--out", str(tmp_path / "run")], 2
    ).end()
    assert code == 3, said
    assert said.count("E402") == 1


@pytest.mark.skipif(not LONG, reason="ELMAN_LONG=10: 50 kills and 10 stops")
@pytest.mark.parametrize("number", range(LONG or 1))
def test_kills_and_stops_at_random_moments(number, data, tmp_path):
    draw, name = random.Random(f"workers {number}"), CHAOS[number % len(CHAOS)]
    todo = [signal.SIGKILL] * KILLS + [signal.SIGSTOP] * STOPS
    draw.shuffle(todo)
    begin = train_command(name, data, "RUN", {"training.max_steps": 150 if name == "seq2seq" else 600})
    whole, noticed, rounds = tmp_path / "whole", 0.0, 0

    def start(run):
        return Supervised([str(run) if word == "RUN" else word for word in begin], 2)

    code, said = start(whole).end()
    assert code == 0, said
    while todo:  # in as many runs as it takes
        run, rounds = tmp_path / f"disturbed-{rounds}", rounds + 1
        one = start(run)
        while todo and one.process.poll() is None:
            time.sleep(draw.uniform(0.5, 6.0))
            workers = one.workers()
            if workers and one.process.poll() is None:
                seconds = one.strike(draw.choice(workers), todo[-1])
                noticed = seconds if todo.pop() == signal.SIGSTOP else noticed
        code, said = one.end()
        assert code == 0, said
        assert timeless(run) == timeless(whole), run
    print(
        f"{name}: {KILLS} kills and {STOPS} stops in {rounds} runs, noticed after {noticed:.0f} s", flush=True
    )
    assert noticed < NOTICED
