"""Writes walks of steps of several phases as C: what a row begins with, its phases, and what it leaves."""

from __future__ import annotations

from collections.abc import Sequence

from elman.recurrence.cpu.emit_stages import StepEmitter
from elman.recurrence.cpu.layout import Layout
from elman.recurrence.looks import POSITIONS
from elman.recurrence.phases import StepPrograms
from elman.recurrence.symbols import UNITS
from elman.recurrence.trace import nodes_of


def emit_walk(
    name: str, emitter: StepEmitter, *, commit: Sequence[str], start: Sequence[str], end: Sequence[str]
) -> list[str]:
    """All of time for rows [first, last): the start, every step's phases with their products, the end."""
    at, forward = emitter.at, name == "forward"
    lines = [f"static void {name}_pack(Task *k, long thread, long team) {{", *at.sizes_text(row=False)]
    offset: list[str] = []  # of packed panels
    calls: dict[int, list[str]] = {}
    for i, phase in enumerate(emitter.phases):
        for m in phase.multiplications:
            number_ = emitter.number[id(m)]
            depth = at.sum((a.dim for a in m.operands), "wide")
            columns = at.sum((r.dim for r in m.results), "wide")
            begin = " + ".join(offset or ["0"])
            for j, (result, names) in enumerate(zip(m.results, m.blocks, strict=True)):
                right = at.sum((r.dim for r in m.results[:j]), "wide")
                for l, (operand, block) in enumerate(zip(m.operands, names, strict=True)):
                    down = at.sum((a.dim for a in m.operands[:l]), "wide")
                    turned = block.endswith("'")
                    tensor, part, count = at.blocks[block.removesuffix("'")]
                    wide = at.length(operand.dim if turned else result.dim)
                    source = f"{at.tensor(tensor)} + {part} * {wide}"
                    lines.append(
                        f"  pack(k->packed + ({begin}), {depth}, {down}, {right}, {source}, {count} * {wide},"
                        f" {at.length(operand.dim)}, {at.length(result.dim)}, {int(turned)}, thread, team);"
                    )
            first = at.slot(f"{name} from {number_} 0", m.operands[0].dim)
            to = at.slot(f"{name} to {number_} 0", m.results[0].dim)
            calls.setdefault(i, []).append(
                f"    multiply(k, first, active, {first}, {depth}, k->packed + ({begin}), {to}, {columns},"
                " mine, team);"
            )
            offset.append(f"({depth}) * round_up({columns}, COLUMNS)")
    lines += ["  (void)thread, (void)team;", "}"]
    size = " + ".join(offset or ["0"])
    lines += [f"long {name}_panels(const Task *k) {{", *at.sizes_text(row=False), f"  return {size};", "}"]
    lines += [
        f"static void {name}_rows(Task *k, long first, long last, long thread, long mine, long team) {{"
    ]
    lines += [*at.sizes_text(row=False), "  REAL *sums = k->sums + thread * k->sum_stride; (void)sums;"]
    lines += [
        "  for (long p = first; !mine && p < last; p++) {",
        "    const long row = row_of(k, p); (void)row;",
    ]
    lines += ["    REAL *const w = k->work + p * k->stride;", *(f"    {line}" for line in start), "  }"]
    if forward:
        lines += ["  for (long t = 0, active = last; t < k->steps; t++) {"]
        lines += ["    while (active > first && length_of(k, active - 1) <= t) active--;"]
        lines += ["    if (active == first) break;"]
    else:
        lines += ["  for (long t = k->steps - 1, active = first; t >= 0; t--) {"]
        lines += ["    while (active < last && length_of(k, active) > t) active++;"]
    together = (
        "    if (team > 1) meet(k, team);"  # of a team, the first thread takes what is between products
    )
    for i, _ in enumerate(emitter.phases):
        if i in calls:
            lines += [together, *calls[i], together]
        lines.append(f"    for (long p = first; !mine && p < active; p++) {name}_phase_{i}(k, p, t, sums);")
    lines += ["    for (long p = first; !mine && p < active; p++) {"]
    lines += ["      REAL *const w = k->work + p * k->stride;"]
    lines += [*(f"      {line}" for line in commit), "    }", "  }"]
    lines += ["  for (long p = first; !mine && p < last; p++) {"]
    lines += ["    const long row = row_of(k, p); (void)row;"]
    lines += ["    REAL *const w = k->work + p * k->stride;", *(f"    {line}" for line in end), "  }", "}"]
    lines += [
        f"static void {name}_work(Task *k, long thread, long team) {{",
        "  const long parts = k->threads;",
        "  if (k->split) {",
        f"    {name}_rows(k, 0, k->rows, thread, thread, team);",
        "    return;",
        "  }",
        "  for (long part = thread; part < parts; part += team)",
        f"    {name}_rows(k, share(k->rows, parts, part), share(k->rows, parts, part + 1), thread, 0, 1);",
        "}",
        f"void {name}(Task *k, const void **openmp) {{",
        f"  spread(k, openmp, {name}_pack);",
        f"  spread(k, openmp, {name}_work);",
        "}",
    ]
    return lines


