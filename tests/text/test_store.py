"""What is written is what is read, in little memory; what is not whole is not read."""

import os
import random
import shutil
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from elman.errors import ArgumentError
from elman.storage.sealed import sealed, unsealed
from elman.text import store as module
from elman.text.store import Ragged, Store


def random_rows(chance, count, fields=("source", "target")):
    return [
        {name: [chance.randint(-(2**31), 2**31 - 1) for _ in range(chance.randint(0, 9))] for name in fields}
        for _ in range(count)
    ]


def contents(store):
    return [{name: field[i].tolist() for name, field in store.fields.items()} for i in range(len(store))]


def test_written_opened_and_held_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 64)  # so that chunks end inside and between rows
    chance = random.Random(4)
    for trial in range(30):
        rows = random_rows(chance, chance.randint(1, 60))
        folder = tmp_path / str(trial)
        for store in (
            Store.write(folder, iter(rows), "k"),
            Store.open(folder, "k"),
            Store.in_memory(iter(rows)),
        ):
            assert contents(store) == rows
            for name, field in store.fields.items():
                assert field.values.dtype == np.int32
                assert field.offsets.dtype == np.int64
                assert field.lengths.tolist() == [len(row[name]) for row in rows]


@pytest.mark.parametrize("row", [[0, 1, 2], (0, 1, 2), range(3), np.arange(3), np.arange(3, dtype=np.int32)])
def test_kinds_of_rows(row):
    assert contents(Store.in_memory([{"ids": row}])) == [{"ids": [0, 1, 2]}]


def test_rows_by_number():
    ragged = Ragged(np.array([1, 2, 3], np.int32), np.array([0, 2, 2, 3]))
    assert [ragged[i].tolist() for i in (0, 1, 2, -1)] == [[1, 2], [], [3], [3]]
    assert len(ragged) == 3
    for outside in (3, -4):
        with pytest.raises(IndexError):
            ragged[outside]


def test_empty_rows_and_no_rows(tmp_path):
    store = Store.write(tmp_path / "empty rows", [{"ids": []}, {"ids": []}], "k")
    assert contents(store) == [{"ids": []}, {"ids": []}]
    for store in (Store.write(tmp_path / "no rows", [], "k"), Store.in_memory([])):
        assert len(store) == 0
        assert store.fields == {}


def test_what_is_stored_is_read_only(tmp_path):
    for store in (Store.write(tmp_path, [{"ids": [1]}], "k"), Store.in_memory([{"ids": [1]}])):
        with pytest.raises(ValueError, match="read-only"):
            store.fields["ids"][0][0] = 2


def test_another_key_is_another_store(tmp_path):
    assert Store.open(tmp_path / "nowhere", "k") is None
    Store.write(tmp_path, [{"ids": [1, 2]}], "k")
    assert Store.open(tmp_path, "K") is None
    assert contents(Store.open(tmp_path, "k")) == [{"ids": [1, 2]}]
    Store.write(tmp_path, [{"words": [3]}], "K")
    assert Store.open(tmp_path, "k") is None
    assert contents(Store.open(tmp_path, "K")) == [{"words": [3]}]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "lock",
        "meta.json",
        "words.offsets",
        "words.values",
    ]


def test_a_store_in_use_survives_its_replacement(tmp_path):
    rows = [{"ids": list(range(1000))}] * 20
    old = Store.write(tmp_path, rows, "k")
    new = Store.write(tmp_path, ({"ids": old.fields["ids"][i][:2]} for i in range(3)), "k")
    assert contents(old) == rows
    assert contents(new) == [{"ids": [0, 1]}] * 3


