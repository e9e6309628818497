"""Sequences step by step, for weights that the chip cannot hold: a product and a generated kernel each.

Launching a step costs more than the step takes. So the steps of a kind that comes again are recorded, as
CUDA graphs of a few lengths from which any number of steps is put together. A recording is bound to
the number of rows only: the kernels find tensors and time in a table (see ``emit/steps.py``), and what the
products read and write is the recording's own.
"""

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from elman.recurrence.triton.emit.steps import HEADER, backward, forward, tiled
from elman.recurrence.triton.emit.writer import Variant
from elman.recurrence.triton.launch import ALIGNED, launch
from elman.recurrence.triton.module import kernels, source_of
from elman.recurrence.triton.spec import ScanSpec
from elman.tensors.products import tf32_products

WRITERS = {"forward": forward, "backward": backward}
LENGTHS = (64, 8, 1)  # steps of a graph
HIGHEST = 65535  # tiles of rows that CUDA takes at once
MOST = 16  # kinds of sequences that are remembered at a time
SHARE = 1 / 8  # of the free memory that a recording may take


def forward_by_steps(spec: ScanSpec, variant: Variant, arguments: Mapping[str, Tensor]) -> None:
    """Fill the outputs, the final state and what the backward pass reads, as ``emit`` describes them."""
    initial = arguments["initial"]
    arguments["final"].copy_(initial)
    with _steps("forward", spec, variant, arguments) as steps:
        if spec.step.equations.products:
            steps.buffers["now"][..., : spec.H].copy_(_masked(initial[:, 0], arguments))
        steps.take(spec.T, arguments)


def backward_by_steps(spec: ScanSpec, variant: Variant, arguments: Mapping[str, Tensor]) -> None:
    """Fill the gradients of the parts, the vectors and the initial state."""
    e, d_initial = spec.step.equations, arguments["d_initial"]
    if "d_final" in arguments:
        d_initial.copy_(arguments["d_final"])
    else:
        d_initial.zero_()
    with _steps("backward", spec, variant, arguments) as steps:
        for name, buffer in steps.buffers.items():
            if name in ("arrived", "sums"):
                buffer.zero_()
        steps.take(spec.T, arguments)
        if e.products:
            d_initial[:, 0] += _masked(steps.buffers["arrived"], arguments)
        if e.vectors:
            arguments["d_vectors"].copy_(steps.buffers["sums"].sum(2))


def _masked(state: Tensor, arguments: Mapping[str, Tensor]) -> Tensor:
    return state * arguments["mask"] if "mask" in arguments else state


class StepRunner:
    """Runs the forward or backward steps of so many rows, and holds what stays from one to the next."""

    def __init__(
        self, name: str, spec: ScanSpec, variant: Variant, weight: Tensor | None, like: Tensor
    ) -> None:
        e, B, D, H, tiles = spec.step.equations, spec.B, spec.D, spec.H, tiled(variant)
        G, V = len(e.products), len(e.vectors)
        self.name, self.weight = name, weight
        self.source = source_of(spec.step, WRITERS[name], variant)
        self.launches = [  # the first row, and the grid
            (first, (tiles.programs, -(-min(HIGHEST * tiles.rows, B - first) // tiles.rows), D))
            for first in range(0, B, HIGHEST * tiles.rows)
        ]
        self.numbers = {"B": B, "reverse": int(spec.reverse)}
        self.graphs: dict[int, torch.cuda.CUDAGraph] | None = None  # by length; None: nothing is recorded

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return like.new_empty(shape, dtype=dtype)

        size = HEADER + len(kernels(self.source)["prepare"].arg_names)
        self.buffers = {"table": empty(size, dtype=torch.int64)}
        if G and name == "forward":
            self.buffers["now"] = empty(D, B, tiles.stride, dtype=spec.numbers)
            self.buffers["products"] = empty(D, B, G * H)
            self.product = self.buffers["now"][..., :H], self.buffers["products"]
        elif G:
            self.buffers["sent"] = empty(D, B, G * H, dtype=spec.numbers)
            self.buffers["arrived"] = empty(D, B, H)
            self.product = self.buffers["sent"], self.buffers["arrived"]
        if V and name == "backward":
            self.buffers["sums"] = empty(D, V, B, H)

    def take(self, count: int, tensors: Mapping[str, Tensor]) -> None:
        given = {name: _readable(name, tensor) for name, tensor in tensors.items()}
        given["table"] = self.buffers["table"]
        launch(self.source, "prepare", (1, 1, 1), given, {"T": count}, warps=1, cooperative=False)
        for length in LENGTHS:
            while count >= length:
                graph = None if self.graphs is None else self._graph(length)
                if graph is None:
                    self._launch(count)
                    return
                graph.replay()
                count -= length

    def _launch(self, count: int) -> None:
        for offset in range(count):
            if self.name == "forward":
                self._multiply()
            for first, grid in self.launches:
                numbers = {**self.numbers, "first": first, "offset": offset}
                launch(self.source, self.name, grid, self.buffers, numbers, warps=4, cooperative=False)
            if self.name == "backward":
                self._multiply()
        self.buffers["table"][0].add_(count)

    def _multiply(self) -> None:
        """Multiply the state by the weights, or the gradients of the products by their transpose."""
        if self.weight is None:
            return
        a, result = self.product
        weight = self.weight if self.name == "forward" else self.weight.transpose(1, 2)
        if a.dtype == result.dtype:
            torch.bmm(a, weight, out=result)
        elif a.is_cuda:
            torch.bmm(a, weight, out_dtype=torch.float32, out=result)
        else:  # torch has such products on CUDA only
            torch.bmm(a.float(), weight.float(), out=result)

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
def _steps(
    name: str, spec: ScanSpec, variant: Variant, arguments: Mapping[str, Tensor]
) -> Iterator[StepRunner]:
    """Who runs the steps of one sequence: recorded from the second of a kind on, where that is possible."""
    weight, like = arguments.get("weight"), arguments["initial"]
    plain = functools.partial(StepRunner, name, spec, variant, weight, like)
    if not like.is_cuda or torch.cuda.is_current_stream_capturing():  # a recording of the user's own
        yield plain()
        return
    stream = torch.cuda.current_stream(like.device).cuda_stream
    source = source_of(spec.step, WRITERS[name], variant)
    key = (source, spec.B, spec.reverse, like.device, stream, tf32_products())
    with _using:
        steps = _recordings.get(key)
        if steps is None and key in _recordings:
            steps = _recording(plain)
        if steps is None:
            yield plain()
            _remember(key, None)  # only now: what was interrupted may have compiled nothing
            return
        _remember(key, steps)
        if weight is not None and steps.weight is not None:
            steps.weight.copy_(weight)
        yield steps


def _recording(make: Callable[[], StepRunner]) -> StepRunner | None:
    """A runner whose steps are to be recorded, with weights of its own; None where memory is short."""
    with torch.inference_mode(False):  # others will write to the buffers too
        steps = make()
        weight, device = steps.weight, steps.buffers["table"].device
        needed = sum(t.nbytes for t in (*steps.buffers.values(), weight) if t is not None)
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        if needed > SHARE * (torch.cuda.mem_get_info(device)[0] + unused):
            return None
        steps.weight = None if weight is None else torch.empty_like(weight)
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
