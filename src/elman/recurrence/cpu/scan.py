"""The whole walk over time as one differentiable operation around the compiled kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from elman.errors import BackendError, ShapeError
from elman.recurrence.again import differentiate
from elman.recurrence.contract import Noise, Walkable
from elman.recurrence.cpu.kernel import Kernel, threads
from elman.recurrence.loop import walk_parts
from elman.recurrence.replay import Replay
from elman.recurrence.trace import Arrivals
from elman.tensors.memory import check_memory, dense
from elman.tensors.products import affine, multiply
from elman.tensors.rows import fill_padding, pick, spread
from elman.tensors.tracing import observed, own_precision

SMALL = 1 << 17  # multiplications below which a second thread costs more than it gives
BULK = 1 << 22  # numbers of input parts that inference holds at a time: more would only be paged in and out
SPLIT = 1 << 16  # weights from which on two threads may share them and meet at every step


@dataclass(frozen=True)
class Shape:
    """Where things lie: B rows, up to T steps; N real steps in all, listed by ``index`` if padded."""

    B: int
    T: int
    H: int
    reverse: bool
    lengths: Tensor | None = None
    index: Tensor | None = None

    @property
    def N(self) -> int:
        return self.B * self.T if self.index is None else len(self.index)

    def rows(self, x: Tensor) -> Tensor:
        """(B, T, ·) → (N, ·)"""
        flat = x.reshape(self.B * self.T, x.shape[-1])
        return flat if self.index is None else pick(flat, self.index)

    @property
    def after(self) -> Tensor:
        """(N,): how many steps of its row are walked after this one."""
        t = torch.arange(self.T).expand(self.B, self.T)
        last = self.T - 1 if self.lengths is None else self.lengths[:, None] - 1
        return self.rows((t if self.reverse else last - t)[..., None])[:, 0]

    def padded(self, rows: Tensor) -> Tensor:
        """(N, ·) → (B, T, ·) with zeros"""
        full = rows if self.index is None else spread(rows, self.index, self.B * self.T)
        return full.view(self.B, self.T, rows.shape[-1])


@dataclass(frozen=True)
class Leaves:
    """The tensors that the walk reads, in the order in which the operation takes them.

    Without ``W_x``, ``x`` holds the input parts themselves (a cell with a projection of its own).
    """

    x: Tensor  # (N, D)
    W_x: Tensor | None
    b: Tensor | None
    W_h: Tensor | None
    mask: Tensor | None
    noise: tuple[Tensor, ...]
    vectors: tuple[Tensor, ...]
    initial: tuple[Tensor, ...]

    def flat(self) -> tuple[Tensor | None, ...]:
        return (
            self.x,
            self.W_x,
            self.b,
            self.W_h,
            self.mask,
            *self.noise,
            *self.vectors,
            *self.initial,
        )

    @staticmethod
    def of(kernel: Kernel, flat: tuple[Any, ...]) -> Leaves:
        first = 5 + len(kernel.equations.noise)
        second = first + len(kernel.equations.vectors)
        x, W_x, b, W_h, mask = flat[:5]
        return Leaves(x, W_x, b, W_h, mask, flat[5:first], flat[first:second], flat[second:])


def scan(kernel: Kernel, cell: Walkable, leaves: Leaves, shape: Shape, whole: bool) -> tuple[Any, Any]:
    """States at all real steps (N, H) — all of them, or only the first — and the final state."""
    _check_leaves(kernel, leaves, shape)
    flat = leaves.flat()
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in flat):
        results: tuple[Tensor, ...] = _Scan.apply(kernel, cell, shape, whole, *flat)  # type: ignore[no-untyped-call]
    else:
        results = _infer(kernel, leaves, shape, whole)
    fields = len(leaves.initial)
    return results[:-fields], cell.State(*results[-fields:])


class _Scan(torch.autograd.Function):
    """Forward and backward through time by the kernel; a second derivative goes through the loop."""

    @staticmethod
    def forward(ctx: Any, kernel: Kernel, cell: Walkable, shape: Shape, whole: bool, *flat: Any) -> Any:
        results, kept = _forward(kernel, Leaves.of(kernel, flat), shape, whole, training=True)
        ctx.kernel, ctx.cell, ctx.shape, ctx.whole, ctx.count = (
            kernel,
            cell,
            shape,
            whole,
            len(flat),
        )
        ctx.save_for_backward(*flat, *kept)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        tensors, wanted = ctx.saved_tensors, ctx.needs_input_grad[4:]
        leaves = Leaves.of(ctx.kernel, tensors[: ctx.count])
        with own_precision(leaves.x):
            kernel = _way_back(ctx.kernel, leaves, gradients)
            if kernel is None or torch.is_grad_enabled() or observed(*gradients) is not None:
                walk = partial(_walk_again, ctx.cell, ctx.kernel, ctx.shape, ctx.whole)
                found = differentiate(walk, leaves.flat(), gradients, wanted, again=torch.is_grad_enabled())
            else:
                _check_leaves(ctx.kernel, leaves, ctx.shape)  # a parameter's data may be another's by now
                found = _backward(kernel, leaves, ctx.shape, tensors[ctx.count :], gradients, wanted)
        return None, None, None, None, *found


def _way_back(kernel: Kernel, leaves: Leaves, gradients: tuple[Tensor | None, ...]) -> Kernel | None:
    """The kernel for gradients that come from where these do; None where it cannot be compiled."""
    fields, there = len(leaves.initial), [g is not None for g in gradients]
    always = (*there[:-fields], *(False,) * (2 * fields - len(there)))
    try:
        return kernel.arriving(Arrivals(always, tuple(there[-fields:])))
    except BackendError:  # the compiler served this process before, but no more
        return None


def _check_leaves(kernel: Kernel, leaves: Leaves, shape: Shape) -> None:
    """The kernel goes by address: what is not laid out as it expects must not reach it."""
    e, B, N, H = kernel.equations, shape.B, shape.N, shape.H
    wide, deep = len(e.inputs) * H, len(e.products) * H
    D = wide if leaves.W_x is None else leaves.x.shape[-1]
    expected: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
        ("what project returns" if leaves.W_x is None else "x", leaves.x, (N, D)),
        ("W_x", leaves.W_x, (D, wide)),
        ("b", leaves.b, (wide,)),
        ("W_h", leaves.W_h, (H, deep)),
        ("noise.mask", leaves.mask, (B, H)),
        *(("noise.zoneout", drawn, (N, H)) for drawn in leaves.noise),
        *((name, vector, (H,)) for name, vector in zip(e.vectors, leaves.vectors, strict=True)),
        *((f"state.{name}", field, (B, H)) for name, field in zip(e.states, leaves.initial, strict=True)),
    ]
    for name, tensor, wanted in expected:
        if tensor is not None:
            check_memory(name, tensor, wanted, kernel.dtype)
    if (leaves.W_h is None) != (deep == 0):
        raise ShapeError("W_h is missing, though the equations read recurrent parts")


def _infer(kernel: Kernel, leaves: Leaves, shape: Shape, whole: bool) -> tuple[Tensor, ...]:
    """Without gradients a large batch goes through in groups of rows, since its input parts are not kept."""
    B, T = shape.B, shape.T
    rows = max(16, BULK // max(1, T * len(kernel.equations.inputs) * shape.H))
    if shape.lengths is not None or rows >= B:
        return _forward(kernel, leaves, shape, whole, training=False)[0]
    fields = len(leaves.initial)
    results = [leaves.x.new_empty(shape.N, shape.H) for _ in range(fields if whole else 1)]
    results += [leaves.x.new_empty(B, shape.H) for _ in range(fields)]
    for first in range(0, B, rows):
        last = min(first + rows, B)
        steps = slice(first * T, last * T)
        part = replace(
            leaves,
            x=leaves.x[steps],
            mask=None if leaves.mask is None else leaves.mask[first:last],
            noise=tuple(n[steps] for n in leaves.noise),
            initial=tuple(s[first:last] for s in leaves.initial),
        )
        places = [r[first:last] if r.shape[0] == B else r[steps] for r in results]
        _forward(kernel, part, replace(shape, B=last - first), whole, training=False, places=places)
    return tuple(results)


def _forward(
    kernel: Kernel,
    leaves: Leaves,
    shape: Shape,
    whole: bool,
    *,
    training: bool,
    places: list[Tensor] | None = None,
) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
    """Run the kernel forward: what it returns (into ``places``), and what the backward pass needs."""
    like, H, N = leaves.x, shape.H, shape.N
    fields = len(leaves.initial)
    shown = fields if whole else 1
    kept = fields if training else shown
    if leaves.W_x is not None:
        parts = multiply(leaves.x, leaves.W_x, leaves.b)
    else:
        parts = leaves.x.clone() if training and kernel.overlaid else leaves.x
    if places is None:
        places = [like.new_empty(N, H) for _ in range(kept)]
        places += [like.new_empty(shape.B, H) for _ in range(fields)]
    sequences, final = places[:-fields], places[-fields:]
    saved = like.new_empty(N, kernel.saved * H) if training else None
    given = _operand(leaves) @ leaves.W_h if shape.T == 1 and leaves.W_h is not None else None
    plan = _Plan(kernel, leaves, shape, groups=1, given=given is not None)
    kernel.call(
        "forward",
        **plan.task,
        x=parts,
        given=given,
        final=final,
        sequence=sequences,
        saved=saved,
        training=int(training),
    )
    return (*sequences[:shown], *final), (parts, saved, *sequences)


def _backward(
    kernel: Kernel,
    leaves: Leaves,
    shape: Shape,
    kept: tuple[Tensor | None, ...],
    gradients: tuple[Tensor | None, ...],
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Run the kernel backward; the gradients of weights are products over all steps after it."""
    e, H, N = kernel.equations, shape.H, shape.N
    parts, saved, *sequences = kept
    like, D = leaves.x, leaves.x.shape[-1]
    fields, W_h = len(leaves.initial), leaves.W_h
    for tensor, width in (
        (parts, len(e.inputs) * H),
        (saved, kernel.saved * H),
        *((s, H) for s in sequences),
    ):
        check_memory("what was saved for the way back", tensor, (N, width), kernel.dtype)
    arrived = [None if g is None else dense(g) for g in gradients]
    d_parts = like.new_empty(N, len(e.inputs) * H)
    d_products = d_parts if kernel.shared else like.new_empty(N, len(e.products) * H)
    d_initial = [torch.empty_like(t) for t in leaves.initial]
    # One gate gradient for x and h: their weights' gradients are then one product, [x; h]ᵀ d.
    learns = wanted[3] and kernel.learns
    joint = kernel.shared and wanted[1] and learns
    operand = like.new_empty(N, (D if joint else 0) + H) if learns else None
    single = shape.T == 1 and W_h is not None
    plan = _Plan(kernel, leaves, shape, groups=len(e.products), given=single)
    d_vectors = like.new_zeros(plan.threads, len(e.vectors), kernel.width(H))
    kernel.call(
        "backward",
        **plan.task,
        x=parts,
        given=d_products if single else None,
        sequence=sequences,
        saved=saved,
        d_sequence=arrived[:-fields],
        d_final=arrived[-fields:],
        d_x=d_parts,
        d_product=d_products,
        d_initial=d_initial,
        d_vector=d_vectors,
        operand=operand,
        operand_stride=0 if operand is None else operand.shape[1],
    )
    if single and W_h is not None:
        reached = d_products @ W_h.t()
        d_initial[0] += reached if leaves.mask is None else reached * leaves.mask
    if operand is not None and kernel.presence is not None:  # where nothing arrives, nothing was multiplied
        operand[:, -H:].masked_fill_(~kernel.presence.of_products(shape.after)[:, None], 0.0)
    d_W_x = d_W_h = None
    if joint and operand is not None:
        operand[:, :D] = leaves.x
        d_W_x, d_W_h = (operand.t() @ d_parts).split((D, H))
    else:
        if operand is not None:
            d_W_h = operand.t() @ d_products
        if wanted[1]:
            d_W_x = leaves.x.t() @ d_parts
    d_x = d_parts
    if leaves.W_x is not None:
        d_x = multiply(d_parts, leaves.W_x.t()) if wanted[0] else None  # type: ignore[assignment]
    return (
        d_x,
        d_W_x,
        d_parts.sum(0) if wanted[2] else None,
        d_W_h,
        None,
        *((None,) * len(leaves.noise)),
        *(d_vectors.sum(0)[:, :H].unbind(0) if e.vectors else ()),
        *d_initial,
    )


