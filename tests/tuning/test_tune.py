"""A search from the command line: killed and continued, the same trials; pruned; its best is taken up."""

import json
import math
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from elman.comparing import processes
from elman.config import Numbers
from elman.presentation.summary import Summary
from elman.tuning.searching import Budget, LiveTrial
from elman.tuning.study import JOURNAL, Study, Trial
from forked import quickly
from tiny import COMMAND, elman, write_data

SMALL = (
    *("--set", "training.epochs=30", "--set", "training.validate_every=8", "--set", "model.shortcut=false"),
    *("--set", "model.embedding=8", "--set", "model.characters=0", "--set", "training.log_every=1"),
    *("--set", "model.input_dropout=0", "--set", "model.layers=1"),
)
RANGES = ("--search", "model.hidden=4..24", "--search", "training.learning_rate=1e-5..1e-1")


def command(data, out, *more):
    files = ("--train", data / "classify.train.txt", "--dev", data / "classify.dev.txt")
    rest = ("--out", out, "--json", "--jobs", 1, "--seeds", 2, *more)
    return [str(one) for one in ("tune", "classify", *files, *SMALL, *RANGES, *rest)]


def found_in(answer):
    assert answer.code == 0, answer.err
    found = json.loads(answer.out.splitlines()[-1])
    for trial in found["trials"]:
        trial.pop("seconds")
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def searched(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("searched") / "out"
    with pytest.MonkeyPatch.context() as patch:
        quickly(patch)
        return out, found_in(elman(*command(data, out, "--trials", 8)))


@pytest.mark.slow
def test_a_search_has_the_default_prunes_and_chooses(searched):
    out, found = searched
    states = [trial["state"] for trial in found["trials"]]
    assert [trial["number"] for trial in found["trials"]] == [*range(8)]
    assert states[0] == "complete"
    assert "pruned" in states
    whole = [len(trial["validations"]) for trial in found["trials"] if trial["state"] == "complete"]
    assert all(len(one["validations"]) < max(whole) for one in found["trials"] if one["state"] == "pruned")
    means = {one["trial"]: one["mean"] for one in found["finalists"]}
    assert all(len(one["figures"]) == 2 for one in found["finalists"])
    assert means[found["best"]["trial"]] == max(means.values()) >= means[0]
    page = (out / "tune.html").read_text("utf-8")
    assert page.count("<svg") == 1 + len(found["space"])
    assert "http" not in page.replace("http://www.w3.org", "")


@pytest.mark.slow
def test_trial_0_is_what_training_does_by_default(data, searched, tmp_path):
    files = ("--train", data / "classify.train.txt", "--dev", data / "classify.dev.txt")
    answer = elman("train", "classify", *files, *SMALL, "--out", tmp_path / "run", "--quiet", "--json")
    assert answer.code == 0, answer.err
    assert validations(tmp_path / "run") == validations(searched[0] / "runs" / "000")


def validations(run):
    found = Summary.of(run).validations
    return [{key: value for key, value in one.items() if key != "time"} for one in found]


@pytest.mark.slow
def test_killed_it_goes_on_to_the_same_trials(data, searched, tmp_path, monkeypatch):
    out = tmp_path / "out"
    said = command(data, out, "--trials", 8)
    with subprocess.Popen([*COMMAND, *said], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (out / "runs" / "001" / "metrics.jsonl").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    quickly(monkeypatch)
    for _ in range(20):  # the trial that lost its parent may yet save itself
        answer = elman(*said)
        if "another process is training" not in answer.err:
            break
    assert found_in(answer) == searched[1]
    more = found_in(elman(*command(data, out, "--trials", 9)))
    assert more["trials"][:8] == searched[1]["trials"]
    assert len(more["trials"]) == 9


@pytest.mark.slow
def test_the_best_is_a_run_and_its_settings_train_it_again(data, searched, tmp_path):
    out, found = searched
    dev = data / "classify.dev.txt"
    told = json.loads(elman("evaluate", out / "best", dev, "--json").out)
    best = next(one for one in found["finalists"] if one["trial"] == found["best"]["trial"])
    assert told["accuracy"] == best["figures"][0]
    run = tmp_path / "run"
    answer = elman("train", "classify", "--config", out / "best.toml", "--out", run, "--quiet")
    assert answer.code == 0, answer.err
    assert validations(run) == validations(out / "best")


@pytest.mark.slow
def test_another_search_does_not_go_there(data, searched):
    answer = elman(*command(data, searched[0], "--seed", 2))
    assert answer.code == 2
    assert "holds a search with other settings" in answer.err
    answer = elman(*command(data, searched[0], "--search", "model.dropout=0..0.5"))
    assert "holds a search with other searched" in answer.err


def test_without_optuna(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    answer = elman(*command(data, tmp_path / "out"))
    assert answer.code == 2
    assert "pip install elman[tune]" in answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--set", "training.minutes=1"), "--minutes is the time of the search"),
        (("--set", "model.network=ngram"), "has nothing to search"),
        (("--search", "model.hidden=24..4"), "the range 24..4 is empty"),
        (("--search", "model.cell=lstm,gruu"), "no cell named 'gruu'"),
    ],
)
def test_what_cannot_be_searched(data, tmp_path, more, problem):
    said = ("--train", data / "classify.train.txt", "--out", tmp_path / "out")
    answer = elman("tune", "classify", *said, *more)
    assert answer.code == 2
    assert problem in answer.err


def study(out, **rest):
    space = {"model.hidden": Numbers(4, 64)}
    return Study(out, space, higher_is_better=True, seed=1, validations=3, **rest)


def over(number, value):
    return Trial(
        number, {"model.hidden": 8 + number}, "complete", dict.fromkeys((1, 2, 3), value), value, 2.0
    )


def write_log(run, figures, *more):
    run.mkdir(exist_ok=True)
    events = [
        {"event": "validation", "update": place, "accuracy": value} for place, value in enumerate(figures, 1)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in (*events, *more)))


