"""Steps of several phases on a GPU: in Triton's interpreter beside the plain loop, and on a card."""

import copy
import math
import os
import sys
from collections import OrderedDict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from test_triton_gpu import NUMBERS, draw, float32_products, lengths_of
from test_triton_gpu import everything_of as all_of
from test_triton_interpreter import Case, _from_nothing, both, one
from test_triton_steps import assert_equal, assert_near, results_of
from torch import Tensor, nn, sigmoid, tanh

from comparison import Named, assert_close, disturb, everything_of, map_state, on, python, values_of
from elman import RNN, Cell
from elman.recurrence import unroll
from elman.recurrence.functions import norm, rms
from elman.recurrence.triton import backend, phased, recording
from elman.recurrence.triton.emit.product import ProductTile
from elman.registry import CELLS

D, H = 3, 5
NOISE = {"recurrent_dropout": 0.4, "zoneout": 0.3, "weight_drop": 0.3}


class Normed(Cell):
    """Norms of several values and of one, with a gain; what is normalised is multiplied."""

    state = ("h", "c")
    gates = ("i", "z", "o")
    vectors = ("gain", "shift")
    matrices = ("U",)

    def R(self, x, h, s):
        i, z = norm(x.i + h.i, h.z, epsilon=0.1)
        c = s.c + sigmoid(self.gain * i) * tanh(self.U(rms(z + x.z, epsilon=0.1)))
        return self.State(h=sigmoid(x.o) * tanh(norm(c, epsilon=0.1) + self.shift), c=c)


class Attentive(Cell):
    """A softmax over the units, a largest one, and numbers that a row has one of, across products."""

    state = ("h", "c")
    gates = ("a", "b")
    matrices = ("U", "V")

    def R(self, x, h, s):
        weights = torch.softmax(x.a + h.a, -1)
        middle = (weights * s.c).sum(-1, keepdim=True)
        top = torch.amax(h.b, -1, keepdim=True)
        u = self.U(tanh(h.b - middle))
        c = tanh(u + middle * self.V(u * weights)) + 0.1 * top
        return self.State(h=tanh(c + x.b) * torch.exp(-top * top), c=0.5 * s.c + c)


class Chained(Cell):
    """Products in a row: one matrix twice, two of one value, a truth that waits for a product."""

    state = ("h", "c")
    gates = ("a", "b")
    vectors = ("u",)
    matrices = ("U", "V", "W")

    def R(self, x, h, s):
        large = h.a > 0.05
        a = tanh(x.a + h.a) * s.c
        b = self.U(a) + self.V(a) + self.u
        c = torch.where(large, tanh(b), torch.sin(b)) + self.W(self.U(b * x.b))
        return self.State(h=tanh(c + s.h), c=0.5 * (s.c + tanh(c)))


class Unmultiplied(Cell):
    """Nothing is multiplied; one state is a number for the whole row, and one is never read."""

    state = ("h", "c", "e")
    gates = ("a",)

    def R(self, x, h, s):
        mean = (s.h * x.a).mean(-1, keepdim=True)
        return self.State(h=tanh(x.a + norm(s.h + s.c, epsilon=0.5)), c=mean, e=s.h)


class Rooted(Cell):
    """The derivative of a state that nothing reads is infinite: where no gradient arrives, none may leave."""

    state = ("h", "e")
    gates = ("a",)

    def R(self, x, h, s):
        a = tanh(x.a + h.a)
        return self.State(h=a - a.mean(-1, keepdim=True), e=torch.sqrt(a - a))


class WholeState(Cell):
    """An output that is made of all states."""

    state = ("h", "c")
    gates = ("a",)
    matrices = ("U",)

    def R(self, x, h, s):
        c = tanh(x.a + h.a)
        return self.State(h=tanh(self.U(c) + s.c), c=c)

    def O(self, s):
        return torch.cat([s.h * s.c, s.c.sin()], -1)


class Projecting(Cell):
    """Its input parts are its own affair."""

    state = ("h",)
    gates = ("a",)

    def project(self, x):
        return torch.sin(super().project(x))

    def R(self, x, h, s):
        return self.State(tanh(x.a + rms(h.a, epsilon=0.1)))


