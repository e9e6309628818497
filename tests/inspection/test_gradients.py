"""Row R10: gradients through time equal those of the network run anew from every state."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, sigmoid, tanh

from elman.cells.base import Cell
from elman.errors import ArgumentError, ShapeError
from elman.inspection.gradients import GradientReach, compare, measure_gradients
from elman.layers.rnn import RNN

D, H, T = 3, 4, 6
LENGTHS = [6, 1, 4]


class Leaky(Cell):
    """A user's cell with an output of its own, which reads both states."""

    state = ("h", "m")
    gates = ("a", "f")

    def R(self, x: Any, h: Any, s: Any) -> Any:
        m = sigmoid(x.f) * s.m + tanh(x.a + h.a)
        return self.State(h=tanh(m) * sigmoid(h.f), m=m)

    def O(self, s: Any) -> Tensor:
        return torch.cat([s.h, s.m**2], -1)


class Matrix(Cell):
    """A free-form cell whose state is a matrix, without gates."""

    state = ("A",)

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.key = nn.Linear(input_size, hidden_size)

    def initial_state(self, batch_size: int, like: Tensor) -> Any:
        return self.State(like.new_zeros(batch_size, self.hidden_size, self.hidden_size))

    def step(self, x: Any, s: Any, product: Any) -> Any:
        key = tanh(self.key(x))
        return self.State(
            0.9 * tanh(s.A) + key[:, :, None] * key[:, None] * (1 + s.A.sum((1, 2), keepdim=True))
        )

    def O(self, s: Any) -> Tensor:
        return s.A.sum(1)  # type: ignore[no-any-return]


class Scale(Cell):
    """h' = r h + x W: every gradient is r^n."""

    state = ("h",)
    gates = ("a",)

    def __init__(self, input_size: int, hidden_size: int, *, r: float = 1.0) -> None:
        super().__init__(input_size, hidden_size)
        self.r = r

    def R(self, x: Any, h: Any, s: Any) -> Any:
        return self.State(h=self.r * s.h + x.a)


def make(cell: str | type[Cell], **options: Any) -> RNN:
    torch.manual_seed(1)
    return RNN(cell, D, H, **options).double()


def make_input(B: int = 3) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def rerun(rnn: RNN, x: Tensor, k: int, t: int, read: Callable[[Tensor], Tensor], start: Any = None) -> Tensor:
    """The Jacobian of ``read(y_{k..t})`` by the whole state after step k, by running on from there."""
    rnn = RNN_on_loop(rnn)
    with torch.no_grad():
        state = rnn(x[None, : k + 1], state=start).state
    kinds = [(type(layer), [field.shape for field in layer]) for layer in state]

    def run(flat: Tensor) -> Tensor:
        fields = iter(flat.split([math.prod(shape) for _, shapes in kinds for shape in shapes]))
        nested = tuple(kind(*(next(fields).view(shape) for shape in shapes)) for kind, shapes in kinds)
        here = rnn.cells[-1][0].O(nested[-1])[:, None]  # type: ignore[index]
        if k == t:
            return read(here[0])
        return read(torch.cat([here, rnn(x[None, k + 1 : t + 1], state=nested).outputs], 1)[0])

    flat = torch.cat([field.flatten() for layer in state for field in layer])
    return torch.autograd.functional.jacobian(run, flat)  # type: ignore[no-any-return,no-untyped-call]


