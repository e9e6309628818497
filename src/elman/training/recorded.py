"""Updates recorded as CUDA graphs, one for every shape that comes again, and why they may not be."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from elman.cells.base import Cell
from elman.models.counting import CountedModel
from elman.recurrence.notices import say_once
from elman.tasks.buckets import Counts
from elman.tensors.nested import map_tensors, tensors_in
from elman.tensors.transfer import fill
from elman.training.optim import capturable
from elman.training.update import Batch, Carry, Computed, UpdateComputation

WARM = 2  # updates of a shape before it is recorded: they compile kernels, and make the optimiser's state
MOST = 64  # shapes that are recorded; further ones run one by one
OptimizerState: TypeAlias = dict[Tensor, dict[str, object]]
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Recording(NamedTuple):
    """A graph, the memory that it reads, and what it leaves at every replay, in the same place."""

    graph: torch.cuda.CUDAGraph
    batches: list[Batch]
    carry: Carry
    result: Computed

    def replay(self, batches: Sequence[Batch], carry: Carry) -> Computed:
        for place, tensor in zip(
            tensors_in([*self.batches, self.carry]), tensors_in([*batches, carry]), strict=True
        ):
            fill(place, tensor)
        self.graph.replay()
        return self.result._replace(counts=[batch.counts for batch in batches])


class RecordedUpdates:
    """Runs updates: those of a shape that comes again as one CUDA graph each, the others one by one.

    It is the same function either way, and the same numbers bit for bit: kernels are those that were launched
    while it was recorded, and random numbers go on from where the generator is. A recording that fails
    changes nothing, and is the last that is tried.
    """

    def __init__(self, update: UpdateComputation) -> None:
        self.update, self.optimizer, self.device = update, update.optimizer, update.device
        self.obstacle = find_obstacle(update)  # why nothing is recorded, or None
        self.seen: Counter[Hashable] = Counter()
        self.recordings: dict[Hashable, Recording] = {}
        self.pool: Any = None  # memory of all recordings: none runs while another does
        self.stream: torch.cuda.Stream | None = None
        self.latest: torch.cuda.CUDAGraph | None = None  # if it failed, torch may still ask it

    @property
    def summary(self) -> str:
        """How updates run, in a few words."""
        if self.obstacle is None:
            return "recorded as CUDA graphs"
        return f"one by one, since {self.obstacle}"

    def run(self, batches: Sequence[Batch], carry: Carry, phase: str | None) -> Computed:
        """One update of batches, which are still with the CPU where they are bucketed.

        Args:
            phase: what else decides which kernels are launched; None: this update comes only once.
        """
        if self.obstacle is None and phase is not None:
            key = (shape_of(batches), shape_of(carry), phase)
            if key in self.recordings:
                return self.recordings[key].replay(batches, carry)
            self.seen[key] += 1
            if self.seen[key] > WARM and len(self.recordings) < MOST:
                self.obstacle = find_obstacle(self.update)  # somebody may have begun to listen
                if self.obstacle is None:
                    return self._record(key, batches, carry)
                self.forget()
        return self.update.compute(self.update.moved(batches), carry)

    def forget(self) -> None:
        """Drop all recordings: the tensors that they read and write are others now."""
        self.recordings.clear()
        self.seen.clear()

    def _record(self, key: Hashable, batches: Sequence[Batch], carry: Carry) -> Computed:
        """Record an update and replay it, which is when it is computed; or compute it as it is."""
        inputs, start = self.update.moved(batches), map_tensors(Tensor.clone, carry)
        generator = _generator(self.device)
        random, state = generator.clone_state(), _state_of(self.optimizer)
        try:
            with torch.cuda.device(self.device):
                recording = self._capture(inputs, start)
            if _places(_state_of(self.optimizer)) != _places(state):
                raise RuntimeError("the optimiser began the state of a weight")
        except RuntimeError as error:
            self.obstacle = f"recording failed: {' '.join(str(error).split())[:200]}"
            generator.graphsafe_set_state(random)  # torch may have left the other in the midst of it
            self.optimizer.state.clear()
            self.optimizer.state.update(state)
            self.optimizer.zero_grad(set_to_none=True)
            self.forget()
            say_once(f"updates run {self.summary}")
            return self.update.compute(inputs, carry)
        self.recordings[key] = recording
        recording.graph.replay()  # its inputs are there already
        return recording.result

    def _capture(self, batches: list[Batch], carry: Carry) -> Recording:
        if self.stream is None:
            self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(self.device)
        graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        self.latest = graph
        self.optimizer.zero_grad(set_to_none=True)  # gradients begin in the memory of the recording
        recorded = torch.cuda.graph(
            graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"
        )
        with (
            capturable(self.optimizer),
            torch.cuda.stream(here),
            recorded,
        ):  # its stream stays set if it fails
            result = self.update.compute(batches, carry)
        self.optimizer.zero_grad(set_to_none=True)  # the next recording may have that memory
        return Recording(graph, batches, carry, result)


def shape_of(nested: object) -> Hashable:
    """What a recording of an update is bound to: shapes and kinds of numbers, and what is no tensor.

    How many losses there are is none of it, for that is told to the device.
    """
    if isinstance(nested, Tensor):
        return tuple(nested.shape), nested.dtype
    if isinstance(nested, Counts):
        return "counts"
    if isinstance(nested, (tuple, list)):
        return tuple(shape_of(part) for part in nested)
    return nested if isinstance(nested, Hashable) else repr(nested)


def find_obstacle(update: UpdateComputation) -> str | None:
    """Why updates cannot be recorded, or None."""
    model, optimizer, device = update.model, update.optimizer, update.device
    if isinstance(model, CountedModel):
        return "the model is counted"
    if device.type != "cuda":
        return f"the device is {device.type}"
    if update.settings.graphs == "off":
        return "training.graphs is 'off'"
    if update.shared:
        return "several workers share them"
    if update.scaler.is_enabled():
        return f"the host looks after the scale of {update.settings.precision}"
    if not update.rate_there:
        return f"the optimiser {type(optimizer).__name__} is no fused kernel of torch"
    if not update.bucketed:
        return f"batches of {type(update.task).__name__} have no bucketed()"
    return update.task.unrecordable or _own_code(model) or _listeners(model, optimizer)


def _own_code(model: nn.Module) -> str | None:
    """A module of the user's may decide in Python what a recording would keep; equations do not.

    One that says ``recordable = True`` promises that it does not either.
    """
    for module in model.modules():
        kind = type(module)
        ours = kind.__module__.partition(".")[0] in ("elman", "torch") or getattr(module, "recordable", False)
        if not ours and not (isinstance(module, Cell) and _is_equations(module)):
            return f"{kind.__name__} is code of its own, which does not say recordable = True"
    return None


def _is_equations(cell: Cell) -> bool:
    return cell.equations is not None and not (cell.projects_itself or cell.reads_whole_state)


def _listeners(model: nn.Module, optimizer: Optimizer) -> str | None:
    """Hooks are called by Python, which a replay does not ask."""
    for module in model.modules():
        if any(getattr(module, hooks) for hooks in HOOKS):
            return f"{type(module).__name__} has hooks"
    if any(weight._backward_hooks or weight._post_accumulate_grad_hooks for weight in model.parameters()):
        return "a weight has hooks"
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return f"{type(optimizer).__name__} has hooks"
    return None


def _generator(device: torch.device) -> torch.Generator:
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


def _state_of(optimizer: Optimizer) -> OptimizerState:
    return {weight: dict(values) for weight, values in optimizer.state.items()}


def _places(state: OptimizerState) -> set[tuple[int, str, int]]:
    """Which tensors of a state are where."""
    return {(id(weight), name, id(value)) for weight, own in state.items() for name, value in own.items()}
