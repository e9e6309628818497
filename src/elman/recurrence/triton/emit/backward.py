"""Writes the kernel that goes back through time."""

from elman.recurrence.triton.emit.writer import (
    AHEAD,
    ROUNDS,
    KernelWriter,
    SequenceWriter,
    Variant,
    largest_chunk,
    pieces,
)
from elman.recurrence.triton.program import StepProgram, power_of_two


def backward(step: StepProgram, variant: Variant) -> str:
    """All steps back: gradients of input parts, recurrent parts, vectors and the initial state."""
    k = SequenceWriter("backward", step, variant)
    sizes = _tensors(k)
    chunks = variant.blocks
    if k.scatters:
        chunks = pieces(variant.width, largest=largest_chunk(variant.rows, variant.block, variant.numbers))
    _begin(k, sizes, chunks)
    k.write("for step in range(T):")
    k.indent += 1
    _step(k, sizes, chunks)
    k.indent -= 1
    _end(k)
    return k.text()


def _tensors(k: SequenceWriter) -> list[tuple[str, int]]:
    """What the kernel reads and writes at every step: (name, numbers of a row)."""
    e, step, H = k.step.equations, k.step, k.v.H
    groups = (
        *(("short", step.short), ("long", step.long), ("noise", e.noise), ("kept", step.kept)),
        *(("parts", e.inputs if step.reads_parts else ()), ("d_parts", e.inputs)),
        ("d_products", () if step.shared else e.products),
    )
    shown = [(f"d_out_{name}", H) for name in k.shown]
    return [*shown, *((name, len(group) * H) for name, group in groups)]


def _begin(k: SequenceWriter, sizes: list[tuple[str, int]], chunks: list[tuple[int, int]]) -> None:
    v, e, step = k.v, k.step.equations, k.step
    tile = f"[{v.rows}, {v.units}]"
    k.begin("(1 - backwards) * (T - 1)")
    k.write("move = 2 * backwards - 1")
    k.take("initial")
    for i, name in enumerate(e.states):
        if name in step.kept:
            k.load(f"first_{name}", k.state_address("initial", i), "live")
        if v.d_final:
            k.load(f"c_{name}", k.state_address("d_final", i), "live")
            k.write(f"c_{name} = c_{name}.to(tl.float32)")
        else:
            k.write(f"c_{name} = tl.zeros({tile}, tl.float32)")
    k.point(*sizes)
    k.write(*(f"sum_{name} = tl.zeros({tile}, tl.float32)" for name in e.vectors))
    if e.products:
        k.hold_weights(chunks)
    if k.gathers:
        buffer = "d_parts" if step.shared else "d_products"
        own = f" + head * {v.width}" if v.heads > 1 else ""
        k.write(f"at_sent = {buffer} + ((row - move) * {v.directions} + d)[:, None] * {v.H}{own}")
    if k.scatters:
        k.take("ring")
        whose = (
            f"group * {v.directions} + d" if v.heads == 1 else f"group * {v.directions * v.heads} + {k.share}"
        )
        k.write(
            f"around = ring + ({whose}).to(tl.int64) * {ROUNDS * v.programs**2 * v.words}",
            f"inbox = around + tile * {v.programs * v.words} + tl.arange(0, {v.words})[None, :]",
            f"word = tl.arange(0, {v.words})[None, :]",
            f"awaited = first + group * {v.rows} + word // {v.units} * {v.packing} < B",
            f"awaited = awaited & (tile * {v.units} + word % {v.units} < {v.depth})",  # what _send covers
        )
    if not k.exchange:
        k.write(f"arrived = tl.zeros({tile}, tl.float32)")
    k.load_each("kept", (f"now_{name}" for name in step.kept), "live")
    k.write("more = live & (T > 1)")
    fetch_gradients(k, "live", "more")


def _step(k: SequenceWriter, sizes: list[tuple[str, int]], chunks: list[tuple[int, int]]) -> None:
    v, e, step = k.v, k.step.equations, k.step
    k.write("more = live & (step < T - 1)", "later = live & (step < T - 2)")
    if v.lengths:
        k.write("real = live & (t < length)")
    if k.exchange:
        _receive(k, "step")
    if k.scatters:
        k.read_weights(chunks)
    equations_backward(k, "real" if v.lengths else "live")
    if e.products and not k.gathers:
        _send(k, chunks)
    dx, dh = [f"dx_{name}" for name in e.inputs], [f"dh_{name}" for name in e.products]
    written = (("d_parts", dx), ("d_products", [] if step.shared else dh))
    for tensor, values in () if v.summary else written:
        if k.gathers and (step.shared or values is dh):
            values = [f"publishable({value})" for value in values]
        k.store_each(tensor, values, k.number)
    k.advance(*sizes, ("sent", v.H if k.gathers else 0))
    k.write("t += move", *(f"now_{name} = s_{name}" for name in step.kept))
    fetch_gradients(k, "more", "later")


