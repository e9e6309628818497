"""Writes a cell's step and its gradient as C: nothing but vectors in, vectors out.

Loops, loads, products and threads are in ``kernel.c``; what is generated here is pure arithmetic:

    forward_step(x, h, s, v, n, y, saved)        y: new state
    backward_step(x, s, v, n, y, saved, g, after, dx, dh, ds, dv)   after: steps of the row that follow

and the two products, unrolled here because compilers differ in what they unroll and keep in registers:

    forward_product, backward_product(rows, a, row_stride, groups, group_stride, count, w, out)

A small step is copied into every loop that takes it. A large one is a function, made of functions of
some statements each: what a compiler does to one function takes more than twice as long for twice the
statements.
"""

import re
from collections.abc import Mapping, Sequence

from elman.recurrence.operations import OPERATIONS
from elman.recurrence.statements import statements
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Equations, Gradients

BACKWARD_BLOCKS = 4  # vectors of units in a backward panel
MOST_ROWS = 10  # rows of a tile, at most; few columns leave registers for that many
SMALL_STEPS = 128  # statements of both steps up to which they are copied into the loops
PART = 128  # statements of a function that is part of a large step
FUNCTION = "static __attribute__((noinline))"


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
    e, g = equations, gradients
    leaves = {"x": e.inputs, "h": e.products, "s": e.states, "v": e.vectors, "n": e.noise, "g": e.states}
    names = {(kind, name): f"{kind}[{i}]" for kind, group in leaves.items() for i, name in enumerate(group)}
    names |= {("p", node.name): f"truth{node.name}" for node in gradients.conditions}
    saved = {node.index: f"saved[{i}]" for i, node in enumerate(kept.saved)}
    new = {node.index: f"y[{equations.results.index(node)}]" for node in kept.current}
    forward = _body(names, {}, {"y": equations.results, "saved": kept.saved})
    groups = {"dx": g.inputs, "dh": g.products, "ds": g.states, "dv": g.vectors}
    backward = _body(names, {**saved, **new}, groups)
    small = len(forward) + len(backward) <= SMALL_STEPS
    step = _inlined if small else _in_parts
    lines = [f"#define {name} {count}" for name, count in counts.items()]
    lines += [] if small else _called_functions()
    lines += step("forward_step", "x h s v n", "y saved", forward)
    lines += step("backward_step", "x s v n y saved g after", "dx dh ds dv", backward)
    if products:
        lines += panel_product("forward_product", blocks * products) + panel_product(
            "backward_product", BACKWARD_BLOCKS
        )
    return "\n".join(lines)


def panel_product(name: str, columns: int) -> list[str]:
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
    names: dict[tuple[str, str], str], known: dict[int, str], targets: Mapping[str, Sequence[Node | None]]
) -> list[str]:
    """Statements that fill the target arrays with these values."""
    lines, values = lines_of([node for group in targets.values() for node in group], names, known)
    places = [f"{target}[{i}]" for target, group in targets.items() for i in range(len(group))]
    return [f"  {line}" for line in lines] + [
        f"  {p} = {value};" for p, value in zip(places, values, strict=True)
    ]


def lines_of(
    nodes: Sequence[Node | None],
    leaves: Mapping[tuple[str, str], str],
    known: Mapping[int, str] | None = None,
) -> tuple[list[str], list[str]]:
    """Statements that compute these values, and the names under which they are found."""
    return statements(
        nodes,
        leaves=leaves,
        known=known or {},
        constant=lambda value: f"all({number(value)})",
        assign=lambda name, value, truth: f"{'M' if truth else 'V'} {name} = {value};",
    )


def _inlined(name: str, given: str, found: str, lines: list[str]) -> list[str]:
    return [f"INLINE void {name}({_parameters(given, found)}) {{", *lines, "}"]


def _in_parts(name: str, given: str, found: str, lines: list[str]) -> list[str]:
    """A step as functions one after the other, which leave each other values in ``kept``."""
    parts = [lines[i : i + PART] for i in range(0, len(lines), PART)]
    names = [dict.fromkeys(re.findall(r"\bt\d+\b", "\n".join(part))) for part in parts]
    kinds = {value: kind for kind, value in re.findall(r"^  ([VM]) (t\d+) =", "\n".join(lines), re.MULTILINE)}
    last = {value: number for number, used in enumerate(names) for value in used}
    place: dict[str, int] = {}
    text, calls = [], []
    for number, (part, used) in enumerate(zip(parts, names, strict=True)):
        old = [f"  {kinds[v]} {v} = ({kinds[v]})kept[{place[v]}];" for v in used if v in place]
        new = [value for value in used if value not in place and last[value] > number]
        place |= {value: i for i, value in enumerate(new, len(place))}
        text += [f"{FUNCTION} void {name}_{number}({_parameters(given, found)}, V *kept) {{", *old, *part]
        text += [*(f"  kept[{place[value]}] = (V){value};" for value in new), "}"]
        calls.append(f"  {name}_{number}({', '.join(f'{given} {found}'.split())}, kept);")
    text += [f"{FUNCTION} void {name}({_parameters(given, found)}) {{", f"  V kept[{len(place) + 1}];"]
    return [*text, *calls, "}"]


def _called_functions() -> list[str]:
    """From here on the dear functions are called; in a small step they are copied to where they are used."""
    texts = [row.text for row in OPERATIONS.values() if row.dear]
    found = [text.removesuffix("({0})") for text in texts if text.endswith("({0})")]
    called = [f"{FUNCTION} V called_{name}(V a) {{ return {name}(a); }}" for name in found]
    return called + [f"#define {name} called_{name}" for name in found]


def _parameters(given: str, found: str) -> str:
    own = {"after": "long after"}
    taken = [own.get(name, f"const V *{name}") for name in given.split()]
    return ", ".join([*taken, *(f"V *{name}" for name in found.split())])


def number(value: float) -> str:
    if value != value:
        return "(REAL)NAN"
    if value in (float("inf"), float("-inf")):
        return f"(REAL){'-' if value < 0 else ''}INFINITY"
    return f"(REAL){value!r}"