def RNN_on_loop(rnn: RNN) -> RNN:
    rnn.backend = "loop"
    return rnn.eval()


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    "cell", ["elman", "lstm", "gru", "layer_norm_lstm", "mgu_original", "sru", "hard_gate", Leaky, Matrix]
)
def test_norms_equal_brute_force_R10(cell: str | type[Cell], layers: int) -> None:
    rnn, x = make(cell, layers=layers), make_input()
    reach = measure_gradients(rnn, x, LENGTHS)
    assert reach.spectral.dtype == reach.frobenius.dtype == torch.float64
    for row, length in enumerate(LENGTHS):
        for k in range(T):
            if k >= length:
                assert reach.spectral[row, k].isnan()
                assert reach.frobenius[row, k].isnan()
                continue
            jacobian = rerun(rnn, x[row], k, length - 1, lambda y: y[-1])
            expected = torch.linalg.svdvals(jacobian)[0]
            torch.testing.assert_close(reach.spectral[row, k], expected, rtol=1e-10, atol=1e-10)
            torch.testing.assert_close(reach.frobenius[row, k], jacobian.norm(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"initial_state": "learned", "hidden_size": [3, 5]},
        {"zoneout": 0.3, "dropout": 0.5, "recurrent_dropout": 0.4, "layers": 2},
    ],
)
def test_every_option_of_a_network_is_measured_as_it_evaluates_R10(options: dict[str, Any]) -> None:
    torch.manual_seed(3)
    rnn = RNN("lstm", D, options.pop("hidden_size", H), **options).double()
    for start in rnn.starts if rnn.initial_state == "learned" else ():
        nn.init.normal_(start)
    assert rnn.training
    x = make_input(1)
    reach = measure_gradients(rnn, x)
    assert rnn.training, "the network itself is left as it was"
    assert all(p.requires_grad and p.grad is None for p in rnn.parameters())
    for k in range(T):
        jacobian = rerun(rnn, x[0], k, T - 1, lambda y: y[-1])
        torch.testing.assert_close(reach.frobenius[0, k], jacobian.norm(), rtol=1e-10, atol=1e-10)


def test_a_given_state_and_steps_by_row_R10() -> None:
    rnn, x = make("gru"), make_input()
    state = RNN_on_loop(rnn)(make_input()).state
    reach = measure_gradients(rnn, x, LENGTHS, step=[2, 0, 3], state=state)
    assert reach.steps.tolist() == [2, 0, 3]
    assert reach.distance[0].tolist() == [2, 1, 0, -1, -2, -3]
    assert (reach.spectral.isnan() == (reach.distance < 0)).all()
    jacobian = rerun(rnn, x[0], 0, 2, lambda y: y[-1], tuple(type(s)(*(f[:1] for f in s)) for s in state))
    torch.testing.assert_close(reach.frobenius[0, 0], jacobian.norm(), rtol=1e-10, atol=1e-10)


def test_what_lies_in_the_padding_does_not_matter_R10() -> None:
    rnn, x = make("lstm", layers=2), make_input()
    clean = measure_gradients(rnn, x, LENGTHS, loss=lambda y: y.sum(-1))
    x[1, 1:], x[2, 4:] = math.nan, 1e30
    dirty = measure_gradients(rnn, x, LENGTHS, loss=lambda y: y.sum(-1))
    for field in dataclasses.fields(GradientReach)[1:]:
        torch.testing.assert_close(getattr(dirty, field.name), getattr(clean, field.name), equal_nan=True)


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru", Leaky, Matrix])
def test_loss_gradient_equals_brute_force_R10(cell: str | type[Cell]) -> None:
    rnn, x = make(cell, layers=2), make_input()
    reach = measure_gradients(rnn, x, LENGTHS, loss=lambda y: (y**3).sum(-1))
    summed = measure_gradients(rnn, x, LENGTHS, loss=lambda y: (y**3).sum())
    assert reach.loss is not None
    torch.testing.assert_close(reach.loss, summed.loss, equal_nan=True)
    for row, length in enumerate(LENGTHS):
        for k in range(length):
            gradient = rerun(rnn, x[row], k, length - 1, lambda y: (y[-1] ** 3).sum())
            torch.testing.assert_close(reach.loss[row, k], gradient.norm(), rtol=1e-10, atol=1e-10)


