"""The whole unrolled sequence as one differentiable operation around the compiled kernel."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from elman.errors import BackendError
from elman.recurrence.contract import RecurrentCell, State
from elman.recurrence.cpu.kernel import Kernel, TaskFields, threads
from elman.recurrence.direction import DirectionTensors, arrivals_of, replay, steps_after
from elman.recurrence.double_backward import differentiate
from elman.recurrence.heads import learn_by_heads, multiply_by_heads, whole_matrix
from elman.tensors.memory import check_memory, dense, new_memory
from elman.tensors.products import affine, multiply
from elman.tensors.rows import RealSteps
from elman.tensors.scratch import Scratch
from elman.tensors.tracing import observed, own_precision

SMALL = 1 << 17  # multiplications below which a second thread costs more than it gives
BULK = 1 << 22  # numbers of input parts that inference holds at a time: more would only be paged in and out
SPLIT = 1 << 16  # weights from which on two threads may share them and meet at every step


class ScanSpec(NamedTuple):
    """What a scan is told besides its tensors: the kernel, the cell, and where things lie.

    B rows, up to T steps, N real steps in all, which ``real`` lists where there is padding.
    all_states: the sequences of all states are returned, not only that of the first.
    """

    kernel: Kernel
    cell: RecurrentCell
    B: int
    T: int
    H: int
    reverse: bool
    all_states: bool
    lengths: Tensor | None = None
    real: Tensor | None = None

    @property
    def heads(self) -> int:
        """Of the recurrent weights; none of a cell that multiplies nothing."""
        return self.cell.heads if self.kernel.equations.products else 1

    @property
    def N(self) -> int:
        return RealSteps(self.B, self.T, self.real).N

    def rows(self, x: Tensor) -> Tensor:
        """Pick the real steps: (B, T, ·) → (N, ·)."""
        return RealSteps(self.B, self.T, self.real).rows(x)

    def padded(self, rows: Tensor) -> Tensor:
        """Put the real steps back among zeros: (N, ·) → (B, T, ·)."""
        return RealSteps(self.B, self.T, self.real).padded(rows)


def scan(spec: ScanSpec, flat: Sequence[Tensor | None]) -> tuple[tuple[Tensor, ...], State]:
    """States at all real steps (N, H) — all of them, or only the first — and the final state.

    The tensors are the input (N, D), or without ``W_x`` the input parts, and those of the direction.
    """
    x, tensors = _split(spec, flat)
    _check_memory(spec, x, tensors)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in flat):
        results: tuple[Tensor, ...] = _Scan.apply(spec, *flat)  # type: ignore[no-untyped-call]
    else:
        results = _infer(spec, x, tensors)
    fields = len(tensors.initial)
    return results[:-fields], spec.cell.State(*results[-fields:])


class _Scan(torch.autograd.Function):
    """Forward and backward through time by the kernel; a second derivative goes through the loop."""

    @staticmethod
    def forward(ctx: Any, spec: ScanSpec, *flat: Tensor | None) -> tuple[Tensor, ...]:
        x, tensors = _split(spec, flat)
        results, kept = _forward(spec, x, tensors, training=True)
        ctx.spec, ctx.count = spec, len(flat)
        ctx.save_for_backward(*flat, *kept)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        spec, saved, wanted = ctx.spec, ctx.saved_tensors, ctx.needs_input_grad[1:]
        flat, create_graph = saved[: ctx.count], torch.is_grad_enabled()
        x, tensors = _split(spec, flat)
        states, kernel = len(tensors.initial), None
        with own_precision(x):
            arrivals = arrivals_of(gradients, len(gradients) - states, states)
            with suppress(BackendError):  # the compiler served this process before, but may no more
                kernel = None if arrivals is None else spec.kernel.arriving(arrivals)
            if kernel is None or create_graph or observed(*gradients) is not None:
                compute = partial(_by_the_loop, spec)
                found = differentiate(compute, flat, gradients, wanted, create_graph=create_graph)
            else:
                _check_memory(spec, x, tensors)  # a parameter's data may be another's by now
                with Scratch(kernel.dtype) as scratch:
                    found = _backward(
                        spec, kernel, scratch, x, tensors, saved[ctx.count :], gradients, wanted
                    )
        return None, *found


def _split(spec: ScanSpec, flat: Sequence[Tensor | None]) -> tuple[Tensor, DirectionTensors]:
    assert flat[0] is not None
    return flat[0], DirectionTensors.of(spec.kernel.equations, flat[1:])


def _check_memory(spec: ScanSpec, x: Tensor, tensors: DirectionTensors) -> None:
    """The kernel goes by address: what is not laid out as it expects must not reach it."""
    kernel, N, H = spec.kernel, spec.N, spec.H
    e = kernel.equations
    projected = tensors.W_x is None
    D = len(e.inputs) * H if projected else x.shape[-1]
    check_memory("what project returns" if projected else "x", x, (N, D), kernel.dtype)
    for name, tensor, expected in tensors.expected(e, spec.B, (N,), D, H, spec.heads):
        check_memory(name, tensor, expected, kernel.dtype)


def _infer(spec: ScanSpec, x: Tensor, tensors: DirectionTensors) -> tuple[Tensor, ...]:
    """Without gradients a large batch goes through in groups of rows, since its input parts are not kept."""
    B, T, H = spec.B, spec.T, spec.H
    rows = max(16, BULK // max(1, T * len(spec.kernel.equations.inputs) * H))
    if spec.lengths is not None or rows >= B:
        return _forward(spec, x, tensors, training=False)[0]
    fields = len(tensors.initial)
    results = [new_memory((spec.N, H), x.dtype) for _ in range(fields if spec.all_states else 1)]
    results += [x.new_empty(B, H) for _ in range(fields)]
    for first in range(0, B, rows):
        last = min(first + rows, B)
        steps = slice(first * T, last * T)
        part = tensors._replace(
            mask=None if tensors.mask is None else tensors.mask[first:last],
            noise=tuple(n[steps] for n in tensors.noise),
            initial=tuple(s[first:last] for s in tensors.initial),
        )
        places = [r[first:last] if r.shape[0] == B else r[steps] for r in results]
        own = spec._replace(B=last - first)
        _forward(own, x[steps], part, training=False, places=places)
    return tuple(results)


def _forward(
    spec: ScanSpec, x: Tensor, tensors: DirectionTensors, training: bool, places: list[Tensor] | None = None
) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
    """Run the kernel forward: what it returns (into ``places``), and what the backward pass needs."""
    kernel, H, N, fields = spec.kernel, spec.H, spec.N, len(tensors.initial)
    shown = fields if spec.all_states else 1
    kept = fields if training else shown
    if tensors.W_x is not None:
        parts = multiply(x, tensors.W_x, tensors.b)
    else:
        parts = x.clone() if training and kernel.overlaid else x
    if places is None:
        places = [new_memory((N, H), x.dtype) for _ in range(kept)]
        places += [x.new_empty(spec.B, H) for _ in range(fields)]
    sequences, final = places[:-fields], places[-fields:]
    saved = new_memory((N, kernel.saved * H), x.dtype) if training else None
    given = None
    if spec.T == 1 and tensors.W_h is not None:
        h = tensors.initial[0]
        operand = h if tensors.mask is None else h * tensors.mask
        given = multiply_by_heads(operand, tensors.W_h, len(kernel.equations.products))
    with Scratch(kernel.dtype) as scratch:
        task, _ = _share_out(spec, scratch, tensors, groups=1, given=given is not None)
        task |= {"x": parts, "given": given, "final": final, "sequence": sequences}
        kernel.call("forward", task | {"saved": saved, "training": int(training)})
    return (*sequences[:shown], *final), (parts, saved, *sequences)


def _backward(
    spec: ScanSpec,
    kernel: Kernel,
    scratch: Scratch,
    x: Tensor,
    tensors: DirectionTensors,
    kept: tuple[Tensor | None, ...],
    gradients: tuple[Tensor | None, ...],
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Run the kernel backward; the gradients of weights are products over all steps after it."""
    e, H, N, D = kernel.equations, spec.H, spec.N, x.shape[-1]
    parts, saved, *sequences = kept
    fields, W_h = len(tensors.initial), tensors.W_h
    widths = (len(e.inputs) * H, kernel.saved * H, *(H for _ in sequences))
    for tensor, width in zip(kept, widths, strict=True):
        check_memory("what was saved for the backward pass", tensor, (N, width), kernel.dtype)
    arrived = [None if g is None else dense(g) for g in gradients]
    wide = N, len(e.inputs) * H
    d_parts = (
        new_memory(wide, x.dtype) if tensors.W_x is None else scratch.empty(*wide)
    )  # else nobody sees it
    d_products = d_parts if kernel.shared else scratch.empty(N, len(e.products) * H)
    d_initial = [torch.empty_like(t) for t in tensors.initial]
    # One gate gradient for x and h: their weights' gradients are then one product, [x; h]ᵀ d.
    learns = wanted[3] and kernel.learns
    joint = kernel.shared and wanted[1] and learns and spec.heads == 1
    operand = scratch.empty(N, (D if joint else 0) + H) if learns else None
    single = spec.T == 1 and W_h is not None
    task, threads = _share_out(spec, scratch, tensors, groups=len(e.products), given=single)
    d_vectors = x.new_zeros(spec.heads, threads, len(e.vectors), kernel.width(H // spec.heads))
    task |= {"x": parts, "given": d_products if single else None, "sequence": sequences, "saved": saved}
    task |= {"d_sequence": arrived[:-fields], "d_final": arrived[-fields:], "d_x": d_parts}
    task |= {"d_product": d_products, "d_initial": d_initial, "d_vector": d_vectors, "operand": operand}
    kernel.call("backward", task | {"operand_stride": 0 if operand is None else operand.shape[1]})
    if single and W_h is not None:
        reached = d_products @ whole_matrix(W_h, len(e.products)).t()
        d_initial[0] += reached if tensors.mask is None else reached * tensors.mask
    if operand is not None and kernel.presence is not None:  # where nothing arrives, nothing was multiplied
        after = steps_after(spec.T, spec.B, spec.lengths, spec.reverse, x.device)
        there = kernel.presence.of_products(spec.rows(after[..., None]))
        operand[:, -H:].masked_fill_(~there, 0.0)
    d_W_x = d_W_h = None
    if joint and operand is not None:
        operand[:, :D] = x
        d_W_x, d_W_h = multiply(operand.t(), d_parts).split((D, H))
    else:
        if operand is not None:
            d_W_h = learn_by_heads(operand, d_products, spec.heads, multiply)
        if wanted[1]:
            d_W_x = multiply(x.t(), d_parts)
    d_x = d_parts
    if tensors.W_x is not None:
        d_x = multiply(d_parts, tensors.W_x.t()) if wanted[0] else None  # type: ignore[assignment]
    d_b = d_parts.sum(0) if wanted[2] else None
    own = d_vectors.sum(1)[..., : H // spec.heads].transpose(0, 1)  # (vectors, heads, units)
    d_v = own.reshape(-1, H).unbind(0) if e.vectors else ()
    return d_x, d_W_x, d_b, d_W_h, None, *(None for _ in tensors.noise), *d_v, *d_initial


def _share_out(
    spec: ScanSpec, scratch: Scratch, tensors: DirectionTensors, *, groups: int, given: bool
) -> tuple[TaskFields, int]:
    """The part of a task that follows from how threads share the work, and how many threads do.

    Args:
        groups: how many rows of H the weights multiply at a step (states: 1, gradients: gates).
        given: the recurrent products are made elsewhere.
    """
    B, H, lengths, heads = spec.B, spec.H, spec.lengths, spec.heads
    units = H // heads
    W_h = None if given else tensors.W_h
    weights = 0 if W_h is None else W_h.numel()
    count = threads() if spec.N * (weights + 8 * H) > SMALL else 1
    split = count > 1 and 3 * count > B and (weights >= SPLIT or not spec.kernel.equations.products)
    split = split and heads == 1
    count = count if split else min(count, B if count <= B else heads * B)
    width, panel = spec.kernel.width(units), 4 * spec.kernel.lanes
    states = heads * len(tensors.initial) * B * width
    operands = 0 if W_h is None else heads * 2 * B * groups * width
    packed = 0 if W_h is None else heads * W_h.shape[1] * (-(-units // panel) * panel)
    workspace = scratch.empty(states + operands + packed)
    task: TaskFields = {"rows": B, "steps": spec.T, "units": units, "reverse": int(spec.reverse)}
    task |= {"heads": heads, "all_units": H}
    task |= {"threads": count, "split": int(split), "weight": W_h, "mask": tensors.mask}
    task |= {
        "vector": tensors.vectors,
        "noise": tensors.noise,
        "initial": tensors.initial,
        "states": workspace,
    }
    task |= {"operands": workspace[states:], "packed": workspace[states + operands :]}
    if lengths is not None:  # rows longest first, dealt to the threads in turn
        order = lengths.argsort(descending=True, stable=True)
        if 1 < count <= B and not split:
            order = torch.cat([order[part::count] for part in range(count)])
        offsets = lengths.cumsum(0) - lengths
        task |= {"row": order, "offset": offsets[order], "length": lengths[order]}
    return task, count


def _by_the_loop(spec: ScanSpec, flat: list[Tensor | None]) -> list[Tensor]:
    x, tensors = _split(spec, flat)
    kernel = spec.kernel
    zoneout: dict[str, Tensor | float] = {name: r for name, r in kernel.rates.items() if r is not None}
    drawn = zip(kernel.equations.noise, tensors.noise, strict=True)
    zoneout |= {name: spec.padded(noise) != 0 for name, noise in drawn}
    parts = spec.padded(x if tensors.W_x is None else affine(x, tensors.W_x, tensors.b))
    rest = zoneout, spec.lengths, spec.reverse
    states, final = replay(spec.cell, kernel.plain, parts, tensors, tensors.initial, *rest)
    return [*(spec.rows(field) for field in (states if spec.all_states else states[:1])), *final]