def _operand(leaves: Leaves) -> Tensor:
    return leaves.initial[0] if leaves.mask is None else leaves.initial[0] * leaves.mask


class _Plan:
    """How the work is shared out between threads, and the part of the task that follows from it."""

    def __init__(self, kernel: Kernel, leaves: Leaves, shape: Shape, *, groups: int, given: bool) -> None:
        """
        Args:
            groups: how many rows of H the weights multiply at a step (states: 1, gradients: gates).
            given: the recurrent products are made elsewhere.
        """
        B, H, fields = shape.B, shape.H, len(leaves.initial)
        W_h = None if given else leaves.W_h
        weights = 0 if W_h is None else W_h.numel()
        self.threads = threads() if shape.N * (weights + 8 * H) > SMALL else 1
        split = self.threads > 1 and 3 * self.threads > B and weights >= SPLIT
        if not split:
            self.threads = min(self.threads, B)
        row, offset, length = self._order(shape.lengths, 1 if split else self.threads)
        width, panel = kernel.width(H), 4 * kernel.lanes
        states = fields * B * width
        operands = 0 if W_h is None else 2 * B * groups * width
        packed = 0 if W_h is None else W_h.shape[1] * (-(-H // panel) * panel)
        workspace = leaves.x.new_empty(states + operands + packed)
        self.task: dict[str, Any] = {
            "rows": B,
            "steps": shape.T,
            "units": H,
            "reverse": int(shape.reverse),
            "threads": self.threads,
            "split": int(split),
            "row": row,
            "offset": offset,
            "length": length,
            "weight": W_h,
            "mask": leaves.mask,
            "vector": leaves.vectors,
            "noise": leaves.noise,
            "initial": leaves.initial,
            "states": workspace,
            "operands": workspace[states:],
            "packed": workspace[states + operands :],
        }

    @staticmethod
    def _order(lengths: Tensor | None, parts: int) -> tuple[Tensor | None, ...]:
        """Rows longest first, dealt to the threads in turn: (row, offset, length) by position."""
        if lengths is None:
            return None, None, None
        order = lengths.argsort(descending=True, stable=True)
        if parts > 1:
            order = torch.cat([order[part::parts] for part in range(parts)])
        offsets = lengths.cumsum(0) - lengths
        return order, offsets[order], lengths[order]


def _walk_again(cell: Walkable, kernel: Kernel, shape: Shape, whole: bool, flat: list[Any]) -> list[Tensor]:
    """What the kernel computed, by the plain loop."""
    leaves = Leaves.of(kernel, tuple(flat))
    noise = zip(kernel.equations.noise, leaves.noise, strict=True)
    zoneout: dict[str, Any] = {name: rate for name, rate in kernel.rates.items() if rate is not None}
    zoneout |= {name: shape.padded(n) != 0 for name, n in noise}
    parts = shape.padded(leaves.x if leaves.W_x is None else affine(leaves.x, leaves.W_x, leaves.b))
    states, final = walk_parts(
        Replay(cell, kernel.plain).with_vectors(leaves.vectors),
        parts if shape.lengths is None else fill_padding(parts, shape.lengths),
        leaves.W_h,
        cell.State(*leaves.initial),
        shape.lengths,
        reverse=shape.reverse,
        noise=Noise(mask=leaves.mask, zoneout=zoneout),
    )
    return [*(shape.rows(field) for field in (states if whole else states[:1])), *final]
