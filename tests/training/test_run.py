"""A run: what it writes, why it stops, and what it does when disks or numbers go wrong."""

import errno
import json
import math
import resource
import shutil
from itertools import pairwise

import pytest
import torch
from runs import SHORT, change_settings, resume, set_back

from elman.config import validate
from elman.storage import files as storage
from elman.tasks.defaults import filled
from elman.tasks.statistics import Statistics
from elman.tensors.threads import all_threads
from elman.training.checkpoint import load_checkpoint, newest_checkpoint
from elman.training.loop import CALM
from elman.training.position import Update
from elman.training.settings import settings_class
from tiny import (
    elman,
    events,
    timeless,
    train_command,
    trainer_of,
)

# Disks and numbers.


def test_a_full_disk_during_a_save_leaves_the_old_checkpoint(run, finished, monkeypatch):
    set_back(run)

    def full(path, content):
        if path.name == "optimizer.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(storage, "write_new", full)
    answer = resume(run)
    assert answer.code == 5
    assert "cannot save the checkpoint: No space left on device" in answer.err
    assert newest_checkpoint(run).state["position"]["update"] == 40
    monkeypatch.undo()
    assert resume(run).code == 0
    assert timeless(run) == timeless(finished)


@pytest.mark.parametrize("room", [300, 2200, 5000])
def test_a_disk_that_takes_no_more_is_an_error_and_the_run_goes_on_later(room, data, finished, tmp_path):
    """No file grows beyond so many bytes: settings, log and checkpoint hit it first."""
    run = tmp_path / "run"
    command = train_command("lm-sentence", data, run, SHORT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        answer = elman(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer.code == 5, answer.err
    assert "File too large" in answer.err.splitlines()[-1]
    answer = elman(*command, "--resume")
    assert answer.code == 0, answer.err
    assert timeless(run) == timeless(finished)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"training.validate_every": 1},
        {"training.save_seconds": 1e-9},
        {"training.optimizer": "adam", "training.momentum": 0.0, "training.validate_every": 1},
        {"training.averaging": "ema", "training.validate_every": 2, "training.save_seconds": 1e-9},
    ],
)
@pytest.mark.parametrize("name", ["lm-sentence", "tag", "classify"])
def test_divergence_has_its_exit_code_and_leaves_finite_checkpoints(name, changes, data, tmp_path):
    wild = {"training.learning_rate": 1e38, "training.clip": 0, "training.optimizer": "sgd"}
    answer = elman(*train_command(name, data, tmp_path / "run", {**SHORT, **wild, **changes}))
    assert answer.code == 4, answer.err
    assert answer.err.splitlines()[-1].startswith("elman: E601: ")
    saved = newest_checkpoint(tmp_path / "run")
    if saved is not None:
        assert all(torch.isfinite(tensor).all() for tensor in saved.model.values())


@pytest.mark.parametrize("optimizer", ["sgd", "incremental"])
def test_advice_against_divergence_is_what_the_optimiser_takes(optimizer, data, tmp_path):
    wild = {"training.learning_rate": 1e38, "training.optimizer": optimizer, "training.averaging": "none"}
    wild |= {"training.clip": 0, "training.batch_size": 1, "training.max_steps": 9}
    answer = elman(*train_command("classify", data, tmp_path / "run", {**SHORT, **wild}))
    assert answer.code == 4, answer.err
    assert "Lower training.learning_rate" in answer.err
    assert ("training.clip" in answer.err.splitlines()[-1]) == (optimizer == "sgd")


# What is written.


def test_the_log_is_as_documented(finished):
    lines = (finished / "metrics.jsonl").read_text().split("\n")
    assert lines.pop() == ""
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    kinds = [event["event"] for event in found]
    assert kinds == ["start", *[*["update"] * 4, "validation"] * 3, "end"]
    assert set(found[0]) == {
        *("event", "update", "task", "parameters", "examples", "tokens"),
        *("dev_examples", "updates", "graphs", "metric", "notes", "time"),
    }
    updates = [event for event in found if event["event"] == "update"]
    assert [event["update"] for event in updates] == list(range(5, 61, 5))
    for event in updates:
        assert set(event) == {
            *("event", "update", "epoch", "loss", "rate", "gradient_norm", "tokens", "time"),
        }
        assert set(event["time"]) == {"seconds", "tokens_per_second", "data_share"}
    for event in found[5::5]:
        assert set(event) == {
            *("event", "update", "epoch", "loss", "unknown", "perplexity", "accuracy", "tokens"),
            *("improved", "samples", "time"),
        }
    seconds = [event["time"]["seconds"] for event in found[1:]]
    assert seconds == sorted(seconds)
    best = min((event for event in found[5::5]), key=lambda event: event["loss"])
    assert found[-1] == {
        "event": "end",
        "update": 60,
        "reason": "max_steps",
        "best_update": best["update"],
        "best": best["loss"],
        "metric": "loss",
        "time": found[-1]["time"],
    }


