"""The whole walk over time as one differentiable operation around the generated kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from elman.recurrence.again import differentiate
from elman.recurrence.contract import Noise, Walkable
from elman.recurrence.loop import walk_parts
from elman.recurrence.replay import Replay
from elman.recurrence.trace import Arrivals, Equations
from elman.recurrence.triton.emit.backward import backward
from elman.recurrence.triton.emit.forward import forward
from elman.recurrence.triton.emit.kernel import ROUNDS, Step, Variant
from elman.recurrence.triton.launch import DoesNotFit, launch
from elman.recurrence.triton.plan import Plan
from elman.recurrence.triton.steps import walk_back_by_steps, walk_by_steps
from elman.tensors.rows import fill_padding, length_mask
from elman.tensors.tracing import observed, own_precision

WRITERS = {"forward": forward, "backward": backward}


@dataclass(frozen=True)
class Direction:
    """What one direction of a layer reads besides the input; its order is that of ``flat``."""

    W_x: Tensor | None  # None: the input is the parts themselves
    b: Tensor | None
    W_h: Tensor | None
    mask: Tensor | None
    noise: tuple[Tensor, ...]
    vectors: tuple[Tensor, ...]
    initial: tuple[Tensor | None, ...]  # None: zero

    def flat(self) -> tuple[Tensor | None, ...]:
        return (self.W_x, self.b, self.W_h, self.mask, *self.noise, *self.vectors, *self.initial)

    @staticmethod
    def of(step: Step, flat: Sequence[Any]) -> Direction:
        e = step.equations
        first = 4 + len(e.noise)
        second = first + len(e.vectors)
        W_x, b, W_h, mask = flat[:4]
        rest = (tuple(flat[4:first]), tuple(flat[first:second]), tuple(flat[second:]))
        return Direction(W_x, b, W_h, mask, *rest)


@dataclass(frozen=True)
class Walk:
    """One walk: the cells of its directions, their equations (in ``step`` with zoneout), the plan, the sizes.

    numbers: what is multiplied; ``exact``: those of the weights. The state is float32 throughout.
    rates: of zoneouts that are an expectation, by state.
    refuse: to be called where the plan turns out not to fit on the way back.
    """

    cells: tuple[Walkable, ...]
    equations: Equations
    step: Step
    plan: Plan
    numbers: torch.dtype
    exact: torch.dtype
    precision: str
    B: int
    T: int
    H: int
    reverse: bool
    lengths: Tensor | None
    whole: bool
    rates: Mapping[str, float]
    refuse: Callable[[], None] = lambda: None

    @property
    def D(self) -> int:
        return len(self.cells)

    @property
    def shown(self) -> tuple[str, ...]:
        """States whose sequence is returned."""
        states = self.step.equations.states
        return states if self.whole else states[:1]

    def variant(self, *, mask: bool, training: bool, d_final: bool = False) -> Variant:
        return Variant(
            H=self.H,
            rows=self.plan.rows,
            units=self.plan.units,
            numbers=str(self.numbers).removeprefix("torch."),
            precision=self.precision,
            directions=self.D,
            lengths=self.lengths is not None,
            mask=mask,
            whole=self.whole,
            training=training,
            d_final=d_final,
            block=self.plan.block,
            held=self.plan.held,
        )

    def split(self, flat: Sequence[Any]) -> tuple[Tensor, list[Direction]]:
        """The input and the directions, from tensors in a row."""
        x, *rest = flat
        size = len(rest) // self.D
        return x, [Direction.of(self.step, rest[d * size : (d + 1) * size]) for d in range(self.D)]


def scan(walk: Walk, x: Tensor, directions: list[Direction]) -> tuple[tuple[Tensor, ...], list[Any]]:
    """States of all steps, (B, T, D · H) for every shown state, and the final state of every direction."""
    flat = [x, *(t for direction in directions for t in direction.flat())]
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in flat):
        results: Sequence[Tensor] = _Scan.apply(walk, *flat)  # type: ignore[no-untyped-call]
    else:
        results = _forward(walk, x, directions, training=False)[0]
    sequences, finals = results[: len(walk.shown)], results[len(walk.shown) :]
    size = len(walk.step.equations.states)
    each = (finals[d * size : (d + 1) * size] for d in range(walk.D))
    return tuple(sequences), [cell.State(*final) for cell, final in zip(walk.cells, each, strict=True)]


class _Scan(torch.autograd.Function):
    """Forward and backward through time by the kernels; a second derivative goes through the loop."""

    @staticmethod
    def forward(ctx: Any, walk: Walk, *flat: Any) -> Any:
        x, directions = walk.split(flat)
        results, kept = _forward(walk, x, directions, training=True)
        ctx.walk, ctx.count, ctx.names = walk, len(flat), tuple(kept)
        ctx.save_for_backward(*flat, *kept.values())
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        walk, tensors, wanted = ctx.walk, ctx.saved_tensors, ctx.needs_input_grad[1:]
        flat, kept = tensors[: ctx.count], dict(zip(ctx.names, tensors[ctx.count :], strict=True))
        again = torch.is_grad_enabled()
        arrivals = _arrivals(walk, gradients)
        if arrivals is not None and not again and observed(*gradients) is None:
            try:
                with own_precision(flat[0]):
                    with_these = replace(walk, step=walk.step.arriving(arrivals))
                    return None, *_backward(with_these, flat, kept, gradients, wanted)
            except DoesNotFit:  # found out only now: this once by the loop, from now on by another plan
                walk.refuse()
        return None, *differentiate(partial(_walk_again, walk), flat, gradients, wanted, again=again)


# ---- forward -------------------------------------------------------------------------------------


def _forward(
    walk: Walk, x: Tensor, directions: list[Direction], *, training: bool
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Sequences, the final states (B, H) of each direction, and in training what the way back reads."""
    e, B, T, D, H = walk.step.equations, walk.B, walk.T, walk.D, walk.H
    steps = walk.plan.form == "steps"
    given = _parts(walk, x, directions)
    given |= _stacked(walk, x, directions)
    variant = walk.variant(mask=directions[0].mask is not None, training=training)
    sequences = {f"out_{name}": x.new_empty(B, T, D * H, dtype=walk.numbers) for name in walk.shown}
    final = x.new_empty(D, len(e.states), B, H, dtype=torch.float32 if steps else walk.exact)
    kept = _kept(walk, x) if training else {}
    if e.products:
        given["weight"] = _packed(walk, variant, [direction.W_h for direction in directions])
        if variant.programs > 1:
            kept["operand"] = _awaited(walk, variant.stride, x)
        elif training:
            kept["operand"] = x.new_empty(B, T, D, variant.stride, dtype=walk.numbers)
    arguments = {**given, **sequences, **kept, "final": final}
    if steps:
        walk_by_steps(walk, variant, arguments)
    else:
        _launch(walk, "forward", variant, arguments)
    names = (*given, *kept) if training else ()
    results = [*sequences.values(), *final.to(walk.exact).flatten(0, 1).unbind()]
    return results, {name: arguments[name] for name in names}