def emit_phases(programs: StepPrograms, layout: Layout) -> str:
    """The generated part of a kernel's source: the task, and both directions of time."""
    forward, backward = _forward(programs, layout), _backward(programs, layout)
    walks = [*forward, *backward]
    size = [
        "long row_size(const Task *k) {",
        *layout.sizes_text(row=False),
        f"  return {layout.total()};",
        "}",
    ]
    return "\n".join([*walks, *size, "long lanes(void) { return LANES; }"])


def _copy(layout: Layout, dim: str, to: str, value: str) -> str:
    size = layout.length(dim)
    return f"for (long u = 0, n = {size}; u < {size}; u += LANES, n -= LANES) {_put(to, value)}"


def _put(to: str, value: str) -> str:
    return f"*(V *)({to} + u) = {value};" if to.startswith("w + ") else f"store({to} + u, {value}, n);"


def saved_stride(programs: StepPrograms, layout: Layout) -> tuple[str, list[str]]:
    """How far it is from one step's saved values to the next's, and where each of them begins."""
    dims = [node.dim for node in programs.gradients.saved]
    return f"({layout.sum(dims)})", [f"({layout.sum(dims[:i])})" for i in range(len(dims))]


def _forward(programs: StepPrograms, layout: Layout) -> list[str]:
    at, e, g = layout, programs.equations, programs.gradients
    states = {name: node.dim or UNITS for name, node in zip(e.states, e.results, strict=True)}
    s = {name: f"w + {at.slot(f's {name}', dim)}" for name, dim in states.items()}
    y = {name: f"w + {at.slot(f'y {name}', dim)}" for name, dim in states.items()}
    leaves = _leaves(programs, at) | {("s", name): f"*(V *)({s[name]} + u)" for name in e.states}
    outputs = [(node, y[name]) for name, node in zip(e.states, e.results, strict=True)]
    for name, node in zip(e.states, e.results, strict=True):
        tensor = at.tensor(f"sequence {name}")
        outputs.append((node, f"{tensor} ? {tensor} + at * {at.most(states[name])} : 0"))
    stride, places = saved_stride(programs, at)
    for node, place in zip(g.saved, places, strict=True):
        address = f"{at.tensor('saved')} + at * {stride} + {place}"
        outputs.append((node, f"k->training ? {address} : 0"))
    for i, m in enumerate(programs.multiplications):
        for j, node in enumerate(m.operands):
            wide, before = (at.sum(o.dim for o in group) for group in (m.operands, m.operands[:j]))
            outputs.append(
                (node, f"k->training ? {at.tensor(f'operand {i}')} + at * ({wide}) + {before} : 0")
            )
    emitter = StepEmitter(
        "forward", at, programs.forward, leaves=leaves, known={}, outputs=outputs, scores=e.scores
    )
    start, commit, end = [], [], []
    for name, dim in states.items():
        first, final = at.tensor(f"initial {name}"), at.tensor(f"final {name}")
        start.append(_copy(at, dim, s[name], f"load({first} + row * {at.most(dim)} + u, n)"))
        commit.append(_copy(at, dim, s[name], f"*(V *)({y[name]} + u)"))
        end.append(_copy(at, dim, f"{final} + row * {at.most(dim)}", f"*(V *)({s[name]} + u)"))
    return [*emitter.text(), *emit_walk("forward", emitter, commit=commit, start=start, end=end)]