def _end(k: SequenceWriter) -> None:
    """What is left after the last step: the gradients of the initial state and of the vectors."""
    v, e = k.v, k.step.equations
    if k.exchange:
        _receive(k, "T")
    k.write(f"c_{e.states[0]} += arrived")
    for i, name in enumerate(e.states):
        k.store(k.state_address("d_initial", i), f"c_{name}", "live")
    for i, name in enumerate(e.vectors if not v.summary else ()):
        k.take("d_vectors")
        tiles = f"(first // {v.rows} + group) * {v.directions} + d"
        address = f"d_vectors + (({tiles}) * {len(e.vectors)} + {i}) * {v.H} + u"
        k.store(address, f"tl.sum(sum_{name}, 0)", f"{k.local} < {v.width}")


def fetch_gradients(k: KernelWriter, mask: str, before: str) -> None:
    """What the backward pass reads at the step of the pointers; ``before``: there is an earlier one."""
    v, e, step = k.v, k.step.equations, k.step
    for name in k.shown:
        k.load(f"next_d_{name}", f"at_d_out_{name}", mask)
    for group in ("short", "long"):
        k.load_each(group, (f"next_{group}_{i}" for i in range(len(getattr(step, group)))), mask)
    k.load_each("parts", (f"next_x_{name}" for name in e.inputs if step.reads_parts), mask)
    k.load_each("noise", (f"next_n_{name}" for name in e.noise), mask)
    for i, name in enumerate(step.kept):
        earlier = f"at_kept + move * {len(step.kept) * v.H * v.directions} + {i * v.H}"
        k.load(f"before_{name}", earlier, before)


def equations_backward(k: KernelWriter, inside: str) -> None:
    """``dx_gate``, ``dh_gate``; ``c_state`` becomes the gradient of the state before."""
    v, e, step = k.v, k.step.equations, k.step
    g = step.gradients
    reads = [("x", e.inputs)] if step.reads_parts else []
    for kind, names in (*reads, ("n", e.noise)):
        k.write(*(f"{kind}_{name} = next_{kind}_{name}.to(tl.float32)" for name in names))
    known = {}
    for group in ("short", "long"):
        for i, node in enumerate(getattr(step, group)):
            k.write(f"{group}_{i} = next_{group}_{i}.to(tl.float32)")
            known[node.index] = f"{group}_{i}"
    for name in step.kept:
        k.write(f"s_{name} = tl.where(step < T - 1, before_{name}, first_{name})")
    for node in step.current:
        known[node.index] = f"now_{e.states[e.results.index(node)]}"
    for place, name in enumerate(e.states):
        arriving = f"c_{name}" if place else f"c_{name} + arrived"
        if v.all_states or not place:
            fresh = f"next_d_{name}.to(tl.float32)"
            arriving += f" + {f'tl.where({inside}, {fresh}, 0.0)' if v.lengths else fresh}"
        k.write(f"g_{name} = {arriving}")
    if g.conditions:  # about the steps of the row that follow; backwards they are those before t
        last = "length - 1" if v.lengths else "T - 1"
        zeros = f"tl.zeros([{v.rows}, {v.units}], tl.int32)"
        k.write(f"after = tl.where(backwards == 1, t, {last} - t) + {zeros}")
    leaves = {"x": e.inputs, "h": e.products, "s": e.states, "v": e.vectors}
    targets = [(kind, name) for kind, names in leaves.items() for name in names]
    found = k.compute((*g.inputs, *g.products, *g.states, *g.vectors), known)
    for (kind, name), value in zip(targets, found, strict=True):
        if kind == "s":
            k.write(
                f"c_{name} = tl.where({inside}, {value}, g_{name})" if v.lengths else f"c_{name} = {value}"
            )
        else:
            target = f"sum_{name} +=" if kind == "v" else f"d{kind}_{name} ="
            k.write(f"{target} tl.where({inside}, {value}, 0.0)")


