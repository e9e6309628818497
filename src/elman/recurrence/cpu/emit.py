"""Writes a cell's step and its gradient as C: nothing but vectors in, vectors out.

Loops, loads, products and threads are in ``kernel.c``; what is generated here is pure arithmetic:

    forward_step(x, h, s, v, n, y, saved)        y: new state
    backward_step(x, s, v, n, y, saved, g, dx, dh, ds, dv)
"""

from collections.abc import Iterable

from elman.recurrence.operations import OPERATIONS
from elman.recurrence.symbols import Node
from elman.recurrence.trace import Equations, Gradients


def emit(equations: Equations, gradients: Gradients) -> str:
    """The generated part of a kernel's source: counts as macros and two functions."""
    counts = {
        "STATES": len(equations.states),
        "INPUTS": len(equations.inputs),
        "PRODUCTS": len(equations.products),
        "VECTORS": len(equations.vectors),
        "NOISE": len(equations.noise),
        "SAVED": len(gradients.saved),
        "SHARED": int(shares_gradient(equations, gradients)),
        "READS_PARTS": int(gradients.reads_parts),
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
    kept = {node.index: f"saved[{i}]" for i, node in enumerate(gradients.saved)}
    new = {node.index: f"y[{equations.results.index(node)}]" for node in gradients.current}
    forward = _body(
        names,
        {},
        [(f"y[{i}]", node) for i, node in enumerate(equations.results)]
        + [(f"saved[{i}]", node) for i, node in enumerate(gradients.saved)],
    )
    groups = {
        "dx": gradients.inputs,
        "dh": gradients.products,
        "ds": gradients.states,
        "dv": gradients.vectors,
    }
    backward = _body(
        names,
        {**kept, **new},
        [(f"{name}[{i}]", node) for name, group in groups.items() for i, node in enumerate(group)],
    )
    return "\n".join(
        [
            *(f"#define {name} {count}" for name, count in counts.items()),
            f"INLINE void forward_step({_vectors('x h s v n')}, V *y, V *saved) {{",
            *forward,
            "}",
            f"INLINE void backward_step({_vectors('x s v n y saved g')}, V *dx, V *dh, V *ds, V *dv) {{",
            *backward,
            "}",
        ]
    )


def shares_gradient(equations: Equations, gradients: Gradients) -> bool:
    """Whether x.i and h.i have the same gradient in every gate (they only occur as a sum)."""
    return equations.inputs == equations.products and gradients.inputs == gradients.products


def _body(
    names: dict[tuple[str, str], str],
    available: dict[int, str],
    targets: Iterable[tuple[str, Node | None]],
) -> list[str]:
    """Statements that compute the targets, each node once, in an order that keeps sources first."""
    lines: list[str] = []
    text = dict(available)

    def write(root: Node) -> str:
        todo = [root]
        while todo:
            node = todo[-1]
            if node.index in text:
                todo.pop()
                continue
            missing = [a for a in node.args if a.index not in text]
            if missing:
                todo.extend(missing)
                continue
            todo.pop()
            if node.op == "constant":
                text[node.index] = f"all({_number(node.value or 0.0)})"
            elif not node.args:
                text[node.index] = names[node.op, node.name]
            else:
                expression = OPERATIONS[node.op].c.format(*(text[a.index] for a in node.args))
                text[node.index] = f"t{node.index}"
                lines.append(f"  {'M' if node.boolean else 'V'} t{node.index} = {expression};")
        return text[root.index]

    computed = [(target, write(node) if node is not None else "all(0)") for target, node in targets]
    return lines + [f"  {target} = {value};" for target, value in computed]


def _vectors(names: str) -> str:
    return ", ".join(f"const V *{name}" for name in names.split())


def _number(value: float) -> str:
    if value != value:
        return "(REAL)NAN"
    if value in (float("inf"), float("-inf")):
        return f"(REAL){'-' if value < 0 else ''}INFINITY"
    return f"(REAL){value!r}"
