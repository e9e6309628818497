"""A run: what it writes, why it stops, and what it does when disks, files, data or numbers go wrong."""

import copy
import errno
import fcntl
import json
import math
import resource
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice, pairwise

import pytest
import torch

from elman.cli import train as train_module
from elman.config import parse_settings, validate
from elman.errors import ConfigError, RunError, RunExistsError
from elman.tasks.class2seq import Class2Seq
from elman.training import checkpoint as checkpoint_module
from elman.training import run as run_module
from elman.training import session as session_module
from elman.training.checkpoint import load_checkpoint, newest_checkpoint
from elman.training.loop import CALM, Update
from elman.training.run import build, make_task, prepare, settings_class
from tiny import (
    RUNS,
    SMALL,
    elman,
    events,
    figures,
    timeless,
    train_command,
    trainer_of,
    write,
    write_data,
)

SHORT = {
    "training.max_steps": 60,
    "training.validate_every": 20,
    "training.log_every": 5,
    "training.save_seconds": 1000.0,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """A run that has come to its end, with checkpoints at updates 40 and 60 (and the best)."""
    run = tmp_path_factory.mktemp("finished") / "run"
    answer = elman(*train_command("lm-sentence", data, run, SHORT))
    assert answer.code == 0, answer.err
    return run


@pytest.fixture
def run(finished, tmp_path):
    """A copy to be treated badly."""
    return shutil.copytree(finished, tmp_path / "run", symlinks=True)


def resume(run):
    return elman("train", "--out", run, "--resume")


def checkpoints(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def set_back(run):
    """As if a kill had come after update 40."""
    shutil.rmtree(run / "checkpoints" / "update-00000060")


def damage(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


# A run goes on.


@pytest.mark.parametrize("name", RUNS)
def test_after_every_event_a_copy_goes_on_alike(name, data):
    """Snapshot, JSON and back, another process's trainer: its next events are those of the first."""
    changes = {"training.max_steps": 23, "training.validate_every": 5}
    trainer, other = trainer_of(name, data, changes), trainer_of(name, data, changes)
    snapshots, seen = [], []
    for event in trainer.run():
        snapshots.append(copy.deepcopy(trainer.snapshot()))
        seen.append(figures(event))
    assert len(seen) == 23 + 5
    for place, saved in enumerate(snapshots):
        state = json.loads(json.dumps(saved["state"], allow_nan=False))
        other.restore(saved["model"], saved["optimizer"], saved["extra"], state)
        following = [figures(event) for event in islice(other.run(), 2)]
        assert following == seen[place + 1 : place + 3], f"after event {place}"


def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_it_used(run, finished):
    damage(run / "checkpoints" / "update-00000060")
    answer = resume(run)
    assert answer.code == 0, answer.err
    assert "update-00000060/model.safetensors is damaged" in answer.err
    assert "continuing after update 40" in answer.err
    assert timeless(run) == timeless(finished)


def test_all_damaged_is_an_error_and_nothing_begins_anew(run):
    for folder in (run / "checkpoints").iterdir():
        damage(folder)
    before = (run / "metrics.jsonl").read_bytes()
    answer = resume(run)
    assert answer.code == 5
    assert "none of the" in answer.err.splitlines()[-1]
    assert (run / "metrics.jsonl").read_bytes() == before


def test_an_existing_run_is_refused_without_resume(run, data):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    answer = elman(*train_command("lm-sentence", data, run))
    assert (answer.code, answer.out) == (2, "")
    assert (
        answer.err
        == f"elman: E702: {run} is there already; continue it with --resume, or name another folder\n"
    )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_resuming_a_finished_run_says_so_and_changes_nothing(run):
    resume(run)  # the report of this copy names its own folder
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    answer = resume(run)
    assert answer.code == 0
    assert "has ended already at update 60 (max_steps); nothing is changed" in answer.err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_resuming_nothing_says_how_to_start(tmp_path):
    answer = elman("train", "--out", tmp_path / "nothing", "--resume")
    assert answer.code == 2
    assert "holds nothing to resume; start it with a task and --train" in answer.err
    assert not (tmp_path / "nothing").exists()


def test_a_kill_before_there_is_a_run_does_not_block_the_folder(data, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / ".config.toml.tmp").write_text("task = ")
    answer = elman(*train_command("lm-sentence", data, run, SHORT), "--resume")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("pointer", ["last", "best"])
def test_a_kill_before_a_link_was_set_is_made_good(run, finished, pointer, monkeypatch):
    set_back(run)
    expected = timeless(finished)
    assert expected[pointer]["update"] == "update-00000060"

    def killed(folder, name, target):
        if name == pointer:
            raise KeyboardInterrupt
        checkpoint_module.point(folder, name, target)

    monkeypatch.setattr(run_module, "mend_link", lambda *arguments: None)  # resuming sets the links first
    monkeypatch.setattr(session_module, "point", killed)
    assert resume(run).code == 130
    assert checkpoints(run)[-1] == "update-00000060"
    monkeypatch.undo()
    assert resume(run).code == 0
    assert timeless(run) == expected


def test_a_second_save_at_one_update_keeps_the_checkpoint_before(data, tmp_path):
    trainer = trainer_of("lm-sentence", data, SHORT)
    (tmp_path / "metrics.jsonl").touch()
    with session_module.Session(tmp_path, trainer, [], None) as session:
        for event in islice(trainer.run(), 3):
            assert isinstance(event, Update)
            session.save()
            session.save()
    assert checkpoints(tmp_path) == ["update-00000002", "update-00000003"]


def test_a_closing_line_of_which_the_disk_took_a_part_is_written_again(run, finished):
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-40])
    answer = resume(run)
    assert answer.code == 0, answer.err
    assert timeless(run) == timeless(finished)


def test_a_kill_between_a_checkpoint_and_its_replacement_is_made_good(run, finished):
    """The last save of a run that has ended, so that no further one puts it right."""
    log, newest = run / "metrics.jsonl", run / "checkpoints" / "update-00000060"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    newest.rename(newest.with_name("update-00000060.old"))
    assert resume(run).code == 0
    assert checkpoints(run) == checkpoints(finished)
    assert elman("predict", run, stdin=b"the dog\n").code == 0
    assert timeless(run) == timeless(finished)


def test_a_copy_without_links_gets_them_back(data, tmp_path):
    run = tmp_path / "run"
    still = {"training.learning_rate": 1e-30, "training.patience": 2, "training.validate_every": 5}
    assert elman(*train_command("lm-sentence", data, run, still)).code == 0
    expected = timeless(run)
    assert (expected["best"]["update"], expected["last"]["update"]) == ("update-00000005", "update-00000015")
    for pointer in ("best", "last"):
        (run / pointer).unlink()
    assert resume(run).code == 0
    assert timeless(run) == expected


def test_a_copy_with_folders_in_place_of_links_goes_on(finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run", symlinks=False)
    set_back(run)
    answer = resume(run)
    assert answer.code == 0, answer.err
    assert (run / "last").is_symlink()
    assert (run / "best").is_symlink()
    assert timeless(run) == timeless(finished)
    assert not [path for path in run.iterdir() if ".tmp-" in path.name]


def test_a_copy_that_is_better_than_its_checkpoint_stays(finished, tmp_path):
    """Links that were copied as folders may be the only good copy."""
    run = shutil.copytree(finished, tmp_path / "run", symlinks=False)
    name = (finished / "best").readlink()
    (run / name / "model.safetensors").write_bytes(b"damaged")
    expected = elman("predict", finished, stdin=b"the dog\n")
    for _ in range(2):
        assert elman("predict", run, stdin=b"the dog\n") == expected
        resume(run)


def test_a_reader_that_goes_away_ends_training_and_takes_nothing_with_it(data, tmp_path, monkeypatch):
    run = tmp_path / "run"

    def gone(*given):
        raise BrokenPipeError

    monkeypatch.setattr(train_module.Progress, "__call__", gone)
    with pytest.raises(BrokenPipeError):
        elman(*train_command("lm-sentence", data, run))
    assert (run / "config.toml").is_file()
    monkeypatch.undo()
    assert resume(run).code == 0


def test_observers_are_told_where_a_run_goes_on(run):
    set_back(run)
    told = []
    run_module.train_run(run, [told.append], lambda line: None, lambda prepared, trainer: None)
    assert told[0]["event"] == "start"
    assert (told[0]["resumed_at"], told[0]["updates"]) == (40, 60)
    assert [event["event"] for event in events(run)].count("start") == 1


def test_two_processes_in_one_run_are_refused(run):
    set_back(run)
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = resume(run)
    assert answer.code == 2
    assert f"another process is training {run}" in answer.err
    assert resume(run).code == 0


def test_a_lock_that_cannot_be_taken_is_an_error(run):
    (run / ".lock").unlink()
    (run / ".lock").mkdir()
    answer = resume(run)
    assert answer.code == 5
    assert f"{run / '.lock'} cannot be written" in answer.err


def settings_for(data):
    files = {part: str(data / f"lm.{part}.txt") for part in ("train", "dev")}
    return validate(settings_class("lm"), {"task": "lm", "data": files})


def test_of_two_that_begin_at_once_one_does(data, tmp_path):
    config = settings_for(data)

    def begin(run):
        try:
            run_module.begin(run, config)
        except RunExistsError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        for place in range(20):
            assert sorted(pool.map(begin, [tmp_path / str(place)] * 2)) == [False, True]
            assert run_module.read_config(tmp_path / str(place)) == config


def test_a_start_that_another_process_continues_is_left_to_it(data, tmp_path, monkeypatch):
    run = tmp_path / "run"
    with ExitStack() as held:

        def begin(folder, config):
            run_module.begin(folder, config)
            held.enter_context(session_module.alone(folder))

        monkeypatch.setattr(train_module, "begin", begin)
        answer = elman(*train_command("lm-sentence", data, run, SHORT))
    assert answer.code == 2
    assert f"another process is training {run}" in answer.err
    assert resume(run).code == 0


def test_a_start_that_fails_empties_a_folder_that_was_there_before(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    bad = write(tmp_path / "bad.tsv", "a\tb\nc\td\te\n")
    assert elman("train", "classify", "--train", bad, "--out", run).code == 3
    assert list(run.iterdir()) == []


def test_a_name_that_is_not_utf8_is_an_error(tmp_path):
    path = write(tmp_path / "caf\udce9.tsv", "a\tb\nc\td\n")
    answer = elman("train", "classify", "--train", path, "--out", tmp_path / "run")
    assert answer.code == 2
    assert "is not UTF-8, as settings are; give the file another name" in answer.err
    assert not (tmp_path / "run").exists()


# Data and cache.


def test_a_lost_cache_is_made_again(run, finished):
    set_back(run)
    shutil.rmtree(run / "cache")
    assert resume(run).code == 0
    assert timeless(run) == timeless(finished)


@pytest.mark.parametrize("file", ["token.values", "meta.json"])
def test_a_damaged_cache_is_made_again(run, finished, file):
    set_back(run)
    with (run / "cache" / "train" / file).open("r+b") as handle:
        handle.truncate(10)
    assert resume(run).code == 0
    assert timeless(run) == timeless(finished)


def test_data_that_changed_is_an_error(tmp_path):
    folder, run = write_data(tmp_path), tmp_path / "run"
    assert elman(*train_command("lm-sentence", folder, run, SHORT)).code == 0
    set_back(run)
    shutil.rmtree(run / "cache")
    write(folder / "lm.train.txt", (folder / "lm.train.txt").read_text() + "one more line\n")
    answer = resume(run)
    assert answer.code == 5
    assert f"{folder / 'lm.train.txt'} has changed since the run began" in answer.err


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.toml", "task = 3\n"),
        ("config.toml", "task = "),
        ("vocabulary.json", "{}"),
        ("vocabulary.json", "{"),
        ("vocabulary.json", None),
        ("data.json", "[]"),
        ("data.json", "{}"),
        ("data.json", None),
        ("metrics.jsonl", ""),
        ("metrics.jsonl", None),
    ],
)
def test_a_damaged_file_of_a_run_is_named(run, file, content):
    set_back(run)
    if content is None:
        (run / file).unlink()
    else:
        write(run / file, content)
    answer = resume(run)
    assert answer.code == 5, answer.err
    assert file in answer.err.splitlines()[-1]


# Disks and numbers.


def test_a_full_disk_during_a_save_leaves_the_old_checkpoint(run, finished, monkeypatch):
    set_back(run)

    def full(path, content):
        if path.name == "optimizer.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(checkpoint_module, "_write", full)
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
        {"training.optimizer": "adam", "training.validate_every": 1},
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


# What is written.


def test_the_log_is_as_documented(finished):
    lines = (finished / "metrics.jsonl").read_text().split("\n")
    assert lines.pop() == ""
    found = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    kinds = [event["event"] for event in found]
    assert kinds == ["start", *[*["update"] * 4, "validation"] * 3, "end"]
    assert set(found[0]) == {
        *("event", "update", "task", "parameters", "examples", "tokens"),
        *("dev_examples", "updates", "metric", "notes", "time"),
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
    assert sorted(line.split()[0] for line in mistakes) == sorted(wrong)
    assert "did you mean 'hidden'?" in answer.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"training.metric": "f2"}, "training.metric is 'f2'"),
        ({"model.cell": "lstn"}, "did you mean 'lstm'?"),
        ({"training.device": "cuda:99"}, "training.device is 'cuda:99', but torch finds"),
        ({"training.device": "tpu"}, "training.device is 'tpu'; set 'cpu' or 'cuda'"),
        ({"training.device": "mps"}, "training.device is 'mps'; set 'cpu' or 'cuda'"),
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
    config = run / "config.toml"
    config.write_text(config.read_text().replace('device = "cpu"', 'device = "cuda:1"'))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found > 0)
    answer = elman("train", "--out", run, "--resume")
    assert answer.code == 2
    remedy = f"; set training.device = '{device}' (a run that is continued: in its config.toml)"
    assert answer.err.endswith(f"{remedy}\n")


