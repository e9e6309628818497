"""Writes one kernel of a step of several phases: what is loaded, computed and stored between two products.

A program takes some rows and a block of their units, or all of them where a stage looks at all units at once.
Like the kernels of ``emit/steps.py`` it finds its tensors, and the time, in ``table``. A kernel may serve two
steps: it ends one and begins the next. So values have a moment, the step that they belong to.

    in_0       (D, B, ·)     what product 0 multiplies, side by side, in its numbers
    result_0   (D, ·, B, ·)  float32, parts of its results, which lie side by side
    carry      (D, ·, B, H)  float32, what a stage leaves to a later one; one number a row: ``carry_rows``
    sums       (D, V, B, H)  float32, the gradients of the vectors so far
"""

from collections.abc import Iterable
from dataclasses import dataclass

from elman.recurrence.operations import OPERATIONS, REDUCTIONS
from elman.recurrence.symbols import Node
from elman.recurrence.triton.emit.product import ProductTile, product_text
from elman.recurrence.triton.emit.writer import DTYPES, Variant, number_text
from elman.recurrence.triton.launch import ALIGNED
from elman.recurrence.triton.program import power_of_two
from elman.recurrence.triton.stages import PhasedProgram, Stages

ROWS, UNITS = 2, 128  # of a program that needs no neighbour
LEAST = 128  # values of a program that takes whole rows, if its rows are short
TOGETHER = 8  # reductions of one exchange


@dataclass(frozen=True)
class Tile:
    """The rows and units of a program, its warps, and how many programs share a row."""

    rows: int
    units: int
    warps: int
    programs: int