def test_loss_of_all_outputs_equals_brute_force_R10() -> None:
    rnn, x = make("lstm", layers=2), make_input()
    reach = measure_gradients(
        rnn, x, LENGTHS, step=[3, 0, 3], loss=lambda y: y.exp().sum((1, 2)), loss_reads="sequence"
    )
    assert reach.loss is not None
    for row, t in enumerate([3, 0, 3]):
        for k in range(t + 1):
            gradient = rerun(rnn, x[row], k, t, lambda y: y.exp().sum())
            torch.testing.assert_close(reach.loss[row, k], gradient.norm(), rtol=1e-10, atol=1e-10)


def test_a_head_in_single_precision_serves_as_a_loss_R10() -> None:
    rnn, head = RNN("lstm", D, H), nn.Linear(H, 5)
    ids = torch.tensor([1, 4, 0])
    with torch.no_grad():
        reach = measure_gradients(
            rnn,
            make_input().float(),
            loss=lambda y: nn.functional.cross_entropy(head(y), ids, reduction="none"),
        )
    assert reach.loss is not None
    assert (reach.loss > 0).all()
    assert head.weight.grad is None


def test_works_in_inference_mode_and_leaves_threads_alone_R10() -> None:
    rnn, threads = make("gru"), torch.get_num_threads()
    expected = measure_gradients(rnn, make_input()).spectral
    with torch.inference_mode():
        found = measure_gradients(rnn, make_input()).spectral
    torch.testing.assert_close(found, expected)
    assert torch.get_num_threads() == threads


# ---- what is said about it ---------------------------------------------------------------------------


def measure_scale(r: float, steps: int, **options: Any) -> GradientReach:
    rnn = RNN(Scale, 2, 3, cell_options={"r": r})
    return measure_gradients(rnn, torch.randn(4, steps, 2), name="Linear", **options)


def test_a_linear_cell_decays_exactly_R10() -> None:
    reach = measure_scale(0.9, 101)
    n = torch.arange(101, dtype=torch.float64)
    torch.testing.assert_close(reach.by_distance(), (0.9**n).expand(4, -1), rtol=1e-12, atol=0)
    torch.testing.assert_close(reach.curve("frobenius"), math.sqrt(3) * 0.9**n, rtol=1e-12, atol=0)
    assert reach.rate() == pytest.approx(0.9, abs=1e-12)
    assert (reach.steps_until(0.5), reach.steps_until(0.01)) == (7, 44)  # 0.9^7 = 0.478, 0.9^44 = 0.0097
    assert reach.sentence() == (
        "Linear: over 100 steps the gradient is halved after 7 and below 1 % after 44 steps "
        "(a factor of 0.9 a step); it vanishes."
    )


@pytest.mark.parametrize(
    ("r", "steps", "said"),
    [
        (1.02, 21, "over 20 steps the gradient stays between 1 and 1.5 times its size; it holds."),
        (
            1.02,
            501,
            "over 500 steps the gradient grows to 10^4 times its size within 500 steps; it explodes.",
        ),
        (0.98, 21, "over 20 steps the gradient stays between 0.67 and 1 times its size; it holds."),
        (
            0.98,
            501,
            "over 500 steps the gradient is halved after 35 and below 1 % after 228 steps; it vanishes.",
        ),
        (
            2.0,
            101,
            "over 100 steps the gradient grows to 10^30 times its size within 100 steps; it explodes.",
        ),
        (1.0, 101, "over 100 steps the gradient keeps its size; it holds."),
        (0.0, 6, "over 5 steps the gradient is halved after 1 and below 1 % after 1 step; it vanishes."),
        (0.9, 1, "there is one step only, so no gradient travels through time."),
    ],
)
def test_sentence_R10(r: float, steps: int, said: str) -> None:
    rate = f" (a factor of {r:g} a step); it " if r and steps > 1 else "; it "
    assert measure_scale(r, steps).sentence() == "Linear: " + said.replace("; it ", rate)