def _send(k: SequenceWriter, chunks: list[tuple[int, int]]) -> None:
    """This program's part of the gradient of all units' states, to whom it belongs."""
    v, e = k.v, k.step.equations
    k.write(*(f"sent_{name} = dh_{name}.to({k.number})" for name in e.products))
    k.write(*_join([f"sent_{name}" for name in e.products], k.step.columns, v.rows, v.units))
    k.write("joined = tl.trans(joined)")
    if not k.exchange:
        product = k.dot("tl.trans(w_0)", "joined")
        k.write(f"arrived = {k.masked(f'tl.trans({product})')}")
        return
    pairs = v.rows // v.packing
    k.write(
        f"round = around + (step % {ROUNDS}) * {v.programs**2 * v.words} + tile * {v.words}"
        f" + tl.arange(0, {pairs})[:, None] * {v.units}",
        f"there = first + group * {v.rows} + tl.arange(0, {pairs})[:, None] * {v.packing} < B",
        f"stamp = (step // {ROUNDS} + 1) & 1",
    )
    for first, size in chunks:
        k.write(f"m = {first} + tl.arange(0, {size})[None, :]")
        k.write(f"part = {k.dot(f'tl.trans({k.weights(first)})', 'joined')}")
        if v.packing == 2:
            k.write(f"one, other = tl.split(tl.reshape(part, ({size}, {pairs}, 2)))")
            k.write("part = paired(one, other, stamp)")
        else:
            k.write("part = stamped(part, stamp)")
        place = f"round + (m // {v.units}) * {v.programs * v.words} + m % {v.units}"
        k.store(place, "tl.trans(part)", f"there & (m < {v.programs * v.units})")


def _receive(k: SequenceWriter, step: str) -> None:
    """``arrived``: the gradient of the state of this program's units, from what all sent the step before.

    The reading stands above everything that loads: the layout of values in registers that Triton
    chooses for the equations is then that of the loads, and not the awkward one of this sum.
    """
    if k.gathers:
        k.multiply("at_sent", f"((b < B)[:, None] & ({step} > 0))", k.v.width)
        k.write(f"arrived = {k.masked('tl.trans(acc)')}")
    else:
        _sum_parts(k, step)
        k.write(f"arrived = {k.masked('total')}")


def _sum_parts(k: SequenceWriter, step: str) -> None:
    """``total``: the sum of all programs' parts, in a fixed order.

    Before the first step the zeros are read that the ring begins with.
    """
    v = k.v
    k.write(
        f"arriving = inbox + (({step} + 1) % {ROUNDS}) * {v.programs**2 * v.words}",
        f"stamp = (({step} + 1) // {ROUNDS}) & 1",
    )
    loads = {}
    for first, size in _sources(v):
        expected = f"(({first} + tl.arange(0, {size}) < {v.programs})[:, None] & awaited)"
        here = f"arriving + ({first} + tl.arange(0, {size}))[:, None] * {v.words}"
        load = f"in_{first} = tl.load({here}, mask={expected}, other=0, volatile=True)"
        loads[first] = load, f"while stale(in_{first}, {expected}, stamp):"
    k.write(*(load for load, _ in list(loads.values())[:AHEAD]))
    for place, (first, (load, wait)) in enumerate(loads.items()):
        k.write(wait, f"    {load}")
        if v.packing == 1:
            k.write(f"one = {'one + ' if place else ''}tl.sum(in_{first}, 0)")
        else:
            k.write(f"upper_, lower_ = tl.reduce((upper(in_{first}), lower(in_{first})), 0, both)")
            k.write("one, other = one + upper_, other + lower_" if place else "one, other = upper_, lower_")
        k.write(*(load for load, _ in list(loads.values())[place + AHEAD : place + AHEAD + 1]))
    if v.packing == 1:
        k.write(f"total = tl.reshape(one, ({v.rows}, {v.units}))")
        return
    k.write(
        f"total = tl.reshape(tl.join(one, other), ({v.rows // 2}, {v.units}, 2))",
        f"total = tl.reshape(tl.permute(total, (0, 2, 1)), ({v.rows}, {v.units}))",
    )


def _sources(v: Variant) -> list[tuple[int, int]]:
    """The programs whose parts are read, in blocks that registers hold."""
    largest = max(1, 8192 // v.words)
    found, first = [], 0
    while first < v.programs:
        size = min(largest, power_of_two(v.programs - first))
        found.append((first, size))
        first += size
    return found


def _join(names: list[str], columns: int, rows: int, units: int) -> list[str]:
    """The inverse of ``_split``: ``joined``, (rows, units · columns)."""
    values = names + ["nothing"] * (columns - len(names))
    lines = ["nothing = tl.zeros_like(" + names[0] + ")"] if columns > len(names) else []
    while len(values) > 1:  # the last join is the lowest bit: what is joined first differs in the highest
        half = len(values) // 2
        values = [f"tl.join({values[i]}, {values[i + half]})" for i in range(half)]
    return [*lines, f"joined = tl.reshape({values[0]}, ({rows}, {units * columns}))"]
