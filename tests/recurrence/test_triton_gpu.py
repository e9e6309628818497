"""The kernels on a CUDA device beside the plain loop in float64: every form, every kind of number.

With ``$ELMAN_GPU_REPORT`` the errors are written to that file, with date, card and versions.
"""

import copy
import datetime
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from comparison import Named, assert_close, disturb, map_state, quantise, tensors_of, values_of
from elman import RNN
from elman.errors import BackendError
from elman.recurrence.contract import Noise
from elman.recurrence.triton import backend
from elman.registry import CELLS
from user_cells import USER_CELLS, Everything, Lopsided, Ranked, Readout, UserLSTM

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
DEVICE, D = "cuda", 24


class Numbers(NamedTuple):
    dtype: torch.dtype
    tf32: bool
    tolerance: float  # of ‖a−b‖/‖b‖


NUMBERS = {
    "bf16": Numbers(torch.bfloat16, False, 2e-2),
    "fp16": Numbers(torch.float16, False, 3e-3),
    "tf32": Numbers(torch.float32, True, 3e-3),
    "ieee": Numbers(torch.float32, False, 1e-4),
}
ALL = " ".join(NUMBERS)


class Case(NamedTuple):
    """A network of one cell, the numbers that it is compared in, and what it is given."""

    cell: Any
    H: int
    B: int
    T: int
    numbers: str = "bf16"
    lengths: bool = False
    start: bool = True
    noisy: bool = False
    training: bool = True
    options: dict[str, Any] = {}  # noqa: RUF012  (never changed)


BOTH = {"bidirectional": True}
POSITIVE = ("slstm",)  # it divides by a state, which is never zero if it starts where it should
CANCELLING = (
    "fast_rnn",
    "fast_grnn",
)  # their few numbers learn from all units, whose gradients nearly cancel
SHARP = ("hard_gate", "slstm", Everything)  # a rounded sum may fall on the other side of a step or a kink
EQUATIONS = {name: CELLS.find(name)(D, 4).equations for name in CELLS.names()}
POINTWISE = [name for name, found in EQUATIONS.items() if found is not None and found.pointwise]
CASES = {
    **{
        f"cell {name}": Case(
            name, 40, 7, 12, "ieee" if name in SHARP else "bf16 ieee", start=name not in POSITIVE
        )
        for name in POINTWISE
    },
    **{
        f"cell {cell.__name__}": Case(cell, 40, 7, 6, "ieee" if cell in SHARP else "bf16 ieee", lengths=True)
        for cell in USER_CELLS
    },
    "lstm": Case("lstm", 256, 16, 30, ALL),
    "lstm, one step": Case("lstm", 256, 16, 1, ALL),
    "lstm, a thousand steps": Case("lstm", 256, 16, 1000, ALL),
    "gru": Case("gru", 256, 7, 30, ALL),
    "gru, a thousand steps": Case("gru", 256, 7, 1000, ALL),
    "elman": Case("elman", 256, 40, 30, ALL),
    "of a user": Case(UserLSTM, 512, 32, 20),
    "lstm 20": Case("lstm", 20, 300, 20, "bf16 tf32"),
    "elman 100": Case("elman", 100, 40, 20, "bf16 fp16 tf32", lengths=True, options=BOTH),
    "lstm 512, one row": Case("lstm", 512, 1, 20),
    "lstm 256, many rows": Case("lstm", 256, 300, 10, "bf16 tf32"),
    "lstm 650": Case("lstm", 650, 20, 35, "bf16 fp16 tf32"),
    "gru 1000": Case("gru", 1000, 40, 12, "bf16 fp16", lengths=True),
    "elman 1000": Case("elman", 1000, 40, 12),
    "lstm 1000": Case("lstm", 1000, 16, 12, "bf16 tf32"),
    "lstm 1152": Case("lstm", 1152, 40, 12),
    "lstm 2048": Case("lstm", 2048, 64, 5, "bf16 tf32"),
    "lengths": Case("lstm", 256, 40, 30, ALL, lengths=True),
    "both": Case("lstm", 256, 40, 20, ALL, lengths=True, options=BOTH),
    "two layers": Case("gru", 128, 33, 20, "bf16 tf32 ieee", lengths=True, options={**BOTH, "layers": 2}),
    "vectors": Case("peephole_lstm", 256, 20, 20, "bf16 tf32 ieee", lengths=True, options=BOTH),
    "no products": Case("sru", 300, 20, 50, ALL, lengths=True),
    "whole state": Case(Readout, 256, 20, 20, "bf16 tf32", lengths=True, options=BOTH),
    "eight gates": Case(Lopsided, 256, 20, 20, "bf16 tf32"),
    "noise": Case("lstm", 256, 20, 20, ALL, noisy=True),
    "noise on both": Case("gru", 256, 40, 20, "bf16 ieee", lengths=True, noisy=True, options=BOTH),
    "expected zoneout": Case("gru", 128, 20, 20, training=False, options={"zoneout": {"h": 0.3}}),
    "learned start": Case("lstm", 128, 20, 20, start=False, options={"initial_state": "learned"}),
    "from zero": Case("lstm", 128, 20, 20, "bf16 ieee", start=False),
    "heads": Case("lstm", 768, 16, 30, ALL, options={"cell_options": {"heads": 12}}),
    "wide heads": Case("lstm", 768, 16, 30, "bf16 tf32", options={"cell_options": {"heads": 6}}),
    "heads on both": Case(
        *("peephole_lstm", 300, 40, 20, "bf16 tf32 ieee"),
        *(True, True, True, True, {**BOTH, "cell_options": {"heads": 2}}),
    ),
    "one gate in heads": Case("elman", 512, 20, 20, ALL, True, options={"cell_options": {"heads": 2}}),
    "large heads": Case("lstm", 1200, 20, 10, options={"cell_options": {"heads": 3}}),
    "scan": Case("min_gru", 300, 20, 500, ALL, lengths=True, options=BOTH),
    "scan of even chunks": Case("min_lstm", 300, 20, 512, "bf16 ieee"),
    "scan of two levels": Case("qrnn", 64, 3, 640, "bf16 ieee", lengths=True, options=BOTH),
    "scan of one long row": Case("lru", 256, 1, 5000, "bf16 ieee"),
    "scan with zoneout": Case("min_gru", 100, 5, 333, "ieee", noisy=True),
    "no bias": Case("gru", 128, 20, 20, options={"cell_options": {"bias": False}}),
}
LINES: list[str] = []
WORST: dict[str, tuple[float, str]] = {}