def with_curve(values: list[float]) -> GradientReach:
    """One row whose norms, from step t back, are these."""
    norms = torch.tensor([values[::-1]], dtype=torch.float64)
    distance = torch.arange(len(values)).flip(0)[None]
    return GradientReach("Drawn", norms, norms, None, distance, torch.tensor([len(values) - 1]))


@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        ([1, 10, 100], "holds"),
        ([1, 10, 100.1], "explodes"),
        ([1, 0.1, 0.01001], "holds"),
        ([1, 0.1, 0.01], "vanishes"),
        ([5, 499, 5], "holds"),
        ([2, 3, 2, 1, 2, 3, 2, 1] * 10, "holds"),  # it swings
        ([1, 0.001, 1, 0.001, 1], "holds"),  # it comes back
        ([1, 0.001, 1, 0.001, 0.002], "vanishes"),
        ([1, 1000, 1, 1e-3], "explodes"),  # up first: an update would be all of it
        ([1, 1e-5, 1000], "explodes"),
        ([1, 0, 0], "vanishes"),
        ([0, 0, 0], "vanishes"),
        ([1e-200, 1e-199, 1e-198], "holds"),
        ([1, math.inf, math.inf], "explodes"),
        ([1, math.nan, 1], "undefined"),
        ([1], "holds"),
    ],
)
def test_the_verdict_is_what_a_training_would_notice_R10(curve: list[float], verdict: str) -> None:
    reach = with_curve(curve)
    assert reach.verdict() == reach.verdict("frobenius") == verdict
    assert "None" not in reach.sentence()
    if math.isfinite(sum(curve)) and curve[0] and len(curve) > 1:
        assert reach.sentence().endswith(f"; it {verdict}.")
        assert f"over {len(curve) - 1} steps" in reach.sentence()


def test_the_peak_is_the_nearest_of_the_largest_R10() -> None:
    assert with_curve([2, 3, 8, 1, 8]).peak() == (4, 2)
    assert with_curve([2, math.inf, math.inf]).peak() == (math.inf, 1)
    assert with_curve([0, 0]).peak() == (1, 0)
    assert "grows to 500 times its size within 2 steps" in with_curve([2, 3, 1000, 1]).sentence()


def test_numbers_that_leave_their_range_R10() -> None:
    class Wild(Scale):
        def R(self, x: Any, h: Any, s: Any) -> Any:
            return self.State(h=self.r * s.h)  # from zero: the state stays, its gradient does not

    rnn = RNN(Wild, 2, 3, cell_options={"r": 1e100})
    reach = measure_gradients(rnn, torch.zeros(1, 8, 2), loss=lambda y: y.sum(-1))
    expected = torch.tensor([1, 1e100, 1e200, 1e300], dtype=torch.float64)
    torch.testing.assert_close(reach.by_distance()[0, :4], expected)
    assert reach.by_distance()[0, 4:].isinf().all()
    assert reach.by_distance("loss")[0, 4:].isinf().all()
    assert "the gradient grows beyond the range of numbers within 4 steps" in reach.sentence()
    tiny = measure_gradients(RNN(Wild, 2, 3, cell_options={"r": 1e-100}), torch.zeros(1, 8, 2))
    torch.testing.assert_close(tiny.curve()[3], torch.tensor(1e-300, dtype=torch.float64), rtol=1e-9, atol=0)
    assert tiny.verdict() == "vanishes"


# ---- comparing -----------------------------------------------------------------------------------------