def _kept(walk: Walk, like: Tensor) -> dict[str, Tensor]:
    """Room for the values that the way back reads."""
    step = walk.step
    wanted = (
        ("kept", len(step.kept), torch.float32),
        ("short", len(step.short), walk.numbers),
        ("long", len(step.long), torch.float32),
    )
    return {
        name: like.new_empty(walk.B, walk.T, walk.D, count, walk.H, dtype=dtype)
        for name, count, dtype in wanted
        if count
    }


def _parts(walk: Walk, x: Tensor, directions: list[Direction]) -> dict[str, Tensor]:
    """The input parts of all steps and directions in one product; and its factors, for their gradients."""
    if not walk.step.equations.inputs:
        return {}
    x = _clean(walk, x).to(walk.numbers)
    if directions[0].W_x is None:
        return {"parts": x.contiguous()}
    rows = x.reshape(-1, x.shape[-1])
    W = _joined([direction.W_x for direction in directions], walk.numbers)
    if directions[0].b is None:
        return {"parts": rows @ W, "rows": rows, "W_x": W}
    b = _joined([direction.b for direction in directions], walk.numbers)
    return {"parts": torch.addmm(b, rows, W), "rows": rows, "W_x": W}


def _clean(walk: Walk, x: Tensor) -> Tensor:
    """Without what stands in the padding: a NaN there must reach no gradient."""
    if walk.lengths is None:
        return x
    return x.masked_fill(~length_mask(walk.lengths, walk.T)[..., None], 0.0)