@pytest.mark.parametrize("name", ["lm-sentence", "tag", "seq2seq"])
def test_a_run_that_asked_for_the_kernels_of_a_gpu_is_used_without_one(name, data, tmp_path):
    run = tmp_path / "run"
    changes = {"training.max_steps": 2, "training.validate_every": 1}
    assert elman(*train_command(name, data, run, changes)).code == 0
    expected = elman("predict", run, stdin=b"the dog\n")
    assert expected.code == 0
    config = run / "config.toml"
    text = config.read_text().replace('backend = "auto"', 'backend = "triton"')
    config.write_text(text.replace('device = "cpu"', 'device = "cuda"'))
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


def test_it_stops_when_passes_in_a_row_hardly_change_the_objective(data):
    """|F_{k-1} − F_k| ≤ tolerance · |F_{k-1}| for CALM passes in a row, F_k the summed loss of pass k."""
    changes = {"training.max_steps": 1000, "training.epochs": 400, "training.learning_rate": 0.03}
    changes |= {"training.schedule": "constant", "model.dropout": 0.0}
    tolerance = 0.02
    stopped = trainer_of("class2seq", data, changes | {"training.tolerance": tolerance})
    updates = [event for event in stopped.run() if isinstance(event, Update)]  # one batch a pass
    objectives = [event.loss * event.count for event in updates]
    calm = [abs(last - now) <= tolerance * abs(last) for last, now in pairwise(objectives)]
    assert stopped.position.finished == "converged"
    assert stopped.position.epoch == len(objectives) < 400
    assert all(calm[-CALM:])
    assert not any(all(calm[end - CALM : end]) for end in range(CALM, len(calm)))


