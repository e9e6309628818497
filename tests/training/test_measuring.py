"""Measuring a training changes nothing of it; and minutes become updates, once."""

import itertools
import json
import signal
import subprocess

import pytest
import torch

from elman import fit
from elman.config import parse_settings, read_toml, validate
from elman.errors import ConfigError
from elman.training import measuring
from elman.training.budget import Speed
from elman.training.building import build
from elman.training.measuring import keep_within, measure, measured_shortly
from elman.training.preparing import prepare
from elman.training.settings import make_task, settings_class
from tiny import COMMAND, RUNS, elman, events, figures, timeless, train_command, write_data

BUDGET = ("training.epochs", "training.max_steps", "training.validate_every")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def prepared_run(name, data, changes=None, without=()):
    """What one of ``RUNS`` prepares, without some of its settings."""
    command = train_command(name, data, "unused", changes)
    pairs = [command[i + 1] for i, part in enumerate(command) if part == "--set"]
    pairs = [pair for pair in pairs if pair.split("=")[0] not in without]
    files = {"train": command[command.index("--train") + 1], "dev": command[command.index("--dev") + 1]}
    tables = parse_settings(pairs) | {"task": command[1], "data": files}
    return prepare(make_task(validate(settings_class(command[1]), tables)))


class FakeClock:
    """Every look at it takes so many seconds."""

    def __init__(self, step):
        self.ticks = itertools.count(step=step)

    def __call__(self):
        return next(self.ticks)


@pytest.mark.parametrize("name", RUNS)
def test_measuring_changes_nothing(name, data):
    """Weights, random numbers, and what the first updates and a validation come to, bit for bit."""

    def begun(measured):
        prepared = prepared_run(name, data, {"training.validate_every": 3})
        torch.manual_seed(5)
        if measured:
            state = torch.get_rng_state()
            config = prepared.task.config
            speed = measure(prepared, 0.05)
            assert speed.update > 0
            assert speed.validation > 0
            assert torch.equal(torch.get_rng_state(), state)
            assert prepared.task.config is config
        trainer = build(prepared)
        weights = {key: one.clone() for key, one in trainer.model.state_dict().items()}
        state = torch.get_rng_state()
        happened = [figures(event) for event in itertools.islice(trainer.run(), 5)]
        return weights, state, happened, torch.get_rng_state()

    plain, measured = begun(False), begun(True)
    assert plain[0].keys() == measured[0].keys()
    assert all(torch.equal(one, measured[0][key]) for key, one in plain[0].items())
    assert torch.equal(plain[1], measured[1])
    assert plain[2] == measured[2]
    assert torch.equal(plain[3], measured[3])


def test_what_is_short_is_not_measured(data):
    assert measured_shortly(prepared_run("tag", data, {"training.max_steps": 100})).update == 0.0
    assert measured_shortly(prepared_run("tag", data)).update > 0.0


def in_minutes(data, minutes, step, name="tag", without=BUDGET, **changes):
    changes = {"training.minutes": minutes, "training.save_seconds": 60.0, **changes}
    prepared = prepared_run(name, data, changes, without)
    keep_within(prepared, 0.0, FakeClock(step))
    return prepared


