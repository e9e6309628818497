"""Live rows in a grid that has tensors of its own, where a step is taken, and recorded if it comes often."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from elman.decoding.fixed import StepFunction, StepResult
from elman.decoding.rows import Nested, select
from elman.tensors.nested import map_tensors, tensors_in
from elman.tensors.rows import Groups
from elman.tensors.transfer import moved

Pool: TypeAlias = Any  # torch's name of memory that recordings share

LEAST = 16  # examples of the smallest grid
PATIENCE = 2  # steps that a grid takes before it is worth recording
SHARE = 1 / 32  # of the free memory that the distributions of a recording may take


class Grid(NamedTuple):
    """N live rows among U · K places.

    rows: (U · K,) the live row at each place; where there is none, one that is repeated and not asked for.
    places: (N,) where each live row stands.
    """

    rows: Tensor
    places: Tensor

    @classmethod
    def of(cls, groups: Groups, members: Tensor, U: int, K: int) -> Grid:
        """
        Args:
            groups: the live rows by example.
            members: (at most U) the examples that have places, rising; some may have no row any more.

        >>> Grid.of(Groups.of(torch.tensor([2, 5, 5])), torch.tensor([2, 3, 5]), U=4, K=2)
        Grid(rows=tensor([0, 0, 0, 0, 1, 2, 0, 0]), places=tensor([0, 4, 5]))
        """
        members_first = torch.searchsorted(members, groups.examples)
        rows = torch.zeros(U, K, dtype=torch.long)
        rows[members_first] = groups.first[:, None]
        places = members_first[groups.group] * K + groups.slot
        rows = rows.flatten()
        rows[places] = torch.arange(len(places))
        return cls(rows, places)


def grid_size(examples: int) -> int:
    """For so many examples, those that a grid has: a power of two, and not the fewest.

    >>> [grid_size(examples) for examples in (1, 16, 17, 100, 128)]
    [16, 16, 32, 128, 128]
    """
    return max(LEAST, 1 << (examples - 1).bit_length())


def form(nested: Nested, first: int = 0) -> Hashable:
    """The nesting of a state with shapes and numbers of its tensors, from an axis on."""
    if isinstance(nested, Tensor):
        return nested.shape[first:], nested.dtype
    if isinstance(nested, dict):
        return tuple((name, form(part, first)) for name, part in nested.items())
    if isinstance(nested, (tuple, list)):
        return getattr(nested, "_fields", None), tuple(form(part, first) for part in nested)
    return type(nested).__name__


class RecordedGrid:
    """A grid of U examples with K rows each: their state, what is given, and the step as a graph."""

    def __init__(self, U: int, K: int, state: Nested, given: Nested, device: torch.device) -> None:
        """
        Args:
            state, given: of the kinds that the grid is made for, with any number of rows.
        """
        self.U, self.K, self.device = U, K, device
        with torch.inference_mode(False):  # others will write to them too
            self.state = map_tensors(lambda part: part.new_empty(U * K, *part.shape[1:]), state)
            self.given = map_tensors(lambda part: part.new_empty(U, *part.shape[1:]), given)
            self.numbers = torch.zeros(3, U * K, dtype=torch.long, device=device)
            self.order = torch.arange(U * K, device=device)
        self.uses, self.size, self.stable = 0, 0, False
        self.graph: torch.cuda.CUDAGraph | None = None
        self.results: tuple[Tensor, Nested] | None = None  # of the graph: log probabilities and what is shown

    def tell(self, tokens: Tensor, places: Tensor, wanted: Tensor) -> None:
        """What the next step reads, and of which places: (U · K,) each; and whose results are wanted (N,)."""
        padding = wanted.new_zeros(len(tokens) - len(wanted))
        numbers = torch.stack([tokens, places, torch.cat([wanted, padding])])
        self.numbers.copy_(numbers.pin_memory() if self.numbers.is_cuda else numbers, non_blocking=True)

    def wanted(self, N: int) -> Tensor:
        """The places (N,) whose results were wanted."""
        return self.numbers[2, :N]

    def load(self, state: Nested, given: Nested, members: Tensor) -> None:
        """Take the rows of another state, as they were told, and what is given of these examples."""
        _copy(self.state, select(state, self.numbers[1]))
        self.numbers[1].copy_(self.order)
        index = torch.cat([members, members[-1:].expand(self.U - len(members))])
        _copy(self.given, select(given, moved(index, self.device)))

    def run(self, function: StepFunction) -> StepResult:
        """Log probabilities of all places, the state after them, and what is shown.

        They are overwritten by the next step of the grid; the state is the grid's own, if it keeps its form.
        """
        self.uses += 1
        if self.graph is not None and self.results is not None:
            self.graph.replay()
            log_probs, shown = self.results
            return log_probs, self.state, shown
        log_probs, after, shown = self._compute(function)
        self.size, self.stable = log_probs.nbytes, form(after) == form(self.state)
        if not self.stable:
            return log_probs, after, shown
        _copy(self.state, after)
        return log_probs, self.state, shown

    def ready(self) -> bool:
        """Whether it is worth recording now, and there is memory for it."""
        if self.graph is not None or self.device.type != "cuda" or not self.stable or self.uses < PATIENCE:
            return False
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return self.size <= SHARE * (torch.cuda.mem_get_info(self.device)[0] + unused)

    def record(self, function: StepFunction, beside: torch.cuda.Stream, pool: Pool) -> None:
        """Record the step as a graph; RuntimeError where it cannot be."""
        here = torch.cuda.current_stream(self.device)
        beside.wait_stream(here)
        with torch.cuda.stream(beside), _uncached_casts():
            self._compute(function)  # what is made at the first use on a stream
            beside.synchronize()
            try:
                self.graph, self.results = self._capture(function, pool)
            except RuntimeError:
                _capture_nothing(self.order)
                raise
        here.wait_stream(beside)

    def _capture(
        self, function: StepFunction, pool: Pool
    ) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, Nested]]:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            log_probs, after, shown = self._compute(function)
            _copy(self.state, after)
        finally:
            graph.capture_end()
        return graph, (log_probs, shown)

    def close(self) -> None:
        """Let what was replayed come to its end before its memory goes."""
        if self.graph is not None:
            torch.cuda.synchronize(self.device)

    def _compute(self, function: StepFunction) -> StepResult:
        return function(self.numbers[0], select(self.state, self.numbers[1]), self.given)


def _capture_nothing(like: Tensor) -> None:
    """After a recording that failed, torch's generator of the device waits for its end; this is one."""
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="thread_local")
    like.clone()
    graph.capture_end()


def _copy(into: Nested, values: Nested) -> None:
    """Copy nested tensors into others of the same form."""
    for own, value in zip(tensors_in(into), tensors_in(values), strict=True):
        own.copy_(value)


def _uncached_casts() -> AbstractContextManager[object]:
    """Inside autocast, weights are converted in the recording, not before it: they may change."""
    if not torch.is_autocast_enabled("cuda"):
        return nullcontext()
    return torch.autocast("cuda", torch.get_autocast_dtype("cuda"), cache_enabled=False)
