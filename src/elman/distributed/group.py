"""The workers of a training, of which this process is one: what they tell each other."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from elman.distributed.place import SUPERVISOR, Place
from elman.distributed.sums import Sums, make_sums
from elman.distributed.watch import Watch, deadline, first_line, lost

MEETING = 40.0  # seconds until all have come that were started together
UNTIL_WATCH = timedelta(days=7)  # an exchange may take long; the watch knows when it will not end


class Group:
    """All workers, once they have met. What one of them calls, all call, in the same order.

    asked: the signal that some worker was asked to stop by, as all know since the last exchange; 0: none.
    wish: tells the signal that this worker was asked to stop by.
    """

    def __init__(self, place: Place) -> None:
        self.rank, self.size, self.local_rank = place.rank, place.size, place.local_rank
        self.on_one_machine = place.local_size == place.size
        self.wish: Callable[[], int] = int
        self.asked = 0
        self.nccl: dist.ProcessGroup | None = None
        self._sums: Sums | None = None
        try:
            if self.on_one_machine and any(name == "lo" for _, name in socket.if_nameindex()):
                os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            with deadline(MEETING, "the workers did not meet"):
                found, _, _ = next(rendezvous("env://", timeout=UNTIL_WATCH))
                own = os.environ.get(SUPERVISOR, "")  # at this port there may be another group, too
                store = PrefixStore(own, found)
                self.watch = Watch(PrefixStore(own, found.clone()), self.rank, self.size)
                dist.init_process_group(
                    "gloo", store=store, rank=self.rank, world_size=self.size, timeout=UNTIL_WATCH
                )
                self.watch.start()
        except (RuntimeError, ValueError, OSError) as error:
            lost(f"the workers did not meet: {first_line(error)}")

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.watch.ended.set()

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Inside, something is exchanged: a worker that has gone meanwhile ends this one."""
        try:
            with self.watch.wait():
                yield
        except RuntimeError as error:  # of torch, whose errors of all kinds these are
            lost(f"a worker has gone: {first_line(error)}")

    def update(self) -> AbstractContextManager[None]:
        """Inside, others may count on this worker soon."""
        return self.watch.update()

    def place(self, device: torch.device) -> torch.device:
        """The device of this worker, where settings name one for all."""
        if device.type != "cuda":
            return device
        count = torch.cuda.device_count()
        if str(device) == "cuda":  # any of them
            device = torch.device("cuda", self.local_rank % count)
        torch.cuda.set_device(device)
        alone = self.meet([float(self.local_rank < count)])
        if all(row[0] for row in alone):  # else GPUs are shared, which NCCL refuses
            self.nccl = dist.new_group(backend="nccl", timeout=UNTIL_WATCH)
        return device

    def meet(self, numbers: Sequence[float] = ()) -> list[list[float]]:
        """Wait for all; the numbers of each."""
        own = torch.tensor([float(self.wish()), *numbers], dtype=torch.float64)
        found = [torch.empty_like(own) for _ in range(self.size)]
        with self.exchange():
            dist.all_gather(found, own)
        rows = [one.tolist() for one in found]
        self.asked = int(max(row[0] for row in rows))
        return [row[1:] for row in rows]

    def broadcast(self, data: bytes) -> bytes:
        """What the first worker gives, for all."""
        size = int(self.meet([float(len(data))])[0][0])
        memory = bytearray(data if self.rank == 0 else size) or bytearray(1)
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        with self.exchange():
            dist.broadcast(whole, 0)
        return whole.numpy().tobytes()[:size]

    def sums(self, count: int, device: torch.device) -> Sums:
        """Room to add up so many numbers of each worker."""
        if self._sums is None or self._sums.room < count:
            self._sums = None
            self._sums = make_sums(self, count, device)
        return self._sums

    def leave(self) -> None:
        """Wait until all are through: the first one has saved what there is to save."""
        self.meet()


def rows_of(rank: int, size: int, B: int) -> Tensor:
    """The rows of a batch that a worker computes: every so manieth, since neighbours are of like length.

    >>> rows_of(1, 2, 5), rows_of(2, 4, 2)
    (tensor([1, 3]), tensor([], dtype=torch.int64))
    """
    return torch.arange(rank, B, size) if rank < B else torch.zeros(0, dtype=torch.int64)