def test_a_run_folder_holds_what_is_promised(finished):
    names = {path.name for path in finished.iterdir()} - {".lock"}
    assert names == {
        *("config.toml", "vocabulary.json", "data.json", "metrics.jsonl", "report.html", "card.md"),
        *("cache", "checkpoints", "best", "last"),
    }
    assert (finished / "last").readlink().as_posix() == "checkpoints/update-00000060"
    assert not [path for path in finished.rglob("*") if path.suffix in (".pt", ".pkl", ".pickle")]


def test_all_mistakes_of_the_settings_are_reported_at_once(data, tmp_path):
    wrong = {"model.hiden": 3, "training.epochs": 0, "training.optimizer": "adamm", "texts": 1}
    answer = elman(*train_command("classify", data, tmp_path / "run", wrong))
    first, *mistakes = answer.err.splitlines()
    assert answer.code == 2
    assert first == "elman: E501: 4 mistakes"
    assert sorted(line.split()[0].rstrip(":") for line in mistakes) == sorted(wrong)
    assert "did you mean 'hidden'?" in answer.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"training.metric": "f2"}, "training.metric is 'f2'"),
        ({"model.cell": "lstn"}, "did you mean 'lstm'?"),
        ({"training.device": "cuda:99"}, "training.device is 'cuda:99', but torch finds"),
        ({"training.device": "tpu"}, "training.device is 'tpu'; set 'cpu'"),
        ({"training.device": "mps"}, "training.device is 'mps'; set 'cpu'"),
        ({"text.vectors": "missing.txt"}, "missing.txt"),
    ],
)
def test_settings_that_only_the_data_show_to_be_wrong(changes, problem, data, tmp_path):
    answer = elman(*train_command("classify", data, tmp_path / "run", changes))
    assert answer.code in (2, 3), answer.err
    assert problem in answer.err.splitlines()[-1]


@pytest.mark.parametrize(("found", "device"), [(0, "cpu"), (1, "cuda")])
def test_a_run_whose_device_is_gone_says_how_to_go_on(found, device, data, tmp_path, monkeypatch):
    """A continued run takes no --set: its own file has to be changed."""
    run = tmp_path / "run"
    changes = {"training.max_steps": 2, "training.validate_every": 1}
    assert elman(*train_command("lm-sentence", data, run, changes)).code == 0
    shutil.rmtree(run / "checkpoints" / "update-00000002")  # it is not at its end
    change_settings(run, 'device = "cpu"', 'device = "cuda:1"')
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found > 0)
    answer = elman("train", "--out", run, "--resume")
    assert answer.code == 2
    place = "(a run that is continued: in its config.toml, without its first line)"
    assert answer.err.endswith(f"; set training.device = '{device}' {place}\n")


@pytest.mark.parametrize("name", ["lm-sentence", "tag", "seq2seq"])
def test_a_run_that_asked_for_the_kernels_of_a_gpu_is_used_without_one(name, data, tmp_path):
    run = tmp_path / "run"
    changes = {"training.max_steps": 2, "training.validate_every": 1}
    assert elman(*train_command(name, data, run, changes)).code == 0
    expected = elman("predict", run, stdin=b"the dog\n")
    assert expected.code == 0
    change_settings(run, 'backend = "auto"', 'backend = "triton"')
    change_settings(run, 'device = "cpu"', 'device = "cuda"')
    assert elman("predict", run, stdin=b"the dog\n") == expected


# Why training stops, and what it looks at.


def end_of(name, data, folder, changes):
    answer = elman(*train_command(name, data, folder / "run", changes))
    assert answer.code == 0, answer.err
    return events(folder / "run")


def validations(found):
    return [event for event in found if event["event"] == "validation"]


def test_it_stops_after_so_many_epochs(data, tmp_path):
    found = end_of("classify", data, tmp_path, {"training.epochs": 3, "training.log_every": 1})
    assert found[-1]["reason"] == "epochs"
    assert found[-1]["update"] == 3 * math.ceil(60 / 8) == found[0]["updates"]
    assert found[-2]["epoch"] == 3.0


def test_it_stops_after_so_many_updates_in_the_middle_of_an_epoch(data, tmp_path):
    found = end_of("classify", data, tmp_path, {"training.max_steps": 13})
    assert (found[-1]["reason"], found[-1]["update"]) == ("max_steps", 13)
    assert [event["update"] for event in validations(found)] == [13]


def test_it_stops_when_validation_no_longer_improves(data, tmp_path):
    still = {"training.learning_rate": 1e-30, "training.patience": 2, "training.validate_every": 5}
    found = end_of("lm-sentence", data, tmp_path, still)
    assert (found[-1]["reason"], found[-1]["update"], found[-1]["best_update"]) == ("patience", 15, 5)
    assert [event["improved"] for event in validations(found)] == [True, False, False]


