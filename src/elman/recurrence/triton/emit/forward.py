"""The kernel that walks through time."""

from __future__ import annotations

from elman.recurrence.triton.emit.kernel import Kernel, Step, Variant, WalkKernel


def forward(step: Step, variant: Variant) -> str:
    """The walk through time."""
    k, v, e = WalkKernel("forward", step, variant), variant, step.equations
    I, G = len(e.inputs), len(e.products)
    groups = (("kept", step.kept), ("short", step.short), ("long", step.long))
    saves = [(name, len(group)) for name, group in groups if group and v.training]
    publishes = bool(G) and (k.exchange or v.training)
    k.begin("backwards * (T - 1)")
    k.write("move = 1 - 2 * backwards")
    k.take("initial")
    for i, name in enumerate(e.states):
        k.load(f"s_{name}", k.state_address("initial", i), "live")
    if I:
        k.pointer("parts", I)
    if e.noise:
        k.pointer("noise", len(e.noise))
    if publishes:
        k.pointer("operand", 1, stride=v.stride)
    for name in k.shown:
        k.pointer(f"out_{name}", 1)
    for name, count in saves:
        k.pointer(name, count)
    fetch_inputs(k, "live")
    if G:
        k.hold_weights(v.blocks)
    if k.exchange:
        k.write(f"at_tile = operand + (row * {v.directions} + d)[:, None] * {v.stride}")
        k.write(f"within = (b < B)[:, None] & (u < {v.stride})[None, :]")
        k.store("at_operand", _published(k, "s_" + e.states[0]), "within", k.number)
    k.write("for step in range(T):")
    k.indent += 1
    k.write("more = live & (step < T - 1)")
    if G:
        _receive_state(k, publishes)
    equations_forward(k)
    if v.lengths:
        k.write("real = t < length")
        for name in e.states:
            k.write(f"y_{name} = tl.where(real, y_{name}, s_{name})")
    if k.exchange:
        k.store(
            f"at_operand + move * {v.directions * v.stride}",
            _published(k, f"y_{e.states[0]}"),
            "within & (step < T - 1)",
            k.number,
        )
    for name in k.shown:
        shown_value = f"tl.where(real, y_{name}, 0.0)" if v.lengths else f"y_{name}"
        k.store(f"at_out_{name}", shown_value, "live", k.number)
    if v.training:
        for i, name in enumerate(step.kept):
            k.store(f"at_kept + {i * v.H}", f"y_{name}", "live")
        for group, number in (("short", k.number), ("long", "tl.float32")):
            for i, _ in enumerate(getattr(step, group)):
                k.store(f"at_{group} + {i * v.H}", f"{group}_{i}", "live", number)
    for name in e.states:
        k.write(f"s_{name} = y_{name}")
    k.advance(
        *([("parts", I * v.H)] if I else []),
        *([("noise", len(e.noise) * v.H)] if e.noise else []),
        *([("operand", v.stride)] if publishes else []),
        *([("tile", v.stride)] if k.exchange else []),
        *((f"out_{name}", v.H) for name in k.shown),
        *((name, count * v.H) for name, count in saves),
    )
    k.write("t += move")
    fetch_inputs(k, "more")
    k.indent -= 1
    k.take("final")
    for i, name in enumerate(e.states):
        k.store(k.state_address("final", i), f"s_{name}", "live")
    return k.text()


def _published(k: WalkKernel, state: str) -> str:
    """What others read; units that are not there are zero, so that rows are read in whole vectors."""
    return f"tl.where(live, publishable({k.masked(state)}), 0.0)"


def fetch_inputs(k: Kernel, mask: str) -> None:
    """The inputs of the step that the pointers show; before the loop, and for the next step at its end."""
    e = k.step.equations
    for i, name in enumerate(e.inputs):
        k.load(f"next_x_{name}", f"at_parts + {i * k.v.H}", mask)
    for i, name in enumerate(e.noise):
        k.load(f"next_n_{name}", f"at_noise + {i * k.v.H}", mask)


def _receive_state(k: WalkKernel, publishes: bool) -> None:
    """``h_gate``: the recurrent part of every gate, from the state of all units."""
    v, e = k.v, k.step.equations
    if not k.exchange:
        k.write(f"state_0 = tl.where(live, {k.masked(f's_{e.states[0]}')}, 0.0).to({k.number})")
        if publishes:
            k.store("at_operand", "state_0", "live")
    k.multiply("at_tile", "(b < B)[:, None]", v.stride)
    names = [f"h_{gate}" for gate in e.products]
    names += [f"unused_{i}" for i in range(k.step.columns - len(names))]
    k.write(*_split("tl.trans(acc)", names, v.rows, v.units))


def _split(value: str, names: list[str], rows: int, units: int) -> list[str]:
    """(rows, units · gates), the gate fastest, as one (rows, units) for every gate."""
    if len(names) == 1:
        return [f"{names[0]} = {value}"]
    bits = len(names).bit_length() - 1
    lines = [f"split_ = tl.reshape({value}, ({', '.join(map(str, (rows, units, *(2,) * bits)))}))"]

    def part(source: str, indices: list[int]) -> None:
        if len(indices) == 1:
            lines.append(f"{names[indices[0]]} = {source}")
            return
        lines.append(f"{source}0, {source}1 = tl.split({source})")
        half = 1 << (bits - (len(indices).bit_length() - 1))  # the bit of the gate that is split off now
        part(f"{source}0", [i for i in indices if not i & half])
        part(f"{source}1", [i for i in indices if i & half])

    part("split_", list(range(len(names))))
    return lines


def equations_forward(k: Kernel) -> None:
    """``y_state``: the new states; in training also what is saved."""
    e, step = k.step.equations, k.step
    k.write(*(f"x_{name} = next_x_{name}.to(tl.float32)" for name in e.inputs))
    k.write(*(f"n_{name} = next_n_{name}.to(tl.float32)" for name in e.noise))
    saved = (*step.short, *step.long) if k.v.training else ()
    names = k.compute((*e.results, *saved), {})
    targets = [f"y_{name}" for name in e.states]
    if k.v.training:
        targets += [f"short_{i}" for i in range(len(step.short))]
        targets += [f"long_{i}" for i in range(len(step.long))]
    k.write(*(f"{target} = {name}" for target, name in zip(targets, names, strict=True)))
