"""Where the things of a step lie: tensors by name, dimensions, the parts of a row of ``work``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elman.recurrence.looks import POSITIONS
from elman.recurrence.phases import Blocks


@dataclass
class Layout:
    """Where things lie: tensors by name, dimensions, and the parts of a row of ``work``."""

    dims: list[str]
    blocks: Blocks  # of matrices and memories
    tensors: list[str] = field(default_factory=list)
    slots: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # of a row of work: how many of each width

    def tensor(self, name: str) -> str:
        if name not in self.tensors:
            self.tensors.append(name)
        return f"k->tensor[{self.tensors.index(name)}]"

    def slot(self, name: str, dim: str, width: str = "") -> str:
        """The place of a value in a row of ``work``, which is set aside at its first mention.

        width: of another value than one of a dimension, in whole vectors.
        """
        if name not in self.slots:
            width = width or self.wide(dim)
            self.slots[name] = self.total()
            self.sizes[width] = self.sizes.get(width, 0) + 1
        return self.slots[name]

    def total(self) -> str:
        return " + ".join([f"{n} * {width}" for width, n in self.sizes.items()] or ["0"])

    def wide(self, dim: str) -> str:
        return f"W{self.dims.index(dim)}" if dim else "LANES"

    def length(self, dim: str) -> str:
        return f"D{self.dims.index(dim)}" if dim else "1"

    def most(self, dim: str) -> str:
        """The length that is set aside for it in tensors: that of the longest row."""
        return f"k->dim[{self.dims.index(dim)}]" if dim else "1"

    def sum(self, dims: Iterable[str], of: str = "most") -> str:
        return " + ".join([getattr(self, of)(dim) for dim in dims] or ["0"])

    def sizes_text(self, *, row: bool) -> list[str]:
        """Lengths and widths of all dimensions; those of a memory are the row's own."""
        lines = []
        for i, dim in enumerate(self.dims):
            own = row and dim == POSITIONS
            lines.append(f"  const long D{i} = {'k->positions[row]' if own else f'k->dim[{i}]'};")
            lines.append(f"  const long W{i} = round_up(k->dim[{i}], LANES); (void)D{i}, (void)W{i};")
        return lines
