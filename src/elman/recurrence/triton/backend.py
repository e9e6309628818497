"""The walk of pointwise cells on a CUDA device: prepare, choose a plan, run the kernels, read O."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from elman.errors import ShapeError
from elman.recurrence.compiled import make_once
from elman.recurrence.contract import SILENCE, Noise, Walkable
from elman.recurrence.trace import add_zoneout
from elman.recurrence.triton.emit.kernel import Step, signature
from elman.recurrence.triton.launch import DoesNotFit
from elman.recurrence.triton.plan import Card, Plan, Work, plans, why_not
from elman.recurrence.triton.scan import Direction, Walk, scan
from elman.tensors.products import tf32_products
from elman.tensors.rows import fill_padding, length_mask
from elman.tensors.tracing import in_autocast

_refused: set[tuple[Card, Work, Plan]] = set()  # plans that a card turned down
NUMBERS = (torch.float32, torch.bfloat16, torch.float16)

Weights = tuple[Tensor | None, Tensor | None, Tensor | None, tuple[Tensor, ...]]  # W_x, b, W_h, vectors


@functools.cache
def unavailable(device: torch.device) -> str | None:
    """Why there are no kernels for this card, or None."""
    if torch.version.hip is not None:
        return "kernels are made for NVIDIA's cards"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return f"{torch.cuda.get_device_name(device)} is too old: kernels need compute capability 8.0"
    try:
        card_of(device)
    except ImportError:
        return "Triton is not installed (it comes with torch's CUDA builds; pip install triton)"
    except (
        RuntimeError,
        OSError,
        subprocess.SubprocessError,
    ) as error:  # it builds its driver: no C compiler
        return f"Triton does not work here ({' '.join(str(error).split())[:200]})"
    return None


def computes_in(x: Tensor) -> torch.dtype:
    """What is multiplied: the tensors' own numbers, under autocast its numbers."""
    casts = in_autocast(x) and x.dtype != torch.float64  # which autocast leaves alone
    return torch.get_autocast_dtype("cuda") if casts else x.dtype


def hindrance(x: Tensor) -> str | None:
    """Why these numbers cannot be served, or None."""
    return _unserved(computes_in(x))


def _unserved(dtype: torch.dtype) -> str | None:
    served = dtype in NUMBERS
    return None if served else f"kernels on the GPU compute in float32, bfloat16 and float16, not {dtype}"


@functools.cache
def card_of(device: torch.device) -> Card:
    from triton.runtime import driver

    found = driver.active.utils.get_device_properties(device.index)
    name = torch.cuda.get_device_name(device)
    return Card(name, found["multiprocessor_count"], found["max_shared_mem"])


def precision() -> str:
    """Of float32 products, as torch is told to compute its own."""
    return "tf32" if tf32_products() else "ieee"


def step_of(cell: Walkable, noise: Noise = SILENCE) -> Step:
    """The equations of this cell under this kind of zoneout, with their gradients."""
    equations = cell.equations
    assert equations is not None
    rates = {n: z if isinstance(z, float) else None for n, z in noise.zoneout.items()}

    def make() -> Step:
        return Step(add_zoneout(equations, rates) if rates else replace(equations, compiled={}))

    step: Step = make_once(equations, ("step", *rates.items()), make)
    return step


def explain(cell: Walkable, B: int, dtype: torch.dtype, *, directions: int = 1) -> list[str]:
    """Which form a walk of B rows takes on this card, how it is tiled, and why no faster one."""
    device = torch.device("cuda", torch.cuda.current_device())
    free = None if cell.equations is not None else f"{type(cell).__name__} is a free-form cell"
    reason = free or _unserved(dtype) or unavailable(device)
    if reason is not None:
        return [f"taken: the plain loop: {reason}"]
    card = card_of(device)
    work = _work(step_of(cell), cell.hidden_size, B, dtype, directions)
    chosen, *others = (plan for plan in plans(work, card) if (card, work, plan) not in _refused)
    return [
        f"{card.name}: {card.processors} processors, {card.memory / 1024:.0f} KB on chip for a program",
        f"taken: {chosen}",
        *(f"instead of {other}" for other in others[:3]),
        *(f"not {reason}" for reason in why_not(work, card)),
    ]


def _work(step: Step, H: int, B: int, dtype: torch.dtype, directions: int) -> Work:
    numbers = str(dtype).removeprefix("torch.")
    exact = precision() if dtype == torch.float32 else ""
    return Work(H, B, len(step.equations.products), numbers, exact, directions)