@pytest.fixture(scope="module", autouse=True)
def report() -> Iterator[None]:
    """What was measured, into the file that is asked for."""
    yield
    path = os.environ.get("ELMAN_GPU_REPORT")
    if path and LINES:
        import triton

        versions = f"torch {torch.__version__}, CUDA {torch.version.cuda}, Triton {triton.__version__}"
        summary = [
            f"{kind}: at most {error:.1e} ({where}); allowed {NUMBERS[kind].tolerance:.0e}"
            for kind, (error, where) in WORST.items()
        ]
        head = [f"{datetime.date.today()}, {torch.cuda.get_device_name()}, {versions}"]
        head.append("‖a−b‖/‖b‖ of a tensor against the loop in float64, the worst of values and of gradients")
        Path(path).write_text("\n".join([*head, "", *summary, "", *LINES, ""]), encoding="utf-8")


@contextmanager
def float32_products(*, tf32: bool) -> Iterator[None]:
    """As torch's own switch says; it is no plain attribute, so that nothing else could put it back."""
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@pytest.fixture(params=NUMBERS)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    with float32_products(tf32=NUMBERS[request.param].tf32):
        yield request.param


def network_of(cell: Any, H: int, dtype: torch.dtype = torch.bfloat16, **options: Any) -> RNN:
    network = RNN(cell, D, H, backend="triton", **options)
    disturb(network)
    if cell == "hard_gate":
        quantise(network)
    return network.to(DEVICE, dtype)


def exact_of(network: RNN) -> RNN:
    """The same weights on the loop in float64."""
    exact = copy.deepcopy(network).double()
    exact.backend = "loop"
    return exact