class Backwards(nn.Module):
    """One cell, read from the end."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell, self.backend = RNN(cell, D, H).cells[0][0], "auto"

    def forward(self, x: Tensor, lengths: Any = None, state: Any = None) -> Any:
        return self.cell(x, state, lengths, reverse=True, backend=self.backend)


OWN = (Normed, Attentive, Chained, Unmultiplied, WholeState, Projecting)
EQUATIONS = {name: CELLS.find(name)(D, H).equations for name in CELLS.names()}
PHASED = [name for name, found in EQUATIONS.items() if found is not None and not found.pointwise]
CASES = {
    **{name: Case(one(name)) for name in PHASED},
    **{cell.__name__: Case(one(cell)) for cell in OWN},
    **{f"{cell.__name__}, both, lengths": Case(both(cell), lengths=True) for cell in OWN},
    "from zero": Case(one(Normed), start=False),
    "learned start": Case(both(Attentive, initial_state="learned"), lengths=True, start=False),
    "backwards": Case(lambda: Backwards(Chained), start=False),
    "backwards with lengths": Case(lambda: Backwards(Normed), lengths=True, start=False),
    "two layers": Case(both(Normed, layers=2), lengths=True),
    "mask": Case(one(Chained, recurrent_dropout=0.4)),
    "zoneout": Case(one(Normed, zoneout={"h": 0.2, "c": 0.5})),
    "weight drop": Case(one(Chained, weight_drop=0.4)),
    "noise on both with lengths": Case(both(Attentive, **NOISE), lengths=True),
    "expected zoneout": Case(lambda: both(Chained, zoneout={"c": 0.3})().eval(), lengths=True),
    "one step": Case(both(Normed), T=1),
    "one row, one unit": Case(one(Chained, H=1), B=1),
    "tiles of rows": Case(both(Attentive), B=9, T=2, lengths=True),
    "tiles of units": Case(one(Chained, H=133), T=2, lengths=True),
    "a full tile": Case(one(Normed, H=16), B=4),
}
SHORT = ("Normed", "Chained, both, lengths")
PIECES = ("Normed", "Chained, both, lengths", "backwards with lengths", "noise on both with lengths")
TILED = ("Normed", "Chained, both, lengths", "tiles of units", "noise on both with lengths")
CURVED = ("Attentive", "Chained, both, lengths")
JUNK = ("Normed", "Attentive", "Chained", "Projecting")  # what stands in the padding is junk


def case(name: str) -> tuple[Any, Tensor, Tensor | None, Any]:
    """A network, and input, lengths and a state to start from."""
    torch.manual_seed(1)
    make, B, T, lengths, start = CASES[name]
    network = make()
    disturb(network)
    x = torch.randn(B, T, D)
    state = map_state(torch.randn_like, network.start(B)) if start else None
    return network, x, torch.tensor([2, T, *[1, 3] * B])[:B].clamp(max=T) if lengths else None, state


def padded(name: str) -> tuple[Any, Tensor, Tensor, Any]:
    """The same with lengths, and junk in the padding."""
    network, x, _, state = case(name)
    x[0, 2:], x[2, 1:] = math.nan, math.inf
    return network, x, torch.tensor([2, 4, 1]), state


def output_alone(network: RNN, x: Tensor) -> Named:
    """Gradients where nothing arrives at the final state."""
    x = x.clone().requires_grad_()
    leaves = {"x": x, **dict(network.named_parameters())}
    outputs = network(x).outputs
    found = torch.autograd.grad(outputs.square().sum(), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def curvature_of(network: Any, x: Tensor, lengths: Any, state: Any) -> Named:
    """Gradients of a function of gradients."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(network(x, lengths, state).outputs.square().sum(), x, create_graph=True)
    leaves = {"x": x, **dict(network.named_parameters())}
    found = torch.autograd.grad(slope.square().sum(), list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def rooted() -> tuple[RNN, Tensor]:
    torch.manual_seed(1)
    return RNN(Rooted, D, H), torch.randn(3, 4, D)


# ---- in the interpreter --------------------------------------------------------------------------


def compute(path: str) -> None:
    """Everything by the kernels, into a file."""
    backend.card_of = lambda device: None
    unroll.choose = lambda *given: backend.TritonBackend()
    backend.unroll_directions = _from_nothing(backend.unroll_directions)
    found: dict[str, Any] = {}
    with numpy.errstate(all="ignore"):  # what is computed beside the tensors, and not chosen
        found["values"] = {name: _trained_and_inferred(name) for name in CASES}
        for dtype in (torch.bfloat16, torch.float16):
            found[str(dtype)] = {name: _in_short(name, dtype) for name in SHORT}
        found["junk"] = {name: everything_of(*padded(name)) for name in JUNK}
        found["curvature"] = {name: curvature_of(*case(name)) for name in CURVED}
        found["absent"] = output_alone(*rooted())
        found["pieces"] = {name: _put_together(name) for name in PIECES}
        for chunk in (16, 32):
            found[f"tiled {chunk}"] = {name: _with_own_products(name, chunk) for name in TILED}
    torch.save(found, path)


def _trained_and_inferred(name: str) -> tuple[Named, Named]:
    network, *inputs = case(name)
    with torch.no_grad():
        torch.manual_seed(0)
        inferred = values_of(network, *inputs)
    return everything_of(network, *inputs), inferred


def _in_short(name: str, dtype: torch.dtype) -> Named:
    network, x, lengths, _ = case(name)
    return everything_of(network.to(dtype), x.to(dtype), lengths)


class Pieces(phased.PhasedRunner):
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
        patch.setattr(phased, "PhasedRunner", Pieces)
        return _trained_and_inferred(name)


def _with_own_products(name: str, chunk: int) -> tuple[Named, Named]:
    """The products by generated kernels, as on a card."""
    choose = phased._way

    def way(spec: Any, program: Any, *given: Any, **named: Any) -> Any:
        found = choose(spec, program, *given, **named)
        depths = [len(product.operands) * spec.H for product in found.stages.products]
        tiles = tuple(ProductTile(16, 16, 32, -(-depth // 32), chunk, 4) for depth in depths)
        return replace(found, tiles=tiles)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(phased, "_way", way)
        return _trained_and_inferred(name)


# ---- beside the loop -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("interpreter") / "found.pt"
    python(
        f"import test_triton_phased; test_triton_phased.compute({str(path)!r})",
        TRITON_INTERPRET="1",
        PYTHONPATH=os.pathsep.join(sys.path),
    )
    return torch.load(path)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_loop(interpreted, name):
    trained, inferred = interpreted["values"][name]
    network, *inputs = case(name)
    expected = on("loop", network, *inputs)
    assert_close(trained, expected, 1e-5)
    assert_close(inferred, {name: expected[name] for name in inferred}, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", SHORT)
def test_short_numbers_are_multiplied_and_the_state_is_long(interpreted, name, dtype):
    network, x, lengths, _ = case(name)
    expected = on("loop", network.to(dtype).float(), x.to(dtype).float(), lengths)
    found = interpreted[str(dtype)][name]
    assert {value.dtype for value in found.values()} == {dtype}
    tolerance = 2.5 * torch.finfo(dtype).eps
    assert_close({key: value.float() for key, value in found.items()}, expected, tolerance)


@pytest.mark.parametrize("name", JUNK)
def test_odd_numbers_in_the_padding_reach_nothing(interpreted, name):
    assert_close(interpreted["junk"][name], on("loop", *padded(name)), 1e-5)


@pytest.mark.parametrize("name", CURVED)
def test_second_derivatives_go_through_the_loop(interpreted, name):
    network, *inputs = case(name)
    network.backend = "loop"
    assert_close(interpreted["curvature"][name], curvature_of(network, *inputs), 1e-5)


def test_where_no_gradient_arrives_none_leaves(interpreted):
    network, x = rooted()
    network.backend = "loop"
    expected = output_alone(network, x)
    assert all(value.isfinite().all() for value in expected.values())
    assert_close(interpreted["absent"], expected, 1e-5)


@pytest.mark.parametrize("name", PIECES)
def test_a_sequence_may_be_put_together_from_pieces(interpreted, name):
    for found, whole in zip(interpreted["pieces"][name], interpreted["values"][name], strict=True):
        assert_close(found, whole, 0.0)


@pytest.mark.parametrize("chunk", [16, 32])
@pytest.mark.parametrize("name", TILED)
def test_generated_products_compute_what_torch_s_do(interpreted, name, chunk):
    for found, whole in zip(interpreted[f"tiled {chunk}"][name], interpreted["values"][name], strict=True):
        assert_close(found, whole, 1e-5)


def test_kernels_of_a_step_turn_round_it():
    """The layer-normalised LSTM is a product and a kernel, forward and back."""
    for cell, forward, back in (("layer_norm_lstm", 1, 1), ("gru_original", 2, 2), (Unmultiplied, 0, 1)):
        step = backend.step_of(RNN(cell, D, H).cells[0][0])
        program = step.program(False)
        assert (program._forward[True].last, program._backward[False].last) == (forward, back), cell


# ---- on a card -----------------------------------------------------------------------------------

on_a_card = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


class CardCase:
    """Rows, units and steps, with what else there is."""

    def __init__(self, cell: Any, H: int, B: int, T: int, numbers: str, **options: Any) -> None:
        self.cell, self.H, self.B, self.T, self.numbers = cell, H, B, T, numbers.split()
        self.lengths = options.pop("lengths", False)
        self.options = options


BOTH = {"bidirectional": True}
CARD_CASES = {
    **{f"cell {name}": CardCase(name, 40, 7, 6, "bf16 ieee") for name in PHASED},
    **{f"cell {cell.__name__}": CardCase(cell, 40, 7, 6, "ieee", lengths=True, **BOTH) for cell in OWN},
    "layer norm 20": CardCase("layer_norm_lstm", 20, 100, 12, "bf16 tf32 ieee", lengths=True),
    "layer norm 100": CardCase("layer_norm_lstm", 100, 33, 12, "bf16 fp16 tf32", **BOTH),
    "layer norm 256": CardCase("layer_norm_lstm", 256, 128, 12, "bf16 tf32"),
    "layer norm 650": CardCase("layer_norm_lstm", 650, 20, 12, "bf16 fp16"),
    "layer norm 1024": CardCase("layer_norm_lstm", 1024, 128, 5, "bf16 tf32"),
    "chained 133": CardCase(Chained, 133, 17, 12, "ieee tf32", lengths=True, **BOTH),
    "highway 512": CardCase("highway", 512, 64, 12, "bf16"),
    "mogrifier 650": CardCase("mogrifier", 650, 20, 12, "bf16", lengths=True),
    "noise": CardCase("gru_original", 100, 20, 12, "ieee", lengths=True, zoneout=0.3, **BOTH),
}
# Norms, and products that follow each other, make more of what is rounded than one product does.
TOLERANCES = {kind: 2 * found.tolerance for kind, found in NUMBERS.items()}
CARD_PAIRS = [(name, kind) for name, found in CARD_CASES.items() for kind in found.numbers]


class TestOnACard:
    pytestmark = on_a_card

    @pytest.mark.parametrize(("name", "kind"), CARD_PAIRS)
    def test_values_and_gradients_are_those_of_the_loop(self, name, kind):
        torch.manual_seed(0)
        given, numbers = CARD_CASES[name], NUMBERS[kind]
        network = RNN(given.cell, 24, given.H, backend="triton", **given.options)
        disturb(network, 0.1)
        network = network.to("cuda", numbers.dtype).eval()
        exact = copy.deepcopy(network).double()
        exact.backend = "loop"
        x = draw(given.B, given.T, 24, dtype=numbers.dtype)
        lengths = lengths_of(given.B, given.T) if given.lengths else None
        start = map_state(lambda t: draw(*t.shape, dtype=numbers.dtype), network.start(given.B))
        expected = all_of(exact, x.double(), lengths, map_state(lambda t: t.double(), start))
        with float32_products(tf32=numbers.tf32):
            for _ in range(3):  # the second is recorded, the third replayed
                found = all_of(network, x, lengths, start)
                errors = {key: _error(found[key], value) for key, value in expected.items()}
                assert max(errors.values()) <= TOLERANCES[kind], errors

    @pytest.mark.parametrize("cell", ["layer_norm_lstm", "gru_original", Chained, Unmultiplied])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_recorded_steps_compute_what_launched_ones_do(self, cell, dtype, monkeypatch):
        monkeypatch.setattr(recording, "_recordings", OrderedDict())
        network = _card_network(cell, dtype)
        inputs = [torch.randn(6, T, 8, device="cuda", dtype=dtype) for T in (75, 9, 1)]
        launched = []
        for x in inputs:
            recording._recordings.clear()
            launched.append(results_of(network, x))
        for x, expected in zip(inputs, launched, strict=True):
            assert_equal(results_of(network, x), expected)
            assert_equal(results_of(network, x), expected)
        assert all(set(steps.graphs) == {64, 8, 2, 1} for steps in recording._recordings.values())

    def test_a_user_may_record_the_sequence(self):
        network = _card_network("layer_norm_lstm", torch.bfloat16)
        first, second = (torch.randn(6, 20, 8, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        expected = [results_of(network, x) for x in (first, second)]
        x, graph = first.clone(), torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            results_of(network, x)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            found = results_of(network, x)
        for given, wanted in zip((second, first), reversed(expected), strict=True):
            x.copy_(given)
            graph.replay()
            assert_near(found, wanted)

    def test_autocast_computes_in_its_numbers(self):
        torch.manual_seed(0)
        network = RNN("layer_norm_lstm", 24, 64, backend="triton").to("cuda")
        exact = copy.deepcopy(network).double()
        exact.backend = "loop"
        x = draw(9, 10, 24, dtype=torch.float32)
        expected = all_of(exact, x.double())
        with torch.autocast("cuda", torch.bfloat16):
            found = all_of(network, x)
        assert found["d cells.0.0.W_h"].dtype == torch.float32
        assert max(_error(found[key], value) for key, value in expected.items()) <= TOLERANCES["bf16"]


def _card_network(cell: Any, dtype: torch.dtype) -> RNN:
    torch.manual_seed(0)
    network = RNN(cell, 8, 133, bidirectional=True, backend="triton")
    disturb(network, 0.1)
    return network.to("cuda", dtype)


def _error(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b).norm() / b.norm()) if b.any() else float(a.double().norm())