@pytest.mark.parametrize("metric", ["loss", "accuracy", "macro_f1"])
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


def test_a_plateau_cuts_the_rate(data):
    changes = {"training.learning_rate": 2.0, "training.decay": 0.25, "training.validate_every": 4}
    trainer = trainer_of("lm-sentence", data, changes | {"training.max_steps": 200, "training.momentum": 0.0})
    best, cuts = math.inf, 0
    for event in trainer.run():
        if isinstance(event, Update):
            assert event.rate == 2.0 * 0.25**cuts
        elif event.figures["loss"] < best:
            best = event.figures["loss"]
        else:
            cuts += 1
    assert cuts >= 1


# The arithmetic of one update.

PLAIN = {
    "training.optimizer": "incremental",
    "training.averaging": "none",
    "training.batch_size": 1,
    "training.learning_rate": 0.1,
    "training.class_weights": None,
    "training.momentum": 0.0,
    "training.schedule": "constant",
    "training.batch_tokens": None,
    "model.dropout": 0.0,
    "model.input_dropout": 0.0,
    "model.token_dropout": 0.0,
    "model.rare_dropout": 0.0,
    "model.initial_state": "zero",
    "model.backend": "loop",
}


def plain_trainer(name, data, changes=None, dtype=torch.float64):
    """No dropout, no averaging, no clipping: the bare update rule."""
    settings = {**PLAIN, **(changes or {})}
    command = {
        key: value for key, value in {**SMALL, **RUNS[name][1], **settings}.items() if value is not None
    }
    tables = parse_settings([f"{key}={value}" for key, value in command.items() if key != "text.vectors"])
    task_name = RUNS[name][0]
    files = {part: str(data / f"{task_name}.{part}.txt") for part in ("train", "dev")}
    task = make_task(validate(settings_class(task_name), tables | {"task": task_name, "data": files}))
    prepared = prepare(task)
    trainer = build(task, prepared.train, prepared.dev)
    trainer.model.to(dtype)
    return trainer


