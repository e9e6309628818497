"""Sums over all workers, added in the order of their ranks: the same bits on all of them, every time.

Worker r adds up the r-th part of all numbers, and all fetch all parts. On one machine without a GPU that is
done in memory that the workers share; otherwise over the network, or between GPUs.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    from elman.distributed.group import Group


class Sums(Protocol):
    """Room for so many numbers of each worker, and their sums."""

    room: int

    def own(self, count: int) -> Tensor:
        """Where this worker puts so many numbers; they may be summed once all have come to an exchange."""

    def total(self, count: int) -> Tensor:
        """The sums of all, not to be changed; they are there until the next exchange."""


def make_sums(group: Group, count: int, device: torch.device) -> Sums:
    """All workers call this at the same time, with the same count."""
    part = -(-count // group.size)
    if group.on_one_machine and device.type == "cpu":
        room = part * group.size * (group.size + 1)
        file = _make_memory(4 * room) if group.rank == 0 else None
        try:
            name = group.broadcast(
                b"" if file is None else f"/proc/{os.getpid()}/fd/{file}".encode()
            ).decode()
            memory = _mapped(name, room) if name else None
            there = group.meet([float(memory is not None)])
        finally:
            if file is not None:
                os.close(file)
        if memory is not None and all(row[0] for row in there):
            return SharedSums(group, memory, part)
    return NetworkSums(group, part, device)


def _make_memory(size: int) -> int | None:
    """A file in memory that goes when its processes do, or None where there is no such room."""
    if not hasattr(os, "memfd_create"):  # on Linux alone
        return None
    file = os.memfd_create("elman")
    try:
        os.posix_fallocate(file, 0, size)
    except OSError:
        os.close(file)
        return None
    return file


def _mapped(name: str, room: int) -> Tensor | None:
    """The numbers of another process's file, where the system lets it be opened."""
    with suppress(RuntimeError):  # of torch
        return torch.from_file(name, shared=True, size=room, dtype=torch.float32)
    return None


class SharedSums:
    """In memory that is shared: a row of numbers for each worker, and one of their sums."""

    def __init__(self, group: Group, memory: Tensor, part: int) -> None:
        self.group, self.part, self.room = group, part, part * group.size
        *rows, sums = memory.split(self.room)
        self.rows: list[Tensor] = rows
        self.sums: Tensor = sums

    def own(self, count: int) -> Tensor:
        return self.rows[self.group.rank][:count]

    def total(self, count: int) -> Tensor:
        mine = slice(self.group.rank * self.part, (self.group.rank + 1) * self.part)
        first, second, *more = (row[mine] for row in self.rows)
        sums = self.sums[mine]
        torch.add(first, second, out=sums)
        for row in more:
            sums += row
        self.group.meet()
        return self.sums[:count]


class NetworkSums:
    """By messages: each worker sends every other its part, and gets the sums back."""

    def __init__(self, group: Group, part: int, device: torch.device) -> None:
        self.group, self.part, self.room = group, part, part * group.size
        self.numbers = torch.zeros(self.room, device=device)
        self.where = device if group.nccl is not None else torch.device("cpu")

    def own(self, count: int) -> Tensor:
        return self.numbers[:count]

    def total(self, count: int) -> Tensor:
        given = self.numbers.to(self.where)
        received, sums = torch.empty_like(given), torch.empty_like(given)
        with self.group.exchange():
            dist.all_to_all_single(received, given, group=self.group.nccl)
        first, second, *more = received.split(self.part)
        mine = first + second
        for part in more:
            mine += part
        with self.group.exchange():
            dist.all_gather(list(sums.split(self.part)), mine, group=self.group.nccl)
        return sums[:count].to(self.numbers.device)
