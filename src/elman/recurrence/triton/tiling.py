"""Which form a sequence takes on the GPU, and its tiling: worked out from sizes alone.

Four forms:

    whole   one program holds the weights of all units; nothing is exchanged
    shared  several programs share the units of a row and exchange the state at every step; all of them
            must be on the chip at once, so that the grid is limited and launched cooperatively
    phases  the weights do not fit, or are read faster than waited for: a generated product and a generated
            kernel a step, of which each begins while the one before it ends
    steps   one matrix product of cuBLAS and one generated kernel a step, on any card and in any numbers

Which of the tilings that fit is taken, estimates of their cost decide. Their numbers are fitted to what
tilings took on one H200 (µs a step, forward and back, LSTM and Elman, H 256–1024, B 16–128); on another
card the order of tilings should be much the same, the microseconds are not.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from elman.recurrence.triton.emit.writer import ALL, largest_chunk, pieces
from elman.recurrence.triton.program import columns_of, power_of_two

ROWS = (16, 32, 64)
COLUMNS = (64, 128, 256)  # of the weights of one program: what a warp group multiplies at a time, and more
MOST_GATES = 8
MOST_GROUPS = 65535  # of a grid
FEW_VALUES = 16  # of a unit in a step back
RESERVED = 1024  # bytes of shared memory that the driver takes
SIZES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class Card:
    """What a GPU offers one kernel."""

    name: str
    processors: int
    memory: int  # bytes that a program may hold on the chip
    overlaps: bool = False  # a kernel may begin while the one before it ends


@dataclass(frozen=True)
class Workload:
    """What a kernel has to do: sizes, numbers, and how many gates and heads the recurrent weights have.

    values: that a step back has for every unit; many of them cost registers and reading.
    """

    H: int
    B: int
    products: int
    numbers: str
    precision: str
    directions: int = 1
    heads: int = 1
    values: int = 0

    @property
    def many(self) -> int:
        """The values beyond what an LSTM has, which costs are fitted to."""
        return max(0, self.values - FEW_VALUES)

    @property
    def columns(self) -> int:
        return columns_of(self.products)

    @property
    def width(self) -> int:
        """The units of a head: what recurrent weights multiply together."""
        return self.H // self.heads

    @property
    def shares(self) -> int:
        """What runs beside each other on the same rows: directions, and heads in each."""
        return self.directions * self.heads


@dataclass(frozen=True)
class Tiling:
    """One way to spread a workload over a card.

    rows, units: of one program. programs: that share a row. groups: tiles of rows that run at once.
    launches: how often, until all rows are done. cost: µs a step, estimated, to compare tilings with.
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
        if self.form in ("phases", "steps"):
            return f"{self.form}: a product and a kernel a step, about {self.cost:.1f} µs forward and back"
        several = f"{self.programs} programs share the units" if self.programs > 1 else ""
        share = f"{several or 'a program holds all units'} of {self.rows} rows"
        times = f", {self.launches} launches" if self.launches > 1 else ""
        times += f", the weights of all but {self.held} units read at every step" if self.held < ALL else ""
        return (
            f"{self.form}: {share} ({self.units} units each, {self.warps} warps, "
            f"{self.memory / 1024:.0f} KB on chip), {self.groups} groups at once{times}, "
            f"about {self.cost:.1f} µs a step forward and back"
        )


@functools.lru_cache(4096)
def tilings(workload: Workload, card: Card) -> list[Tiling]:
    """The tilings that fit and beat ``steps``, the best first, and ``steps``, which always fits."""
    steps = _steps(workload)
    found = [t for t in (*_persistent(workload, card), *_phases(workload, card)) if t.cost < steps.cost]
    return [*sorted(found, key=lambda tiling: tiling.cost), steps]


