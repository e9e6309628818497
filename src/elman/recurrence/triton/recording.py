"""Steps that are launched one by one, and recorded as CUDA graphs where their kind comes again.

Launching a step costs more than the step takes. So the steps of a kind that comes again are recorded, as
CUDA graphs of a few lengths from which any number of steps is put together. A recording is bound to
the number of rows only: the kernels find tensors and time in a table (see ``emit/steps.py``), and what the
products read and write is the recording's own.
"""

import functools
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import Tensor

from elman.recurrence.triton.emit.steps import HEADER
from elman.recurrence.triton.launch import ALIGNED, launch
from elman.recurrence.triton.module import kernels
from elman.tensors.products import tf32_products

LENGTHS = (64, 32, 16, 8, 4, 2, 1)  # steps of a graph
HIGHEST = 65535  # tiles of rows that CUDA takes at once
MOST = 16  # kinds of sequences that are remembered at a time
SHARE = 1 / 8  # of the free memory that a recording may take

Grids: TypeAlias = list[tuple[int, tuple[int, int, int]]]  # the first row of each launch, and its grid


class StepRunner(ABC):
    """Runs the forward or backward steps of so many rows, and holds what stays from one to the next."""

    def __init__(
        self,
        source: str,
        B: int,
        reverse: bool,
        weights: Sequence[Tensor],
        like: Tensor,
        *,
        overlap: bool = False,
    ) -> None:
        self.source, self.weights, self.overlap = source, list(weights), overlap
        self.B, self.numbers = B, {"B": B, "reverse": int(reverse)}
        self.graphs: dict[int, torch.cuda.CUDAGraph] | None = None  # by length; None: nothing is recorded
        size = HEADER + len(kernels(source)["prepare"].arg_names)
        self.buffers = {"table": like.new_empty(size, dtype=torch.int64)}

    @abstractmethod
    def step(self, offset: int) -> None:
        """Launch one step, so many after the one that the table names."""

    def begin(self) -> None:
        """Launch what comes before the first step."""
        return

    def end(self) -> None:
        """Launch what comes after the last one."""
        return

    def take(self, count: int, tensors: Mapping[str, Tensor]) -> None:
        given = {name: _readable(name, tensor) for name, tensor in tensors.items()}
        given["table"] = self.buffers["table"]
        launch(self.source, "prepare", (1, 1, 1), given, {"T": count}, warps=1)
        self._pause()
        self.begin()
        for length in LENGTHS:
            while count >= length:
                graph = None if self.graphs is None else self._graph(length)
                if graph is None:
                    self._launch(count)
                    count = 0
                    break
                graph.replay()
                count -= length
        self._pause()
        self.end()

    def _pause(self) -> None:
        """Let what was launched come to its end, where a kernel may begin before that and read of it."""
        if self.overlap:
            self.buffers["table"][-1].zero_()  # by a kernel that waits; nobody reads this entry

    def grids(self, rows: int, programs: int, directions: int) -> Grids:
        """The launches that cover all rows, where so many programs share the units of some rows."""
        most = HIGHEST * rows
        return [
            (first, (programs, -(-min(most, self.B - first) // rows), directions))
            for first in range(0, self.B, most)
        ]

    def run(self, name: str, grids: Grids, offset: int, *, warps: int) -> None:
        """Launch one kernel for all rows."""
        for first, grid in grids:
            numbers = {**self.numbers, "first": first, "offset": offset}
            launch(self.source, name, grid, self.buffers, numbers, warps=warps, overlap=self.overlap)

    def _launch(self, count: int) -> None:
        for offset in range(count):
            self.step(offset)
        self.buffers["table"][0].add_(count)

    def _graph(self, length: int) -> torch.cuda.CUDAGraph | None:
        """Record so many steps as a graph; None where they cannot be recorded, now and from now on."""
        assert self.graphs is not None
        if length not in self.graphs:
            graph, device = torch.cuda.CUDAGraph(), self.buffers["table"].device
            here = torch.cuda.current_stream(device)
            beside = _stream_beside(device, here.cuda_stream)
            recorded = torch.cuda.graph(graph, stream=beside, capture_error_mode="thread_local")
            try:
                with torch.cuda.stream(here), recorded:  # which leaves its own stream set where it fails
                    self._launch(length)
            except RuntimeError:
                self.graphs = None
                return None
            self.graphs[length] = graph
        return self.graphs[length]


def multiply(a: Tensor, weight: Tensor, result: Tensor) -> None:
    """``result = a weight`` for (D, B, K) and (D, K, N), in float32 whatever is multiplied."""
    if a.dtype == result.dtype:
        torch.bmm(a, weight, out=result)
    elif a.is_cuda:
        torch.bmm(a, weight, out_dtype=torch.float32, out=result)
    else:  # torch has such products on CUDA only
        torch.bmm(a.float(), weight.float(), out=result)


def _readable(name: str, tensor: Tensor) -> Tensor:
    """Return a tensor as the kernels expect it; torch aligns its own memory, so only inputs are copied."""
    if name == "mask":
        tensor = tensor.to(torch.float32)
    return tensor if tensor.data_ptr() % ALIGNED == 0 else tensor.clone()


@functools.cache
def _stream_beside(device: torch.device, stream: int) -> torch.cuda.Stream:
    """Where steps are recorded that run on this stream: the products share working memory with no other."""
    return torch.cuda.Stream(device)


_using = threading.Lock()  # from the first use of a recording's buffers in a sequence to the last
_recordings: OrderedDict[Hashable, StepRunner | None] = OrderedDict()  # None: seen once, which compiled it


@contextmanager
def step_runner(
    make: Callable[[Sequence[Tensor]], StepRunner],
    weights: Sequence[Tensor],
    source: str,
    sizes: tuple[int, bool],
    like: Tensor,
) -> Iterator[StepRunner]:
    """Who runs the steps of one sequence: recorded from the second of a kind on, where that is possible.

    Args:
        make: gives one for these weights; a recording has a copy of them.
        sizes: the number of rows, and whether they are read from the end.
    """
    if not like.is_cuda or torch.cuda.is_current_stream_capturing():  # a recording of the user's own
        yield make(weights)
        return
    stream = torch.cuda.current_stream(like.device).cuda_stream
    key = (source, *sizes, like.device, stream, tf32_products())
    with _using:
        steps = _recordings.get(key)
        if steps is None and key in _recordings:
            steps = _recording(make, weights)
        if steps is None:
            yield make(weights)
            _remember(key, None)  # only now: what was interrupted may have compiled nothing
            return
        _remember(key, steps)
        for own, weight in zip(steps.weights, weights, strict=True):
            own.copy_(weight)
        yield steps


def _recording(
    make: Callable[[Sequence[Tensor]], StepRunner], weights: Sequence[Tensor]
) -> StepRunner | None:
    """A runner whose steps are to be recorded, with weights of its own; None where memory is short."""
    with torch.inference_mode(False):  # others will write to the buffers too
        steps = make(weights)
        device = steps.buffers["table"].device
        needed = sum(t.nbytes for t in (*steps.buffers.values(), *weights))
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if needed > SHARE * (torch.cuda.mem_get_info(device)[0] + unused):
            return None
        steps.weights = [weight.new_empty(weight.shape) for weight in weights]
    steps.graphs = {}
    return steps


def _remember(key: Hashable, steps: StepRunner | None) -> None:
    """Keep these steps as the latest; the oldest are forgotten when they have come to their end."""
    _recordings[key] = steps
    _recordings.move_to_end(key)
    if len(_recordings) > MOST:
        _, oldest = _recordings.popitem(last=False)
        if oldest is not None:
            torch.cuda.synchronize(oldest.buffers["table"].device)