def draw(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """In quarters, which all numbers hold exactly."""
    return ((torch.randn(shape) * 4).round() / 4).to(DEVICE, dtype)


def lengths_of(B: int, T: int) -> Tensor:
    found = torch.randint(1, T + 1, (B,))
    found[0], found[-1] = T, 1
    return found.to(DEVICE)


def everything_of(network: RNN, x: Tensor, lengths: Any = None, state: Any = None) -> Named:
    """Values, and the gradients of x, the given state and every parameter, under the same upstream ones."""
    x = x.clone().requires_grad_()
    if state is not None:
        state = map_state(lambda t: t.clone().requires_grad_(), state)
    values = values_of(network, x, lengths, state)
    leaves = {"d x": x, **{f"d {name}": p for name, p in network.named_parameters()}}
    leaves |= {f"d start {i}": t for i, t in enumerate(tensors_of(state or ()))}
    torch.manual_seed(2)
    upstream = [draw(*value.shape, dtype=value.dtype) for value in values.values()]
    given = list(values.values()), list(leaves.values()), upstream
    gradients = torch.autograd.grad(*given, materialize_grads=True)
    return {**{n: v.detach() for n, v in values.items()}, **dict(zip(leaves, gradients, strict=True))}


def error_of(a: Tensor, b: Tensor) -> float:
    a, b = a.detach(), b.detach()
    return float((a.double() - b).norm() / b.norm().clamp(min=1e-12)) if b.any() else float(a.double().norm())


def assert_near(found: Named, exact: Named, tolerance: float) -> dict[str, float]:
    assert found.keys() == exact.keys()
    errors = {name: error_of(found[name], value) for name, value in exact.items()}
    assert all(error <= tolerance for error in errors.values()), f"more than {tolerance}: {errors}"
    return errors


def add_noise(network: RNN, rate: float = 0.5) -> None:
    """Every kind of noise, the same whatever the numbers: torch draws other masks for other ones."""
    generator = torch.Generator().manual_seed(3)

    def noise(cell: Any, B: int, T: int, like: Tensor) -> Noise:
        def keep(*shape: int) -> Tensor:
            return (torch.rand(shape, generator=generator) > rate).to(like) / (1 - rate)

        H = cell.hidden_size
        zoneout: dict[str, Any] = {name: keep(B, T, H) == 0 for name in cell.state}
        dropped = None if cell.W_h is None else cell.W_h * keep(*cell.W_h.shape)
        return Noise(dropped, keep(B, H), zoneout)

    network._noise = noise  # type: ignore[method-assign, assignment]


# ---- values and gradients ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name, case in CASES.items() for kind in case.numbers.split()],
    indirect=["kind"],
)
def test_values_and_gradients_are_near_those_in_float64(name, kind):
    cell, H, B, T, _, lengths, start, noisy, training, options = CASES[name]
    dtype, _, tolerance = NUMBERS[kind]
    tolerance *= 2 if cell in CANCELLING else 1
    network = network_of(cell, H, dtype, **options).train(training)
    x, given = draw(B, T, D, dtype=dtype), lengths_of(B, T) if lengths else None
    state = map_state(lambda t: draw(*t.shape, dtype=dtype), network.start(B)) if start else None
    results = []
    for one, own in ((network, dtype), (exact_of(network), torch.float64)):
        if noisy:
            add_noise(one)
        begin = None if state is None else map_state(lambda t, own=own: t.to(own), state)
        results.append(everything_of(one, x.to(own), given, begin))
    found, expected = results
    assert {value.dtype for value in found.values()} == {dtype}
    errors = assert_near(found, expected, tolerance)
    worst = {
        what: max(
            (error, name) for name, error in errors.items() if name.startswith("d ") == (what != "values")
        )
        for what in ("values", "gradients")
    }
    text = ", ".join(f"{what} {error:.1e} ({where})" for what, (error, where) in worst.items())
    size = f"H {H}, B {B}, T {T}"
    LINES.append(f"{kind} {name} ({size}): {text}")
    WORST[kind] = max(WORST.get(kind, (0.0, "")), *((error, f"{name}, {n}") for error, n in worst.values()))


@pytest.mark.parametrize("kind", ["bf16", "tf32", "ieee"], indirect=True)
@pytest.mark.parametrize("lengths", [False, True])
def test_one_cell_may_be_read_from_the_end(kind, lengths):
    dtype, _, tolerance = NUMBERS[kind]
    network = network_of("lstm", 256, dtype)
    cell, exact = network.cells[0][0], exact_of(network).cells[0][0]
    x, given = draw(20, 30, D, dtype=dtype), lengths_of(20, 30) if lengths else None
    found, expected = (
        cell(x, None, given, reverse=True, backend="triton"),
        exact(x.double(), None, given, reverse=True, backend="loop"),
    )
    assert error_of(found.outputs, expected.outputs) <= tolerance
    assert error_of(found.last, expected.last) <= tolerance
    if not lengths:
        again = cell(x.flip(1), backend="triton").outputs.flip(1)
        assert error_of(found.outputs, again.double()) <= tolerance


# ---- what holds for every form -------------------------------------------------------------------

