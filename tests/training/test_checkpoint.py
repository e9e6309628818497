"""A checkpoint is whole or it is not there: crashes, full disks, cut files and flipped bits."""

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import time

import pytest
import torch

from elman.errors import ArgumentError, DivergedError, RunError
from elman.storage import files as module
from elman.training.checkpoint import (
    FILES,
    FORMAT,
    MANIFEST,
    checkpoint_name,
    load_checkpoint,
    newest_checkpoint,
    point,
    prune,
    save_checkpoint,
)

CHANGES = ("write_new", "sync", "rename", "link")


def parts(update, width=16):
    generator = torch.Generator().manual_seed(update)
    weights = torch.randn(width, width, generator=generator)
    return {
        "model": {"weight": weights, "half": weights[0].half(), "count": torch.tensor(update)},
        "optimizer": {"0.step": torch.tensor(float(update)), "0.exp_avg": weights.T},
        "extra": {"random": generator.get_state()},
        "state": {"update": update, "rate": 0.1 + 0.2, "name": "Größe", "best": None},
    }


def save(run, update):
    return save_checkpoint(run, checkpoint_name(update), **parts(update))


def assert_is(found, update):
    """Every part, bit for bit."""
    for part, expected in parts(update).items():
        values = getattr(found, part)
        if part == "state":
            assert values == expected
            continue
        assert values.keys() == expected.keys()
        for name, tensor in expected.items():
            assert values[name].dtype == tensor.dtype
            assert torch.equal(values[name], tensor)


@pytest.fixture
def no_waiting(monkeypatch):
    """Of a thousand saves none needs to reach the disk: no test here cuts the power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def refuse(line):
    raise AssertionError(line)


def test_what_is_saved_is_loaded(tmp_path):
    folder = save(tmp_path, 7)
    assert folder == tmp_path / "checkpoints" / "update-00000007"
    assert sorted(os.listdir(folder)) == sorted([*FILES, MANIFEST])
    assert_is(load_checkpoint(folder), 7)
    load_checkpoint(folder).model["weight"].zero_()  # it may be written to, and is not the file
    assert_is(load_checkpoint(folder), 7)


def test_tied_transposed_and_empty_tensors(tmp_path):
    weight = torch.randn(3, 4)
    tensors = {"a": weight, "tied": weight, "turned": weight.T, "row": weight[1], "none": torch.zeros(0, 3)}
    folder = save_checkpoint(tmp_path, "update-1", model=tensors, optimizer={}, extra={}, state={})
    found = load_checkpoint(folder)
    assert found.model.keys() == tensors.keys()
    assert all(torch.equal(found.model[name], tensor) for name, tensor in tensors.items())
    assert (found.optimizer, found.extra, found.state) == ({}, {}, {})


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path, wrong):
    given = parts(1)
    given["model"]["weight"][2, 3] = wrong
    with pytest.raises(DivergedError, match="1 of the 256 numbers in 'weight'"):
        save_checkpoint(tmp_path, "update-1", **given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["best", "update-", "update-1/../x", "../update-1", "update-1.old"])
def test_a_wrong_name_is_refused(tmp_path, name):
    with pytest.raises(ArgumentError, match="it must be as 'update-00001200'"):
        save_checkpoint(tmp_path, name, **parts(1))


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, torch.zeros(1)])
def test_state_that_is_no_json_is_refused(tmp_path, value):
    with pytest.raises(ArgumentError, match="state cannot be written as JSON"):
        save_checkpoint(tmp_path, "update-1", **(parts(1) | {"state": {"loss": value}}))
    assert not list(tmp_path.iterdir())


def test_the_newest_is_by_number(tmp_path):
    assert newest_checkpoint(tmp_path, refuse) is None
    for update in (3, 200_000_000, 20):
        save(tmp_path, update)
    (tmp_path / "checkpoints" / "notes").mkdir()
    assert_is(newest_checkpoint(tmp_path, refuse), 200_000_000)


def test_a_damaged_one_is_named_and_the_one_before_it_used(tmp_path, capsys):
    for update in (1, 2, 3):
        save(tmp_path, update)
    broken = tmp_path / "checkpoints" / checkpoint_name(3) / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-1])
    lines = []
    assert_is(newest_checkpoint(tmp_path, lines.append), 2)
    assert len(lines) == 1
    assert f"{broken} is damaged" in lines[0]
    assert_is(newest_checkpoint(tmp_path), 2)
    assert str(broken) in capsys.readouterr().err
    for update in (1, 2):
        (tmp_path / "checkpoints" / checkpoint_name(update) / "state.json").unlink()
    with pytest.raises(RunError, match="none of the 3 checkpoints can be loaded"):
        newest_checkpoint(tmp_path, lines.append)


# Damage.


def assert_damage_is_named(folder, file, data):
    """With these bytes in place of the file's, loading names the file; then all is as before."""
    path = folder / file
    before = path.read_bytes()
    overwrite(path, data)
    with pytest.raises(RunError) as caught:
        load_checkpoint(folder)
    assert str(path) in str(caught.value)
    overwrite(path, before)