def tile_of(H: int, *, whole: bool) -> Tile:
    """The tile of a kernel; it does not depend on the number of rows."""
    wide = max(16, power_of_two(H))
    if not whole:
        units = min(UNITS, wide)
        return Tile(ROWS, units, 4, -(-H // units))
    rows = min(4, max(1, LEAST // wide))
    return Tile(rows, wide, min(16, max(4, rows * wide // 128)), 1)


@dataclass(frozen=True)
class Way:
    """Forward or back: what the kernels compute, and how their products are tiled (None: by torch)."""

    program: PhasedProgram
    variant: Variant
    tiles: tuple[ProductTile | None, ...]
    back: bool

    @property
    def stages(self) -> Stages:
        return self.program.stages(self.variant, back=self.back)

    def parts(self, product: int) -> int:
        """In how many parts the results of a product come."""
        tile = self.tiles[product]
        return 1 if tile is None else tile.parts


class PhaseKernel:
    """The lines of one kernel, and the tensors that it names."""

    def __init__(self, name: str, way: "Way", *, whole: bool) -> None:
        variant = way.variant
        self.name, self.way, self.program, self.stages = name, way, way.program, way.stages
        self.v, self.back = variant, way.back
        self.tile = tile_of(variant.H, whole=whole)
        self.number = DTYPES[variant.numbers]
        self.arguments: list[str] = []
        self.buffers: list[str] = []
        self.widths: set[int] = set()  # numbers of sums that are made at once
        self.head: list[str] = []
        self.early: list[str] = []  # loads of what was there before the first step
        self.loads: list[str] = []
        self.lines: list[str] = []
        self.stores: list[str] = []
        self._loaded: set[str] = set()
        rows, units, H = self.tile.rows, self.tile.units, variant.H
        self.head += [
            "tile, group, d = tl.program_id(0), tl.program_id(1), tl.program_id(2)",
            f"b = first + group * {rows} + tl.arange(0, {rows})[:, None]",
            f"u = tile * {units} + tl.arange(0, {units})[None, :]",
            "there = b < B",
            f"live = there & (u < {H})",
            "backwards = reverse ^ d",
        ]
        if variant.lengths:
            self.take("lengths")
            self.head.append("length = tl.load(lengths + b, mask=there, other=0)")

    def text(self) -> str:
        names = ["table", *self.buffers, "B", "first", "reverse", "offset"]
        wait = ["follow()"] if self.v.overlap else []
        lines = [*self.head, *self.early, *wait, *self.loads, *self.lines, "tl.debug_barrier()", *self.stores]
        return "\n".join(
            [
                '@triton.jit(do_not_specialize=["B", "first", "reverse", "offset"])',
                f"def {self.name}({', '.join(names)}):",
                "    step, T = tl.load(table) + offset, tl.load(table + 1)",
                *(f"    {name} = found({name!r})" for name in self.arguments),
                *(f"    {line}" for line in lines),
                *("", ""),
            ]
        )

    def take(self, name: str) -> str:
        if name not in self.arguments:
            self.arguments.append(name)
        return name

    # ---- addresses -------------------------------------------------------------------------------

    def state(self, tensor: str, place: int) -> str:
        """One state in (D, states, B, H)."""
        return self._in_groups(self.take(tensor), len(self.program.equations.states), place)

    def vector_sum(self, place: int) -> str:
        return self._in_groups(self._buffer("sums"), len(self.program.equations.vectors), place)

    def carried(self, node: Node) -> str:
        slot = self.stages.slots[node.index]
        if node.dim:
            return self._in_groups(self._buffer("carry"), self.stages.units, slot)
        return f"{self._buffer('carry_rows')} + (d * {self.stages.rows} + {slot}).to(tl.int64) * B + b"

    def operand(self, product: int, place: int) -> str:
        size = self.stages.products[product].stride(self.v.H)
        return self._in_rows(self._buffer(f"in_{product}"), size, place)

    def result(self, product: int, place: int, part: int) -> str:
        size = len(self.stages.products[product].results) * self.v.H
        row = f"(d * {self.way.parts(product)} + {part}).to(tl.int64) * B + b"
        return f"{self._buffer(f'result_{product}')} + ({row}) * {size} + {place * self.v.H} + u"

    def _buffer(self, name: str) -> str:
        if name not in self.buffers:
            self.buffers.append(name)
        return name

    def _in_groups(self, name: str, size: int, place: int) -> str:
        return f"{name} + ((d * {size} + {place}).to(tl.int64) * B + b) * {self.v.H} + u"

    def _in_rows(self, name: str, size: int, place: int) -> str:
        return f"{name} + (d.to(tl.int64) * B + b) * {size} + {place * self.v.H} + u"

    # ---- lines -----------------------------------------------------------------------------------

    def load(self, name: str, address: str, mask: str, *, early: bool = False) -> str:
        """Load a value as float32, once; ``early``: no kernel of these steps writes it."""
        if name not in self._loaded:
            self._loaded.add(name)
            lines = self.early if early else self.loads
            lines.append(f"{name} = tl.load({address}, mask={mask}, other=0).to(tl.float32)")
        return name

    def store(self, address: str, value: str, mask: str, number: str = "tl.float32") -> None:
        self.stores.append(f"tl.store({address}, ({value}).to({number}), mask={mask})")

    def compute(self, moment: "Moment") -> None:
        """Write what the stage of this moment computes; sums that need not wait for each other at once."""
        depth: dict[int, int] = {}
        nodes = self.stages.computed(moment.stage)
        for node in nodes:
            before = max((depth.get(argument.index, 0) for argument in node.args), default=0)
            depth[node.index] = before + (node.op in REDUCTIONS)
        for level in range(max(depth.values(), default=0) + 1):
            here = [node for node in nodes if depth[node.index] == level]
            for kind in ("sum", "max", "top"):
                found = [node for node in here if node.op == kind]
                for first in range(0, len(found), TOGETHER):
                    self._reduce(moment, kind, found[first : first + TOGETHER])
            for node in here:
                if node.op not in REDUCTIONS:
                    text = OPERATIONS[node.op].text.format(*(moment.value(a) for a in node.args))
                    self.lines.append(f"{moment.named(node)} = {text}")

    def _reduce(self, moment: "Moment", kind: str, nodes: list[Node]) -> None:
        values = [moment.value(node.args[0]) for node in nodes]
        outside = "0.0" if kind == "sum" else 'float("-inf")'
        inside = [f"tl.where(live, {value}, {outside})" for value in values]
        names = [moment.named(node) for node in nodes]
        if kind == "sum" and len(nodes) > 1:
            self.widths.add(len(nodes))
            self.lines.append(f"{', '.join(names)} = tl.reduce(({', '.join(inside)}), 1, add_{len(nodes)})")
            self.lines += [f"{name} = {name}[:, None]" for name in names]
            return
        for name, value in zip(names, inside, strict=True):
            self.lines.append(f"{name} = tl.{'sum' if kind == 'sum' else 'max'}({value}, 1)[:, None]")
            if kind == "max":  # of what is not a number torch's is none either
                self.lines.append(f"odd_ = tl.max(({value} != {value}).to(tl.int32), 1)[:, None]")
                self.lines.append(f'{name} = tl.where(odd_ > 0, float("nan"), {name})')


class Moment:
    """One step as a kernel sees it: its time, and its values, each of which is loaded or computed once.

    step: its number, as a text; ``exists``: when there is such a step, or nothing: always.
    """

    def __init__(self, kernel: PhaseKernel, prefix: str, stage: int, step: str, exists: str = "") -> None:
        self.k, self.prefix, self.stage = kernel, prefix, stage
        self.step, self.live, self.there = f"{prefix}step", f"{prefix}live", f"{prefix}there"
        self.names: dict[int, str] = {}
        p, start = prefix, "(1 - backwards)" if kernel.back else "backwards"
        kernel.head += [
            f"{p}step = {step}",
            f"{p}t = {p}step + {start} * (T - 1 - 2 * {p}step)",
            f"{p}row = b.to(tl.int64) * T + {p}t",
            f"{p}there = there & ({exists or 'T > 0'})",
            f"{p}live = live & ({exists or 'T > 0'})",
        ]
        if kernel.v.lengths:
            kernel.head.append(f"{p}real = live & ({p}t < length)")

    def named(self, node: Node) -> str:
        return self.names.setdefault(node.index, f"{self.prefix}{node.index}")

    def real(self, value: str, other: str = "0.0") -> str:
        """The value where the step is not padding."""
        return f"tl.where({self.prefix}real, {value}, {other})" if self.k.v.lengths else value

    def sequence(self, tensor: str, count: int, place: int = 0, *, time: str = "") -> str:
        """One of so many values of this step in (B, T, D, count, H)."""
        k = self.k
        row = f"({self.prefix}row{time}) * {k.v.directions} + d"
        return f"{k.take(tensor)} + ({row}) * {count * k.v.H} + {place * k.v.H} + u"

    def single(self, place: int) -> str:
        """A saved value that is one number a row, in (B, T, D, ·)."""
        row = f"{self.prefix}row * {self.k.v.directions} + d"
        return f"{self.k.take('single')} + ({row}) * {len(self.k.program.single)} + {place}"

    def value(self, node: Node) -> str:
        """The name of a value, which is loaded if this stage does not compute it."""
        if node.index not in self.names:
            self.names[node.index] = self._load(node)
        return self.names[node.index]

    def values(self, nodes: Iterable[Node | None]) -> list[str]:
        return ["tl.zeros_like(live.to(tl.float32))" if n is None else self.value(n) for n in nodes]

    def _load(self, node: Node) -> str:
        k, name = self.k, f"{self.prefix}{node.index}"
        if node.value is not None:
            return f"tl.full([1, 1], {number_text(node.value)}, tl.float32)"
        if k.stages.is_carried(node, self.stage):
            found = k.load(name, k.carried(node), self.live if node.dim else self.there)
            return f"({found} != 0.0)" if node.boolean else found
        if k.stages.known(node):
            return self._saved(node, name)
        if node.op == "product":
            products = enumerate(k.stages.products)
            number, place = next((n, p.results.index(node)) for n, p in products if node in p.results)
            parts = range(k.way.parts(number))
            each = [k.load(f"{name}_{i}", k.result(number, place, i), self.live) for i in parts]
            k.loads.append(f"{name} = {' + '.join(each)}")
            return name
        return self._leaf(node, name)

    def _leaf(self, node: Node, name: str) -> str:
        k, e = self.k, self.k.program.equations
        if node.op == "x":
            address = self.sequence("parts", len(e.inputs), e.inputs.index(node.name))
        elif node.op == "n":
            address = self.sequence("noise", len(e.noise), e.noise.index(node.name))
        elif node.op == "s":
            return self._state(e.states.index(node.name), node.name, name)
        elif node.op == "v":
            place = f"(d * {len(e.vectors)} + {e.vectors.index(node.name)}) * {k.v.H}"
            address = f"{k.take('vectors')} + {place} + u"
            return k.load(f"v_{node.name}", address, f"u < {k.v.H}", early=True)
        elif node.op == "k":
            place = f"(d.to(tl.int64) * B + b) * {k.v.H} + u"
            return k.load("k_h", f"{k.take('mask')} + {place}", "live", early=True)
        elif node.op == "size":
            return f"tl.full([1, 1], {float(k.v.H)}, tl.float32)"
        else:
            assert node.op == "zero", node.op
            return "tl.zeros_like(live.to(tl.float32))"
        return k.load(name, address, self.live, early=True)

    def _state(self, place: int, state: str, name: str) -> str:
        """The state before this step."""
        k, kept = self.k, self.k.program.kept
        if not k.back:
            return k.load(name, k.state("final", place), "live")
        before = self.sequence("kept", len(kept), kept.index(state), time=" + 2 * backwards - 1")
        k.load(f"{name}_b", before, f"{self.live} & ({self.step} < T - 1)", early=True)
        k.load(f"{name}_i", k.state("initial", place), f"{self.live} & ({self.step} == T - 1)", early=True)
        k.early.append(f"{name} = {name}_b + {name}_i")  # one of them is not there, and zero
        return name

    def _saved(self, node: Node, name: str) -> str:
        k, own = self.k, self.k.program
        for tensor, nodes in (("short", own.short), ("long", own.long)):
            if node in nodes:
                address = self.sequence(tensor, len(nodes), nodes.index(node))
                return k.load(name, address, self.live, early=True)
        if node in own.single:
            return k.load(name, self.single(own.single.index(node)), self.there, early=True)
        e = own.equations
        place = own.kept.index(e.states[e.results.index(node)])
        return k.load(name, self.sequence("kept", len(own.kept), place), self.live, early=True)


def type_of(name: str, number: str) -> str:
    """The numbers of a tensor in the table, as Triton names them."""
    if name == "lengths":
        return "tl.int64"
    if name == "noise":
        return "tl.uint8"
    short = ("parts", "operand_", "short", "d_parts", "d_result_", "out_", "d_out_")
    return number if name.startswith(short) else "tl.float32"


def source_text(way: Way, kernels: list[PhaseKernel]) -> str:
    """All kernels of a way through time; ``prepare`` fills the table that they read."""
    from elman.recurrence.triton.emit.steps import HEADER

    names = list(dict.fromkeys(name for kernel in kernels for name in kernel.arguments))
    places = {name: place for place, name in enumerate(names, HEADER)}
    lines = [
        '@triton.jit(do_not_specialize=["T"])',
        f"def prepare({', '.join(['table', *names, 'T'])}):",
        "    tl.store(table, 0)",
        "    tl.store(table + 1, T.to(tl.int64))",
        *(f"    tl.store(table + {place}, {name}.to(tl.int64))" for name, place in places.items()),
        *("", ""),
    ]
    for width in sorted({width for kernel in kernels for width in kernel.widths}):
        a, b = ([f"{letter}{i}" for i in range(width)] for letter in "ab")
        sums = ", ".join(f"{one} + {other}" for one, other in zip(a, b, strict=True))
        lines += ["@triton.jit", f"def add_{width}({', '.join([*a, *b])}):", f"    return {sums}", "", ""]
    products = [
        product_text(number, product, tile, way.variant)
        for number, (product, tile) in enumerate(zip(way.stages.products, way.tiles, strict=True))
        if tile is not None
    ]
    text = "\n".join([*lines, *products, *(kernel.text() for kernel in kernels)])
    number = kernels[0].number
    for name, place in places.items():
        pointer = f"tl.load(table + {place}).to(tl.pointer_type({type_of(name, number)}))"
        text = text.replace(f"found({name!r})", f"tl.multiple_of({pointer}, {ALIGNED})")
    return text