@pytest.mark.parametrize("name", ["ids.values", "ids.offsets", "meta.json"])
@pytest.mark.parametrize("damage", ["cut", "grown", "missing", "emptied"])
def test_damaged_files_are_noticed(tmp_path, name, damage):
    Store.write(tmp_path, [{"ids": [1, 2, 3]}, {"ids": [4]}], "k")
    path = tmp_path / name
    if damage == "missing":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes({"cut": whole[:-1], "grown": whole + b"abcd", "emptied": b""}[damage])
    assert Store.open(tmp_path, "k") is None
    assert contents(Store.write(tmp_path, [{"ids": [5]}], "k")) == [{"ids": [5]}]


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"byteorder": "middle"},
        {"files": None},
        {"files": []},
        {"more": 1},
        {"key": 1},
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, change):
    Store.write(tmp_path, [{"ids": [1, 2, 3]}, {"ids": [4]}], "k")
    meta = unsealed((tmp_path / "meta.json").read_bytes())
    (tmp_path / "meta.json").write_bytes(sealed(meta))
    assert contents(Store.open(tmp_path, "k")) == [{"ids": [1, 2, 3]}, {"ids": [4]}]
    (tmp_path / "meta.json").write_bytes(sealed({**meta, **change}))
    assert Store.open(tmp_path, "k") is None


@pytest.mark.slow
def test_every_bit_of_a_store_counts(tmp_path):
    Store.write(tmp_path, [{"ids": [1, 2, 3]}, {"ids": [4]}], "k")
    for name in ("ids.values", "ids.offsets", "meta.json"):
        whole = (tmp_path / name).read_bytes()
        for bit in range(8 * len(whole)):
            flipped = bytearray(whole)
            flipped[bit // 8] ^= 1 << bit % 8
            (tmp_path / name).write_bytes(flipped)
            assert Store.open(tmp_path, "k") is None, f"bit {bit} of {name}"
        (tmp_path / name).write_bytes(whole)
    assert contents(Store.open(tmp_path, "k")) == [{"ids": [1, 2, 3]}, {"ids": [4]}]


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
@pytest.mark.parametrize("name", ["", "ids.values", "ids.values.part", "meta.json", "meta.json.part"])
def test_what_is_no_file_is_not_read_and_gives_way(tmp_path, name, kind):
    folder, target = tmp_path / "store", tmp_path / "precious"
    Store.write(folder, [{"ids": [1, 2, 3]}], "k")
    target.write_text("precious")
    path = folder / name
    if path.exists():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(target)
    assert name.endswith(".part") or Store.open(folder, "k") is None
    assert contents(Store.write(folder, [{"ids": [5]}], "k")) == [{"ids": [5]}]
    assert target.read_text() == "precious"


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_a_lock_that_is_none_is_an_error(tmp_path, kind):
    target = tmp_path / "precious"
    target.write_text("precious")
    folder = tmp_path / "store"
    folder.mkdir()
    match kind:
        case "folder":
            (folder / "lock").mkdir()
        case "pipe":
            os.mkfifo(folder / "lock")
        case "link":
            (folder / "lock").symlink_to(target)
    with pytest.raises(OSError):  # noqa: PT011
        Store.write(folder, [{"ids": [5]}], "k")
    assert target.read_text() == "precious"


def test_offsets_of_another_file_are_refused(tmp_path):
    Store.write(tmp_path / "a", [{"ids": [1, 2, 3]}], "k")
    Store.write(tmp_path / "b", [{"ids": [1, 2]}], "k")
    os.replace(tmp_path / "b" / "ids.offsets", tmp_path / "a" / "ids.offsets")
    assert Store.open(tmp_path / "a", "k") is None


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"ids": [0]}, {"ids": [2**31]}], "example 1, field 'ids' cannot be stored"),
        ([{"ids": [-(2**31) - 1]}], "whole numbers of 32 bits"),
        ([{"ids": np.array([2**31])}], "example 0, field 'ids'"),
        ([{"ids": [1.0]}], "example 0, field 'ids'"),
        ([{"ids": np.array([1.0])}], "example 0, field 'ids'"),
        ([{"ids": np.ones((2, 2), np.int64)}], "example 0, field 'ids'"),
        ([{"ids": 5}], "example 0, field 'ids'"),
        ([{"ids": [1]}, {"ids": [1], "tags": [1]}], r"example 1 has the fields \['ids', 'tags'\]"),
        ([{"ids": [1], "tags": [1]}, {"ids": [1]}], "all examples must have the same"),
        ([{"../ids": [1]}], "names like 'source' are needed"),
        ([{}], "names like 'source' are needed"),
    ],
)
def test_mistakes_leave_the_folder_as_it_was(tmp_path, rows, problem):
    Store.write(tmp_path, [{"ids": [7]}], "old")
    with pytest.raises(ArgumentError, match=problem):
        Store.in_memory(rows)
    with pytest.raises(ArgumentError, match=problem):
        Store.write(tmp_path, rows, "new")
    assert Store.open(tmp_path, "new") is None
    assert contents(Store.open(tmp_path, "old")) == [{"ids": [7]}]
    assert not [*tmp_path.glob("*.part")]