def overwrite(path, data):
    """In place: some file systems wait for the disk when a file is emptied and written anew."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


@pytest.mark.parametrize("file", [*FILES, MANIFEST])
def test_a_file_cut_anywhere(tmp_path, file):
    folder = save_checkpoint(tmp_path, "update-1", **parts(1, width=64))
    data = (folder / file).read_bytes()
    for length in {*range(0, len(data), 1024), 1, len(data) - 1}:
        assert_damage_is_named(folder, file, data[:length])
    assert_damage_is_named(folder, file, data + b"\n")
    assert load_checkpoint(folder).state["update"] == 1


def test_single_flipped_bits(tmp_path):
    folder = save(tmp_path, 1)
    contents = {file: (folder / file).read_bytes() for file in (*FILES, MANIFEST)}
    bits = [(file, bit) for file, data in contents.items() for bit in range(8 * len(data))]
    drawn = random.Random(1).sample(bits, 500)
    drawn += random.Random(2).sample([bit for bit in bits if bit[0] == MANIFEST], 500)
    for file, bit in drawn:
        data = bytearray(contents[file])
        data[bit // 8] ^= 1 << bit % 8
        assert_damage_is_named(folder, file, bytes(data))
    assert_is(load_checkpoint(folder), 1)


@pytest.mark.parametrize("file", [*FILES, MANIFEST])
def test_a_missing_file_and_one_of_another_checkpoint(tmp_path, file):
    folder, other = save(tmp_path, 1), save(tmp_path, 2)
    if file != MANIFEST:
        assert_damage_is_named(folder, file, (other / file).read_bytes())
    (folder / file).unlink()
    with pytest.raises(RunError, match=f"{file} is damaged: it is missing"):
        load_checkpoint(folder)
    (folder / file).mkdir()
    with pytest.raises(RunError, match=f"{file}: cannot read: Is a directory"):
        load_checkpoint(folder)


def test_a_file_too_many_and_a_folder_too_few(tmp_path):
    folder = save(tmp_path, 1)
    (folder / "model.pkl").touch()
    with pytest.raises(RunError, match=r"model.pkl is damaged: it does not belong here"):
        load_checkpoint(folder)
    with pytest.raises(RunError, match="No such file or directory"):
        load_checkpoint(tmp_path / "checkpoints" / "update-2")


def sealed(content):
    """A manifest as any version writes it, made here without the module's own functions."""
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    content = content | {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def test_a_newer_format_says_so(tmp_path):
    folder = save(tmp_path, 1)
    content = json.loads((folder / MANIFEST).read_bytes())
    del content["sha256"]
    assert sealed(content) == (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).write_bytes(sealed({"format": FORMAT + 1, "parts": []}))
    with pytest.raises(RunError, match=f"format {FORMAT + 1}, newer than the {FORMAT} that this Elman reads"):
        load_checkpoint(folder)
    for wrong in ({"format": "1"}, {"format": 0}, {"format": FORMAT}, {"format": FORMAT, "files": {}}):
        assert_damage_is_named(folder, MANIFEST, sealed(wrong))
    for wrong in (b"[]", b"NaN", b'{"format": 1e999}', b"\xff"):
        assert_damage_is_named(folder, MANIFEST, wrong)


@pytest.mark.parametrize(("file", "data"), [("model.safetensors", b"PK\x03\x04"), ("state.json", b"[1]")])
def test_a_file_that_fits_its_hash_but_not_its_format(tmp_path, file, data):
    folder = save(tmp_path, 1)
    content = json.loads((folder / MANIFEST).read_bytes())
    del content["sha256"]
    content["files"][file] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / MANIFEST).write_bytes(sealed(content))
    assert_damage_is_named(folder, file, data)


