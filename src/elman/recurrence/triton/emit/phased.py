"""Writes the kernels of a step of several phases, forward and back.

Between two products there is one kernel. Round a whole step they turn: the kernel after the last product of
a step also begins the next one, whose first product follows. Backward, the kernel that begins a step ends the
one that was taken before it. So a step of one product has one kernel, whatever comes before the product.

Forward, the step before the first exists only to begin it: it carries the state. Backward, the step after the
last exists only to end that.
"""

from elman.recurrence.symbols import Node
from elman.recurrence.triton.emit.phase import Moment, PhaseKernel, Way, source_text
from elman.recurrence.triton.stages import PhasedProgram, Stages


def forward_kernels(stages: Stages) -> dict[str, bool]:
    """The kernels of a step forward, in their order; and whether each takes whole rows."""
    numbers = range(min(1, stages.last), stages.last + 1)
    return {f"forward_{n}": stages.whole(n) or (n == stages.last and stages.whole(0)) for n in numbers}


def backward_kernels(stages: Stages) -> dict[str, bool]:
    numbers = range(stages.last)
    return {f"backward_{n}": stages.whole(n) or (n == 0 and stages.whole(stages.last)) for n in numbers}


def forward(way: Way) -> str:
    stages, program = way.stages, way.program
    kernels = []
    for name, whole in forward_kernels(stages).items():
        number = int(name.rpartition("_")[2])
        k = PhaseKernel(name, way, whole=whole)
        last = number == stages.last
        now = Moment(k, "t", number, "step", "step >= 0" if last else "")
        k.compute(now)
        _hand_on(k, now)
        if last:
            _end_step(k, now)
        if last and stages.last:
            following = Moment(k, "n", 0, "step + 1", "step + 1 < T")
            for name_, node in _leaves(program, "s"):
                following.names[node] = f"y_{name_}"
            k.compute(following)
            _hand_on(k, following)
        kernels.append(k)
    return source_text(way, kernels)


def _leaves(program: PhasedProgram, kind: str) -> list[tuple[str, int]]:
    """The states, each with the number of its leaf."""
    e = program.equations
    return [(name, e.graph.leaf(kind, name).node.index) for name in e.states]


def _hand_on(k: PhaseKernel, now: Moment) -> None:
    """Store what others read of a stage: what is multiplied, what is carried over, what is saved."""
    stages, v, program = k.stages, k.v, k.program
    for product, place, node in stages.operands[now.stage]:
        value = now.value(node)
        if k.back:  # the gradients of what was multiplied
            value = now.real(value)
        k.store(k.operand(product, place), value, "live", k.number)
        if v.training and not k.back:
            count = len(stages.products[product].operands)
            address = now.sequence(f"operand_{product}", count, place)
            k.store(address, now.real(value), now.live, k.number)
    for node in stages.carried[now.stage]:
        value = now.value(node)
        value = f"tl.where({value}, 1.0, 0.0)" if node.boolean else value
        k.store(k.carried(node), value, "live" if node.dim else "there")
    if k.back or not v.training:
        return
    saved = set(stages.outputs[now.stage]) & set(program.gradients.saved)
    for tensor, nodes in (("short", program.short), ("long", program.long)):
        for place, node in enumerate(nodes):
            if node in saved:
                number = k.number if tensor == "short" else "tl.float32"
                k.store(now.sequence(tensor, len(nodes), place), now.value(node), now.live, number)
    for place, node in enumerate(program.single):
        if node in saved:
            k.store(now.single(place), now.value(node), now.there)


def _end_step(k: PhaseKernel, now: Moment) -> None:
    """``y_state``: the new state, at padding and before the first step the old one."""
    v, e, program = k.v, k.program.equations, k.program
    before = dict(_leaves(program, "s"))
    for place, (name, node) in enumerate(zip(e.states, e.results, strict=True)):
        old, lasts = now.names.get(before[name]), "live"
        if old is None:  # nobody reads it in the middle
            first = "live" if v.lengths else "live & (step < 0)"
            old = k.load(f"s_{name}", k.state("final", place), first)
            lasts = "live" if v.lengths or k.stages.reads(name) else "live & (step == T - 1)"
        k.lines.append(f"y_{name} = tl.where(step >= 0, {now.real(now.value(node), old)}, {old})")
        k.store(k.state("final", place), f"y_{name}", lasts)
        if v.all_states or not place:
            k.store(now.sequence(f"out_{name}", 1), now.real(f"y_{name}"), now.live, k.number)
        if v.training and name in program.kept:
            address = now.sequence("kept", len(program.kept), program.kept.index(name))
            k.store(address, f"y_{name}", now.live)


def backward(way: Way) -> str:
    stages = way.stages
    kernels = []
    for name, whole in backward_kernels(stages).items():
        number = int(name.rpartition("_")[2])
        k = PhaseKernel(name, way, whole=whole)
        if number:
            now = Moment(k, "t", number, "step")
        else:
            before = Moment(k, "b", stages.last, "step - 1", "step > 0")
            now = Moment(k, "t", 0, "step", "step < T")
            k.compute(before)
            _end_backward(k, before)
            _learn(k, before)
            _begin_backward(k, now)
        k.compute(now)
        _hand_on(k, now)
        _learn(k, now)
        kernels.append(k)
    return source_text(way, kernels)


def _end_backward(k: PhaseKernel, before: Moment) -> None:
    """``c_state``: the gradient of the state before that step."""
    e, g = k.program.equations, k.program.gradients
    found = before.values(g.states)
    for place, (name, value) in enumerate(zip(e.states, found, strict=True)):
        if k.v.lengths:
            value = before.real(value, before.value(e.graph.leaf("g", name).node))
        address = k.state("d_initial", place)
        first = k.load(f"first_{name}", address, "live & (step == 0)")
        k.lines.append(f"c_{name} = tl.where(step > 0, {value}, {first})")
        k.store(address, f"c_{name}", "live & (step == T)")


def _begin_backward(k: PhaseKernel, now: Moment) -> None:
    for place, (name, leaf) in enumerate(_leaves(k.program, "g")):
        arriving = f"c_{name}"
        if k.v.all_states or not place:
            fresh = k.load(f"fresh_{name}", now.sequence(f"d_out_{name}", 1), now.live, early=True)
            arriving += f" + {now.real(fresh)}"
        k.lines.append(f"g_{name} = {arriving}")
        now.names[leaf] = f"g_{name}"


def _learn(k: PhaseKernel, now: Moment) -> None:
    """Store the gradients of input parts and products, and add up those of the vectors."""
    program, stages = k.program, k.stages
    g = program.gradients

    def here(node: Node | None) -> bool:
        return now.stage == (0 if node is None else stages.stage(node))

    groups = [("d_parts", list(g.inputs))]
    groups += [
        (f"d_result_{i}", nodes)
        for i, (nodes, place) in enumerate(zip(program.taught, program.shared, strict=True))
        if place is None
    ]
    for tensor, nodes in groups:
        for place, node in enumerate(nodes):
            if here(node):
                (value,) = now.values([node])
                k.store(now.sequence(tensor, len(nodes), place), now.real(value), now.live, k.number)
    for place, node in enumerate(g.vectors):
        if node is not None and here(node):
            total = k.load(f"sum_{place}", k.vector_sum(place), "live")
            k.store(k.vector_sum(place), f"{total} + {now.real(now.value(node))}", now.live)