def test_minutes_become_updates_with_a_reason(data):
    prepared = in_minutes(data, 1.0, 0.1)  # an update takes a tenth of a second, and so does a look
    training = prepared.task.config.training
    assert 100 < training.max_steps < 600
    assert training.epochs is None
    assert training.validate_every < training.max_steps
    assert "as many as fit into 1 minute: " in prepared.statistics.reasons["training.max_steps"]
    assert prepared.speed.total == training.max_steps == prepared.chosen["training.max_steps"]
    assert prepared.speed.seconds < 60
    assert training.patience == max(5, prepared.speed.validations // 2)
    before = prepared.task.config
    keep_within(prepared, 0.0, FakeClock(1.0))  # as when a run begins again
    assert prepared.task.config is before


def test_more_minutes_than_enough_are_left(data):
    prepared = in_minutes(data, 1000.0, 0.01)
    usual = prepared_run("tag", data, without=BUDGET)
    trainer = build(usual)
    assert prepared.task.config.training.max_steps == 3 * trainer.total
    assert "3 times as many as usual" in prepared.statistics.reasons["training.max_steps"]


def test_epochs_of_the_user_are_a_limit(data):
    limited = {"training.epochs": 5}
    prepared = in_minutes(data, 1000.0, 0.01, without=BUDGET[1:], **limited)
    assert prepared.task.config.training.epochs == 5
    assert build(prepared).total == 40  # 60 examples in batches of 8
    prepared = in_minutes(data, 1.0, 4.0, without=BUDGET[1:], **limited)
    assert build(prepared).total < 40


def test_few_minutes_take_a_narrower_network(data, monkeypatch):
    """Half as wide is three times as fast here; the user's widths stay, and so do those that gain nothing."""
    widths = ("model.hidden", "model.embedding")

    def measured(prepared, seconds, clock):
        model = prepared.task.config.model
        return Speed(30 * (model.hidden / 200) ** 1.6, 1.0, 0.0, 1000, 300)

    monkeypatch.setattr(measuring, "measure", measured)
    prepared = in_minutes(data, 60.0, 0.0, without=(*BUDGET, *widths))
    assert prepared.task.config.model.hidden == 100
    assert prepared.statistics.reasons["model.hidden"] == "since 60 minutes are too few for the usual 200"
    assert in_minutes(data, 60.0, 0.0).task.config.model.hidden == 12
    assert in_minutes(data, 200.0, 0.0, without=(*BUDGET, *widths)).task.config.model.hidden == 200
    slow = Speed(30.0, 1.0, 0.0, 1000, 300)
    monkeypatch.setattr(measuring, "measure", lambda *arguments: slow)
    prepared = in_minutes(data, 60.0, 0.0, without=(*BUDGET, *widths))
    assert (prepared.task.config.model.hidden, prepared.task.config.model.embedding) == (200, 100)
    assert "model.hidden" not in prepared.statistics.reasons


def test_a_counted_model_needs_no_budget(data):
    prepared = prepared_run(
        "lm-stream", data, {"training.minutes": 1.0, "model.network": "ngram"}, (*BUDGET, *SHAPING)
    )
    keep_within(prepared, 0.0)
    assert prepared.task.config.training.max_steps is None


SHAPING = ("model.hidden", "model.embedding", "model.dropout", "model.zoneout", "model.input_dropout")


def begin_with_minutes(data, run, minutes):
    command = train_command("classify", data, run, {"training.save_seconds": 0.05})
    pairs = [(a, b) for a, b in itertools.pairwise(command) if a == "--set"]
    kept = [part for pair in pairs if pair[1].split("=")[0] not in BUDGET for part in pair]
    return [*command[: command.index("--set")], *kept, "--minutes", str(minutes)]


@pytest.mark.slow
def test_a_run_with_minutes_that_is_killed_is_the_undisturbed_one(data, tmp_path):
    """Its settings say all, so that the same ones without the minutes give the same run, in one go."""
    run = tmp_path / "killed"
    process = subprocess.Popen([*COMMAND, *begin_with_minutes(data, run, 0.2)], stderr=subprocess.PIPE)
    for line in process.stderr:
        if line.startswith(b"epoch"):
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    decided = (run / "config.toml").read_text()
    assert not any(event["event"] == "end" for event in events(run))
    answer = elman("train", "--out", run, "--resume")
    assert answer.code == 0, answer.err
    assert "time: " not in answer.err  # it is not measured again
    assert "as many as " in answer.err or "3 times as many" in answer.err
    assert (run / "config.toml").read_text() == decided
    settings = tmp_path / "settings.toml"
    settings.write_text("".join(line for line in decided.splitlines(True) if "minutes" not in line))
    answer = elman("train", "--config", settings, "--out", tmp_path / "whole")
    assert answer.code == 0, answer.err
    found, expected = timeless(run), timeless(tmp_path / "whole")
    for one in (found, expected):
        del one["config.toml"], one["data.json"]
        for pointer in ("last", "best"):
            for key in ("settings", "files"):
                del one[pointer]["state"][key]
    assert found == expected


def test_minutes_end_in_time_from_python():
    texts, labels = ["good film", "bad film", "a good day", "a bad day"] * 5, ["pos", "neg"] * 10
    model = fit("classify", texts, labels, minutes=0.05)
    assert model.predict(["a good film"]) == ["pos"]


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_minutes_that_are_none_are_refused(minutes, data, tmp_path):
    command = begin_with_minutes(data, tmp_path / "run", minutes)
    answer = elman(*command)
    assert answer.code == 2
    assert "training.minutes is " in answer.err
    assert not (tmp_path / "run").exists()


def test_minutes_and_updates_are_not_both_said(data, tmp_path):
    command = begin_with_minutes(data, tmp_path / "run", 1)
    answer = elman(*command, "--set", "training.max_steps=50")
    assert answer.code == 2
    assert (
        "training.minutes is 1, which chooses the number of updates, and training.max_steps is 50"
        in answer.err
    )
    with pytest.raises(ConfigError, match="give one of them"):
        fit("lm", ["a b"] * 9, minutes=1, settings={"training.max_steps": 3})


def test_a_continued_run_keeps_its_minutes(data, tmp_path):
    run = tmp_path / "run"
    assert elman(*begin_with_minutes(data, run, 0.02)).code == 0
    kept = read_toml(run / "config.toml")["training"]
    assert kept["minutes"] == 0.02
    assert kept["max_steps"] >= 1
    reasons = json.loads((run / "data.json").read_text())["reasons"]
    assert reasons.keys() >= {"training.max_steps", "training.validate_every"}
    assert elman(*begin_with_minutes(data, run, 0.02), "--resume").code == 0
    answer = elman(*begin_with_minutes(data, run, 3), "--resume")
    assert answer.code == 2
    assert "training.minutes is 3.0, the run has 0.02" in answer.err
    answer = elman("train", "--out", run, "--resume", "--minutes", "3")
    assert answer.code == 2
    assert "a continued run keeps its settings" in answer.err