def walk(
    cells: Sequence[Walkable],
    weights: Sequence[Weights],
    x: Tensor,
    states: Sequence[Any],
    lengths: Tensor | None,
    *,
    reverse: bool,
    noises: Sequence[Noise],
) -> tuple[list[Tensor], list[Any]]:
    """The directions of a layer at once: outputs (B, T, ·) and the final state of every direction.

    One direction may be walked in either order; of two, the second is walked from the end. Directions
    whose equations differ (an option of one was changed) are walked one after the other. Triton launches
    on the current device, which must be that of x.
    """
    if len(cells) > 1 and _differ(*cells):
        each = zip(cells, weights, states, noises, strict=True)
        walked = [
            walk([c], [w], x, [s], lengths, reverse=reverse ^ (d == 1), noises=[n])
            for d, (c, w, s, n) in enumerate(each)
        ]
        return [outputs for (outputs,), _ in walked], [final for _, (final,) in walked]
    B, T = x.shape[:2]
    cell, noise = cells[0], noises[0]
    step, equations = step_of(cell, noise), cell.equations
    assert equations is not None
    numbers, H = computes_in(x), cell.hidden_size
    given = _input(cells, x, lengths) if cell.projects_itself and step.equations.inputs else x
    directions = [_direction(step, *each) for each in zip(cells, weights, states, noises, strict=True)]
    _check_shapes(step, directions, given, H)
    whole = cell.reads_whole_state
    card, work = card_of(x.device), _work(step, H, B, numbers, len(cells))
    for plan in plans(work, card):
        if (card, work, plan) in _refused:
            continue
        this = Walk(
            cells=tuple(cells),
            equations=equations,
            step=step,
            plan=plan,
            numbers=numbers,
            exact=next((t.dtype for own in weights for t in own[:3] if t is not None), x.dtype),
            precision=work.precision,
            B=B,
            T=T,
            H=H,
            reverse=reverse,
            lengths=lengths,
            whole=whole,
            rates={name: z for name, z in noise.zoneout.items() if isinstance(z, float)},
            refuse=functools.partial(_refused.add, (card, work, plan)),
        )
        try:
            sequences, final = scan(this, given, directions)
            break
        except DoesNotFit:
            _refused.add((card, work, plan))
    if not whole:
        return [sequences[0]], final
    return _outputs(cells, sequences, lengths), final


def _input(cells: Sequence[Walkable], x: Tensor, lengths: Tensor | None) -> Tensor:
    """The input parts of all directions as the cells make them, from what is no worse in the padding."""
    clean = x if lengths is None else fill_padding(x, lengths)
    return torch.cat([cell.project(clean) for cell in cells], -1)


def _direction(step: Step, cell: Walkable, weights: Weights, state: Any, noise: Noise) -> Direction:
    W_x, b, W_h, vectors = weights
    itself = cell.projects_itself
    return Direction(
        None if itself else W_x,
        None if itself else b,
        W_h if noise.weight is None else noise.weight,
        noise.mask,
        tuple(noise.zoneout[name] for name in step.equations.noise),  # type: ignore[misc]
        vectors,
        (None,) * len(cell.State._fields) if state is None else tuple(state),
    )


def _differ(one: Walkable, other: Walkable) -> bool:
    same = signature(one.equations) == signature(other.equations)
    return not same or one.reads_whole_state != other.reads_whole_state


def _outputs(cells: Sequence[Walkable], sequences: Sequence[Tensor], lengths: Tensor | None) -> list[Tensor]:
    """O of all states, for every direction; zero at padding, where O sees what is no worse than elsewhere."""
    B, T, width = sequences[0].shape
    shown = sequences if lengths is None else [fill_padding(sequence, lengths) for sequence in sequences]
    found = []
    for d, cell in enumerate(cells):
        own = slice(d * width // len(cells), (d + 1) * width // len(cells))
        rows = cell.State(*(sequence[..., own].flatten(0, 1) for sequence in shown))
        outputs = cell.O(rows).unflatten(0, (B, T))
        if lengths is not None:
            outputs = outputs.where(length_mask(lengths, T)[..., None], outputs.new_zeros(()))
        found.append(outputs)
    return found


def _check_shapes(step: Step, directions: list[Direction], x: Tensor, H: int) -> None:
    """Kernels go by address, so that a weight of another shape must not reach them."""
    e = step.equations
    wide, deep = len(e.inputs) * H, len(e.products) * H
    for direction in directions:
        expected: list[tuple[str, Tensor | None, tuple[int, ...]]] = [
            ("W_x", direction.W_x, (x.shape[-1], wide)),
            ("b", direction.b, (wide,)),
            ("W_h", direction.W_h, (H, deep)),
            ("noise.mask", direction.mask, (x.shape[0], H)),
            *(("noise.zoneout", drawn, (*x.shape[:2], H)) for drawn in direction.noise),
            *((name, vector, (H,)) for name, vector in zip(e.vectors, direction.vectors, strict=True)),
        ]
        for name, tensor, wanted in expected:
            if tensor is not None and tensor.shape != wanted:
                raise ShapeError(f"{name} has shape {tuple(tensor.shape)}; the equations need {wanted}")
        if (direction.W_h is None) != (deep == 0):
            raise ShapeError("W_h is missing, though the equations read recurrent parts")
    if directions[0].W_x is None and wide and x.shape[-1] != wide * len(directions):
        raise ShapeError(f"what project returns has {x.shape[-1]} features; the equations need {wide}")
