"""A model's step as a recording: made once as a CUDA graph for so many rows, and replayed from then on.

Launching the kernels of a step costs more than the step takes. A graph is bound to addresses and sizes, so
what a step reads is copied to tensors of its own, and rows take their places in a grid, K for each of U
examples, where places that nobody has repeat a live row. U is a power of two: rows leave by halves, and
batches of similar sizes share their graphs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from elman.decoding.fixed import FixedStep, StepResult, join, signature
from elman.decoding.grid import Grid, Pool, RecordedGrid, form, grid_size
from elman.decoding.rows import LazyRows, Nested
from elman.recurrence.notices import say_once
from elman.tensors.nested import map_tensors
from elman.tensors.products import tf32_products
from elman.tensors.rows import Groups
from elman.tensors.transfer import moved

MakeFixed = Callable[[], FixedStep]

MOST = 32  # grids that are remembered at a time


class GridState(LazyRows):
    """The state of the live rows.

    values: with a row for each place. places, examples: (N,) of each live row. first: before the first step.
    """

    def __init__(self, values: Nested, places: Tensor, examples: Tensor, *, first: bool = False) -> None:
        self.values, self.places, self.examples, self.first = values, places, examples, first

    def at(self, index: Tensor) -> GridState:
        return GridState(self.values, self.places[index], self.examples[index])


class RecordedStep:
    """A step function for ``decode`` over a fixed one: tokens are read from the host.

    The first step of a search is taken as it is, since it has one row an example and often a state of
    another form than all others. From then on rows stand in a grid.
    """

    def __init__(
        self, fixed: FixedStep, device: torch.device, width: int, known: Hashable, recordings: Recordings
    ) -> None:
        """
        Args:
            width: rows of an example, at most.
            known: what recordings of this model are known by.
        """
        self.fixed, self.device, self.width, self.known = fixed, device, width, known
        self.recordings = recordings
        self.grid: RecordedGrid | None = None
        self.members = torch.empty(0, dtype=torch.long)

    def start(self, first: Tensor) -> tuple[RecordedStep, Tensor, GridState]:
        """What a search begins with: the step function, the tokens (B,) that it reads first, the state."""
        numbers = torch.arange(len(first))
        return self, first.cpu(), GridState(self.fixed.state, numbers, numbers, first=True)

    def __call__(self, tokens: Tensor, state: GridState) -> tuple[Tensor, GridState, Nested]:
        with _on(self.device):
            if state.first:
                return self._first(tokens, state)
            groups = Groups.of(state.examples)
            entering = self._enter(state, groups)
            grid = self.grid
            assert grid is not None
            stand = Grid.of(groups, self.members, grid.U, grid.K)
            grid.tell(tokens[stand.rows], state.places[stand.rows], stand.places)
            if entering:
                grid.load(state.values, self.fixed.given, self.members)
            log_probs, after, shown = self._run(grid)
            wanted = grid.wanted(len(tokens))
            found = log_probs.index_select(0, wanted)
            shown = map_tensors(lambda part: part.index_select(0, wanted), shown)
            return found, GridState(after, stand.places, state.examples), shown

    def _first(self, tokens: Tensor, state: GridState) -> tuple[Tensor, GridState, Nested]:
        fixed = self.fixed
        log_probs, after, shown = fixed.function(moved(tokens, self.device), fixed.state, fixed.given)
        return log_probs, GridState(after, state.places, state.examples), shown

    def _enter(self, state: GridState, groups: Groups) -> bool:
        """Whether the rows enter a grid at this step: the first one, or a smaller one."""
        self.width = max(self.width, groups.K)
        U, K, grid = grid_size(len(groups.examples)), self.width, self.grid
        if grid is not None and state.values is grid.state and U == grid.U and K == grid.K:
            return False
        key = (self.known, U, K, form(state.values, 1), form(self.fixed.given, 1))
        self.grid = self.recordings.grid(key, U, K, state.values, self.fixed.given, self.device)
        self.members = groups.examples
        return True

    def _run(self, grid: RecordedGrid) -> StepResult:
        if self.recordings.worth(grid, self.known):
            try:
                grid.record(self.fixed.function, *self.recordings.means(self.device))
            except RuntimeError as error:
                self.recordings.refuse(self.known, error)
        return grid.run(self.fixed.function)


class Recordings:
    """The recorded steps of the models of a task, the latest of them.

    A model is known by its object, its options and the addresses of its weights, so that training, which
    changes weights where they lie, goes on with the recordings, and all else makes new ones. Whoever finds
    them in use by another thread goes without.
    """

    def __init__(self, devices: Sequence[str] = ("cuda",)) -> None:
        """
        Args:
            devices: the kinds of devices where rows stand in grids; only on CUDA's is anything recorded.
        """
        self.devices = tuple(devices)
        self._grids: OrderedDict[Hashable, RecordedGrid] = OrderedDict()
        self._refused: set[Hashable] = set()
        self._means: dict[torch.device, tuple[torch.cuda.Stream, Pool]] = {}
        self._using = threading.Lock()

    def __reduce__(self) -> tuple[type[Recordings], tuple[tuple[str, ...]]]:
        return Recordings, (self.devices,)

    @contextmanager
    def step(
        self, fixed: Sequence[MakeFixed | None], devices: Sequence[torch.device], width: int
    ) -> Iterator[RecordedStep | None]:
        """One step function of these models for a search; None where they cannot be recorded."""
        steps = self._steps(fixed, devices)
        known = self._known(steps, devices[0]) if steps else None
        if known is None or not self._using.acquire(blocking=False):
            yield None
            return
        try:
            yield RecordedStep(join(steps), devices[0], width, known, self)
        finally:
            self._using.release()

    def _steps(self, fixed: Sequence[MakeFixed | None], devices: Sequence[torch.device]) -> list[FixedStep]:
        """What may be recorded; empty where something speaks against it."""
        device, makes = devices[0], [make for make in fixed if make is not None]
        if device.type not in self.devices or any(one != device for one in devices):
            return []
        if len(makes) < len(fixed) or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            return []
        return [make() for make in makes]

    def _known(self, steps: Sequence[FixedStep], device: torch.device) -> Hashable | None:
        """What the recordings of these models are known by; None where there can be none."""
        models = [signature(one.model) for one in steps]
        casts = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        ways = tf32_products(), casts, torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
        known = (device, *models, *ways)
        return None if None in models or known in self._refused else known

    def grid(
        self, key: Hashable, U: int, K: int, state: Nested, given: Nested, device: torch.device
    ) -> RecordedGrid:
        """The grid of this kind; when there are too many, the one that was used longest ago goes."""
        if key not in self._grids:
            self._grids[key] = RecordedGrid(U, K, state, given, device)
            if len(self._grids) > MOST:
                self._grids.popitem(last=False)[1].close()
        self._grids.move_to_end(key)
        return self._grids[key]

    def worth(self, grid: RecordedGrid, known: Hashable) -> bool:
        """Whether it is time to record it."""
        return grid.ready() and known not in self._refused

    def refuse(self, known: Hashable, error: RuntimeError) -> None:
        """Never record this model again."""
        self._refused.add(known)
        self._means.clear()
        reason = str(error).strip().split("\n")[0]
        say_once(
            f"a decoding step cannot be recorded ({reason}): it is launched anew each time, which is slower"
        )

    def means(self, device: torch.device) -> tuple[torch.cuda.Stream, Pool]:
        """The stream on which steps are recorded, and memory for all recordings: no two run at a time.

        Torch takes memory back with the last recording in it, and the next one has to ask for other.
        """
        alive = any(grid.graph is not None and grid.device == device for grid in self._grids.values())
        if device not in self._means:
            self._means[device] = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()
        elif not alive:
            self._means[device] = self._means[device][0], torch.cuda.graph_pool_handle()
        return self._means[device]


def _on(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
