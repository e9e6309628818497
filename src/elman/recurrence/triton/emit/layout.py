"""What the kernels of a composed step have in common: sizes, tensors, and where things lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from elman.recurrence.looks import POSITIONS
from elman.recurrence.phases import Blocks, Phase, StepPrograms
from elman.recurrence.symbols import Node
from elman.recurrence.triton.emit.writer import DTYPES

WIDE = 128  # units from which on eight warps share a row


@dataclass(frozen=True)
class WalkVariant:
    """What the text depends on besides the equations: sizes, numbers, and what is there.

    Of a memory's positions the size is a power of two. ``names`` are the tensors of the walk.
    """

    dims: tuple[tuple[str, int], ...]
    numbers: str
    names: tuple[str, ...]
    shown: tuple[str, ...]
    lengths: bool
    training: bool
    reverse: bool
    arriving: tuple[str, ...] = ()

    def size(self, dim: str) -> int:
        return dict(self.dims)[dim]

    @property
    def warps(self) -> int:
        widest = max((size for dim, size in self.dims if dim != POSITIONS), default=1)
        return 4 if widest <= WIDE else 8 if widest <= 4 * WIDE else 16


@dataclass
class WalkLayout:
    """One way through time, as its kernels see it: what they compute, read and write.

    tensors: those of the table; ``carried``: values by row that kernels, or a look, leave to others.
    """

    name: str
    programs: StepPrograms
    blocks: Blocks
    v: WalkVariant
    tensors: list[str] = field(default_factory=list)
    carried: dict[int, Node] = field(default_factory=dict)

    @property
    def back(self) -> bool:
        return self.name == "backward"

    @property
    def phases(self) -> list[Phase]:
        return self.programs.backward if self.back else self.programs.forward

    @property
    def products(self) -> list[tuple[int, Sequence[Node], Sequence[Node]]]:
        """The products of a step: the phase that follows, what is multiplied, what comes out."""
        return [(i, m.operands, m.results) for i, p in enumerate(self.phases) for m in p.multiplications]

    def take(self, tensor: str) -> str:
        if tensor not in self.tensors:
            self.tensors.append(tensor)
        return f"p{self.tensors.index(tensor)}"

    def width(self, nodes: Sequence[Node]) -> int:
        return sum(self.v.size(node.dim) for node in nodes)

    def stride(self, nodes: Sequence[Node]) -> int:
        return -(-self.width(nodes) // 16) * 16

    @property
    def first(self) -> int:
        """The number of the first kernel of a step: forward the one after the first product."""
        return 0 if self.back else min(1, len(self.phases) - 1)

    @property
    def count(self) -> int:
        return max(1, len(self.phases) - 1)

    def type(self, tensor: str) -> str:
        if tensor in ("lengths", "positions", "sizes"):
            return "tl.int64"
        kinds = ("x", "dx", "operand ", "d ", "in ", "sequence shown ", "d_sequence ", "units ")
        memory = any(tensor == block[0] for block in self.blocks.values())
        return DTYPES[self.v.numbers] if memory or tensor.startswith(kinds) else "tl.float32"