def weights_of(trainer):
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def outputs_of(trainer, batch):
    """Logits (N, V) and targets (N,) of a batch."""
    model = trainer.model
    match trainer.task.name:
        case "classify":
            words, labels = batch
            return model(words), labels
        case "lm":
            inputs, targets, lengths = batch
            assert len(inputs) == 1  # nothing is padded
            return model.logits(model(inputs, lengths)[0])[0], targets[0]
        case "class2seq":
            x, previous, tokens, lengths = batch
            return model(x.to(model.output.weight.dtype), previous, lengths)[0], tokens[0]


def loss_by_hand(logits, targets, *, kind="cross-entropy", smoothing=0.0):
    """Σ_t l(δ(t)) written out: −Σ_v q_v log y_v, or ½‖y − q‖²."""
    V = logits.shape[1]
    y = logits.exp() / logits.exp().sum(1, keepdim=True)
    q = torch.full_like(y, smoothing / V)
    q[torch.arange(len(targets)), targets] += 1 - smoothing
    return -(q * y.log()).sum() if kind == "cross-entropy" else ((y - q) ** 2).sum() / 2


@pytest.fixture
def vectors_like_weights(monkeypatch):
    """Class vectors of the type of the weights, for float64."""
    plain = Class2Seq._vectors
    monkeypatch.setattr(Class2Seq, "_vectors", lambda task, keys: plain(task, keys).double())


