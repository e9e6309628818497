"""What the texts of all kernels have in common: their variants, and who writes their lines."""

from collections.abc import Iterable
from dataclasses import dataclass

from elman.recurrence.statements import statements
from elman.recurrence.symbols import Node
from elman.recurrence.triton.program import StepProgram, power_of_two

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
    lengths, mask, training, d_final: whether there are such arguments; ``all_states``: whether the
    sequences of all states are an output, not only that of the first.
    overlap: a kernel of a step begins while the one before it ends, and waits where it reads of it.
    summary: all that is wanted is where a sequence ends, or backward the gradient of where it begins.
    heads: groups of units that recurrent weights multiply each by itself; programs are of one head each.
    """

    H: int
    rows: int
    units: int
    numbers: str
    precision: str = "ieee"
    directions: int = 1
    lengths: bool = False
    mask: bool = False
    all_states: bool = False
    training: bool = False
    d_final: bool = False
    block: int = 1024
    held: int = ALL
    overlap: bool = False
    heads: int = 1
    summary: bool = False

    @property
    def width(self) -> int:
        """The units of a head."""
        return self.H // self.heads

    @property
    def programs(self) -> int:
        """How many programs share the units of a row, or of a head in it."""
        return -(-self.width // self.units)

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """The units that a product runs over, as blocks (first, size)."""
        return [(0, self.units)] if self.programs == 1 else pieces(self.width, largest=self.block)

    @property
    def depth(self) -> int:
        """How many units all blocks hold, with the zeros at the end."""
        return sum(size for _, size in self.blocks)

    @property
    def stride(self) -> int:
        """The length of a head in a row of ``operand``, in whole vectors of memory."""
        return -(-self.width // 16) * 16

    @property
    def packing(self) -> int:
        """How many rows share a word of the ring."""
        return 2 if self.numbers == "bfloat16" else 1

    @property
    def words(self) -> int:
        """How many words of the ring one program sends another in a round."""
        return self.rows * self.units // self.packing


def pieces(units: int, largest: int = ALL) -> list[tuple[int, int]]:
    """Divide units into blocks (first, size) whose sizes are powers of two, with little left over.

    >>> pieces(650)
    [(0, 512), (512, 128), (640, 64)]
    >>> pieces(40)
    [(0, 64)]
    """
    whole = max(16, power_of_two(units)) if units <= 64 else -(-units // 64) * 64
    found, first = [], 0
    while first < whole:
        size = min(largest, 1 << ((whole - first).bit_length() - 1))
        found.append((first, size))
        first += size
    return found


def largest_chunk(rows: int, block: int, numbers: str) -> int:
    """Say of how many units the gradient is computed at a time, so that its sums stay in registers.

    Triton 3.6 multiplies a turned float32 block of 512 units wrongly; 256 is right.
    """
    return min(block, max(64, 8192 // rows), 256 if numbers == "float32" else 512)


class KernelWriter:
    """Writes one kernel: collects its arguments and its lines, and knows what every kernel has."""

    def __init__(self, name: str, step: StepProgram, variant: Variant) -> None:
        self.name, self.step, self.v = name, step, variant
        self.arguments: list[str] = []
        self.lines: list[str] = []
        self.indent = 1
        e = step.equations
        self.number = DTYPES[variant.numbers]
        groups = {"x": e.inputs, "h": e.products, "s": e.states, "v": e.vectors, "n": e.noise, "g": e.states}
        self.leaves = {(kind, name): f"{kind}_{name}" for kind, names in groups.items() for name in names}
        self.leaves |= {("p", node.name): node.name for node in step.gradients.conditions}
        self.local = "local" if variant.heads > 1 else "u"  # units, counted from the head's first

    @property
    def shown(self) -> tuple[str, ...]:
        """The states whose sequence is an output."""
        states = self.step.equations.states
        if self.v.summary and not self.v.d_final:
            return ()
        return states if self.v.all_states else states[:1]

    def take(self, *names: str) -> None:
        self.arguments += [name for name in names if name not in self.arguments]

    def write(self, *lines: str) -> None:
        self.lines += [f"{'    ' * self.indent}{line}" for line in lines]

    def compute(self, results: Iterable[Node | None], known: dict[int, str]) -> list[str]:
        """Write the equations, and return the names under which the results are found."""
        tile = f"[{self.v.rows}, {self.v.units}]"

        def constant(value: float) -> str:
            return f"tl.full({tile}, {number_text(value)}, tl.float32)"

        lines, names = statements(results, leaves=self.leaves, known=known, constant=constant)
        self.write(*lines)
        return names

    def load(self, name: str, address: str, mask: str) -> None:
        self.write(f"{name} = tl.load({address}, mask={mask}, other=0)")

    def store(self, address: str, value: str, mask: str, number: str = "") -> None:
        self.write(f"tl.store({address}, {f'({value}).to({number})' if number else value}, mask={mask})")

    def load_each(self, tensor: str, names: Iterable[str], mask: str) -> None:
        """Load the values of a unit that lie side by side in this tensor."""
        for i, name in enumerate(names):
            self.load(name, f"at_{tensor} + {i * self.v.H}", mask)

    def store_each(self, tensor: str, values: Iterable[str], number: str = "") -> None:
        for i, value in enumerate(values):
            self.store(f"at_{tensor} + {i * self.v.H}", value, "live", number)

    def begin(self, start: str) -> None:
        """Write which rows and units this program has; ``start`` is the step at which a row begins."""
        v, e = self.v, self.step.equations
        self.write("tile, group, d = tl.program_id(0), tl.program_id(1), tl.program_id(2)")
        if v.heads > 1:
            self.write(f"head, tile = tile // {v.programs}, tile % {v.programs}")
        self.write(
            f"b = first + group * {v.rows} + tl.arange(0, {v.rows})",
            f"{self.local} = tile * {v.units} + tl.arange(0, {v.units})",
            *([f"u = head * {v.width} + local"] if v.heads > 1 else []),
            f"live = (b < B)[:, None] & ({self.local} < {v.width})[None, :]",
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
                f"mask={self.local} < {v.width}, other=0)[None, :] "
                f"+ tl.zeros([{v.rows}, {v.units}], tl.float32)"
            )

    def point(self, *sizes: tuple[str, int]) -> None:
        """Write ``at_name``, the place of this step's values in (B, T, D, size), if there are any."""
        for name, size in sizes:
            if size:
                self.take(name)
                unit = "u" if name != "operand" or self.v.heads == 1 else f"(head * {self.v.stride} + local)"
                place = f"(row * {self.v.directions} + d)[:, None] * {size} + {unit}[None, :]"
                self.write(f"at_{name} = {name} + {place}")

    def masked(self, value: str) -> str:
        """Return the value as recurrent dropout lets it through, if there is any."""
        return f"{value} * mask_b" if self.v.mask else value

    def state_address(self, tensor: str, place: int) -> str:
        """Return the address of one state in (D, states, B, H), which becomes an argument."""
        self.take(tensor)
        return f"{tensor} + {place} * B.to(tl.int64) * {self.v.H} + own" if place else f"{tensor} + own"