def _backward(programs: StepPrograms, layout: Layout) -> list[str]:
    at, e, g = layout, programs.equations, programs.gradients
    states = {name: node.dim or UNITS for name, node in zip(e.states, e.results, strict=True)}
    arrived = {name: f"w + {at.slot(f'g {name}', dim)}" for name, dim in states.items()}
    found = {name: f"w + {at.slot(f'ds {name}', dim)}" for name, dim in states.items()}
    leaves = _leaves(programs, at)
    for name, dim in states.items():
        D, seq, outside = at.most(dim), at.tensor(f"sequence {name}"), at.tensor(f"d_sequence {name}")
        first = at.tensor(f"initial {name}")
        before = f"(t ? {seq} + place(k, p, t - 1) * {D} : {first} + row * {D})"
        leaves["s", name] = f"load({before} + u, n)"
        leaves["g", name] = (
            f"*(V *)({arrived[name]} + u) + ({outside} ? load({outside} + at * {D} + u, n) : all(0))"
        )
    stride, places = saved_stride(programs, at)
    known = {}
    for node, place in zip(g.saved, places, strict=True):
        address = f"{at.tensor('saved')} + at * {stride} + {place}"
        known[node.index] = f"load({address} + u, n)" if node.dim else f"all(*({address}))"
    for node in g.current:
        name = e.states[e.results.index(node)]
        known[node.index] = f"load({at.tensor(f'sequence {name}')} + at * {at.most(states[name])} + u, n)"
    H = at.most(input_dim(programs))
    outputs = [
        (node, f"{at.tensor('dx')} + (at * {len(e.inputs)} + {i}) * {H}")
        for i, node in enumerate(g.inputs)
        if node is not None
    ]
    for i, product in enumerate(programs.memories):
        if not product.state:
            outputs.append((product.weights, f"{at.tensor(f'weights {i}')} + at * {at.most(POSITIONS)}"))
        if product.units != g.inputs:
            step = f"{at.tensor(f'units {i}')} + (at * {len(product.units)}"
            outputs += [(u, f"{step} + {j}) * {at.most(u.dim)}") for j, u in enumerate(product.units)]
    outputs += [(n, found[name]) for name, n in zip(e.states, g.states, strict=True) if n is not None]
    for i, (m, gradients) in enumerate(programs.taught):
        for j, gradient in enumerate(gradients):
            if gradient is not None:
                wide, before = (at.sum(r.dim for r in group) for group in (m.results, m.results[:j]))
                outputs.append((gradient, f"{at.tensor(f'd {i}')} + at * ({wide}) + {before}"))
    sums = []
    for i, gradient in enumerate(g.vectors):
        if gradient is not None:
            before = at.sum((vector_dim(programs, v) for v in e.vectors[:i]), "wide")
            sums.append((gradient, f"sums + {before}"))
    emitter = StepEmitter(
        "backward",
        at,
        programs.backward,
        leaves=leaves,
        known=known,
        outputs=outputs,
        sums=sums,
        scores=e.scores,
    )
    start, commit, end = [], [], []
    for (name, dim), gradient in zip(states.items(), g.states, strict=True):
        outside, first = at.tensor(f"d_final {name}"), at.tensor(f"d_initial {name}")
        given = f"{outside} ? load({outside} + row * {at.most(dim)} + u, n) : all(0)"
        start.append(_copy(at, dim, arrived[name], given))
        commit.append(
            _copy(at, dim, arrived[name], f"*(V *)({found[name]} + u)" if gradient is not None else "all(0)")
        )
        end.append(_copy(at, dim, f"{first} + row * {at.most(dim)}", f"*(V *)({arrived[name]} + u)"))
    return [*emitter.text(), *emit_walk("backward", emitter, commit=commit, start=start, end=end)]


def dim_of(programs: StepPrograms, kind: str, name: str, otherwise: str = UNITS) -> str:
    """The dimension of a leaf; one that nothing reads has that of a cell."""
    nodes = nodes_of(programs.equations)
    return next((node.dim for node in nodes if (node.op, node.name) == (kind, name)), otherwise)


def vector_dim(programs: StepPrograms, name: str) -> str:
    return dim_of(programs, "v", name)


def input_dim(programs: StepPrograms) -> str:
    return dim_of(programs, "x", programs.equations.inputs[0]) if programs.equations.inputs else UNITS


def _leaves(programs: StepPrograms, at: Layout) -> dict[tuple[str, str], str]:
    """The text of the leaves that both directions of time read alike."""
    e = programs.equations
    count, H = len(e.inputs), at.most(input_dim(programs)) if e.inputs else ""
    found = {
        ("x", name): f"load({at.tensor('x')} + (at * {count} + {i}) * {H} + u, n)"
        for i, name in enumerate(e.inputs)
    }
    for node in nodes_of(e):
        if node.op in ("v", "n", "k"):
            step = {"v": "", "n": f" + at * {at.most(node.dim)}", "k": f" + row * {at.most(node.dim)}"}[
                node.op
            ]
            found[node.op, node.name] = f"load({at.tensor(f'{node.op} {node.name}')}{step} + u, n)"
    return found