def find_obstacles(workload: Workload, card: Card) -> list[str]:
    """Name, for every form that has no tiling, what is in its way."""
    if workload.products > MOST_GATES:
        return [f"whole, shared: {workload.products} gates; kernels keep at most {MOST_GATES} on the chip"]
    if workload.precision == "ieee" and workload.products:
        return ["whole, shared: tensor cores have no IEEE float32 products; TF32 would serve"]
    fitting = dict.fromkeys(tiling.form for tiling in _persistent(workload, card))
    taken = {tiling.form for tiling in tilings(workload, card)}
    slower = "it fits, but steps are estimated to be faster"
    found = [f"{form}: {slower}" for form in fitting if form not in taken]
    limit = f"a program has {card.memory / 1024:.0f} KB"
    if "whole" not in fitting:
        units = power_of_two(max(16, workload.width))
        need = _memory(workload, ROWS[0], units * workload.columns, units, units)
        found.append(f"whole: all weights of a row need {need / 1024:.0f} KB, {limit}")
    units = max(16, COLUMNS[0] // workload.columns)
    programs = -(-workload.width // units) * workload.shares
    if "shared" not in fitting and workload.products and programs > workload.shares:
        need = _memory(workload, ROWS[0], units * workload.columns, 128, workload.width // 2)
        found.append(
            f"shared: half the weights of {units} units need {need / 1024:.0f} KB, {limit}"
            if need > card.memory
            else f"shared: {programs} programs must run at once, on {card.processors} processors"
        )
    return found


def _persistent(workload: Workload, card: Card) -> Iterator[Tiling]:
    exact = workload.products and workload.numbers == "float32" and workload.precision == "ieee"
    if exact or workload.products > MOST_GATES:
        return
    if not workload.products:  # pointwise through and through: any split will do
        units = min(64, power_of_two(max(16, workload.width)))
        groups, launches = _groups(workload, ROWS[0], MOST_GROUPS)
        yield Tiling("whole", ROWS[0], units, 4, -(-workload.width // units), groups, launches, 0, 1.0)
        return
    for rows in ROWS:
        if rows == ROWS[0] or rows < 2 * workload.B:
            yield from _whole(workload, card, rows)
            for columns in COLUMNS:
                yield from _shared(workload, card, rows, columns)


def _whole(workload: Workload, card: Card, rows: int) -> Iterator[Tiling]:
    units = power_of_two(max(16, workload.width))
    columns = units * workload.columns
    need = _memory(workload, rows, columns, units, units)
    if need <= card.memory and columns <= 1024:
        groups, launches = _groups(workload, rows, MOST_GROUPS)
        waves = -(-groups * workload.shares // card.processors)
        cost = waves * (2.0 + 4.5 * units * columns * rows / (1 << 20) + _reading(workload, rows, units))
        warps = 8 if columns * rows > 4096 or workload.many else 4
        yield Tiling("whole", rows, units, warps, 1, groups, launches, need, cost)


def _shared(workload: Workload, card: Card, rows: int, columns: int) -> Iterator[Tiling]:
    """Tilings with so many columns a program: all weights held, or if they do not fit, most of them."""
    units = columns // workload.columns
    programs = -(-workload.width // units)
    together = card.processors // (programs * workload.shares)
    if units < 16 or programs < 2 or not together:
        return
    groups, launches = _groups(workload, rows, together)
    size = SIZES[workload.numbers]
    depth = sum(block for _, block in pieces(workload.width))
    several = len(pieces(workload.width)) > 1
    for tile in (32768, 16384, 8192, 4096):  # bytes of the state that are multiplied at a time
        block, held = min(1024, tile // size // rows), depth
        while block >= 64 and held > 0 and _memory(workload, rows, columns, block, held) > card.memory:
            held -= block if held % block == 0 else held % block
        if block < (64 if held == depth else 128) or 2 * held < depth:
            continue
        streamed = (depth - held) * columns * size / 65536
        single = workload.products == 1 and (size == 2 or depth > 256)
        wide = columns * depth * size > 160 << 10 or rows == ROWS[-1] or single
        read = size * rows * workload.width / 16384  # by a program at a step
        cost = 2.9 + 3.2 * read + 1.75 * max(0.0, read - 2) + 0.8 * (columns / 64 - 1) * workload.width / 512
        if workload.products == 1:  # gathers in the backward pass
            cost = cost - 0.6 + 1.5 * (several and columns == COLUMNS[0])
        cost = launches * (cost + 3.5 * streamed + _reading(workload, rows, units))
        yield Tiling(
            *("shared", rows, units, 8 if wide else 4, programs, groups, launches),
            *(_memory(workload, rows, columns, block, held), cost),
            *((block,) if held == depth else (block, held)),
        )
        if held == depth:
            return


def _reading(workload: Workload, rows: int, units: int) -> float:
    """µs that a program takes for the values that other cells do not have."""
    return 0.1 * workload.many * rows * units / 1024


def _groups(workload: Workload, rows: int, most: int) -> tuple[int, int]:
    """Count the tiles of rows that run at once, and the launches until all are done."""
    tiles = -(-workload.B // rows)
    return min(most, tiles), -(-tiles // min(most, tiles))


def _steps(workload: Workload) -> Tiling:
    weights = workload.H * workload.H * workload.products * workload.directions
    cost = 2 * (8.0 + weights * SIZES[workload.numbers] / 4.0e6 + 2.0 * workload.B * weights / 3.0e8)
    return Tiling("steps", 0, workload.H, 4, 1, 1, 1, 0, cost)


def _phases(workload: Workload, card: Card) -> Iterator[Tiling]:
    """Cheap to begin where kernels overlap; weights come from the cache of the card at every step."""
    if card.overlaps and workload.products and workload.heads == 1 and SIZES[workload.numbers] == 2:
        rows = -(-workload.B // 64) * 64 if workload.B > 32 else power_of_two(max(16, workload.B))
        weights = workload.H * workload.H * workload.products * workload.directions
        yield Tiling("phases", 0, workload.H, 4, 1, 1, 1, 0, 10.0 + 1.4e-8 * rows * weights)


def _memory(workload: Workload, rows: int, columns: int, block: int, held: int) -> int:
    """Bytes on the chip: the weights that are held, a block of the others, and what they multiply.

    That is forward the state, then the gates as they are turned; backward the gradients of the gates,
    and the parts as they are turned.
    """
    size = SIZES[workload.numbers]
    depth = sum(found for _, found in pieces(workload.width))
    passing = columns * block * size if held < depth else 0
    forward = max(rows * block * size * (1 if block >= depth else 2), rows * columns * 4)
    turned = (
        rows * largest_chunk(rows, block, workload.numbers) * (2 if workload.numbers == "bfloat16" else 4)
    )
    backward = rows * columns * size + turned
    return columns * held * size + passing + max(forward, backward) + RESERVED
