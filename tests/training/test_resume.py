"""A run goes on: after a kill, a copy, damage, beside another process, and on its own data alone."""

import copy
import fcntl
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest
from runs import SHORT, checkpoints, damage, resume, set_back

from elman.cli import training as train_module
from elman.config import validate
from elman.errors import RunExistsError
from elman.registry import TASKS
from elman.tasks.lm_settings import LmTraining
from elman.tasks.statistics import Statistics
from elman.training import checkpoint as checkpoint_module
from elman.training import run as run_module
from elman.training import session as session_module
from elman.training.position import Update
from elman.training.settings import settings_class
from tiny import (
    AWD,
    RUNS,
    elman,
    events,
    figures,
    timeless,
    train_command,
    trainer_of,
    write,
    write_data,
)

# A run goes on.


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
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


def test_segments_of_varied_length_go_on_alike_in_any_epoch(data):
    """Lengths, and the rates that go with them, follow from seed and epoch; masks from the random state."""
    changes = {**AWD, "training.accumulate": 1, "training.max_steps": 60, "training.validate_every": 25}
    trainer, other = trainer_of("lm-stream", data, changes), trainer_of("lm-stream", data, changes)
    snapshots, seen, epochs = [], [], []
    for event in trainer.run():
        snapshots.append(copy.deepcopy(trainer.snapshot()))
        seen.append((figures(event), getattr(event, "rate", None)))
        epochs.append(trainer.position.epoch)
    assert max(epochs) >= 2
    for place in (3, len(seen) // 2, len(seen) - 5):
        saved = snapshots[place]
        other.restore(saved["model"], saved["optimizer"], saved["extra"], saved["state"])
        following = [(figures(event), getattr(event, "rate", None)) for event in islice(other.run(), 4)]
        assert following == seen[place + 1 : place + 5], f"after event {place}"


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
    for name in ("config.toml", "metrics.jsonl"):
        (tmp_path / name).touch()
    with session_module.Session(tmp_path, trainer, [], None, Statistics()) as session:
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_start_that_another_process_continues_is_left_to_it(data, tmp_path, monkeypatch):
    run = tmp_path / "run"
    with ExitStack() as held:

        def begin(folder, config, origins):
            run_module.begin(folder, config, origins)
            held.enter_context(session_module.run_lock(folder))

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


# Runs of earlier versions.

EARLIER = Path(__file__).parent / "earlier"  # made by 0.1.0 before checkpoints knew their run: 12 updates
SENTENCES = b"the dog likes Rex often\nRex Smith sees the cat\n"
TAGGED = "O B-NAME B-NAME O O\nO O O O O\n"


@pytest.fixture
def earlier(tmp_path, monkeypatch):
    """Its paths are relative: training began in the folder above it."""
    folder = shutil.copytree(EARLIER, tmp_path / "earlier", symlinks=True)
    monkeypatch.chdir(folder)
    return folder / "run"


def test_a_run_of_an_earlier_version_is_used_and_left_as_it_is(earlier):
    before = timeless(earlier)
    assert elman("predict", earlier, stdin=SENTENCES) == (0, TAGGED, "")
    answer = resume(earlier)
    assert answer.code == 0, answer.err
    assert "has ended already at update 12" in answer.err
    assert timeless(earlier) == before


def test_a_run_of_an_earlier_version_goes_on(earlier):
    expected = events(earlier)
    set_back(earlier, 12)
    answer = resume(earlier)
    assert answer.code == 0, answer.err
    assert "continuing after update 8" in answer.err
    assert f"{earlier / 'cache' / 'train'} is missing, damaged or not of this run" in answer.err
    found = events(earlier)
    assert [event["update"] for event in found] == [event["update"] for event in expected]
    for one, other in zip(found, expected, strict=True):  # of another machine
        assert one.get("loss", 0.0) == pytest.approx(other.get("loss", 0.0), rel=1e-3)
    assert elman("predict", earlier, stdin=SENTENCES).code == 0
    shutil.rmtree(earlier / "checkpoints" / "update-00000008")
    assert "has ended already at update 12" in resume(earlier).err
    assert elman("predict", earlier, stdin=SENTENCES).code == 0


def test_a_checkpoint_of_an_earlier_version_does_not_pass_in_a_newer_run(earlier, run):
    """The SHA-256 in config.toml tells that every checkpoint of the run knows it."""
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(earlier / "checkpoints", run / "checkpoints")
    for answer in (elman("predict", run, stdin=SENTENCES), resume(run)):
        assert answer.code == 5
        assert "update-00000012 is damaged: it is of another run" in answer.err


@pytest.mark.parametrize("file", ["config.toml", "vocabulary.json", "data.json"])
def test_a_file_that_is_nested_without_end_is_a_damaged_run(file, earlier):
    set_back(earlier, 12)
    place = earlier / file
    write(place, "[" * 100_000 if file != "config.toml" else "a = " + "[" * 100_000)
    answer = resume(earlier)
    assert answer.code == 5
    assert answer.err.splitlines()[-1].startswith("elman: E701: ")
    assert file in answer.err.splitlines()[-1]


def test_a_later_version_with_more_settings_goes_on_and_is_used(run, finished, monkeypatch):
    """It completes the settings that it works with, not config.toml or what checkpoints know of it."""

    class Later(LmTraining):
        more: int = 1

    class Settings(settings_class("lm")):
        training: Later = Later()

    set_back(run)
    monkeypatch.setattr(TASKS.find("lm"), "Settings", Settings)
    assert run_module.read_config(run).training.more == 1
    for _ in range(2):
        assert resume(run).code == 0
    assert timeless(run) == timeless(finished)
    assert elman("predict", run, stdin=SENTENCES).code == 0