def _joined(tensors: Sequence[Tensor | None], numbers: torch.dtype) -> Tensor:
    """Side by side, all directions."""
    present = [t.to(numbers) for t in tensors if t is not None]
    return present[0] if len(present) == 1 else torch.cat(present, -1)


def _stacked(walk: Walk, like: Tensor, directions: list[Direction]) -> dict[str, Tensor]:
    """What the kernels read besides parts and weights, the directions one after the other."""
    e = walk.step.equations
    first = directions[0]
    if first.initial[0] is None:
        shape = (walk.D, len(e.states), walk.B, walk.H)
        found = {"initial": like.new_zeros(shape, dtype=torch.float32)}
    else:
        found = {"initial": _states([direction.initial for direction in directions])}
    if walk.lengths is not None:
        found["lengths"] = walk.lengths.contiguous()
    if first.mask is not None:
        found["mask"] = torch.stack([d.mask for d in directions if d.mask is not None]).to(torch.float32)
    if e.vectors:
        found["vectors"] = _states([direction.vectors for direction in directions])
    if e.noise:
        drawn = [noise for direction in directions for noise in direction.noise]
        found["noise"] = torch.stack(drawn, 2).to(torch.uint8)
    return found


def _states(groups: Sequence[Sequence[Tensor | None]]) -> Tensor:
    """(D, states, …), float32."""
    tensors = [tensor for group in groups for tensor in group if tensor is not None]
    stacked = torch.stack(tensors) if len(tensors) > 1 else tensors[0].contiguous()
    return stacked.view(len(groups), len(groups[0]), *tensors[0].shape).to(torch.float32)


def _awaited(walk: Walk, width: int, like: Tensor) -> Tensor:
    """(B, T, D, width), all bits set: nothing has arrived."""
    bits = torch.int16 if walk.numbers.itemsize == 2 else torch.int32
    return like.new_full((walk.B, walk.T, walk.D, width), -1, dtype=bits).view(walk.numbers)


def _packed(
    walk: Walk, variant: Variant, weights: Sequence[Tensor | None], *, turned: bool = False
) -> Tensor:
    """(D, programs, columns, depth): the gates of a unit side by side, a unit after the other.

    ``turned``: the weights of the only gate by the unit whose state they multiply, for the way back.
    The form of steps multiplies the weights as they are: (D, H, gates · H).
    """
    H, G, columns = walk.H, len(walk.step.equations.products), walk.step.columns
    present = [weight for weight in weights if weight is not None]
    if walk.plan.form == "steps":
        return torch.stack([weight.to(walk.numbers) for weight in present])
    shape = (variant.programs * variant.units, columns, variant.depth)
    blocks = [weight.view(H, G, H) for weight in present]
    blocks = blocks if turned else [block.permute(2, 1, 0) for block in blocks]
    if shape == (H, G, H) and walk.D == 1:
        if present[0].dtype == walk.numbers:
            return blocks[0].contiguous()
        return present[0].new_empty(shape, dtype=walk.numbers).copy_(blocks[0])  # converted on the way
    packed = present[0].new_zeros(walk.D, *shape, dtype=walk.numbers)
    for place, block in zip(packed, blocks, strict=True):
        place[:H, :G, :H] = block
    return packed


