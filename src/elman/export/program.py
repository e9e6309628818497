"""A program in C under construction: its weights, the memory that an answer needs, and its functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

COLUMNS = 32  # of a panel, as in runtime.c
PER_LINE = 16  # numbers in a line of an array
TRACED = 300  # steps that are written down

Floats = NDArray[np.float32]
Whole = NDArray[np.integer]
N = TypeVar("N", bound=np.generic)


class Matrix(NamedTuple):
    """A matrix of the program: (depth, width), how it is named there, and its first numbers."""

    depth: int
    width: int
    text: str
    scales: str = ""


class Trace(NamedTuple):
    """A cell that writes down what it does: at each step all of its units, name by name."""

    network: str
    layer: int
    direction: int
    cell: str
    units: int
    names: list[str]
    states: int  # of the names, the last ones
    field: str


def padded(width: int) -> int:
    """The columns of whole panels, which buffers for products must have."""
    return -(-width // COLUMNS) * COLUMNS


class Program:
    """Collects what the C file of a model consists of.

    Weights of matrices are rounded to 8 bits if ``int8`` says so; vectors stay as they are. ``traced``: where
    ``m->tracing`` asks, gates, states, attention and what was probable at the first ``TRACED`` steps are
    kept. ``traces`` are the cells that do so.
    """

    def __init__(self, *, int8: bool, traced: bool = False) -> None:
        self.int8, self.traced = int8, traced
        self.fields: dict[str, str] = {}
        self.functions: list[str] = []
        self.tables: list[str] = []
        self.unicode: list[str] = []  # tables that text.c reads
        self.flags: set[str] = set()  # parts of text.c that are needed
        self.constants: dict[str, int] = {}  # that others may want to know
        self.header: list[str] = []  # more functions that others may call
        self.most_written = 1  # tokens or labels of an answer
        self.longest_text = 1  # bytes of one of them
        self.most_numbers = 1
        self.copies = False  # outputs may have tokens of the source
        self.repairs = False  # outputs are bytes, which may not be UTF-8
        self.traces: list[Trace] = []
        self.first_token: int | None = None  # that a decoder reads
        if traced:
            self.tables.append(f"#define TRACED {TRACED}")
            self.fields |= {"tracing": "int tracing;", "moment": "int moment;"}
        self._floats: list[Floats] = []
        self._bytes: list[NDArray[np.int8]] = []
        self._float_count = self._byte_count = 0

    # Weights

    def vector(self, values: Tensor | Floats) -> str:
        """Numbers of the program, as an address."""
        array = _array(values).reshape(-1)
        place, self._float_count = self._float_count, self._float_count + len(array)
        self._floats.append(array)
        return f"(WEIGHTS + {place})"

    def matrix(self, values: Tensor | Floats) -> Matrix:
        """A matrix (D, N) by which vectors (D,) are multiplied."""
        array = _array(values)
        D, N = array.shape
        wide = np.zeros((D, padded(N)), np.float32)
        wide[:, :N] = array
        if not self.int8:
            return Matrix(D, N, self.vector(_panels(wide)))
        rounded, scales = _rounded(wide)
        return Matrix(D, N, self._byte_array(_panels(rounded)), self.vector(scales))

    def table(self, values: Tensor | Floats) -> Matrix:
        """Rows (V, D) that are looked up."""
        array = _array(values)
        V, D = array.shape
        if not self.int8:
            return Matrix(V, D, self.vector(array))
        rounded, scales = _rounded(array)
        return Matrix(V, D, self._byte_array(rounded), self.vector(scales))

    def _byte_array(self, values: NDArray[np.int8]) -> str:
        place, self._byte_count = self._byte_count, self._byte_count + values.size
        self._bytes.append(values.reshape(-1))
        return f"(SMALL + {place})"

    # Statements

    def multiply(self, y: str, x: str, matrix: Matrix) -> str:
        """``y += x M``; y has room for whole panels."""
        size = f"{matrix.depth}, {matrix.text}"
        if self.int8:
            return f"multiply8({y}, {x}, {size}, {matrix.scales}, {padded(matrix.width)});"
        return f"multiply({y}, {x}, {size}, {padded(matrix.width)});"

    def affine(self, y: str, x: str, matrix: Matrix, bias: str | None) -> list[str]:
        """``y = x M + b``."""
        wide = padded(matrix.width)
        start = f"fill({y}, 0.0f, {wide});" if bias is None else f"copy({y}, {bias}, {wide});"
        return [start, self.multiply(y, x, matrix)]

    def bias(self, values: Tensor) -> str:
        """A bias as wide as whole panels."""
        array = _array(values)
        return self.vector(np.pad(array, (0, padded(len(array)) - len(array))))

    def row(self, to: str, table: Matrix, number: str) -> str:
        """Copy a row of a table."""
        if self.int8:
            first = f"{table.text} + (size_t)({number}) * {table.width}"
            return f"copy8({to}, {first}, {table.scales}[{number}], {table.width});"
        return f"copy({to}, {table.text} + (size_t)({number}) * {table.width}, {table.width});"

    # Parts of the file

    def field(self, name: str, size: int, kind: str = "float") -> str:
        """A part of the memory that an answer needs, as an address."""
        assert name not in self.fields, name
        self.fields[name] = f"{kind} {name}[{max(1, size)}];"
        return f"m->{name}"

    def define(self, head: str, body: Iterable[str]) -> None:
        """A function."""
        self.functions.append("\n".join([f"{head} {{", *(f"  {line}" for line in body), "}"]))

    def array(self, kind: str, name: str, values: Sequence[int] | Whole) -> None:
        """A table of whole numbers."""
        self.tables.append(array_text(kind, name, values))

    def weights_text(self) -> str:
        floats = np.concatenate([*self._floats, np.zeros(1, np.float32)])
        words = [f"0x{word:X}" for word in floats.view(np.uint32).tolist()]
        lines = [
            f"static const union {{ uint32_t bits[{len(words)}]; float values[{len(words)}]; }} NUMBERS =",
            "{{",
            *_lines(words),
            "}};",
            "#define WEIGHTS (NUMBERS.values)",
        ]
        if self.int8:
            small = np.concatenate([*self._bytes, np.zeros(1, np.int8)])
            lines.append(array_text("int8_t", "SMALL", small))
        return "\n".join(lines)


def array_text(kind: str, name: str, values: Sequence[int] | Whole) -> str:
    numbers = values.tolist() if isinstance(values, np.ndarray) else list(values)
    written = [str(one) for one in numbers or [0]]
    return "\n".join([f"static const {kind} {name}[{len(written)}] = {{", *_lines(written), "};"])


def source(name: str) -> str:
    """A part of every program that is written by hand."""
    return files("elman.export").joinpath("source", name).read_text(encoding="utf-8")


def _lines(words: Sequence[str]) -> list[str]:
    return [",".join(words[i : i + PER_LINE]) + "," for i in range(0, len(words), PER_LINE)]


def _array(values: Tensor | Floats) -> Floats:
    found = values.detach().to(torch.float32).cpu().numpy() if isinstance(values, Tensor) else values
    return np.ascontiguousarray(found, dtype=np.float32)


def _panels(matrix: NDArray[N]) -> NDArray[N]:
    D, N = matrix.shape
    return np.ascontiguousarray(matrix.reshape(D, N // COLUMNS, COLUMNS).swapaxes(0, 1))


def _rounded(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Rows in 8 bits, and the scale of each."""
    scales = np.abs(rows).max(1, initial=0.0) / 127
    divisor = np.where(scales > 0, scales, 1)
    return np.rint(rows / divisor[:, None]).astype(np.int8), scales.astype(np.float32)
