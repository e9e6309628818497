"""The whole unrolled sequence as one differentiable operation around the generated kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from elman.recurrence.contract import State
from elman.recurrence.direction import DirectionTensors, arrivals_of, replay, steps_after
from elman.recurrence.double_backward import differentiate
from elman.recurrence.heads import learn_by_heads
from elman.recurrence.phases import RECURRENT
from elman.recurrence.triton.buffers import (
    awaited,
    input_parts,
    other_tensors,
    packed_weights,
    saved_values,
    weight_gradient,
)
from elman.recurrence.triton.chunks import backward_in_chunks, forward_in_chunks
from elman.recurrence.triton.launch import DoesNotFit
from elman.recurrence.triton.phased import Learned, backward_by_phases, forward_by_phases
from elman.recurrence.triton.sequence import launch_sequence
from elman.recurrence.triton.spec import ScanSpec
from elman.recurrence.triton.stages import PhasedStep
from elman.recurrence.triton.steps import backward_by_steps, forward_by_steps
from elman.tensors.rows import fill_padding, zero_padding
from elman.tensors.tracing import observed, own_precision


def scan(
    spec: ScanSpec, x: Tensor, directions: list[DirectionTensors]
) -> tuple[tuple[Tensor, ...], list[State]]:
    """States of all steps, (B, T, D · H) for every shown state, and the final state of every direction."""
    flat = [x, *(t for direction in directions for t in direction.flat())]
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in flat):
        results: Sequence[Tensor] = _Scan.apply(spec, *flat)  # type: ignore[no-untyped-call]
    else:
        results = _forward(spec, x, directions, training=False)[0]
    sequences, finals = results[: len(spec.shown)], results[len(spec.shown) :]
    size = len(spec.step.equations.states)
    each = (finals[d * size : (d + 1) * size] for d in range(spec.D))
    return tuple(sequences), [cell.State(*final) for cell, final in zip(spec.cells, each, strict=True)]


class _Scan(torch.autograd.Function):
    """Forward and backward through time by the kernels; a second derivative goes through the loop."""

    @staticmethod
    def forward(ctx: Any, spec: ScanSpec, *flat: Tensor | None) -> tuple[Tensor, ...]:
        x, directions = spec.split(flat)
        results, kept = _forward(spec, x, directions, training=True)
        ctx.spec, ctx.count, ctx.names = spec, len(flat), tuple(kept)
        ctx.save_for_backward(*flat, *kept.values())
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        spec, tensors, wanted = ctx.spec, ctx.saved_tensors, ctx.needs_input_grad[1:]
        flat, kept = tensors[: ctx.count], dict(zip(ctx.names, tensors[ctx.count :], strict=True))
        create_graph = torch.is_grad_enabled()
        arrivals = arrivals_of(gradients, len(spec.shown), len(spec.step.equations.states))
        if arrivals is not None and not create_graph and observed(*gradients) is None:
            step = spec.step.arriving(arrivals)
            if step is None and spec.equations.pointwise:  # other forms tell an absent gradient from zero
                spec.refuse()
            try:
                if step is not None:
                    with own_precision(flat[0]):
                        with_these = replace(spec, step=step)
                        return None, *_backward(with_these, flat, kept, gradients, wanted)
            except DoesNotFit:  # found out only now: this once by the loop, from now on by another tiling
                spec.refuse()
        compute = partial(_by_the_loop, spec)
        return None, *differentiate(compute, flat, gradients, wanted, create_graph=create_graph)


def _forward(
    spec: ScanSpec, x: Tensor, directions: list[DirectionTensors], *, training: bool
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Sequences, the final states (B, H) of each direction, and in training what the backward pass reads."""
    if isinstance(spec.step, PhasedStep):
        return forward_by_phases(spec, spec.step, x, directions, training=training)
    e, B, T, D, H = spec.step.equations, spec.B, spec.T, spec.D, spec.H
    steps = spec.tiling.form == "steps"
    given = input_parts(spec, x, directions) | other_tensors(spec, x, directions)
    variant = spec.variant(mask=directions[0].mask is not None, training=training)
    sequences = {f"out_{name}": x.new_empty(B, T, D * H, dtype=spec.numbers) for name in spec.shown}
    final = x.new_empty(D, len(e.states), B, H, dtype=torch.float32 if steps else spec.exact)
    kept = saved_values(spec, x) if training else {}
    if e.products:
        given["weight"] = packed_weights(spec, variant, [direction.W_h for direction in directions])
        if variant.programs > 1:
            kept["operand"] = awaited(spec, variant.heads * variant.stride, x)
        elif training:
            kept["operand"] = x.new_empty(B, T, D, variant.heads * variant.stride, dtype=spec.numbers)
    arguments = {**given, **sequences, **kept, "final": final}
    if steps:
        forward_by_steps(spec, variant, arguments)
    elif spec.chunks > 1:
        found = forward_in_chunks(spec, variant, arguments)
        kept |= found
        arguments |= found
    else:
        launch_sequence(spec, "forward", variant, arguments)
    names = (*given, *kept) if training else ()
    results = [*sequences.values(), *final.to(spec.exact).flatten(0, 1).unbind()]
    return results, {name: arguments[name] for name in names}


