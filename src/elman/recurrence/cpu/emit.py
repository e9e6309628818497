"""Writes a cell's step and its gradient as C: nothing but vectors in, vectors out.

Loops, loads, products and threads are in ``kernel.c``; what is generated here is pure arithmetic:

    forward_step(x, h, s, v, n, y, saved)        y: new state
    backward_step(x, s, v, n, y, saved, g, after, dx, dh, ds, dv)   after: steps of the row that follow

and the two products, unrolled here because compilers differ in what they unroll and keep in registers:

    forward_product, backward_product(rows, a, row_stride, groups, group_stride, count, w, out)
"""

from collections.abc import Sequence

from elman.recurrence.statements import statements
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Equations, Gradients

BACKWARD_BLOCKS = 4  # vectors of units in a backward panel
MOST_ROWS = 10  # rows of a tile, at most; few columns leave registers for that many


def emit(equations: Equations, gradients: Gradients, kept: Gradients) -> str:
    """The generated part of a kernel's source: counts as macros, the two steps and the two products.

    What the forward step saves, and where, is that of ``kept``.
    """
    products = len(equations.products)
    blocks = 1 if products not in (1, 2) else 4 // products  # vectors of units in a forward panel
    counts = {
        "STATES": len(equations.states),
        "INPUTS": len(equations.inputs),
        "PRODUCTS": products,
        "FORWARD_BLOCKS": blocks,
        "FORWARD_COLUMNS": max(1, blocks * products),
        "BACKWARD_BLOCKS": BACKWARD_BLOCKS if products else 1,
        "VECTORS": len(equations.vectors),
        "NOISE": len(equations.noise),
        "SAVED": len(kept.saved),
        "SHARED": int(shares_gradient(equations, gradients)),
        "READS_PARTS": int(kept.reads_parts),
        "OVERLAID": overlaid(equations, kept),
    }
    leaves = {
        "x": equations.inputs,
        "h": equations.products,
        "s": equations.states,
        "v": equations.vectors,
        "n": equations.noise,
        "g": equations.states,
    }
    names = {(kind, name): f"{kind}[{i}]" for kind, group in leaves.items() for i, name in enumerate(group)}
    names |= {("p", node.name): f"truth{node.name}" for node in gradients.conditions}
    saved = {node.index: f"saved[{i}]" for i, node in enumerate(kept.saved)}
    new = {node.index: f"y[{equations.results.index(node)}]" for node in kept.current}
    forward = _body(
        names,
        {},
        [(f"y[{i}]", node) for i, node in enumerate(equations.results)]
        + [(f"saved[{i}]", node) for i, node in enumerate(kept.saved)],
    )
    groups = {
        "dx": gradients.inputs,
        "dh": gradients.products,
        "ds": gradients.states,
        "dv": gradients.vectors,
    }
    backward = _body(
        names,
        {**saved, **new},
        [(f"{name}[{i}]", node) for name, group in groups.items() for i, node in enumerate(group)],
    )
    return "\n".join(
        [
            *(f"#define {name} {count}" for name, count in counts.items()),
            f"INLINE void forward_step({_vectors('x h s v n')}, V *y, V *saved) {{",
            *forward,
            "}",
            f"INLINE void backward_step({_vectors('x s v n y saved g')}, long after,",
            "    V *dx, V *dh, V *ds, V *dv) {",
            *backward,
            "}",
            *(_product("forward_product", blocks * products) if products else ()),
            *(_product("backward_product", BACKWARD_BLOCKS) if products else ()),
        ]
    )


def _product(name: str, columns: int) -> list[str]:
    """Rows of ``a``, ``groups`` times ``count`` long, times a panel of so many vectors of weights."""
    lines = [
        f"static void {name}(long rows, const REAL *a, long row_stride, int groups, long group_stride,",
        "    long count, const REAL *w, V *out) {",
        "  switch (rows) {",
    ]
    for rows in range(1, MOST_ROWS + 1):
        sums = [[f"s{r}_{c}" for c in range(columns)] for r in range(rows)]
        lines += [
            f"#if {rows} <= MOST_ROWS({columns})",
            f"  case {rows}: {{",
            *(f"    V {', '.join(f'{s} = all(0)' for s in row)};" for row in sums),
            "    for (int g = 0; g < groups; g++) {",
            *(f"      const REAL *a{r} = a + g * group_stride + {r} * row_stride;" for r in range(rows)),
            f"      for (long i = 0; i < count; i++, w += {columns} * LANES) {{",
            *(f"        V w{c} = *(const V *)(w + {c} * LANES);" for c in range(columns)),
            *(f"        IN_REGISTER(w{c});" for c in range(columns if rows > 1 else 0)),
            *(
                f"        {{ V t = all(a{r}[i]); "
                + " ".join(f"{s} += t * w{c};" for c, s in enumerate(row))
                + " }"
                for r, row in enumerate(sums)
            ),
            "      }",
            "    }",
            *(f"    out[{r * columns + c}] = {s};" for r, row in enumerate(sums) for c, s in enumerate(row)),
            "  } break;",
            "#endif",
        ]
    return [*lines, "  }", "}"]


def shares_gradient(equations: Equations, gradients: Gradients) -> bool:
    """Whether x.i and h.i have the same gradient in every gate (they only occur as a sum)."""
    return equations.inputs == equations.products and gradients.inputs == gradients.products


def overlaid(equations: Equations, gradients: Gradients) -> int:
    """How many saved values may take the place of input parts, which nobody reads again."""
    return 0 if gradients.reads_parts else min(len(equations.inputs), len(gradients.saved))


def _body(
    names: dict[tuple[str, str], str],
    known: dict[int, str],
    targets: Sequence[tuple[str, Node | None]],
) -> list[str]:
    """Statements that compute the targets."""
    lines, values = statements(
        [node for _, node in targets],
        leaves=names,
        known=known,
        constant=lambda value: f"all({_number(value)})",
        assign=lambda name, value, truth: f"  {'M' if truth else 'V'} {name} = {value};",
    )
    return lines + [f"  {target} = {value};" for (target, _), value in zip(targets, values, strict=True)]


def _vectors(names: str) -> str:
    return ", ".join(f"const V *{name}" for name in names.split())


def _number(value: float) -> str:
    if value != value:
        return "(REAL)NAN"
    if value in (float("inf"), float("-inf")):
        return f"(REAL){'-' if value < 0 else ''}INFINITY"
    return f"(REAL){value!r}"
