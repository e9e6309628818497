"""The generated kernels on the CPU, in Triton's interpreter, beside the plain loop.

Three of the four forms need no other program to run beside them: all but ``shared``. Triton decides at its
import whether it interprets: so one process computes all that is compared here.
"""

import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from test_numerics import FUNCTIONS, AllFunctions
from torch import Tensor, nn

from comparison import (
    Named,
    assert_close,
    disturb,
    everything_of,
    map_state,
    on,
    python,
    quantise,
    values_of,
)
from elman import RNN, Cell
from elman.recurrence import unroll
from elman.recurrence.backend import LayerCall
from elman.recurrence.operations import OPERATIONS
from elman.recurrence.triton import backend, recording, steps
from elman.recurrence.triton.tiling import Card, Tiling, Workload, tilings
from elman.registry import CELLS
from user_cells import UNLIKE, USER_CELLS, Everything, Readout

D, H = 3, 5
NOISE = {"recurrent_dropout": 0.4, "zoneout": 0.3, "weight_drop": 0.3}
# The interpreter multiplies no bfloat16.
NUMBERS = {"whole": torch.float16, "steps": torch.bfloat16, "phases": torch.bfloat16}


class Backwards(nn.Module):
    """One cell, read from the end."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.cell, self.backend = RNN(cell, D, H).cells[0][0], "auto"

    def forward(self, x: Tensor, lengths: Any = None, state: Any = None) -> Any:
        return self.cell(x, state, lengths, reverse=True, backend=self.backend)


class Shifted(Cell):
    """An output that is not zero where the state is."""

    state = ("h",)
    gates = ("a",)

    def R(self, x, h, s):
        return self.State(torch.tanh(x.a + h.a))

    def O(self, s):
        return s.h + 1


class Directed(Shifted):
    """An output without a value where the state is zero, and a weight that would learn from it."""

    vectors = ("u",)

    def O(self, s):
        return self.u * s.h / s.h.norm(dim=-1, keepdim=True)


class Projecting(Cell):
    """Its input parts are its own affair."""

    state = ("h",)
    gates = ("a",)

    def project(self, x):
        return torch.sin(super().project(x))

    def R(self, x, h, s):
        return self.State(torch.tanh(x.a + h.a))


class Leaky(Cell):
    """An option that is a number of the equations."""

    state = ("h",)
    gates = ("a",)

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.alpha = 0.5

    def R(self, x, h, s):
        return self.State((1 - self.alpha) * s.h + self.alpha * torch.tanh(x.a + h.a))


class Alike(Cell):
    """Names that others become when something is added to them."""

    state = ("c_next", "c")
    gates = ("i_next", "i")

    def R(self, x, h, s):
        i = torch.sigmoid(x.i + h.i)
        return self.State(c_next=torch.tanh(s.c + x.i_next * h.i_next), c=i * s.c_next + (1 - i) * s.c)


class Retelling(Cell):
    """A linear state, and an output that reads all there is."""

    state = ("c", "y")
    gates = ("f", "z")

    def R(self, x, h, s):
        c = torch.sigmoid(x.f) * s.c + x.z
        return self.State(c=c, y=torch.tanh(c) - s.c)

    def O(self, s):
        return torch.cat(s, -1)


class Growing(Cell):
    """A state that would be infinite after a few steps, if it were not zero."""

    state = ("h",)
    gates = ("a",)

    def R(self, x, h, s):
        return self.State(h=1e20 * s.h + torch.relu(x.a - 1e9))

    def initial_state(self, batch_size, like):
        return self.State(like.new_zeros(batch_size, self.hidden_size))


def unlike() -> RNN:
    """Directions whose equations differ."""
    network = RNN(Leaky, D, H, bidirectional=True)
    network.cells[0][1].alpha = 0.9
    return network


class Case(NamedTuple):
    """A network, its rows and steps, whether rows have lengths, and whether it starts from a given state."""

    make: Callable[[], Any]
    B: int = 3
    T: int = 4
    lengths: bool = False
    start: bool = True


def one(cell: Any, H: int = H, **options: Any) -> Callable[[], RNN]:
    return lambda: RNN(cell, D, H, **options)


def both(cell: Any, H: int = H, **options: Any) -> Callable[[], RNN]:
    return one(cell, H, bidirectional=True, **options)


EQUATIONS = {name: CELLS.find(name)(D, H).equations for name in CELLS.names()}
POINTWISE = [name for name, found in EQUATIONS.items() if found is not None and found.pointwise]
CASES = {
    **{name: Case(one(name)) for name in POINTWISE},
    **{cell.__name__: Case(one(cell), lengths=True) for cell in USER_CELLS},
    "every operation on both": Case(both(Everything), lengths=True),
    "whole state of both": Case(both(Readout), lengths=True),
    "from zero": Case(one("lstm"), start=False),
    "both from zero": Case(both("gru"), lengths=True, start=False),
    "learned start": Case(both("lstm", initial_state="learned"), lengths=True, start=False),
    "lengths": Case(one("lstm"), lengths=True),
    "backwards": Case(lambda: Backwards("lstm"), start=False),
    "backwards with lengths": Case(lambda: Backwards("peephole_lstm"), lengths=True, start=False),
    "both": Case(both("gru")),
    "both with lengths": Case(both("peephole_lstm"), lengths=True),
    "two layers": Case(both("lstm", layers=2), lengths=True),
    "mask": Case(one("gru", recurrent_dropout=0.4)),
    "zoneout": Case(one("lstm", zoneout={"h": 0.2, "c": 0.5})),
    "weight drop": Case(one("lstm", weight_drop=0.4)),
    "noise": Case(one("lstm", **NOISE)),
    "noise on both with lengths": Case(both("gru", **NOISE), lengths=True),
    "expected zoneout": Case(lambda: both("lstm", zoneout={"c": 0.3})().eval(), lengths=True),
    "one step": Case(both("elman"), T=1),
    "one row, one unit": Case(one("lstm", H=1), B=1),
    "a full tile": Case(one("gru", H=16), B=16),
    "tiles of rows": Case(both("peephole_lstm"), B=18, T=2, lengths=True),
    "shifted": Case(both(Shifted), lengths=True),
    "directed": Case(both(Directed), lengths=True),
    "projecting": Case(both(Projecting), lengths=True),
    "unlike": Case(unlike, lengths=True),
    "alike": Case(both(Alike, zoneout=0.4), lengths=True),
    "heads": Case(one("lstm", H=6, cell_options={"heads": 3}), lengths=True),
    "heads on both": Case(both("peephole_lstm", H=10, cell_options={"heads": 2}, **NOISE), lengths=True),
    "one gate in heads": Case(both("elman", H=6, cell_options={"heads": 2}), B=18, T=2, lengths=True),
    "tiles of units": Case(both("sru", H=133), lengths=True),  # nothing is multiplied, nothing exchanged
}
SHORT = (
    *(name for name in POINTWISE if name != "hard_gate"),
    "both with lengths",
    "noise on both with lengths",
    "heads",
)
PIECES = ("peephole_lstm", "heads", "backwards with lengths", "noise on both with lengths")
CURVED = ("both with lengths", "both from zero", "heads")
JUNK = ("lstm", "both", "sru", "projecting")  # what stands in the padding is junk


LINEAR_CELLS = ("min_gru", "min_lstm", "lru", "qrnn", "t_lstm")
CHUNKED = {  # which chunks do not divide evenly, and reach over the ends of rows
    **{f"{name} in chunks": Case(both(name), T=8, lengths=True) for name in LINEAR_CELLS},
    "sru in chunks": Case(both("sru", cell_options={"peepholes": False}), T=7, lengths=True),
    "without lengths in chunks": Case(one("min_gru"), T=8),
    "evenly in chunks": Case(both("qrnn"), T=9),
    "evenly in chunks with lengths": Case(both("min_lstm"), T=9, lengths=True),
    "from zero in chunks": Case(both("qrnn"), T=8, start=False),
    "zoneout in chunks": Case(both("min_gru", zoneout=0.4), T=8, lengths=True),
    "whole state in chunks": Case(both(Retelling), T=8, lengths=True),
    "many rows in chunks": Case(one("min_lstm"), B=18, T=5, lengths=True),
    "growing in chunks": Case(one(Growing), T=8, start=False),
}
CASES |= CHUNKED


def of_form(form: str, names: Iterable[str]) -> list[str]:
    """Which of these a form of kernels computes: of the cells that are like others each has its share."""
    alike = [name for name in POINTWISE if name not in UNLIKE]
    mine = alike[list(NUMBERS).index(form) :: len(NUMBERS)]
    return [name for name in names if name not in CHUNKED and (name not in alike or name in mine)]


def case(name: str) -> tuple[Any, Tensor, Tensor | None, Any]:
    """A network, and input, lengths and a state to start from."""
    torch.manual_seed(1)
    make, B, T, lengths, start = CASES[name]
    network = make()
    disturb(network)
    x = torch.randn(B, T, D)
    state = map_state(torch.randn_like, network.start(B)) if start else None
    if name == "hard_gate":  # a step: compared where sums are exact
        quantise(network)
        x = (x * 4).round() / 4
    return network, x, torch.tensor([2, T, *[1, 3] * B])[:B].clamp(max=T) if lengths else None, state


def padded(name: str) -> tuple[Any, Tensor, Tensor, Any]:
    """The same with lengths, and junk in the padding."""
    network, x, _, state = case(name)
    x[0, 2:], x[2, 1:] = math.nan, math.inf
    return network, x, torch.tensor([2, 4, 1]), state


class Pairs(Cell):
    """What takes two arguments: one state for each, of the same two gates."""

    state = ("power", "quotient", "larger", "smaller", "chosen", "same", "sign")
    gates = ("a", "b")

    def project(self, x):
        return x

    def R(self, x, h, s):
        a, b = x.a, x.b
        chosen = torch.where((a < b) & ~(a <= -b) | (b >= 2), a, b)
        same = torch.where(a == b, a, torch.where(a != -b, 2 * b, 3 * a))
        signs = torch.where(a > b, torch.sign(a), -a)
        return self.State(a**b, a / b, torch.maximum(a, b), torch.minimum(a, b), chosen, same, signs)

    def O(self, s):
        return torch.cat(s, -1)


def points(cell: Any) -> tuple[RNN, Tensor]:
    """Ordinary and special arguments of every function, as the units of one row and one step."""
    odd = [0.0, -0.0, math.inf, -math.inf, math.nan]
    if cell is AllFunctions:
        sizes = torch.logspace(-20, 2.2, 100)
        x = torch.cat([sizes, -sizes, torch.tensor(odd)]).repeat(len(FUNCTIONS))
        return RNN(AllFunctions, len(x), len(x) // len(FUNCTIONS)), x[None, None]
    values = torch.tensor([*odd, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1.7, -1.7])
    grid = torch.cartesian_prod(values, values)
    return RNN(Pairs, 2 * len(grid), len(grid)), grid.T.reshape(1, 1, -1)


def slopes_of(network: RNN, x: Tensor) -> Named:
    x = x.clone().requires_grad_()
    outputs = network(x).outputs
    chosen = torch.where(outputs.isfinite(), outputs, 0.0)  # an infinity would spoil the other functions
    return {"values": outputs.detach(), "slopes": torch.autograd.grad(chosen.sum(), x)[0]}


def curvature_of(network: Any, x: Tensor, lengths: Any, state: Any) -> Named:
    """Gradients of a function of gradients."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(network(x, lengths, state).outputs.square().sum(), x, create_graph=True)
    leaves = {"x": x, **dict(network.named_parameters())}
    found = torch.autograd.grad(slope.square().sum(), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


# ---- in the interpreter --------------------------------------------------------------------------


def tiling_of(form: str, workload: Workload) -> list[Tiling]:
    """The tiling of this form, with the smallest tiles, on a card that holds any weights."""
    if form == "phases":
        suits = workload.products and workload.heads == 1
        return [backend.PHASES] if suits else tiling_of("steps", workload)
    card = Card("interpreter", 132, 1 << 40)
    found = [tiling for tiling in tilings(replace(workload, precision=""), card) if tiling.form == form]
    return [min(found, key=lambda tiling: tiling.rows)]


def compute(path: str) -> None:
    """Everything by the kernels, into a file."""
    backend.card_of = lambda device: None
    unroll.choose = lambda *given: backend.TritonBackend()
    backend.unroll_directions = _from_nothing(backend.unroll_directions)
    found: dict[tuple[str, str], Any] = {}
    with numpy.errstate(all="ignore"):  # what is computed beside the tensors, and not chosen
        for form, short in NUMBERS.items():
            backend.tilings = lambda workload, card, form=form: tiling_of(form, workload)
            found[form, "values"] = {name: _trained_and_inferred(name) for name in of_form(form, CASES)}
            found[form, "short"] = {name: _in_short(name, short) for name in of_form(form, SHORT)}
            found[form, "junk"] = {name: everything_of(*padded(name)) for name in JUNK}
            found[form, "slopes"] = [slopes_of(*points(cell)) for cell in (AllFunctions, Pairs)]
            found[form, "curvature"] = {name: curvature_of(*case(name)) for name in CURVED}
        found["steps", "pieces"] = {name: _put_together(name) for name in PIECES}
        backend.tilings = lambda workload, card: tiling_of("whole", workload)
        backend.count_chunks = lambda *given: 3
        found["chunks"] = {name: _trained_and_inferred(name) for name in CHUNKED}
        found["curved chunks"] = curvature_of(*case("min_gru in chunks"))
    torch.save(found, path)


def _from_nothing(run: Callable[..., Any]) -> Callable[..., Any]:
    """The backend, given None for a state of zeros as it is on a GPU, where nobody makes them."""

    def run_from_nothing(call: LayerCall, *more: Any) -> Any:
        zero = not any(t.requires_grad or t.any() for state in call.states if state for t in state)
        return run(call._replace(states=[None] * len(call.states)) if zero else call, *more)

    return run_from_nothing


def _trained_and_inferred(name: str) -> tuple[Named, Named]:
    network, *inputs = case(name)
    with torch.no_grad():
        torch.manual_seed(0)
        inferred = values_of(network, *inputs)
    return everything_of(network, *inputs), inferred


def _in_short(name: str, dtype: torch.dtype) -> Named:
    network, x, lengths, _ = case(name)
    return everything_of(network.to(dtype), x.to(dtype), lengths)


class Pieces(steps.PointwiseRunner):
    """Replays, as recordings do, but of what is launched there and then."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.graphs = {}

    def _graph(self, length: int) -> Any:
        return SimpleNamespace(replay=lambda: self._launch(length))


def _put_together(name: str) -> tuple[Named, Named]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "LENGTHS", (3, 1))
        patch.setattr(recording, "HIGHEST", 1)  # more rows than a launch takes
        patch.setattr(steps, "PointwiseRunner", Pieces)
        return _trained_and_inferred(name)


# ---- beside the loop -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("interpreter") / "found.pt"
    python(
        f"import test_triton_interpreter; test_triton_interpreter.compute({str(path)!r})",
        TRITON_INTERPRET="1",
        PYTHONPATH=os.pathsep.join(sys.path),
    )
    return torch.load(path)


forms = pytest.mark.parametrize("form", NUMBERS)


def each_of_form(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(form, name) for form in NUMBERS for name in of_form(form, names)]


@pytest.mark.parametrize("name", CHUNKED)
def test_a_linear_recurrence_is_computed_in_chunks(interpreted, name):
    network, *inputs = case(name)
    expected = on("loop", network, *inputs)
    for found in interpreted["chunks"][name]:
        assert_close(found, {name: expected[name] for name in found}, 1e-5)


def test_second_derivatives_of_chunks_go_through_the_loop(interpreted):
    network, *inputs = case("min_gru in chunks")
    network.backend = "loop"
    assert_close(interpreted["curved chunks"], curvature_of(network, *inputs), 1e-5)


@pytest.mark.parametrize(
    ("form", "name"), [(form, name) for form in NUMBERS for name in of_form(form, CASES)]
)
def test_values_and_gradients_are_those_of_the_loop(interpreted, form, name):
    trained, inferred = interpreted[form, "values"][name]
    network, *inputs = case(name)
    expected = on("loop", network, *inputs)
    assert_close(trained, expected, 1e-5)
    assert_close(inferred, {name: expected[name] for name in inferred}, 1e-5)


@pytest.mark.parametrize(
    ("form", "name"), [(form, name) for form in NUMBERS for name in of_form(form, SHORT)]
)
def test_short_numbers_are_multiplied_and_the_state_is_long(interpreted, form, name):
    dtype = NUMBERS[form]
    network, x, lengths, _ = case(name)
    expected = on("loop", network.to(dtype).float(), x.to(dtype).float(), lengths)
    found = interpreted[form, "short"][name]
    assert {value.dtype for value in found.values()} == {dtype}
    tolerance = 1.5 * torch.finfo(dtype).eps
    assert_close({key: value.float() for key, value in found.items()}, expected, tolerance)


@forms
@pytest.mark.parametrize("name", JUNK)
def test_odd_numbers_in_the_padding_reach_nothing(interpreted, form, name):
    assert_close(interpreted[form, "junk"][name], on("loop", *padded(name)), 1e-5)


@forms
@pytest.mark.parametrize("place", [0, 1], ids=["of one argument", "of two"])
def test_every_function_over_the_whole_range(interpreted, form, place):
    """Values and slopes beside torch's, |a − b| / (|b| + 1); what is not finite is so in the same way."""
    cell = (AllFunctions, Pairs)[place]
    network, x = points(cell)
    network.backend = "loop"
    expected, found = slopes_of(network, x), interpreted[form, "slopes"][place]
    width = network.hidden_sizes[0]
    wrong = {}
    for what, b in expected.items():
        a, units = found[what].reshape(-1, width), x.reshape(-1, width)
        b = b.reshape(-1, width)
        same = (a == b) | (a.isnan() & b.isnan())
        same |= units.isinf().any(0) & ~b.isfinite()
        if what == "slopes":  # at what is not finite a slope means nothing
            same |= ~units.isfinite().all(0) | ~b.isfinite()
        errors = torch.where(same, 0.0, (a - b).abs() / (b.abs() + 1)).nan_to_num(math.inf)
        for row, error in enumerate(errors):
            if error.max() > 2e-6:
                wrong[what, row] = error.max().item(), units[:, error.argmax()].tolist()
    if cell is AllFunctions:  # of 0 and -0 the larger and the smaller may be either
        at_zero = x.reshape(-1, width)[0] == 0
        ours, theirs = (named["values"].reshape(-1, width)[:, at_zero] for named in (found, expected))
        for name, same in zip(FUNCTIONS, torch.signbit(ours) == torch.signbit(theirs), strict=True):
            if name not in ("maximum", "minimum") and not same.all():
                wrong["sign", name] = 0.0, -0.0
    assert not wrong, f"which: (error, where): {wrong}"


@forms
@pytest.mark.parametrize("name", CURVED)
def test_second_derivatives_go_through_the_loop(interpreted, form, name):
    network, *inputs = case(name)
    network.backend = "loop"
    assert_close(interpreted[form, "curvature"][name], curvature_of(network, *inputs), 1e-5)


@pytest.mark.parametrize("name", PIECES)
def test_a_sequence_may_be_put_together_from_pieces(interpreted, name):
    for found, whole in zip(
        interpreted["steps", "pieces"][name], interpreted["steps", "values"][name], strict=True
    ):
        assert_close(found, whole, 0.0)


def test_every_operation_is_among_those_compared():
    networks = [CASES[cell.__name__].make() for cell in USER_CELLS]
    networks += [points(cell)[0] for cell in (AllFunctions, Pairs)]
    todo = [node for network in networks for node in network.cells[0][0].equations.results]
    used: set[str] = set()
    while todo:
        node = todo.pop()
        used.add(node.op)
        todo += node.args
    assert not OPERATIONS.keys() - used
