"""Writes the products between the kernels of a step: what cuBLAS takes long to begin, for few rows.

A program multiplies some rows by a block of columns, over a part of the depth. The parts are added up by who
reads them. Where a part is small it is multiplied at once, and its weights are fetched while the kernel
before is still at work; a larger one is multiplied chunk by chunk.

    in_0      (D, B, ·)         what is multiplied, as ``emit/phase.py`` writes it
    weight_0  (D, K, N)         the matrix
    result_0  (D, parts, B, N)  float32
"""

from dataclasses import dataclass

from elman.recurrence.triton.emit.writer import Variant
from elman.recurrence.triton.program import power_of_two
from elman.recurrence.triton.stages import BlockProduct

PROGRAMS = 132  # that run at once on an H200, on which all these numbers were found
LARGE = 6 << 20  # products of a step, for every 16 rows, from which on chunks are faster, in TF32 cuBLAS
LARGEST = 1 << 26  # above which cuBLAS is faster, or nothing was measured


@dataclass(frozen=True)
class ProductTile:
    """What a program multiplies: rows, columns, and one of so many parts of the depth.

    chunk: how much of the depth is multiplied at a time; all of its part, or less.
    """

    rows: int
    columns: int
    depth: int
    parts: int
    chunk: int
    warps: int

    @property
    def stages(self) -> int:
        """How many chunks are fetched ahead."""
        return 1 if self.chunk == self.depth else 4


def product_tile(product: BlockProduct, variant: Variant, B: int) -> ProductTile | None:
    """How this product is tiled for so many rows; None: by cuBLAS."""
    if variant.numbers == "float32" and variant.precision == "ieee":  # tensor cores have none
        return None
    K, N = len(product.operands) * variant.H, len(product.results) * variant.H
    work = K * N * -(-B // 16) * variant.directions
    short = variant.numbers != "float32"
    if work > LARGEST or (work >= LARGE and not short):
        return None
    rows = min(64, max(16, power_of_two(B)))
    columns = 32 if work < LARGE // 2 else 64
    tiles = -(-N // columns) * -(-B // rows) * variant.directions
    chunks = work >= LARGE or not short
    parts = min(8, max(1, PROGRAMS // tiles), max(1, K // (4 * columns)))
    parts = 1 << (parts.bit_length() - 1)
    depth = power_of_two(-(-K // parts))
    if not chunks and depth * parts <= 1.3 * K:
        warps = 8 if (columns == 32) == (rows > 16) else 4
        return ProductTile(rows, columns, depth, parts, depth, warps)
    chunk = (128 if K % (128 * parts) == 0 else 64) if short else 32
    depth = -(-K // (parts * chunk)) * chunk
    return ProductTile(rows, columns, depth, parts, chunk, 4)


def product_text(number: int, product: BlockProduct, tile: ProductTile, variant: Variant) -> str:
    H, v = variant.H, variant
    K, N, stride = len(product.operands) * H, len(product.results) * H, product.stride(H)
    inside = [] if tile.depth * tile.parts == K else [f"(k < {K})"]
    column = [f"(n < {N})"] if N % tile.columns else []
    weights = " & ".join([*(f"{i}[:, None]" for i in inside), *column])
    values = " & ".join(["(b < B)", *(f"{i}[None, :]" for i in inside)])
    there = " & ".join(["(b < B)", *column])
    masked = f", mask={weights}, other=0" if weights else ""
    precision = f', input_precision="{v.precision}"' if v.numbers == "float32" else ""
    wait = ["follow()"] if v.overlap else []
    load_w = f"w = tl.load(weight_{number} + (d * {K} + k[:, None]) * {N} + n{masked})"
    load_a = f"a = tl.load(in_{number} + (d * B + b) * {stride} + k[None, :], mask={values}, other=0)"
    lines = [
        f"n = tl.program_id(0) * {tile.columns} + tl.arange(0, {tile.columns})[None, :]",
        f"b = first + tl.program_id(1) * {tile.rows} + tl.arange(0, {tile.rows})[:, None]",
        f"part, d = tl.program_id(2) % {tile.parts}, (tl.program_id(2) // {tile.parts}).to(tl.int64)",
    ]
    if tile.chunk == tile.depth:
        lines += [f"k = part * {tile.depth} + tl.arange(0, {tile.depth})", load_w, *wait, load_a]
        lines.append(f"y = tl.dot(a, w{precision})")
    else:
        lines += [
            *wait,
            f"y = tl.zeros([{tile.rows}, {tile.columns}], tl.float32)",
            f"for start in range(0, {tile.depth}, {tile.chunk}):",
            f"    k = part * {tile.depth} + start + tl.arange(0, {tile.chunk})",
            *(f"    {line}" for line in (load_w, load_a, f"y = tl.dot(a, w, y{precision})")),
        ]
    lines.append(
        f"tl.store(result_{number} + ((d * {tile.parts} + part) * B + b) * {N} + n, y, mask={there})"
    )
    return "\n".join(
        [
            '@triton.jit(do_not_specialize=["B", "first"])',
            f"def multiply_{number}(in_{number}, weight_{number}, result_{number}, B, first):",
            *(f"    {line}" for line in lines),
            *("", ""),
        ]
    )