def test_patience_lets_the_schedule_come_to_its_end_and_a_kill_changes_nothing(data, tmp_path):
    """After 15 updates the other 385 of the schedule are taken in 15; the rate comes to its end."""
    still = {
        "training.learning_rate": 1e-30,
        "training.schedule": "one-cycle",
        "training.patience": 2,
        "training.cooldown": 1.0,
        "training.validate_every": 5,
        "training.log_every": 1,
    }
    found = end_of("lm-sentence", data, tmp_path, still)
    assert (found[-1]["reason"], found[-1]["update"], found[-1]["best_update"]) == ("patience", 30, 5)
    rates = [event["rate"] * 1e30 for event in found if event["event"] == "update"]
    assert rates[:15] == sorted(rates[:15])
    assert rates[16:] == sorted(rates[16:], reverse=True)
    assert rates[-1] == pytest.approx(0.01)
    run = tmp_path / "run"
    expected = timeless(run)
    set_back(run, 30)
    assert newest_checkpoint(run).state["position"]["turned"] == 15
    assert resume(run).code == 0
    assert timeless(run) == expected


def test_it_stops_when_passes_in_a_row_hardly_change_the_objective(data):
    """|F_{k-1} − F_k| ≤ tolerance · |F_{k-1}| for CALM passes in a row, F_k the summed loss of pass k."""
    changes = {"training.max_steps": 1000, "training.epochs": 400, "training.learning_rate": 0.03}
    changes |= {"training.schedule": "constant", "model.dropout": 0.0}
    tolerance = 0.02
    stopped = trainer_of("class2seq", data, changes | {"training.tolerance": tolerance})
    updates = [event for event in stopped.run() if isinstance(event, Update)]  # one batch a pass
    objectives = [event.loss * event.numbers.count for event in updates]
    calm = [abs(last - now) <= tolerance * abs(last) for last, now in pairwise(objectives)]
    assert stopped.position.finished == "converged"
    assert stopped.position.epoch == len(objectives) < 400
    assert all(calm[-CALM:])
    assert not any(all(calm[end - CALM : end]) for end in range(CALM, len(calm)))


@pytest.mark.parametrize("metric", ["loss", "accuracy", "macro_f1"])
@pytest.mark.slow
def test_the_best_is_by_the_chosen_metric(metric, data, tmp_path):
    found = end_of(
        "classify",
        data,
        tmp_path,
        {"training.metric": metric, "training.max_steps": 120, "training.validate_every": 10},
    )
    sign = -1 if metric == "loss" else 1
    best = max(validations(found), key=lambda event: (sign * event[metric], -event["loss"]))
    assert (found[-1]["metric"], found[-1]["best"]) == (metric, best[metric])
    assert found[-1]["best_update"] == best["update"]
    assert load_checkpoint(tmp_path / "run" / "best").state["position"]["update"] == best["update"]


def test_the_best_checkpoint_holds_the_averaged_weights(data, tmp_path):
    run = tmp_path / "run"
    found = end_of(
        "classify", data, tmp_path, SHORT | {"training.optimizer": "adamw", "training.averaging": "ema"}
    )
    saved = load_checkpoint(run / "best")
    assert any(
        not torch.equal(saved.model[name[8:]], one)
        for name, one in saved.extra.items()
        if name.startswith("weights.")
    )
    answer = elman("evaluate", run, data / "classify.dev.txt", "--json")
    best = next(event for event in validations(found) if event["update"] == found[-1]["best_update"])
    assert json.loads(answer.out)["loss"] == pytest.approx(best["loss"], rel=1e-6)


@pytest.mark.slow
def test_a_plateau_cuts_the_rate(data):
    changes = {"training.learning_rate": 2.0, "training.decay": 0.25, "training.validate_every": 4}
    trainer = trainer_of("lm-sentence", data, changes | {"training.max_steps": 200, "training.momentum": 0.0})
    best, cuts = math.inf, 0
    for event in trainer.run():
        if isinstance(event, Update):
            assert event.rate == 2.0 * 0.25**cuts
        elif event.measures["loss"] < best:
            best = event.measures["loss"]
        else:
            cuts += 1
    assert cuts >= 1


def test_validation_changes_neither_weights_nor_random_numbers(data):
    losses = []
    for every in (1, 12):
        changes = {
            "training.max_steps": 12,
            "training.validate_every": every,
            "training.schedule": "constant",
        }
        trainer = trainer_of("lm-sentence", data, changes)
        losses.append([event.loss for event in trainer.run() if isinstance(event, Update)])
    assert losses[0] == losses[1]


def test_example_by_example_needs_one_thread():
    for batch, given, expected in ((1, None, 1), (1, 2, 2), (8, 3, 3), (8, None, all_threads())):
        training = {"batch_size": batch, "threads": given}
        config = validate(settings_class("lm"), {"task": "lm", "training": training})
        assert filled(config, {}, Statistics()).training.threads == expected


def test_a_tail_begins_where_validation_stops_improving(data):
    changes = {"training.averaging": "tail", "training.learning_rate": 1.0, "training.validate_every": 2}
    trainer = trainer_of("lm-sentence", data, {**SHORT, **changes})
    waited = False
    for _ in trainer.run():
        waited = waited or trainer.position.waited > 0
        assert trainer.averaging.started == waited
    assert waited  # the rate is far too high: some validation was no improvement
    assert trainer.averaging.count > 0