# Crashes and full disks.


class Crash(BaseException):
    """The end of the process: no handler of ours may run."""


def half_written(path, data):
    path.write_bytes(data[: len(data) // 2])


class Faults:
    """Counts the calls that change the disk and lets one of them fail, before or after its work."""

    def __init__(self, monkeypatch, error=None, at=None, when="before"):
        self.calls, self.at, self.error, self.when = [], at, error, when
        for name in CHANGES:
            monkeypatch.setattr(module, name, self.wrapped(name, getattr(module, name)))

    def wrapped(self, name, real):
        def call(*arguments):
            fails = len(self.calls) == self.at
            self.calls.append((name, *arguments))
            if not fails:
                return real(*arguments)
            if name == "write_new":
                half_written(*arguments)
            elif self.when == "after":
                real(*arguments)
            raise self.error

        return call


def calls_of(work, folder):
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch)
        folder.mkdir()
        work(folder)
    return faults.calls


def save_third(run):
    """The work under test: a new checkpoint beside two others, and the links."""
    save(run, 3)
    point(run, "last", checkpoint_name(3))


def replace_second(run):
    """The same for a checkpoint that takes the place of another, with other contents."""
    save_checkpoint(run, checkpoint_name(2), **parts(3))
    point(run, "last", checkpoint_name(2))


def prepared(run):
    save(run, 1)
    save(run, 2)
    point(run, "last", checkpoint_name(2))


@pytest.mark.parametrize("work", [save_third, replace_second])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), Crash()])
def test_a_fault_at_any_call_leaves_the_old_or_the_new(tmp_path, no_waiting, error, when, work):
    def all_of_it(run):
        prepared(run)
        work(run)

    first = len(calls_of(prepared, tmp_path / "before"))
    calls = calls_of(all_of_it, tmp_path / "counted")
    assert {name for name, *_ in calls[first:]} == set(CHANGES)
    for at in range(len(calls) - first):
        run = tmp_path / str(at)
        run.mkdir()
        prepared(run)
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, error, at, when)
            with pytest.raises(Crash if isinstance(error, Crash) else RunError) as caught:
                work(run)
        if not isinstance(error, Crash):
            assert str(run) in str(caught.value)
            assert "No space left on device" in str(caught.value)
        assert_old_or_new(run)
        work(run)  # the next save succeeds, and tidies up
        assert_is(newest_checkpoint(run, refuse), 3)
        assert_is(load_checkpoint(run / "last"), 3)
        saved = os.path.basename(os.readlink(run / "last"))
        assert set(os.listdir(run / "checkpoints")) == {checkpoint_name(1), checkpoint_name(2), saved}
        shutil.rmtree(run)


def assert_old_or_new(run):
    """Nothing half is found, neither by number nor by the link."""
    found = newest_checkpoint(run, refuse)
    assert_is(found, found.state["update"])
    assert found.state["update"] in (2, 3)
    linked = load_checkpoint(run / "last")
    assert_is(linked, linked.state["update"])
    assert_is(load_checkpoint(run / "checkpoints" / checkpoint_name(1)), 1)


def test_everything_is_on_the_disk_before_it_is_renamed(tmp_path):
    run = tmp_path / "run"
    calls = calls_of(lambda run: save(run, 1), run)
    renamed = next(place for place, call in enumerate(calls) if call[0] == "rename")
    temporary = calls[renamed][1]
    written = {call[1] for call in calls if call[0] == "write_new"}
    assert written == {temporary / file for file in (*FILES, MANIFEST)}
    synced = [call[1] for call in calls[:renamed] if call[0] == "sync"]
    assert set(synced) == {*written, temporary}
    assert synced[-1] == temporary
    assert [call[1] for call in calls[renamed + 1 :]] == [run / "checkpoints", run]