def _launch(walk: Walk, name: str, variant: Variant, arguments: dict[str, Tensor]) -> None:
    """Run a kernel over all rows, as many groups at a time as the plan allows."""
    plan, source = walk.plan, _source(walk.step, name, variant)
    exchange = variant.programs > 1 and bool(walk.step.equations.products)
    ring = None
    if exchange and name == "backward" and not walk.step.gathers:
        size = plan.groups * walk.D * ROUNDS * variant.programs**2 * variant.words
        kind = torch.float32 if variant.packing == 1 else torch.int32
        ring = arguments["ring"] = arguments["initial"].new_zeros(size, dtype=kind)
    for first in range(0, walk.B, plan.rows * plan.groups):
        if ring is not None and first:
            ring.zero_()
        groups = min(plan.groups, -(-(walk.B - first) // plan.rows))
        launch(
            source,
            name,
            (variant.programs, groups, walk.D),
            arguments,
            {"T": walk.T, "B": walk.B, "first": first, "reverse": int(walk.reverse)},
            warps=plan.warps,
            cooperative=exchange,
        )


def _source(step: Step, name: str, variant: Variant) -> str:
    known = step.equations.compiled
    key = ("triton", name, variant)
    if key not in known:
        known[key] = WRITERS[name](step, variant)
    text: str = known[key]
    return text


# ---- backward ------------------------------------------------------------------------------------


def _arrivals(walk: Walk, gradients: Sequence[Tensor | None]) -> Arrivals | None:
    """Which states get gradients; None where that is not the same in both directions."""
    size, shown = len(walk.step.equations.states), len(walk.shown)
    there = [g is not None for g in gradients]
    finals = {tuple(there[shown + d * size : shown + (d + 1) * size]) for d in range(walk.D)}
    always = (*there[:shown], *(False,) * (size - shown))
    return Arrivals(always, finals.pop()) if len(finals) == 1 else None


def _backward(
    walk: Walk,
    flat: Sequence[Any],
    kept: dict[str, Tensor],
    gradients: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    e, step = walk.step.equations, walk.step
    B, T, D, H, S = walk.B, walk.T, walk.D, walk.H, len(walk.step.equations.states)
    x, directions = walk.split(flat)
    I, G, V = len(e.inputs), len(e.products), len(e.vectors)
    d_sequences, d_finals = gradients[: len(walk.shown)], gradients[len(walk.shown) :]
    arrives = any(g is not None for g in d_finals)
    variant = walk.variant(mask="mask" in kept, training=True, d_final=arrives)

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return x.new_empty(*shape, dtype=dtype)

    arguments = dict(kept)
    for name, g in zip(walk.shown, d_sequences, strict=True):
        arguments[f"d_out_{name}"] = (
            x.new_zeros(B, T, D * H, dtype=walk.numbers) if g is None else g.contiguous()
        )
    if arrives:
        nothing = x.new_zeros((), dtype=walk.exact).expand(B, H)
        present = [nothing if g is None else g for g in d_finals]
        arguments["d_final"] = torch.stack(present).view(D, S, B, H)
    if I:
        arguments["d_parts"] = empty(B, T, D, I * H, dtype=walk.numbers)
    if G and not step.shared:
        arguments["d_products"] = empty(B, T, D, G * H, dtype=walk.numbers)
    arguments["d_initial"] = empty(D, S, B, H)
    groups = -(-B // walk.plan.rows) if walk.plan.rows else 1
    if V:
        arguments["d_vectors"] = x.new_zeros(groups, D, V, H, dtype=torch.float32)
    if walk.plan.form == "steps":
        walk_back_by_steps(walk, variant, arguments)
    else:
        if step.gathers and variant.programs > 1:
            arguments["weight"] = _packed(walk, variant, [d.W_h for d in directions], turned=True)
            arguments["d_parts" if step.shared else "d_products"] = _awaited(walk, G * H, x)
        _launch(walk, "backward", variant, arguments)
    return _gathered(walk, flat, wanted, x, directions, arguments)


def _gathered(
    walk: Walk,
    flat: Sequence[Any],
    wanted: Sequence[bool],
    x: Tensor,
    directions: list[Direction],
    found: Mapping[str, Tensor],
) -> tuple[Tensor | None, ...]:
    """All that is a sum over steps, as large products, and the rest in the order of the leaves."""
    e, step = walk.step.equations, walk.step
    B, T, D, H = walk.B, walk.T, walk.D, walk.H
    I, G = len(e.inputs), len(e.products)
    d_parts = found["d_parts"].view(B * T, D * I * H) if I else None
    d_x: Tensor | None = None
    d_W_x: list[Tensor | None] = [None] * D
    d_b: list[Tensor | None] = [None] * D
    size = (len(flat) - 1) // D
    wishes = [wanted[1 + d * size : 1 + (d + 1) * size] for d in range(D)]
    if d_parts is not None and directions[0].W_x is None:
        d_x = d_parts.view(B, T, D * I * H).to(x.dtype)
    elif d_parts is not None:
        if wanted[0]:
            d_x = (d_parts @ found["W_x"].t()).view(x.shape).to(x.dtype)
        if any(wish[0] for wish in wishes):
            d_W_x = list(_product(found["rows"].t(), d_parts, directions[0].W_x).split(I * H, 1))
        if any(wish[1] for wish in wishes):
            d_b = list(d_parts.sum(0, dtype=walk.exact).split(I * H))
    d_products = found["d_parts"] if step.shared else found.get("d_products")
    results: list[Tensor | None] = [d_x]
    for d, (direction, wish) in enumerate(zip(directions, wishes, strict=True)):
        d_W_h = None
        if d_products is not None and wish[2] and step.gradients.teach_products:
            operand = found["operand"].view(B * T, D, -1)[:, d, :H]
            if step.presence is not None:  # where nothing arrives, nothing was multiplied
                there = step.presence.of_products(_after(walk, x.device, d))
                operand = operand.masked_fill(~there.flatten()[:, None], 0.0)
            d_W_h = _product(operand.t(), d_products.view(B * T, D, G * H)[:, d], direction.W_h)
        d_vectors = found["d_vectors"].sum(0)[d].unbind(0) if e.vectors else ()
        own = (d_W_x[d], d_b[d], d_W_h, None, *((None,) * len(e.noise)), *d_vectors, *found["d_initial"][d])
        results += [
            g.to(leaf.dtype) if g is not None and leaf is not None and w else None
            for g, leaf, w in zip(own, direction.flat(), wish, strict=True)
        ]
    return tuple(results)


def _after(walk: Walk, device: torch.device, d: int) -> Tensor:
    """(B, T): how many steps of its row are walked after this one; none after what is padding."""
    t = torch.arange(walk.T, device=device).expand(walk.B, walk.T)
    last = walk.T - 1 if walk.lengths is None else walk.lengths[:, None] - 1
    return (t if walk.reverse ^ (d == 1) else last - t).clamp(min=0)


def _product(a: Tensor, b: Tensor, like: Tensor | None) -> Tensor:
    """``a b`` in the numbers of the weights whose gradient it is: nothing is rounded in between."""
    if like is not None and like.dtype == torch.float32 and a.dtype != torch.float32 and a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a @ b


# ---- once more -----------------------------------------------------------------------------------


def _walk_again(walk: Walk, flat: list[Any]) -> list[Tensor]:
    """What the kernels compute, by the plain loop."""
    x, directions = walk.split(flat)
    e, lengths = walk.step.equations, walk.lengths
    sequences: list[Any] = []
    finals: list[Tensor] = []
    for d, (cell, own) in enumerate(zip(walk.cells, directions, strict=True)):
        width = len(e.inputs) * walk.H
        if own.W_x is None:
            parts = x[..., d * width : (d + 1) * width]
        else:
            parts = (x if lengths is None else fill_padding(x, lengths)).to(walk.exact) @ own.W_x
            parts = parts if own.b is None else parts + own.b
        drawn = {name: n != 0 for name, n in zip(e.noise, own.noise, strict=True)}
        states, final = walk_parts(
            Replay(cell, walk.equations).with_vectors(own.vectors),
            parts if lengths is None else fill_padding(parts, lengths),
            own.W_h,
            _start(walk, cell, own, x),
            lengths,
            reverse=walk.reverse ^ (d == 1),
            noise=Noise(mask=own.mask, zoneout={**walk.rates, **drawn}),
        )
        if lengths is not None:
            padding = ~length_mask(lengths, walk.T)[..., None]
            states = cell.State(*(field.masked_fill(padding, 0.0) for field in states))
        sequences.append(states)
        finals += final
    shown = range(len(walk.shown))
    states = [torch.cat([s[i] for s in sequences], -1).to(walk.numbers) for i in shown]
    return [*states, *finals]


def _start(walk: Walk, cell: Walkable, own: Direction, x: Tensor) -> Any:
    if own.initial[0] is None:
        return cell.State(*x.new_zeros(len(own.initial), walk.B, walk.H, dtype=walk.exact))
    return cell.State(*own.initial)
