"""How many cores a process may use: by its affinity, and by what a control group grants it."""

import os

import pytest
import torch

from elman.cores import cores, crowding
from elman.tensors.threads import all_threads


@pytest.fixture
def eight(monkeypatch):
    """A machine of eight cores, and no control groups."""
    if hasattr(os, "sched_getaffinity"):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)


def group(root, folder, limit):
    """A control group of the second version."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / "cpu.max").write_text(limit)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(
    ("limits", "own", "count"),
    [
        ({}, "0::/\n", 8),
        ({".": "max 100000\n"}, "0::/\n", 8),
        ({".": "200000 100000\n"}, "0::/\n", 2),  # as a container sees itself
        ({".": "150000 100000\n"}, "0::/\n", 2),
        ({".": "20000 100000\n"}, "0::/\n", 1),
        ({"a/b": "max 100000\n", "a": "300000 100000\n"}, "0::/a/b\n", 3),  # the group above it
        ({"a": "200000 100000\n"}, "0::/other\n", 8),
        ({".": "1600000 100000\n"}, "0::/\n", 8),
        ({".": "?\n"}, "0::/\n", 8),
        ({".": "400000 100000\n"}, "1:name=systemd:/\n", 4),
    ],
)
def test_a_control_group_has_a_share_of_the_cores(tmp_path, limits, own, count):
    for folder, limit in limits.items():
        group(tmp_path / "groups", folder, limit)
    (tmp_path / "own").write_text(own)
    assert cores(tmp_path / "groups", tmp_path / "own") == count


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("quota", "count"), [("-1", 8), ("250000", 3)])
def test_a_control_group_of_the_first_version(tmp_path, quota, count):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores(tmp_path, tmp_path / "none") == count


def test_there_are_no_more_threads_than_cores(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr("elman.tensors.threads.cores", lambda: 2)
    assert all_threads() == 2
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # as the user says
    assert all_threads() == 1


def test_many_processes_crowd_a_core(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0, 9.0, 9.0), raising=False)
    assert crowding() is None
    monkeypatch.setattr(os, "getloadavg", lambda: (10.0, 0.0, 0.0))
    assert crowding() == 2.5