def test_a_full_disk_leaves_no_rest(tmp_path, monkeypatch):
    save(tmp_path, 1)
    Faults(monkeypatch, OSError(errno.ENOSPC, "No space left on device"), at=2)
    with pytest.raises(
        RunError, match="update-00000002: cannot save the checkpoint: No space left on device"
    ):
        save(tmp_path, 2)
    assert os.listdir(tmp_path / "checkpoints") == [checkpoint_name(1)]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.slow
def test_a_process_killed_at_any_moment(tmp_path, no_waiting):
    """The child saves, replaces, points and prunes without end until the signal comes."""
    draw = random.Random(3)
    save(tmp_path, 1)
    point(tmp_path, "last", checkpoint_name(1))
    pointed = 1
    for _ in range(30):
        before = newest_checkpoint(tmp_path, refuse).state["update"]
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            save_without_end(tmp_path, before, theirs)
        os.close(theirs)
        for _ in range(draw.randrange(6)):
            os.read(ours, 1)
        time.sleep(draw.uniform(0.0, 0.005))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ours)
        found, linked = newest_checkpoint(tmp_path, refuse), load_checkpoint(tmp_path / "last")
        for loaded, earlier in ((found, before), (linked, pointed)):
            assert loaded.state["update"] >= earlier
            assert_is(loaded, loaded.state["update"])
        pointed = linked.state["update"]  # a kill between a save and its link leaves it behind
    assert found.state["update"] > 5  # each round waits for up to five saves
    save(tmp_path, 1)
    point(tmp_path, "last", checkpoint_name(1))
    prune(tmp_path, set())
    assert set(os.listdir(tmp_path)) == {"checkpoints", "last"}
    assert os.listdir(tmp_path / "checkpoints") == [checkpoint_name(1)]


def save_without_end(run, update, told):
    try:
        while True:
            for _ in range(2):  # the second replaces the first
                save(run, update)
                point(run, "last", checkpoint_name(update))
                prune(run, {checkpoint_name(update)})
                os.write(told, b".")
            update += 1
    finally:
        os._exit(1)


# Links and pruning.


def test_links_are_relative_and_move_with_the_run(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    save(run, 1)
    save(run, 2)
    point(run, "best", checkpoint_name(2))
    point(run, "best", checkpoint_name(1))
    assert os.readlink(run / "best") == "checkpoints/update-00000001"
    run.rename(tmp_path / "moved")
    assert_is(load_checkpoint(tmp_path / "moved" / "best"), 1)
    with pytest.raises(RunError, match="no such checkpoint to point to"):
        point(tmp_path / "moved", "best", checkpoint_name(9))
    with pytest.raises(ArgumentError, match="pointer is 'worst'; it must be one of 'best', 'last'"):
        point(tmp_path / "moved", "worst", checkpoint_name(1))


def test_pruning_keeps_what_is_named_and_what_is_pointed_to(tmp_path):
    prune(tmp_path, set())
    for update in range(1, 6):
        save(tmp_path, update)
    point(tmp_path, "best", checkpoint_name(2))
    point(tmp_path, "last", checkpoint_name(5))
    (tmp_path / "checkpoints" / "notes").mkdir()
    prune(tmp_path, {checkpoint_name(4)})
    left = {checkpoint_name(update) for update in (2, 4, 5)}
    assert set(os.listdir(tmp_path / "checkpoints")) == {*left, "notes"}


def test_a_crash_while_pruning_leaves_no_half_checkpoint(tmp_path, monkeypatch):
    save(tmp_path, 1)
    save(tmp_path, 2)

    def crash(path):
        (path / "model.safetensors").unlink()
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", crash)
        with pytest.raises(Crash):
            prune(tmp_path, {checkpoint_name(2)})
    assert_is(newest_checkpoint(tmp_path, refuse), 2)
    save(tmp_path, 3)
    assert set(os.listdir(tmp_path / "checkpoints")) == {checkpoint_name(2), checkpoint_name(3)}
