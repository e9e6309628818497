"""Writes the kernels of a cell for one time step: what is pointwise between two products of torch.

A recording of such steps is replayed for other tensors and at other times. So a kernel is told neither
as arguments: it finds them in ``table``, which ``prepare`` fills before the first step:

    table     the step that is next, the number of all steps, and an address for every tensor of ``emit``

What the products read and write stays where it is from step to step:

    now       (D, B, stride)  the state times the mask, as the weights multiply it
    products  (D, B, G, H)    float32, the recurrent parts of this step
    sent      (D, B, G, H)    the gradients of them, as the weights multiply those
    arrived   (D, B, H)       float32, the gradient of the state through them, without the mask
    sums      (D, V, B, H)    float32, the gradients of the vectors so far

The state between steps lies in ``final``, its gradient in ``d_initial``: where they are wanted at last.
"""

from dataclasses import replace

from elman.recurrence.triton.emit.backward import equations_backward, fetch_gradients
from elman.recurrence.triton.emit.forward import equations_forward, fetch_inputs, saved_values, shown_value
from elman.recurrence.triton.emit.writer import KernelWriter, Variant
from elman.recurrence.triton.launch import ALIGNED
from elman.recurrence.triton.program import StepProgram, power_of_two

ROWS, UNITS = 2, 128  # of a program: small, since there is little to do at a step and all should share it
HEADER = 2  # entries of the table before the addresses


class StepWriter(KernelWriter):
    """Writes one kernel that finds its tensors, and the time, in the table."""

    def __init__(self, name: str, step: StepProgram, variant: Variant) -> None:
        super().__init__(name, step, tiled(variant))
        self.buffers: list[str] = []

    def buffer(self, name: str, size: int) -> None:
        """``at_name``: where the values of this program begin in (D, B, size), an argument."""
        self.buffers.append(name)
        self.write(f"at_{name} = {name} + (d.to(tl.int64) * B + b)[:, None] * {size} + u[None, :]")

    def text(self) -> str:
        stored, loaded = [], []
        for place, name in enumerate(self.arguments, HEADER):
            stored.append(f"    tl.store(table + {place}, {name}.to(tl.int64))")
            loaded.append(f"    {name} = tl.load(table + {place}).to(tl.pointer_type({self.type(name)}))")
        lines = [
            '@triton.jit(do_not_specialize=["T"])',
            f"def prepare({', '.join(['table', *self.arguments, 'T'])}):",
            "    tl.store(table, 0)",
            "    tl.store(table + 1, T.to(tl.int64))",
            *(*stored, "", ""),
            '@triton.jit(do_not_specialize=["B", "first", "reverse", "offset"])',
            f"def {self.name}({', '.join(['table', *self.buffers, 'B', 'first', 'reverse', 'offset'])}):",
            "    step, T = tl.load(table) + offset, tl.load(table + 1)",
            *loaded,
            *(f"    {name} = tl.multiple_of({name}, {ALIGNED})" for name in self.arguments),
        ]
        return "\n".join([*lines, *self.lines, "", ""])

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


def forward(step: StepProgram, variant: Variant) -> str:
    """The kernel of one step forward, after its product."""
    k, e = StepWriter("forward", step, variant), step.equations
    v, G = k.v, len(e.products)
    k.begin("step + backwards * (T - 1 - 2 * step)")
    for i, name in enumerate(e.states):
        k.load(f"s_{name}", k.state_address("final", i), "live")
    k.point(("parts", len(e.inputs) * v.H), ("noise", len(e.noise) * v.H))
    fetch_inputs(k, "live")
    if G:
        k.buffer("products", G * v.H)
        k.load_each("products", (f"h_{name}" for name in e.products), "live")
    equations_forward(k)
    for i, name in enumerate(e.states):
        k.store(k.state_address("final", i), f"y_{name}", "live")
    if G:
        k.buffer("now", v.stride)
        k.store("at_now", k.masked(f"y_{e.states[0]}"), "live", k.number)
    for name in k.shown:
        k.point((f"out_{name}", v.H))
        k.store(f"at_out_{name}", shown_value(k, name), "live", k.number)
    if v.training and G:
        k.point(("operand", v.stride))
        k.store("at_operand", k.masked(f"s_{e.states[0]}"), "live", k.number)
    for tensor, values in saved_values(step).items() if v.training else ():
        k.point((tensor, len(values) * v.H))
        k.store_each(tensor, values, k.type(tensor))
    return k.text()


def backward(step: StepProgram, variant: Variant) -> str:
    """The kernel of one step back, before its product; what arrives came through that of the step before."""
    k, e = StepWriter("backward", step, variant), step.equations
    v, V = k.v, len(e.vectors)
    k.begin("step + (1 - backwards) * (T - 1 - 2 * step)")
    k.write("move = 2 * backwards - 1", "more = live & (step < T - 1)")
    for i, name in enumerate(e.states):
        k.load(f"c_{name}", k.state_address("d_initial", i), "live")
        if name in step.kept:
            k.load(f"first_{name}", k.state_address("initial", i), "live & (step == T - 1)")
    k.point(*((f"d_out_{name}", v.H) for name in k.shown))
    k.point(*((name, len(getattr(step, name)) * v.H) for name in ("kept", "short", "long")))
    k.point(("parts", len(e.inputs) * v.H * step.reads_parts), ("noise", len(e.noise) * v.H))
    fetch_gradients(k, "live", "more")
    k.load_each("kept", (f"now_{name}" for name in step.kept), "live")
    if e.products:
        k.buffer("arrived", v.H)
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
    dx, dh = [f"dx_{name}" for name in e.inputs], [f"dh_{name}" for name in e.products]
    for tensor, values in (("d_parts", dx), ("d_products", [] if step.shared else dh)):  # summed up later
        k.point((tensor, len(values) * v.H))
        k.store_each(tensor, values, k.number)
    if dh:
        k.buffer("sent", len(dh) * v.H)
    k.store_each("sent", dh, k.number)
    return k.text()