@pytest.mark.usefixtures("vectors_like_weights")
@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
@pytest.mark.parametrize("regulariser", ["none", "l1", "l2"])
@pytest.mark.parametrize("name", ["class2seq", "classify", "lm-sentence"])
def test_incremental_descent_is_the_loop_of_the_lectures_G2(name, regulariser, loss, data):
    """One example, ℓ = Σ_t l(δ(t)) + (λ/n) R(w), W ← W − η ∇ℓ; and again."""
    strength, eta = 0.7, 0.1
    changes = {
        "training.loss": loss,
        "training.regulariser": regulariser,
        "training.regularisation": strength,
    }
    trainer, other = (plain_trainer(name, data, changes) for _ in range(2))
    task, n = trainer.task, len(trainer.examples)
    weights = list(other.model.parameters())
    plan = task.plan(trainer.examples, 0)
    assert sorted(int(key[0]) for key in plan) == list(range(n))
    for key, event in zip(plan, trainer.run(), strict=False):
        value = loss_by_hand(*outputs_of(other, task.collate(other.examples, key)), kind=loss)
        assert event.loss * event.count == pytest.approx(float(value.detach()), rel=1e-12)
        if regulariser != "none":
            R = sum(w.abs().sum() if regulariser == "l1" else (w**2).sum() / 2 for w in weights)
            value = value + strength / n * R
        gradients = torch.autograd.grad(value, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= eta * gradient
        if trainer.position.update == 4:
            break
    for (weight_name, found), expected in zip(trainer.model.named_parameters(), weights, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13, msg=weight_name)


@pytest.mark.parametrize("name", RUNS)
def test_a_pass_carries_the_regulariser_once(name, tmp_path):
    """Each example the n-th part; a stream knows no lines, and its examples are the segments of its rows."""
    data = write_data(tmp_path)
    write(data / "lm.train.txt", " ".join((data / "lm.train.txt").read_text().split()) + "\n")
    trainer = trainer_of(name, data)
    task, plan = trainer.task, trainer.task.plan(trainer.examples, 0)
    batches = (task.collate(trainer.examples, key) for key in plan)
    assert sum(task.loss(trainer.model, batch).examples for batch in batches) == trainer.n


@pytest.mark.parametrize("name", ["class2seq", "classify", "lm-sentence", "tag"])
def test_incremental_descent_in_single_precision_is_exact_G2(name, data):
    """The same gradients, subtracted by hand: every bit of the weights after three examples."""
    trainer, other = (plain_trainer(name, data, dtype=torch.float32) for _ in range(2))
    task = trainer.task
    weights = list(other.model.parameters())
    for key in task.plan(trainer.examples, 0)[:3]:
        gradients = torch.autograd.grad(
            task.loss(other.model, task.collate(other.examples, key)).total, weights
        )
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(gradient, alpha=0.1)
    assert len(list(islice(trainer.run(), 3))) == trainer.position.update == 3
    for found, expected in zip(trainer.model.parameters(), weights, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"training.batch_size": 4},
        {"training.batch_tokens": 50},
        {"training.accumulate": 2},
        {"training.clip": 1.0},
        {"training.schedule": "cosine"},
        {"training.averaging": "ema"},
        {"training.reduction": "mean"},
    ],
)
def test_incremental_descent_refuses_what_would_change_it_G2(wrong, data):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        plain_trainer("classify", data, wrong)