class SequenceWriter(KernelWriter):
    """Writes one kernel that goes through all of time and keeps weights on the chip."""

    def __init__(self, name: str, step: StepProgram, variant: Variant) -> None:
        super().__init__(name, step, variant)
        self.exchange = bool(step.equations.products) and variant.programs > 1
        self.gathers = self.exchange and step.gathers
        self.scatters = self.exchange and not step.gathers
        # Whose weights these are: of a direction, and of a head in it.
        self.share = f"(d * {variant.heads} + head)" if variant.heads > 1 else "d"

    def text(self) -> str:
        arguments = ", ".join([*self.arguments, "T", "B", "first", "reverse"])
        head = '@triton.jit(do_not_specialize=["T", "B", "first", "reverse"])'
        return "\n".join([head, f"def {self.name}({arguments}):", *self.lines, "", ""])

    def hold_weights(self, blocks: list[tuple[int, int]]) -> None:
        """Load ``w_first``, this program's columns, for every block of units; most stay for all steps."""
        v, columns = self.v, self.step.columns * self.v.units
        self.take("weight")
        self.write(
            f"mine = weight + ({self.share} * {v.programs} + tile).to(tl.int64) * {columns * v.depth}"
            f" + tl.arange(0, {columns})[:, None] * {v.depth}"
        )
        for first, size in blocks:
            if first < v.held:
                self.write(f"w_{first} = tl.load(mine + {first} + tl.arange(0, {size})[None, :])")

    def read_weights(self, blocks: list[tuple[int, int]]) -> None:
        """Load, at a step, the blocks that do not stay: they come while others are awaited."""
        for first, size in blocks:
            if first >= self.v.held:
                self.write(f"p_{first} = tl.load(mine + {first} + tl.arange(0, {size})[None, :])")

    def weights(self, first: int) -> str:
        """Return the name of a block's weights, where they are multiplied.

        One that does not stay is touched here, so that Triton keeps it in registers until now: shared
        memory, in which weights are multiplied, has no room for all such blocks at once.
        """
        if first >= self.v.held:
            self.write(f"w_{first} = tl.where(T > 0, p_{first}, 0.0)")
        return f"w_{first}"

    def multiply(self, address: str, there: str, width: int) -> None:
        """Write ``acc``, the weights times what others publish at ``address``; that is awaited."""
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

    def advance(self, *sizes: tuple[str, int]) -> None:
        self.write(*(f"at_{name} += move * {size * self.v.directions}" for name, size in sizes if size))


def number_text(value: float) -> str:
    return repr(value) if value == value and abs(value) != float("inf") else f'float("{value}")'
