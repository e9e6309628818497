"""Writes the kernel that goes forward through time."""

from elman.recurrence.linear import factor_of
from elman.recurrence.triton.emit.writer import KernelWriter, SequenceWriter, Variant
from elman.recurrence.triton.program import StepProgram


def forward(step: StepProgram, variant: Variant) -> str:
    """All steps forward: outputs, the final state, and in training what the backward pass reads."""
    k, v, e = SequenceWriter("forward", step, variant), variant, step.equations
    publishes = bool(e.products) and (k.exchange or v.training)
    saved = saved_values(step) if v.training else {}
    sizes = {"parts": len(e.inputs) * v.H, "noise": len(e.noise) * v.H}
    row = v.heads * v.stride  # of what is published
    sizes |= {"operand": row if publishes else 0, "tile": row if k.exchange else 0}
    sizes |= {f"out_{name}": v.H for name in k.shown}
    sizes |= {tensor: len(values) * v.H for tensor, values in saved.items()}
    factors = sum(factor_of(name) in e.states for name in e.states)
    k.begin("backwards * (T - 1)")
    k.write("move = 1 - 2 * backwards")
    for i, name in enumerate(e.states):
        if v.summary and i >= len(e.states) - 2 * factors:  # these states and, after them, their factors
            begin = float(i >= len(e.states) - factors)
            k.write(f"s_{name} = tl.full([{v.rows}, {v.units}], {begin}, tl.float32)")
        else:
            k.load(f"s_{name}", k.state_address("initial", i), "live")
    k.point(*(entry for entry in sizes.items() if entry[0] != "tile"))
    fetch_inputs(k, "live")
    if e.products:
        k.hold_weights(v.blocks)
    if k.exchange:
        own = f" + head * {v.stride}" if v.heads > 1 else ""
        k.write(f"at_tile = operand + (row * {v.directions} + d)[:, None] * {row}{own}")
        k.write(f"within = (b < B)[:, None] & ({k.local} < {v.stride})[None, :]")
        k.store("at_operand", _published(k, "s_" + e.states[0]), "within", k.number)
    k.write("for step in range(T):")
    k.indent += 1
    k.write("more = live & (step < T - 1)")
    if e.products:
        _receive_state(k, publishes)
    equations_forward(k)
    if k.exchange:
        following = f"at_operand + move * {v.directions * row}"
        k.store(following, _published(k, f"y_{e.states[0]}"), "within & (step < T - 1)", k.number)
    for name in k.shown:
        k.store(f"at_out_{name}", shown_value(k, name), "live", k.number)
    for tensor, values in saved.items():
        k.store_each(tensor, values, {"kept": "", "short": k.number, "long": "tl.float32"}[tensor])
    k.write(*(f"s_{name} = y_{name}" for name in e.states))
    k.advance(*sizes.items())
    k.write("t += move")
    fetch_inputs(k, "more")
    k.indent -= 1
    for i, name in enumerate(e.states):
        k.store(k.state_address("final", i), f"s_{name}", "live")
    return k.text()


def _published(k: SequenceWriter, state: str) -> str:
    """What others read; units that are not there are zero, so that rows are read in whole vectors."""
    return f"tl.where(live, publishable({k.masked(state)}), 0.0)"


def fetch_inputs(k: KernelWriter, mask: str) -> None:
    """The inputs of the step that the pointers show; before the loop, and for the next step at its end."""
    e = k.step.equations
    k.load_each("parts", (f"next_x_{name}" for name in e.inputs), mask)
    k.load_each("noise", (f"next_n_{name}" for name in e.noise), mask)


def saved_values(step: StepProgram) -> dict[str, list[str]]:
    """The values that the backward pass reads, by the tensor that they are saved in."""
    short, long = ([f"{kind}_{i}" for i in range(len(getattr(step, kind)))] for kind in ("short", "long"))
    return {"kept": [f"y_{name}" for name in step.kept], "short": short, "long": long}


def shown_value(k: KernelWriter, state: str) -> str:
    return f"tl.where(real, y_{state}, 0.0)" if k.v.lengths else f"y_{state}"


def _receive_state(k: SequenceWriter, publishes: bool) -> None:
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


def equations_forward(k: KernelWriter) -> None:
    """``y_state``: the new states, at padding the old ones; in training also what is saved."""
    e, step = k.step.equations, k.step
    k.write(*(f"x_{name} = next_x_{name}.to(tl.float32)" for name in e.inputs))
    k.write(*(f"n_{name} = next_n_{name}.to(tl.float32)" for name in e.noise))
    results, targets = [*e.results], [f"y_{name}" for name in e.states]
    if k.v.training:
        results += [*step.short, *step.long]
        targets += [name for tensor in ("short", "long") for name in saved_values(step)[tensor]]
    names = k.compute(results, {})
    k.write(*(f"{target} = {name}" for target, name in zip(targets, names, strict=True)))
    if k.v.lengths:
        k.write("real = t < length", *(f"y_{name} = tl.where(real, y_{name}, s_{name})" for name in e.states))