def test_compare_measures_all_on_the_same_input_R10() -> None:
    before = torch.get_rng_state()
    results = compare(("elman", "lstm", "gru", Leaky), D, H, T=9, B=2, seed=5)
    assert torch.equal(torch.get_rng_state(), before), "the global random numbers are left alone"
    assert list(results) == ["Elman", "LSTM", "GRU", "Leaky"]
    assert all(result.spectral.shape == (2, 9) for result in results.values())
    again = compare(("lstm",), D, H, T=9, B=2, seed=5)
    torch.testing.assert_close(again["LSTM"].spectral, results["LSTM"].spectral, rtol=0, atol=0)
    trained, x = make("lstm"), make_input()
    found = compare({"ours": trained}, x=x, lengths=LENGTHS, loss=lambda y: y.sum(-1))["ours"]
    expected = measure_gradients(trained, x, LENGTHS)
    torch.testing.assert_close(found.spectral, expected.spectral, equal_nan=True)
    assert found.loss is not None
    assert found.sentence().startswith("ours: ")


def test_lstm_reaches_further_than_elman_R10() -> None:
    results = compare(("elman", "lstm"), 16, 32, T=60, B=4)
    reach = {name: result.steps_until(0.01) for name, result in results.items()}
    assert reach["Elman"] is not None
    assert reach["LSTM"] is not None
    assert reach["LSTM"] > 1.5 * reach["Elman"]


def test_compare_refuses_what_it_cannot_use_R10() -> None:
    with pytest.raises(ArgumentError, match="as in \\('lstm',\\)"):
        compare("lstm")
    with pytest.raises(ArgumentError, match="cells is empty"):
        compare(())
    with pytest.raises(ArgumentError, match="not among cells"):
        compare(("gru",), cell_options={"lstm": {"forget_bias": 2.0}})
    with pytest.raises(ArgumentError, match="made already"):
        compare({"a": make("gru")}, cell_options={"gru": {}})
    with pytest.raises(ArgumentError, match="T is 0"):
        compare(T=0)
    open_gate = compare(("lstm",), D, H, T=20, B=2, cell_options={"lstm": {"forget_bias": 5.0}})
    assert open_gate["LSTM"].rate() > compare(("lstm",), D, H, T=20, B=2)["LSTM"].rate()


# ---- mistakes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [-1, 6, 1.5, True, [0, 0], [0, 1, 0]])
def test_a_bad_step_is_an_error_R10(step: Any) -> None:
    with pytest.raises(ArgumentError, match="step is"):
        measure_gradients(make("gru"), make_input(), LENGTHS, step=step)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("mse", "loss is a str"),
        (lambda y: 3.0, "loss returned a float"),
        (lambda y: y, "shape \\(3, 4\\); it must return one number a row, \\(3,\\)"),
        (lambda y: torch.ones(3), "does not depend on the output"),
        (lambda y: torch.ones(3, requires_grad=True) * 2, "does not depend on the output"),
    ],
)
def test_a_bad_loss_is_an_error_R10(loss: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        measure_gradients(make("gru"), make_input(), loss=loss)


def test_other_mistakes_are_errors_R10() -> None:
    x = make_input()
    with pytest.raises(ArgumentError, match="bidirectional=False"):
        measure_gradients(make("gru", bidirectional=True), x)
    with pytest.raises(ArgumentError, match="must be an elman"):
        measure_gradients(nn.GRU(D, H), x)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="x has shape"):
        measure_gradients(make("gru"), x[0])
    with pytest.raises(ShapeError, match=r"lengths\[0\] is 0"):
        measure_gradients(make("gru"), x, [0, 1, 2])
    with pytest.raises(ShapeError, match="state"):
        measure_gradients(make("gru"), x, state=(torch.zeros(3, 2),))
    with pytest.raises(ArgumentError, match="loss_reads is 'all'"):
        measure_gradients(make("gru"), x, loss=torch.sum, loss_reads="all")
    with pytest.raises(ArgumentError, match="norm is 'sup'"):
        measure_gradients(make("gru"), x).curve("sup")
    with pytest.raises(ArgumentError, match="no loss was given"):
        measure_gradients(make("gru"), x).curve("loss")
    x[2, 3, 0] = math.nan
    with pytest.raises(ArgumentError, match="after step 3 of row 2 is not finite"):
        measure_gradients(make("gru"), x)