FORMS = {  # cell, H, kind of numbers
    "whole": ("gru", 16, "bf16"),
    "shared": ("lstm", 256, "bf16"),
    "shared, one gate": ("elman", 256, "bf16"),
    "shared, float32": ("lstm", 256, "tf32"),
    "steps": ("lstm", 256, "ieee"),
}
Make = Callable[..., RNN]


@pytest.fixture(params=FORMS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """A network that takes this form."""
    cell, H, kind = FORMS[request.param]
    dtype, tf32, _ = NUMBERS[kind]
    with float32_products(tf32=tf32):
        lines = backend.explain(RNN(cell, D, H).cells[0][0], 20, dtype)
        assert lines[1].startswith(f"taken: {request.param.partition(',')[0]}:"), lines
        yield lambda **options: network_of(cell, H, dtype, **options)


def input_of(network: RNN, B: int = 20, T: int = 25) -> Tensor:
    return draw(B, T, D, dtype=next(network.parameters()).dtype)


def test_runs_are_repeatable_bit_for_bit(make):
    network = make(bidirectional=True)
    x, lengths = input_of(network), lengths_of(20, 25)
    first = everything_of(network, x, lengths)
    for _ in range(3):
        assert_close(everything_of(network, x, lengths), first, 0.0)


def test_inference_equals_training(make):
    network = make()
    x = input_of(network)
    expected = values_of(network, x)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert_close(values_of(network, x), expected, torch.finfo(x.dtype).eps)


def test_rows_do_not_see_each_other(make):
    network = make()
    x = input_of(network, B=40)
    together = network(x).outputs
    for rows in (slice(3, 4), slice(10, 30)):
        assert error_of(network(x[rows]).outputs, together[rows].double()) <= 1e-2


def ones(like: Tensor) -> Tensor:
    """Not a number, with all bits set: what an exchange between programs begins with."""
    whole = torch.int16 if like.dtype.itemsize == 2 else torch.int32
    return torch.full(like.shape, -1, dtype=whole, device=like.device).view(like.dtype)


@pytest.mark.parametrize("place", ["input", "start", "upstream"])
@pytest.mark.parametrize("odd", ["nan", "bits", "inf"])
def test_an_odd_number_ends_in_its_row(make, place, odd):
    """It neither hangs the programs that wait for each other nor reaches another row."""
    network = make()
    x, state = input_of(network), map_state(lambda t: draw(*t.shape, dtype=t.dtype), network.start(20))
    weight = draw(20, 25, network.output_size, dtype=x.dtype)

    def spoil(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        row = tensor[7] if tensor.dim() == 2 else tensor[7, 9]
        row.copy_(ones(row)) if odd == "bits" else row.fill_(float(odd))
        return tensor

    def results(x: Tensor, state: Any, weight: Tensor) -> Named:
        x = x.clone().requires_grad_()
        outputs = network(x, state=state).outputs
        return {"outputs": outputs.detach(), "d x": torch.autograd.grad(outputs, x, weight)[0]}

    clean = results(x, state, weight)
    given = {
        "input": lambda: (spoil(x), state, weight),
        "start": lambda: (x, map_state(spoil, state), weight),
        "upstream": lambda: (x, state, spoil(weight)),
    }
    spoilt = results(*given[place]())
    torch.cuda.synchronize()
    others = [row for row in range(20) if row != 7]
    for name in clean:
        assert torch.equal(spoilt[name][others], clean[name][others]), name
    if odd != "inf":
        assert spoilt["d x" if place == "upstream" else "outputs"][7].isnan().any()


@pytest.mark.parametrize("junk", [math.nan, math.inf, 1e4])
def test_the_padding_reaches_nothing(make, junk):
    network = make(bidirectional=True)
    x, lengths = input_of(network), lengths_of(20, 25)
    expected = everything_of(network, x, lengths)
    padding = torch.arange(25, device=DEVICE)[None] >= lengths[:, None]
    found = everything_of(network, x.masked_fill(padding[..., None], junk), lengths)
    assert_close(found, expected, 0.0)
    assert not found["outputs"][padding].any()
    assert not found["d x"][padding].any()


def test_a_sequence_may_be_recorded_and_replayed(make):
    """Forward and backward as one CUDA graph of the user's own."""
    network = make(bidirectional=True)
    first, second = input_of(network), input_of(network)
    expected = [plain_results(network, x) for x in (first, second)]
    x, graph, side = first.clone(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        plain_results(network, x)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        found = plain_results(network, x)
    for given, wanted in ((second, expected[1]), (first, expected[0])):
        x.copy_(given)
        graph.replay()
        assert_close(found, wanted, 0.0)


def plain_results(network: RNN, x: Tensor) -> Named:
    """Without anything that the host must wait for."""
    x = x.detach().requires_grad_()
    outputs = network(x).outputs
    leaves = {"x": x, **dict(network.named_parameters())}
    gradients = torch.autograd.grad(outputs.float().square().sum(), list(leaves.values()))
    return {"outputs": outputs.detach(), **dict(zip(leaves, gradients, strict=True))}


def test_streams_do_not_disturb_each_other(make):
    network = make()
    inputs = [input_of(network, T=200) for _ in range(2)]
    expected = [plain_results(network, x) for x in inputs]
    here, streams, found = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in inputs], []
    for _ in range(3):
        found.clear()
        for stream, x in zip(streams, inputs, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                found.append(plain_results(network, x))
        torch.cuda.synchronize()
        for a, b in zip(found, expected, strict=True):
            assert_close(a, b, 0.0)


def test_two_sequences_may_be_under_way_before_their_backward_passes(make):
    network = make()
    inputs = [input_of(network).requires_grad_() for _ in range(2)]
    expected = [torch.autograd.grad(network(x).outputs.float().square().sum(), x)[0] for x in inputs]
    losses = [network(x).outputs.float().square().sum() for x in inputs]
    for loss, x, wanted in zip(losses, inputs, expected, strict=True):
        assert torch.equal(torch.autograd.grad(loss, x)[0], wanted)


def test_tensors_may_lie_anywhere(make):
    """Strides, and addresses that are no multiple of a vector."""
    network = make()
    x = input_of(network)
    outputs = network(x).outputs
    weight = draw(*outputs.shape, dtype=x.dtype)
    expected = torch.autograd.grad(outputs, list(network.parameters()), weight)
    shifted = torch.cat([weight.new_zeros(1), weight.flatten()])[1:].view(weight.shape)
    turned = weight.transpose(0, 1).contiguous().transpose(0, 1)
    for odd in (shifted, turned):
        found = torch.autograd.grad(network(x).outputs, list(network.parameters()), odd)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    views = (torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape), x.flip(1).flip(1))
    for view in views:  # torch's own product may take another way
        assert error_of(network(view).outputs, outputs.double()) <= 1e-2


def test_the_second_derivative_goes_through_the_loop(make):
    network, found = make(), []
    x = input_of(network, 4, 5)
    for one in (network, exact_of(network)):
        leaf = x.to(next(one.parameters()).dtype).requires_grad_()
        (slope,) = torch.autograd.grad(one(leaf).outputs.double().square().sum(), leaf, create_graph=True)
        second = torch.autograd.grad(slope.double().square().sum(), [leaf, *one.parameters()])
        found.append({str(i): gradient for i, gradient in enumerate(second)})
    assert_near(*found, 5e-2)


# ---- compilation ---------------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that Triton compiles or finds in its cache."""
    from triton.runtime.jit import JITFunction

    found, compile_ = [], JITFunction._do_compile

    def watched(self: Any, *given: Any, **named: Any) -> Any:
        found.append(self)
        return compile_(self, *given, **named)

    monkeypatch.setattr(JITFunction, "_do_compile", watched)
    return found


def test_steps_rows_and_lengths_compile_nothing(make, compilations):
    """Rows decide between a few tilings; when these are there, nothing more is compiled."""
    network = make()
    cell, dtype = network.cells[0][0], next(network.parameters()).dtype
    tilings: dict[str, list[int]] = {}
    for B in range(1, 301):
        taken = backend.explain(cell, B, dtype)[1]
        tiling = "steps" if "steps" in taken.split(":")[1] else taken.partition("), ")[0]
        tilings.setdefault(tiling, []).append(B)
    for sizes in tilings.values():
        everything_of(network, input_of(network, sizes[0], 7), lengths_of(sizes[0], 7))
    compilations.clear()
    for sizes in tilings.values():
        for B, T in ((sizes[0], 1), (sizes[len(sizes) // 2], 16), (sizes[-1], 33), (sizes[0], 128)):
            for lengths in (lengths_of(B, T), torch.full((B,), T, device=DEVICE)):
                everything_of(network, input_of(network, B, T), lengths)
    assert not compilations
    assert len(tilings) <= 5


# ---- torch around it -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("both", [False, True])
def test_autocast_computes_in_its_numbers(dtype, both):
    network = network_of("lstm", 256, torch.float32, bidirectional=both, layers=2)
    network.backend = "auto"
    x, lengths = draw(20, 25, D, dtype=torch.float32).requires_grad_(), lengths_of(20, 25)
    with torch.autocast("cuda", dtype):
        outputs, _, state = network(x, lengths)
    assert outputs.dtype == dtype
    assert {t.dtype for t in tensors_of(state)} == {torch.float32}
    exact = exact_of(network)
    inside = x.detach().double().requires_grad_()
    results = []
    for one, leaf, values in ((network, x, outputs), (exact, inside, exact(inside, lengths).outputs)):
        leaves = {"x": leaf, **dict(one.named_parameters())}
        gradients = torch.autograd.grad(values.double().square().sum(), list(leaves.values()))
        results.append({"outputs": values.detach(), **dict(zip(leaves, gradients, strict=True))})
    assert {g.dtype for name, g in results[0].items() if name != "outputs"} == {torch.float32}
    assert_near(*results, 2e-2)


def test_autocast_gives_the_state_of_one_sequence_to_the_next():
    network = network_of("gru", 128, torch.float32)
    x = draw(8, 20, D, dtype=torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        whole = network(x)
        first = network(x[:, :9])
        second = network(x[:, 9:], state=first.state)
    joined = torch.cat([first.outputs, second.outputs], 1)
    assert error_of(joined, whole.outputs.double()) <= 1e-2
    assert error_of(second.state[0].h, whole.state[0].h.double()) <= 1e-2


@pytest.mark.parametrize("autocast", [False, True])
def test_a_free_form_cell_runs_on_the_loop(autocast):
    network = network_of(Ranked, 32, torch.float32)
    x = draw(4, 6, D, dtype=torch.float32)
    with pytest.raises(BackendError, match="free-form cell"):
        network(x)
    network.backend = "auto"
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        outputs = network(x, [6, 1, 3, 2]).outputs
    expected = exact_of(network)(x.double(), [6, 1, 3, 2]).outputs
    assert error_of(outputs, expected) <= 1e-4


def test_float64_runs_on_the_loop_and_is_refused_by_name():
    network = network_of("lstm", 32, torch.float64)
    x = draw(4, 6, D, dtype=torch.float64)
    with pytest.raises(BackendError, match="float32, bfloat16 and float16, not"):
        network(x)
    network.backend = "auto"
    assert torch.equal(network(x).outputs, exact_of(network)(x).outputs)


def test_auto_takes_the_kernels(monkeypatch):
    called: list[int] = []
    run = backend.unroll_directions
    monkeypatch.setattr(backend, "unroll_directions", lambda call: called.append(1) or run(call))
    network = RNN("lstm", D, 64, layers=2, bidirectional=True).to(DEVICE)
    network(draw(4, 6, D, dtype=torch.float32))
    assert len(called) == 2, "both directions of a layer at once"


@pytest.mark.parametrize("kind", ["ieee"], indirect=True)
def test_a_network_may_move(kind):
    network = RNN("peephole_lstm", D, 64, layers=2, bidirectional=True)
    disturb(network)
    x, lengths = torch.randn(5, 9, D), [9, 1, 4, 9, 2]
    expected = values_of(network, x, lengths)
    for place in (DEVICE, "cpu", DEVICE):
        network.to(place)
        found = values_of(network, x.to(place), lengths)
        assert {t.device.type for t in found.values()} == {place}
        assert_close({n: t.cpu() for n, t in found.items()}, expected, 1e-5)


def test_steps_equal_the_sequence(make):
    network, state = make().eval(), None
    x = input_of(network, B=5, T=6)
    expected = network(x).outputs
    with torch.no_grad():
        for t, x_t in enumerate(x.unbind(1)):
            y, state = network.step(x_t, state)
            assert error_of(y, expected[:, t].double()) <= 1e-2


def test_a_hook_on_a_cell_hears_it():
    network = network_of("gru", 64, bidirectional=True)
    x, heard = draw(4, 6, D), []
    expected = network(x).outputs
    for cell in network.cells[0]:
        cell.register_forward_hook(lambda *given: heard.append(1))
    assert error_of(network(x).outputs, expected.double()) <= 1e-2
    assert len(heard) == 2


def test_explanations():
    lines = backend.explain(RNN("lstm", D, 512).cells[0][0], 32, torch.bfloat16, directions=2)
    assert torch.cuda.get_device_name() in lines[0]
    assert lines[1].startswith("taken: ")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "--durations=10", *sys.argv[1:]]))