def test_an_interruption_leaves_nothing_that_opens(tmp_path):
    def rows():
        yield from [{"ids": [1, 2, 3]}] * 10
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store.write(tmp_path, rows(), "k")
    assert Store.open(tmp_path, "k") is None
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def counted_steps(monkeypatch, stop_at=None):
    """Every change of the folder counts as a step; the process 'dies' before number ``stop_at``."""
    taken = []

    def counting(function):
        def step(*arguments, **options):
            if len(taken) == stop_at:
                raise Death
            taken.append(function)
            return function(*arguments, **options)

        return step

    for owner, name in ((os, "replace"), (os, "fsync"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, counting(getattr(owner, name)))
    return taken


class Death(BaseException):
    """The process ends here."""


def test_death_at_any_step_leaves_the_old_the_new_or_nothing(tmp_path, monkeypatch):
    old, new = [{"ids": [1, 2], "tags": [1]}], [{"ids": [3, 4], "tags": [2]}, {"ids": [5], "tags": []}]
    with monkeypatch.context() as patch:
        Store.write(tmp_path / "count", old, "old")
        steps = counted_steps(patch)
        Store.write(tmp_path / "count", new, "new")
    assert len(steps) > 12
    outcomes = []
    for step in range(len(steps)):
        folder = tmp_path / str(step)
        Store.write(folder, old, "old")
        with monkeypatch.context() as patch:
            counted_steps(patch, stop_at=step)
            with pytest.raises(Death):
                Store.write(folder, new, "new")
        found = {key: Store.open(folder, key) for key in ("old", "new")}
        assert found["old"] is None or contents(found["old"]) == old
        assert found["new"] is None or contents(found["new"]) == new
        outcomes.append([key for key, store in found.items() if store is not None])
        assert contents(Store.write(folder, new, "new")) == new  # and the folder can be used again
        assert not [*folder.glob("*.part")]
    assert outcomes == sorted(outcomes, key=[["old"], [], ["new"]].index)


def test_a_killed_writer_leaves_nothing_that_opens(tmp_path):
    code = (
        "import itertools, sys\nfrom elman.text.store import Store\n"
        "def rows():\n"
        "    for i in itertools.count():\n"
        "        if i == 300_000: print('half', flush=True); sys.stdin.read()\n"
        "        yield {'ids': [1, 2, 3]}\n"
        "Store.write(sys.argv[1], rows(), 'k')"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with writer:
        assert writer.stdout.readline() == b"half\n"
        assert (tmp_path / "ids.values.part").stat().st_size > 0
        writer.kill()
    assert Store.open(tmp_path, "k") is None
    assert contents(Store.write(tmp_path, [{"ids": [5]}], "k")) == [{"ids": [5]}]
    assert not [*tmp_path.glob("*.part")]


def test_two_writers_at_once_do_not_mix(tmp_path):
    wanted = {
        key: [{"ids": [key] * 50}] * 200 for key in range(4)
    }  # equal sizes: a mixture would pass as whole

    def write(key):
        return contents(Store.write(tmp_path, wanted[key], str(key)))

    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(write, wanted)) == list(wanted.values())
            last = [key for key in wanted if Store.open(tmp_path, str(key))]
            assert len(last) == 1
            assert contents(Store.open(tmp_path, str(last[0]))) == wanted[last[0]]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_examples(tmp_path):
    def peak(count):
        tracemalloc.start()
        Store.write(tmp_path / str(count), ({"ids": range(100, 130)} for _ in range(count)), "k")
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    small, large = peak(20_000), peak(80_000)  # 2.4 and 9.6 MB of ids
    assert large < small + module.CHUNK / 2
    assert large < 6 * module.CHUNK


def test_the_same_bytes_every_time(tmp_path):
    rows = random_rows(random.Random(5), 50)
    for name in ("a", "b"):
        Store.write(tmp_path / name, rows, "k")
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
