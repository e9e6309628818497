"""What the text of every kernel has in common: its variants, its step, its lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from elman.recurrence.compiled import make_once
from elman.recurrence.operations import OPERATIONS
from elman.recurrence.statements import statements
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Arrivals, Equations, derive, presence

ROUNDS = 2  # of the ring
AHEAD = 2  # blocks of an exchange that are read at a time
ALL = 1 << 30  # units: more than any network has
DTYPES = {"bfloat16": "tl.bfloat16", "float16": "tl.float16", "float32": "tl.float32"}


@dataclass(frozen=True)
class Variant:
    """What the text of a kernel depends on besides the equations; steps, rows and lengths are not in it.

    rows, units: of one program's tile. directions: that run at once.
    block: units of the largest block that is multiplied at a time; ``held``: units whose weights stay on
    the chip, those of the rest are read anew at every step.
    numbers: of weights, inputs and outputs; ``precision``: of float32 products, as Triton names them.
    lengths, mask, whole, training, d_final: whether there are such arguments.
    """

    H: int
    rows: int
    units: int
    numbers: str
    precision: str = "ieee"
    directions: int = 1
    lengths: bool = False
    mask: bool = False
    whole: bool = False
    training: bool = False
    d_final: bool = False
    block: int = 1024
    held: int = ALL

    @property
    def programs(self) -> int:
        """That share the units of a row."""
        return -(-self.H // self.units)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The units that a product runs over, in blocks: (first, size)."""
        if self.programs == 1:
            return [(0, self.units)]
        return pieces(self.H, largest=self.block)

    @property
    def depth(self) -> int:
        """All of them, with zeros at the end."""
        return sum(size for _, size in self.blocks)

    @property
    def stride(self) -> int:
        """Of a row of ``operand``: whole vectors of memory."""
        return -(-self.H // 16) * 16

    @property
    def packing(self) -> int:
        """Rows that share a word of the ring."""
        return 2 if self.numbers == "bfloat16" else 1

    @property
    def words(self) -> int:
        """Of the ring that one program sends another in a round."""
        return self.rows * self.units // self.packing


class Step:
    """The equations, their gradients, and where their values are kept for the way back.

    short, long: saved values that few bits hold, and the others. kept: states.
    shared: x.i and h.i have the same gradient in every gate.
    """

    def __init__(self, equations: Equations, arrivals: Arrivals | None = None) -> None:
        """``arrivals``: from where gradients come, if that changes the way back; what is kept stays."""
        e, g = equations, derive(equations)
        current = {e.states[e.results.index(node)] for node in g.current}
        self.equations, self.current = e, g.current
        self.gradients = g if arrivals is None else derive(e, arrivals)
        self.presence = None if arrivals is None else presence(e, arrivals)
        self.short = tuple(node for node in g.saved if _bounded(node))
        self.long = tuple(node for node in g.saved if not _bounded(node))
        self.kept = tuple(name for name in e.states if name in g.previous | current)
        own = self.gradients
        self.shared = bool(e.products) and e.inputs == e.products and own.inputs == own.products
        self.reads_parts = g.reads_parts

    def arriving(self, arrivals: Arrivals) -> Step:
        """The step whose way back takes gradients from there alone; mostly this one."""

        def make() -> Step:
            return (
                self
                if presence(self.equations, arrivals) is None
                else Step(replace(self.equations, compiled={}), arrivals)
            )

        found: Step = make_once(self.equations, ("way back", arrivals), make)
        return found

    @property
    def gathers(self) -> bool:
        """Whether the way back exchanges gradients of products rather than parts of their sums."""
        return len(self.equations.products) == 1

    @property
    def columns(self) -> int:
        """Of the weights that a unit has."""
        return columns_of(len(self.equations.products))


def signature(equations: Equations | None) -> tuple[str, ...]:
    """The equations as text: the same for cells that compute the same."""
    assert equations is not None
    known = equations.compiled
    if "signature" not in known:
        e = equations
        names = {"x": e.inputs, "h": e.products, "s": e.states, "v": e.vectors}
        lines, results = statements(
            e.results,
            leaves={(kind, name): f"{kind}.{name}" for kind, group in names.items() for name in group},
            known={},
            constant=repr,
            assign=lambda name, value, truth: f"{name} = {value}",
        )
        known["signature"] = (*lines, *results, *e.inputs, "", *e.products, "", *e.states, "", *e.vectors)
    found: tuple[str, ...] = known["signature"]
    return found


def _bounded(node: Node) -> bool:
    return node.op in OPERATIONS and OPERATIONS[node.op].bounded


def pieces(units: int, largest: int = ALL) -> list[tuple[int, int]]:
    """So many units as blocks whose sizes are powers of two: (first, size), with little left over.

    >>> pieces(650)
    [(0, 512), (512, 128), (640, 64)]
    >>> pieces(40)
    [(0, 64)]
    """
    if units <= 64:
        whole = max(16, power_of_two(units))
    else:
        whole = -(-units // 64) * 64
    found, first = [], 0
    while first < whole:
        size = min(largest, 1 << ((whole - first).bit_length() - 1))
        found.append((first, size))
        first += size
    return found


def columns_of(products: int) -> int:
    """A column of the weights for every gate of a unit, and zeros up to a power of two."""
    return power_of_two(max(1, products))


def largest_chunk(rows: int, block: int, numbers: str) -> int:
    """Units whose parts of the gradient are computed at a time: their sums stay in registers.

    Triton 3.6 multiplies a turned float32 block of 512 units wrongly; 256 is right.
    """
    return min(block, max(64, 8192 // rows), 256 if numbers == "float32" else 512)


def power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


class Kernel:
    """The text of one kernel as it is written: its arguments, its lines, and what every kernel has."""

    def __init__(self, name: str, step: Step, variant: Variant) -> None:
        self.name, self.step, self.v = name, step, variant
        self.arguments: list[str] = []
        self.lines: list[str] = []
        self.indent = 1
        e = step.equations
        self.number = DTYPES[variant.numbers]
        self.leaves = {
            (kind, name): f"{kind}_{name}"
            for kind, names in (
                *(("x", e.inputs), ("h", e.products), ("s", e.states)),
                *(("v", e.vectors), ("n", e.noise), ("g", e.states)),
            )
            for name in names
        }
        self.leaves |= {("p", node.name): node.name for node in step.gradients.conditions}

    @property
    def shown(self) -> tuple[str, ...]:
        """States whose sequence is an output."""
        states = self.step.equations.states
        return states if self.v.whole else states[:1]

    # ---- writing ---------------------------------------------------------------------------------

    def take(self, *names: str) -> None:
        """Arguments of the kernel."""
        self.arguments += [name for name in names if name not in self.arguments]

    def write(self, *lines: str) -> None:
        self.lines += [f"{'    ' * self.indent}{line}" for line in lines]

    def text(self) -> str:
        """All that was written, as Triton reads it."""
        raise NotImplementedError

    def compute(self, results: Iterable[Node | None], known: dict[int, str]) -> list[str]:
        """Write the equations; the names under which the results are found."""
        rows, units = self.v.rows, self.v.units
        lines, names = statements(
            results,
            leaves=self.leaves,
            known=known,
            constant=lambda value: f"tl.full([{rows}, {units}], {_number(value)}, tl.float32)",
            assign=lambda name, value, truth: f"{name} = {value}",
        )
        self.write(*lines)
        return names

    def load(self, name: str, address: str, mask: str) -> None:
        self.write(f"{name} = tl.load({address}, mask={mask}, other=0)")

    def store(self, address: str, value: str, mask: str, number: str = "") -> None:
        self.write(f"tl.store({address}, {f'({value}).to({number})' if number else value}, mask={mask})")

    # ---- what all of them have in common ---------------------------------------------------------

    def begin(self, start: str) -> None:
        """Who this program is; ``start``: the step at which a row begins to be walked."""
        v, e = self.v, self.step.equations
        self.write(
            "tile, group, d = tl.program_id(0), tl.program_id(1), tl.program_id(2)",
            f"b = first + group * {v.rows} + tl.arange(0, {v.rows})",
            f"u = tile * {v.units} + tl.arange(0, {v.units})",
            f"live = (b < B)[:, None] & (u < {v.H})[None, :]",
            "backwards = reverse ^ d",
            f"t = {start}",
            "row = b.to(tl.int64) * T + t",
            f"own = ((d * {len(e.states)}).to(tl.int64) * B + b)[:, None] * {v.H} + u[None, :]",
        )
        if v.lengths:
            self.take("lengths")
            self.write("length = tl.load(lengths + b, mask=b < B, other=0)[:, None]")
        if v.mask:
            self.take("mask")
            self.write(f"place = (d.to(tl.int64) * B + b)[:, None] * {v.H} + u[None, :]")
            self.load("mask_b", "mask + place", "live")
            self.write("mask_b = mask_b.to(tl.float32)")
        for i, name in enumerate(e.vectors):
            self.take("vectors")
            self.write(
                f"v_{name} = tl.load(vectors + (d * {len(e.vectors)} + {i}) * {v.H} + u, "
                f"mask=u < {v.H}, other=0)[None, :] + tl.zeros([{v.rows}, {v.units}], tl.float32)"
            )

    def pointer(self, name: str, count: int, *, stride: int = 0) -> None:
        """``at_name``: where the values of this step lie in (B, T, D, count, H)."""
        size = count * (stride or self.v.H)
        self.take(name)
        self.write(f"at_{name} = {name} + (row * {self.v.directions} + d)[:, None] * {size} + u[None, :]")

    def masked(self, value: str) -> str:
        """The value as recurrent dropout lets it through, if there is any."""
        return f"{value} * mask_b" if self.v.mask else value

    def state_address(self, tensor: str, place: int) -> str:
        """Of one state in (D, states, B, H)."""
        return f"{tensor} + {place} * B.to(tl.int64) * {self.v.H} + own" if place else f"{tensor} + own"


class WalkKernel(Kernel):
    """The text of one kernel that goes through all of time and keeps weights on the chip."""

    def __init__(self, name: str, step: Step, variant: Variant) -> None:
        super().__init__(name, step, variant)
        self.exchange = bool(step.equations.products) and variant.programs > 1
        self.gathers = self.exchange and step.gathers
        self.scatters = self.exchange and not step.gathers

    def text(self) -> str:
        arguments = ", ".join([*self.arguments, "T", "B", "first", "reverse"])
        head = '@triton.jit(do_not_specialize=["T", "B", "first", "reverse"])'
        return "\n".join([head, f"def {self.name}({arguments}):", *self.lines, "", ""])

    def hold_weights(self, blocks: list[tuple[int, int]]) -> None:
        """``w_first``: for every block of units, the columns of this program; most stay for all steps."""
        v, columns = self.v, self.step.columns * self.v.units
        self.take("weight")
        self.write(
            f"mine = weight + (d * {v.programs} + tile).to(tl.int64) * {columns * v.depth}"
            f" + tl.arange(0, {columns})[:, None] * {v.depth}"
        )
        for first, size in blocks:
            if first < v.held:
                self.write(f"w_{first} = tl.load(mine + {first} + tl.arange(0, {size})[None, :])")

    def read_weights(self, blocks: list[tuple[int, int]]) -> None:
        """The blocks that do not stay, at a step: they come while others are awaited."""
        for first, size in blocks:
            if first >= self.v.held:
                self.write(f"p_{first} = tl.load(mine + {first} + tl.arange(0, {size})[None, :])")

    def weights(self, first: int) -> str:
        """The name of a block's weights, where they are multiplied.

        One that does not stay is touched here, so that Triton keeps it in registers until now: shared
        memory, in which weights are multiplied, has no room for all such blocks at once.
        """
        if first >= self.v.held:
            self.write(f"w_{first} = tl.where(T > 0, p_{first}, 0.0)")
        return f"w_{first}"

    def multiply(self, address: str, there: str, width: int) -> None:
        """``acc``: the weights times what others publish at ``address``, so wide, which is awaited."""
        v = self.v
        loads = {}
        for first, size in v.blocks if self.exchange else []:
            here = f"{address} + {first} + tl.arange(0, {size})[None, :]"
            inside = f"{there} & ({first} + tl.arange(0, {size}) < {width})[None, :]"
            loads[first] = f"state_{first} = tl.load({here}, mask={inside}, other=0, volatile=True)"
        self.write(*list(loads.values())[:AHEAD])
        self.read_weights(v.blocks)
        for place, (first, _) in enumerate(v.blocks):  # in turn: they share the memory of a block
            if self.exchange:
                self.write(f"while absent(state_{first}):", f"    {loads[first]}")
                self.write(*list(loads.values())[place + AHEAD : place + AHEAD + 1])
            product = self.dot(self.weights(first), f"tl.trans(state_{first})", "acc" if place else "")
            self.write(f"acc = {product}")

    def dot(self, a: str, b: str, more: str = "") -> str:
        more = f", {more}" if more else ""
        precision = f', input_precision="{self.v.precision}"' if self.v.numbers == "float32" else ""
        return f"tl.dot({a}, {b}{more}{precision})"

    def advance(self, *counts: tuple[str, int]) -> None:
        """Every pointer to the next step."""
        for name, count in counts:
            self.write(f"at_{name} += move * {count * self.v.directions}")


def _number(value: float) -> str:
    return repr(value) if value == value and abs(value) != float("inf") else f'float("{value}")'