def test_a_trial_is_judged_by_what_its_log_says_whenever_that_is(tmp_path):
    known = study(tmp_path)
    for number in range(5):
        known.keep(replace(over(number, 0.9), validations={1: 0.3, 2: 0.8, 3: 0.9}))
    trial = Trial(5, {"model.hidden": 30})
    at_once, little_by_little = (LiveTrial(trial, tmp_path / "run") for _ in range(2))
    figures, end = [0.4, 0.5, 0.6, 0.6], {"event": "end", "update": 4}
    pruned = []
    for count in range(1, 5):
        write_log(tmp_path / "run", figures[:count], *([end] if count == 4 else []))
        pruned.append(little_by_little.look(known, "accuracy"))
    assert pruned == [False, False, True, False]  # once, when training went on after the second validation
    assert at_once.look(known, "accuracy")
    assert at_once.trial == little_by_little.trial == replace(trial, validations={1: 0.4, 2: 0.5})


def test_the_last_validation_of_a_training_is_its_end(tmp_path):
    known = study(tmp_path)
    for number in range(5):
        known.keep(over(number, 0.9))
    live = LiveTrial(Trial(5, {"model.hidden": 30}), tmp_path / "run")
    write_log(tmp_path / "run", [0.1], {"event": "end", "update": 1})
    assert not live.look(known, "accuracy")
    assert live.trial.validations == {1: 0.1}


def test_what_is_kept_comes_back(tmp_path):
    first = study(tmp_path)
    for number in range(12):
        trial = first.next(number, []) if number else over(0, 0.5)
        first.keep(over(number, number / 20))
    again = study(tmp_path)
    assert again.trials == first.trials
    assert again.next(12, []) == first.next(12, [])
    journal = tmp_path / JOURNAL
    journal.write_bytes(journal.read_bytes() + b'{"op_code":4,"half')  # a kill
    assert study(tmp_path).trials == first.trials
    assert trial.values["model.hidden"] in range(4, 65)


def test_a_default_outside_of_the_ranges_is_kept_but_not_learned_from(tmp_path):
    known = study(tmp_path)
    known.keep(Trial(0, {"model.hidden": 128}, "complete", {1: 0.5}, 0.5, 1.0))
    assert study(tmp_path).trials == known.trials
    assert known.next(1, []).values["model.hidden"] in range(4, 65)


def test_minutes_leave_time_for_the_finalists():
    done = [over(number, 0.5) for number in range(4)]  # of two seconds each
    budget = Budget(None, 1.0, seeds=3, at_once=1)
    assert budget.allows(4, done, 60 - 2 - 8 * 2)
    assert not budget.allows(4, done, 60 - 2 - 8 * 2 + 0.1)
    assert Budget(None, 1.0, seeds=1, at_once=1).allows(4, done, 58.0)
    assert Budget(3, None, seeds=3, at_once=1).allows(2, done, math.inf)
    assert not Budget(3, None, seeds=3, at_once=1).allows(3, done, 0.0)


def test_a_process_is_stopped(tmp_path, monkeypatch):
    def sleep(command, *, stdout, stderr, env, **rest):
        return subprocess.Popen(["sleep", "60"])

    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=sleep))
    with processes.Processes(2) as running:
        running.start("one", [], tmp_path / "one.log")
        running.start("two", [], tmp_path / "two.log")
        assert not running.free
        running.stop("one")
        ended = []
        while not ended:
            ended = [*running.ended()]
        assert [one[:2] for one in ended] == [("one", -signal.SIGTERM)]
        assert running.active == ["two"]
