"""Which form a walk takes on the GPU, and its tiling: worked out from sizes alone.

Three forms:

    alone   one program holds all units and walks its rows by itself; nothing is exchanged
    shared  several programs share the units of a row and exchange the state at every step; all of them
            must be on the chip at once, so that the grid is limited and launched cooperatively
    steps   the weights do not fit: one matrix product and one generated kernel a step

Which of the plans that fit is taken, estimates of their cost decide. Their numbers are fitted to what
tilings took on one H200 (µs a step, forward and back, LSTM and Elman, H 256–1024, B 16–128); on another
card the order of plans should be much the same, the microseconds are not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from elman.recurrence.triton.emit.kernel import ALL, columns_of, largest_chunk, pieces, power_of_two

ROWS = (16, 32, 64)
COLUMNS = (64, 128, 256)  # of the weights of one program: what a warp group multiplies at a time, and more
MOST_GATES = 8
MOST_GROUPS = 65535  # of a grid
RESERVED = 1024  # bytes of shared memory that the driver takes
SIZES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Card:
    """What a GPU offers one kernel."""

    name: str
    processors: int
    memory: int  # bytes that a program may hold on the chip


@dataclass(frozen=True)
class Work:
    """What is to be done: sizes, numbers, and how many gates the recurrent weights have."""

    H: int
    B: int
    products: int
    numbers: str
    precision: str
    directions: int = 1

    @property
    def columns(self) -> int:
        """Of the weights that a unit has; see ``columns_of``."""
        return columns_of(self.products)


@dataclass(frozen=True)
class Plan:
    """One way to do it.

    rows, units: of one program. programs: that share a row. groups: tiles of rows that run at once.
    launches: how often, until all rows are done. cost: µs a step, estimated, to compare plans with.
    block, held: units that are multiplied at a time, and that stay on the chip; see ``Variant``.
    """

    form: str
    rows: int
    units: int
    warps: int
    programs: int
    groups: int
    launches: int
    memory: int
    cost: float
    block: int = 1024
    held: int = ALL

    def __str__(self) -> str:
        if self.form == "steps":
            return f"steps: a product and a kernel a step, about {self.cost:.1f} µs forward and back"
        share = f"{self.programs} programs share the units of {self.rows} rows" if self.programs > 1 else ""
        share = share or f"a program holds all units of {self.rows} rows"
        times = f", {self.launches} launches" if self.launches > 1 else ""
        times += f", the weights of all but {self.held} units read at every step" if self.held < ALL else ""
        return (
            f"{self.form}: {share} ({self.units} units each, {self.warps} warps, "
            f"{self.memory / 1024:.0f} KB on chip), {self.groups} groups at once{times}, "
            f"about {self.cost:.1f} µs a step forward and back"
        )


@functools.lru_cache(4096)
def plans(work: Work, card: Card) -> list[Plan]:
    """The plans that fit and beat ``steps``, the best first, and ``steps``, which always fits."""
    steps = _steps(work)
    found = [plan for plan in _persistent(work, card) if plan.cost < steps.cost]
    return [*sorted(found, key=lambda plan: plan.cost), steps]


def why_not(work: Work, card: Card) -> list[str]:
    """For every form that has no plan, what is in its way."""
    if work.products > MOST_GATES:
        return [f"alone, shared: {work.products} gates; kernels keep at most {MOST_GATES} on the chip"]
    if work.precision == "ieee" and work.products:
        return ["alone, shared: tensor cores have no IEEE float32 products; TF32 would serve"]
    fitting = {plan.form: plan for plan in _persistent(work, card)}
    taken = {plan.form for plan in plans(work, card)}
    found = [
        f"{form}: it fits, but steps are estimated to be faster" for form in fitting if form not in taken
    ]
    if "alone" not in fitting:
        units = power_of_two(max(16, work.H))
        need = _memory(work, ROWS[0], units * work.columns, units, units)
        found.append(f"alone: all weights of a row need {need / 1024:.0f} KB, {_limit(card)}")
    units = max(16, COLUMNS[0] // work.columns)
    programs = -(-work.H // units) * work.directions
    if "shared" not in fitting and work.products and programs > work.directions:
        need = _memory(work, ROWS[0], units * work.columns, 128, work.H // 2)
        found.append(
            f"shared: half the weights of {units} units need {need / 1024:.0f} KB, {_limit(card)}"
            if need > card.memory
            else f"shared: {programs} programs must run at once, on {card.processors} processors"
        )
    return found


def _limit(card: Card) -> str:
    return f"a program has {card.memory / 1024:.0f} KB"


def _persistent(work: Work, card: Card) -> Iterator[Plan]:
    if work.products > MOST_GATES:
        return
    if work.products and work.numbers == "float32" and work.precision == "ieee":
        return
    if not work.products:  # pointwise through and through: any split will do
        units = min(64, power_of_two(max(16, work.H)))
        groups, launches = _groups(work, ROWS[0], MOST_GROUPS)
        yield Plan("alone", ROWS[0], units, 4, -(-work.H // units), groups, launches, 0, 1.0)
        return
    for rows in ROWS:
        if rows == ROWS[0] or rows < 2 * work.B:
            yield from _alone(work, card, rows)
            for columns in COLUMNS:
                yield from _shared(work, card, rows, columns)


def _alone(work: Work, card: Card, rows: int) -> Iterator[Plan]:
    units = power_of_two(max(16, work.H))
    columns = units * work.columns
    need = _memory(work, rows, columns, units, units)
    if need <= card.memory and columns <= 1024:
        groups, launches = _groups(work, rows, MOST_GROUPS)
        waves = -(-groups * work.directions // card.processors)
        cost = waves * (2.0 + 4.5 * units * columns * rows / (1 << 20))
        yield Plan("alone", rows, units, 8 if columns * rows > 4096 else 4, 1, groups, launches, need, cost)


def _shared(work: Work, card: Card, rows: int, columns: int) -> Iterator[Plan]:
    """Plans with so many columns a program: all weights held, or if they do not fit, most of them."""
    units = columns // work.columns
    programs = -(-work.H // units)
    together = card.processors // (programs * work.directions)
    if units < 16 or programs < 2 or not together:
        return
    groups, launches = _groups(work, rows, together)
    size = SIZES[work.numbers]
    depth = sum(block for _, block in pieces(work.H))
    several = len(pieces(work.H)) > 1
    for tile in (32768, 16384, 8192, 4096):  # bytes of the state that are multiplied at a time
        block, held = min(1024, tile // size // rows), depth
        while block >= 64 and held > 0 and _memory(work, rows, columns, block, held) > card.memory:
            held -= block if held % block == 0 else held % block
        if block < (64 if held == depth else 128) or 2 * held < depth:
            continue
        streamed = (depth - held) * columns * size / 65536
        wide = columns * depth * size > 160 << 10 or rows == ROWS[-1] or work.products == 1
        read = size * rows * work.H / 16384  # by a program at a step
        cost = 2.9 + 3.2 * read + 1.75 * max(0.0, read - 2) + 0.8 * (columns / 64 - 1) * work.H / 512
        if work.products == 1:  # gathers on the way back
            cost = cost - 0.6 + 1.5 * (several and columns == COLUMNS[0])
        cost = launches * (cost + 3.5 * streamed)
        yield Plan(
            *("shared", rows, units, 8 if wide else 4, programs, groups, launches),
            *(_memory(work, rows, columns, block, held), cost),
            *((block,) if held == depth else (block, held)),
        )
        if held == depth:
            return


def _groups(work: Work, rows: int, most: int) -> tuple[int, int]:
    """How many tiles of rows run at once, and how often, until all are done."""
    tiles = -(-work.B // rows)
    return min(most, tiles), -(-tiles // min(most, tiles))


def _steps(work: Work) -> Plan:
    weights = work.H * work.H * work.products * work.directions
    cost = 2 * (8.0 + weights * SIZES[work.numbers] / 4.0e6 + 2.0 * work.B * weights / 3.0e8)
    return Plan("steps", 0, work.H, 4, 1, 1, 1, 0, cost)


def _memory(work: Work, rows: int, columns: int, block: int, held: int) -> int:
    """Bytes on the chip: the weights that are held, a block of the others, and what they multiply.

    That is forward the state, then the gates as they are turned; backward the gradients of the gates,
    and the parts as they are turned.
    """
    size = SIZES[work.numbers]
    depth = sum(found for _, found in pieces(work.H))
    passing = columns * block * size if held < depth else 0
    forward = max(rows * block * size * (1 if block >= depth else 2), rows * columns * 4)
    backward = rows * columns * size + rows * largest_chunk(rows, block, work.numbers) * (
        2 if work.numbers == "bfloat16" else 4
    )
    return columns * held * size + passing + max(forward, backward) + RESERVED
