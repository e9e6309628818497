"""Writes the kernels of a cell for one time step: what is pointwise between two products of torch.

A recording of such steps is replayed for other tensors and at other times. So a kernel is told neither
as arguments: it finds them in ``table``, which ``prepare`` fills before the walk:

    table     the step that is next, the number of all steps, and an address for every tensor of ``emit``

What the products read and write stays where it is from step to step:

    now       (D, B, stride)  the state times the mask, as the weights multiply it
    products  (D, B, G, H)    float32, the recurrent parts of this step
    sent      (D, B, G, H)    the gradients of them, as the weights multiply those
    arrived   (D, B, H)       float32, the gradient of the state through them, without the mask
    sums      (D, V, B, H)    float32, the gradients of the vectors so far

The state between steps lies in ``final``, its gradient in ``d_initial``: where they are wanted at last.
"""

from __future__ import annotations

from dataclasses import replace

from elman.recurrence.triton.emit.backward import equations_backward, fetch_gradients
from elman.recurrence.triton.emit.forward import equations_forward, fetch_inputs
from elman.recurrence.triton.emit.kernel import Kernel, Step, Variant, power_of_two
from elman.recurrence.triton.launch import ALIGNED

ROWS, UNITS = 2, 128  # of a program: small, since there is little to do at a step and all should share it
HEADER = 2  # entries of the table before the addresses


class StepKernel(Kernel):
    """The text of one kernel that finds its tensors, and the time, in the table."""

    def __init__(self, name: str, step: Step, variant: Variant) -> None:
        super().__init__(name, step, tiled(variant))
        self.buffers: list[str] = []

    def buffer(self, name: str, count: int, stride: int) -> None:
        """``at_name``: where the values of this program begin in (D, B, count · stride), an argument."""
        self.buffers.append(name)
        self.write(f"at_{name} = {name} + (d.to(tl.int64) * B + b)[:, None] * {count * stride} + u[None, :]")

    def text(self) -> str:
        """The kernel and ``prepare``."""
        addresses = [
            f"    tl.store(table + {place}, {name}.to(tl.int64))"
            for place, name in enumerate(self.arguments, HEADER)
        ]
        tensors = [
            f"    {name} = tl.load(table + {place}).to(tl.pointer_type({self.type(name)}))"
            for place, name in enumerate(self.arguments, HEADER)
        ]
        aligned = [f"    {name} = tl.multiple_of({name}, {ALIGNED})" for name in self.arguments]
        return "\n".join(
            [
                '@triton.jit(do_not_specialize=["T"])',
                f"def prepare({', '.join(['table', *self.arguments, 'T'])}):",
                "    tl.store(table, 0)",
                "    tl.store(table + 1, T.to(tl.int64))",
                *addresses,
                "",
                "",
                '@triton.jit(do_not_specialize=["B", "first", "reverse", "offset"])',
                f"def {self.name}({', '.join(['table', *self.buffers, 'B', 'first', 'reverse', 'offset'])}):",
                "    step, T = tl.load(table) + offset, tl.load(table + 1)",
                *tensors,
                *aligned,
                *self.lines,
                "",
                "",
            ]
        )

    def type(self, name: str) -> str:
        """The numbers of a tensor of ``emit``, as Triton names them."""
        if name == "lengths":
            return "tl.int64"
        if name == "noise":
            return "tl.uint8"
        short = name in ("parts", "operand", "short", "d_parts", "d_products")
        return self.number if short or name.startswith(("out_", "d_out_")) else "tl.float32"


def tiled(variant: Variant) -> Variant:
    """The same with the tiles of these kernels: none depends on the rows."""
    units = min(UNITS, max(16, power_of_two(variant.H)))
    return replace(variant, rows=ROWS, units=units)