def _backward(
    spec: ScanSpec,
    flat: Sequence[Tensor | None],
    kept: dict[str, Tensor],
    gradients: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    e, B, T, D, H = spec.step.equations, spec.B, spec.T, spec.D, spec.H
    x, directions = spec.split(flat)
    I, G, V, S = len(e.inputs), len(e.products), len(e.vectors), len(e.states)
    d_sequences, d_finals = gradients[: len(spec.shown)], gradients[len(spec.shown) :]
    arrives = any(g is not None for g in d_finals)

    arriving = {}
    for name, g in zip(spec.shown, d_sequences, strict=True):
        there = x.new_zeros(B, T, D * H, dtype=spec.numbers) if g is None else g
        arriving[f"d_out_{name}"] = there.contiguous()
    if arrives:
        nothing = x.new_zeros((), dtype=spec.exact).expand(B, H)
        present = [nothing if g is None else g for g in d_finals]
        arriving["d_final"] = torch.stack(present).view(D, S, B, H)
    if isinstance(spec.step, PhasedStep):
        found, learned = backward_by_phases(spec, spec.step, directions, kept, arriving)
        return _gathered(spec, flat, wanted, {**kept, **found}, learned)
    step = spec.step
    variant = spec.variant(mask="mask" in kept, training=True, d_final=arrives)
    arguments = {**kept, **arriving}
    for name, count in (("d_parts", I), ("d_products", 0 if step.shared else G)):
        if count:
            arguments[name] = x.new_empty(B, T, D, count * H, dtype=spec.numbers)
    arguments["d_initial"] = x.new_empty(D, S, B, H, dtype=torch.float32)
    groups = -(-B * spec.chunks // spec.tiling.rows) if spec.tiling.rows else 1
    if V:
        arguments["d_vectors"] = x.new_zeros(groups, D, V, H, dtype=torch.float32)
    if spec.tiling.form == "steps":
        backward_by_steps(spec, variant, arguments)
    elif spec.chunks > 1 and step.presence is None:  # which counts the steps of whole rows
        backward_in_chunks(spec, variant, arguments)
    else:
        if step.gathers and variant.programs > 1:
            arguments["weight"] = packed_weights(spec, variant, [d.W_h for d in directions], turned=True)
            arguments["d_parts" if step.shared else "d_products"] = awaited(spec, G * H, x)
        launch_sequence(spec, "backward", variant, arguments)
    return _gathered(spec, flat, wanted, arguments, _learned(spec, flat, wanted, arguments))


def _learned(
    spec: ScanSpec, flat: Sequence[Tensor | None], wanted: Sequence[bool], found: Mapping[str, Tensor]
) -> list[Learned]:
    """The gradients of the recurrent weights of every direction, by name."""
    step, B, T, D, H = spec.pointwise, spec.B, spec.T, spec.D, spec.H
    x, directions = spec.split(flat)
    G, size, form = len(step.equations.products), (len(flat) - 1) // D, spec.tiling.form
    heads = spec.heads if form != "steps" else 1  # in which operands lie
    d_products = found["d_parts"] if step.shared else found.get("d_products")
    learned: list[Learned] = [{} for _ in directions]
    for d, direction in enumerate(directions):
        if d_products is None or not wanted[3 + d * size] or not step.gradients.teach_products:
            continue
        operand = found["operand"].view(B * T, D, heads, -1)[:, d, :, : H // heads].flatten(1)
        if step.presence is not None:  # where nothing arrives, nothing was multiplied
            after = steps_after(T, B, spec.lengths, spec.reverse ^ (d == 1), x.device).clamp(min=0)
            there = step.presence.of_products(after)
            operand = operand.masked_fill(~there.flatten()[:, None], 0.0)
        gradients = d_products.view(B * T, D, G * H)[:, d]
        multiply = partial(weight_gradient, like=direction.W_h)
        learned[d][RECURRENT] = learn_by_heads(operand, gradients, spec.heads, multiply)
    return learned


def _gathered(
    spec: ScanSpec,
    flat: Sequence[Tensor | None],
    wanted: Sequence[bool],
    found: Mapping[str, Tensor],
    learned: list[Learned],
) -> tuple[Tensor | None, ...]:
    """Compute all sums over steps as large products; return all gradients in the order of the leaves."""
    e, B, T, D, H = spec.step.equations, spec.B, spec.T, spec.D, spec.H
    x, directions = spec.split(flat)
    I, size = len(e.inputs), (len(flat) - 1) // D
    d_parts = found["d_parts"].view(B * T, D * I * H) if I else None
    d_x: Tensor | None = None
    d_W_x: list[Tensor | None] = [None] * D
    d_b: list[Tensor | None] = [None] * D
    wishes = [wanted[1 + d * size : 1 + (d + 1) * size] for d in range(D)]
    if d_parts is not None and directions[0].W_x is None:
        d_x = d_parts.view(B, T, D * I * H).to(x.dtype)
    elif d_parts is not None:
        if wanted[0]:
            d_x = (d_parts @ found["W_x"].t()).view(x.shape).to(x.dtype)
        if any(wish[0] for wish in wishes):
            d_W_x = list(weight_gradient(found["rows"].t(), d_parts, directions[0].W_x).split(I * H, 1))
        if any(wish[1] for wish in wishes):
            d_b = list(d_parts.sum(0, dtype=spec.exact).split(I * H))
    results: list[Tensor | None] = [d_x]
    for d, (direction, wish) in enumerate(zip(directions, wishes, strict=True)):
        d_vectors = found["d_vectors"].sum(0)[d].unbind(0) if e.vectors else ()
        matrices = [learned[d].get(name) for name in e.matrices]
        own = (d_W_x[d], d_b[d], learned[d].get(RECURRENT), None, *((None,) * len(e.noise)))
        own += (*d_vectors, *matrices, *(found["d_initial"][d] if direction.initial else ()))
        results += [
            g.to(leaf.dtype) if g is not None and leaf is not None and w else None
            for g, leaf, w in zip(own, direction.flat(), wish, strict=True)
        ]
    return tuple(results)


def _by_the_loop(spec: ScanSpec, flat: list[Tensor | None]) -> list[Tensor]:
    x, directions = spec.split(flat)
    e, lengths, width = spec.step.equations, spec.lengths, len(spec.step.equations.inputs) * spec.H
    sequences: list[list[Tensor]] = []
    finals: list[Tensor] = []
    for d, (cell, own) in enumerate(zip(spec.cells, directions, strict=True)):
        if own.W_x is None:
            parts = x[..., d * width : (d + 1) * width]
        else:
            parts = (x if lengths is None else fill_padding(x, lengths)).to(spec.exact) @ own.W_x
            parts = parts if own.b is None else parts + own.b
        initial = own.initial or x.new_zeros(len(e.states), spec.B, spec.H, dtype=spec.exact).unbind()
        zoneout: dict[str, Tensor | float] = {**spec.rates}
        zoneout |= {name: n != 0 for name, n in zip(e.noise, own.noise, strict=True)}
        rest = zoneout, lengths, spec.reverse ^ (d == 1)
        states, final = replay(cell, spec.equations, parts, own, initial, *rest)
        sequences.append([zero_padding(field, lengths) for field in states])
        finals += final
    shown = range(len(spec.shown))
    return [*(torch.cat([s[i] for s in sequences], -1).to(spec.numbers) for i in shown), *finals]