def test_incremental_descent_is_the_default_of_the_worked_example_G2(tmp_path):
    answer = elman("train", "class2seq", "--train", "builtin:worked_example", "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    last = events(tmp_path / "run")[-1]
    assert (last["best"], last["metric"]) == (1.0, "exact_match")
    settings = (tmp_path / "run" / "config.toml").read_text()
    for line in (
        *('optimizer = "incremental"', "batch_size = 1", "accumulate = 1", 'schedule = "constant"'),
        *("clip = 0.0", 'reduction = "sum"', 'averaging = "none"', 'cell = "elman"'),
    ):
        assert f"\n{line}\n" in settings


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", ["lm-sentence", "tag", "classify"])
def test_accumulated_batches_are_one_big_batch(name, reduction, data):
    """Gradients of batches of unequal size and length, against those of all their examples at once."""
    settings = {
        "training.optimizer": "sgd",
        "training.batch_size": 8,
        "training.reduction": reduction,
        "training.clip": 0.0,
    }
    parts = [[3, 14, 15], [9, 26, 5, 35], [8]]
    accumulated = plain_trainer(name, data, settings | {"training.accumulate": 3})
    whole = plain_trainer(name, data, settings)
    start = weights_of(whole)
    first = accumulated._update([*parts, [0]])
    second = whole._update([[example for part in parts for example in part], [0]])
    assert first.count == second.count
    assert first.loss == pytest.approx(second.loss, rel=1e-12)
    assert first.gradient_norm == pytest.approx(second.gradient_norm, rel=1e-12)
    for weight_name, found in weights_of(accumulated).items():
        expected = weights_of(whole)[weight_name]
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        assert not torch.equal(expected, start[weight_name])


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_label_smoothing_is_a_mixture_with_the_uniform_distribution(loss, data):
    trainer = plain_trainer("classify", data, {"training.loss": loss, "training.label_smoothing": 0.3})
    batch = trainer.task.collate(trainer.examples, range(10))
    logits, labels = outputs_of(trainer, batch)
    found = trainer.task.loss(trainer.model, batch)
    assert found.count == found.examples == 10
    expected = loss_by_hand(logits, labels, kind=loss, smoothing=0.3)
    assert float(found.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    figures = trainer.task.evaluate(trainer.model, trainer.dev)  # evaluation knows no smoothing
    batch = trainer.task.collate(trainer.dev, range(len(trainer.dev)))
    logits, labels = outputs_of(trainer, batch)
    hard = loss_by_hand(logits, labels) / len(labels)
    assert figures["loss"] == pytest.approx(float(hard.detach()), rel=1e-9)


def test_a_regulariser_counts_once_for_each_example_and_not_in_the_reported_loss(data):
    """For a batch of B examples and the mean of B losses: ∇ = (1/B) Σ ∇l + (λ/n) ∇R."""
    settings = {
        "training.optimizer": "sgd",
        "training.batch_size": 8,
        "training.reduction": "mean",
        "training.clip": 0.0,
    }
    strength, eta = 3.0, 0.1
    plain = plain_trainer("classify", data, settings)
    held = plain_trainer(
        "classify", data, settings | {"training.regulariser": "l2", "training.regularisation": strength}
    )
    start = weights_of(plain)
    keys = [list(range(8)), [0]]
    assert plain._update(keys).loss == held._update(keys).loss
    for name, weight in weights_of(held).items():
        expected = weights_of(plain)[name] - eta * strength / len(held.examples) * start[name]
        torch.testing.assert_close(weight, expected, rtol=1e-10, atol=1e-12)


def test_a_stream_carries_its_state_and_starts_each_pass_anew(data):
    """Each segment from the state after the one before, as a value without a gradient."""
    settings = {
        "training.optimizer": "sgd",
        "training.batch_size": 4,
        "training.truncate": 30,
        "training.accumulate": 1,
        "training.clip": 0.0,
        "training.reduction": "sum",
        "training.learning_rate": 0.01,
        "model.zoneout": 0.0,
    }
    trainer, other = (plain_trainer("lm-stream", data, settings) for _ in range(2))
    plan = list(trainer.task.plan(trainer.examples, 0))
    assert len(plan) >= 3
    weights = list(other.model.parameters())
    updates = trainer.run()
    for inputs, targets in [*plan, *plan[:2]]:
        if inputs is plan[0][0]:
            state = None
        outputs, state = other.model(torch.from_numpy(inputs), None, state)
        state = tuple(type(layer)(*(part.detach() for part in layer)) for layer in state)
        targets = torch.from_numpy(targets).flatten()
        value = loss_by_hand(other.model.logits(outputs).flatten(0, 1), targets)
        assert next(updates).loss == pytest.approx(float(value.detach()) / len(targets), rel=1e-10)
        gradients = torch.autograd.grad(value, weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= 0.01 * gradient


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


def test_the_log_must_be_as_long_as_at_its_checkpoint(run):
    set_back(run)
    with pytest.raises(RunError, match="shorter than at its checkpoint"):
        session_module.cut(run / "metrics.jsonl", 10**9)


def test_example_by_example_needs_one_thread():
    for batch, given, expected in ((1, None, 1), (1, 2, 2), (8, 3, 3)):
        training = {"batch_size": batch, "threads": given}
        config = validate(settings_class("lm"), {"task": "lm", "training": training})
        assert run_module.threads(config) == expected


def test_a_tail_begins_where_validation_stops_improving(data):
    changes = {"training.averaging": "tail", "training.learning_rate": 1.0, "training.validate_every": 2}
    trainer = trainer_of("lm-sentence", data, {**SHORT, **changes})
    waited = False
    for _ in trainer.run():
        waited = waited or trainer.position.waited > 0
        assert trainer.averaging.started == waited
    assert waited  # the rate is far too high: some validation was no improvement
    assert trainer.averaging.count > 0