def forward(step: Step, variant: Variant) -> str:
    """One step of the walk, after its product."""
    k, e = StepKernel("forward", step, variant), step.equations
    v, I, G = k.v, len(e.inputs), len(e.products)
    k.begin("step + backwards * (T - 1 - 2 * step)")
    k.take("final")
    for i, name in enumerate(e.states):
        k.load(f"s_{name}", k.state_address("final", i), "live")
    if I:
        k.pointer("parts", I)
    if e.noise:
        k.pointer("noise", len(e.noise))
    fetch_inputs(k, "live")
    if G:
        k.buffer("products", G, v.H)
        for i, name in enumerate(e.products):
            k.load(f"h_{name}", f"at_products + {i * v.H}", "live")
    equations_forward(k)
    if v.lengths:
        k.write("real = t < length")
        for name in e.states:
            k.write(f"y_{name} = tl.where(real, y_{name}, s_{name})")
    for i, name in enumerate(e.states):
        k.store(k.state_address("final", i), f"y_{name}", "live")
    if G:
        k.buffer("now", 1, v.stride)
        k.store("at_now", k.masked(f"y_{e.states[0]}"), "live", k.number)
    for name in k.shown:
        k.pointer(f"out_{name}", 1)
        shown = f"tl.where(real, y_{name}, 0.0)" if v.lengths else f"y_{name}"
        k.store(f"at_out_{name}", shown, "live", k.number)
    if v.training:
        _save(k)
    return k.text()


def _save(k: StepKernel) -> None:
    """What the way back reads."""
    e, step, H = k.step.equations, k.step, k.v.H
    if e.products:
        k.pointer("operand", 1, stride=k.v.stride)
        k.store("at_operand", k.masked(f"s_{e.states[0]}"), "live", k.number)
    values = {
        "kept": [f"y_{name}" for name in step.kept],
        "short": [f"short_{i}" for i in range(len(step.short))],
        "long": [f"long_{i}" for i in range(len(step.long))],
    }
    for group, names in values.items():
        if names:
            k.pointer(group, len(names))
        for i, name in enumerate(names):
            k.store(f"at_{group} + {i * H}", name, "live", k.type(group))


def backward(step: Step, variant: Variant) -> str:
    """One step of the walk back, before its product; what arrives came through that of the step before."""
    k, e = StepKernel("backward", step, variant), step.equations
    v, I, G, V = k.v, len(e.inputs), len(e.products), len(e.vectors)
    k.begin("step + (1 - backwards) * (T - 1 - 2 * step)")
    k.write("move = 2 * backwards - 1", "more = live & (step < T - 1)")
    k.take("d_initial")
    for i, name in enumerate(e.states):
        k.load(f"c_{name}", k.state_address("d_initial", i), "live")
        if name in step.kept:
            k.take("initial")
            k.load(f"first_{name}", k.state_address("initial", i), "live & (step == T - 1)")
    reads = [
        *((f"d_out_{name}", 1) for name in k.shown),
        *((name, len(getattr(step, name))) for name in ("kept", "short", "long")),
        *([("parts", I)] if step.reads_parts else []),
        ("noise", len(e.noise)),
    ]
    for name, count in reads:
        if count:
            k.pointer(name, count)
    fetch_gradients(k, "live", "more")
    for i, name in enumerate(step.kept):
        k.load(f"now_{name}", f"at_kept + {i * v.H}", "live")
    if G:
        k.buffer("arrived", 1, v.H)
        k.load("arrived", "at_arrived", "live")
        k.write(f"arrived = {k.masked('arrived')}")
    else:
        k.write(f"arrived = tl.zeros([{v.rows}, {v.units}], tl.float32)")
    if V:
        k.buffers.append("sums")
        k.write(f"at_sums = sums + ((d * {V}).to(tl.int64) * B + b)[:, None] * {v.H} + u[None, :]")
    for i, name in enumerate(e.vectors):
        k.load(f"sum_{name}", f"at_sums + {i} * B.to(tl.int64) * {v.H}", "live")
    if v.lengths:
        k.write("real = live & (t < length)")
    equations_backward(k, "real" if v.lengths else "live")
    for i, name in enumerate(e.states):
        k.store(k.state_address("d_initial", i), f"c_{name}", "live")
    for i, name in enumerate(e.vectors):
        k.store(f"at_sums + {i} * B.to(tl.int64) * {v.H}", f"sum_{name}", "live")
    _hand_out(k)
    return k.text()


def _hand_out(k: StepKernel) -> None:
    """The gradients of the parts, to be summed up later; of recurrent ones also to the product."""
    e, H = k.step.equations, k.v.H
    groups = (
        ("d_parts", [f"dx_{name}" for name in e.inputs]),
        ("d_products", [] if k.step.shared else [f"dh_{name}" for name in e.products]),
    )
    for group, names in groups:
        if names:
            k.pointer(group, len(names))
        for i, name in enumerate(names):
            k.store(f"at_{group} + {i * H}", name, "live", k.number)
    if e.products:
        k.buffer("sent", len(e.products), H)
    for i, name in enumerate(e.products):
        k.store(f"at_sent + {i * H}", f"dh_{name}", "live", k.number)
