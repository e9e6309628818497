"""The contract of a cell: every registered one and several users' own go through the same table."""

import copy
import inspect
import io
import pickle
import random

import pytest
import torch
from torch import nn

from comparison import (
    TOLERANCE,
    assert_close,
    disturb,
    everything_of,
    map_state,
    on,
    quantise,
    random_lengths,
    tensors_of,
    values_of,
)
from elman import RNN
from elman.errors import BackendError
from elman.layers.rnn import find_cell
from elman.registry import CELLS
from user_cells import UNLIKE, USER_CELLS, Deaf, Everything, Phased, Ranked

FREE_FORM = [Ranked]
EQUATIONS = [*CELLS.names(), *USER_CELLS, Phased]
PARTS = [*EQUATIONS, *FREE_FORM]
STEPS = {"hard_gate"}  # discontinuous: compared where arithmetic is exact
POSITIVE = {"slstm"}  # divides by a state, which is a sum of exponentials
KINKS = {Everything, "hard_gate"}  # a rounding error next to a kink changes a whole gradient
GROWING = {"residual_lstm"}  # memory that opens its own forget gate makes large gradients of small errors
NORMS = {"layer_norm_lstm"}  # of two units a norm is nearly a sign
HIGHEST = 70  # sizes are drawn evenly on a logarithmic scale: the loop is slow


def name_of(part):
    return part if isinstance(part, str) else part.__name__


def network(part, *args, dtype=torch.float32, **options):
    rnn = RNN(part, *args, **options).to(dtype)
    disturb(rnn)
    if part in STEPS:
        quantise(rnn)
    return rnn


def inputs(part, *shape, dtype=torch.float32):
    x = torch.randn(*shape, dtype=dtype)
    return (x * 4).round() / 4 if part in STEPS else x


def start(rnn, part, B, dtype=torch.float32):
    state = map_state(lambda t: inputs(part, *t.shape, dtype=dtype), rnn.start(B))
    return map_state(torch.abs, state) if part in POSITIVE else state


@pytest.fixture(params=PARTS, ids=name_of)
def part(request):
    return request.param


@pytest.fixture(params=EQUATIONS, ids=name_of)
def equations(request):
    return request.param


@pytest.mark.slow
def test_shapes(part):
    rnn = RNN(part, 3, 5, layers=2, bidirectional=True)
    width = rnn.cells[0][0].output_size
    outputs, last, state = rnn(torch.randn(4, 6, 3), lengths=[6, 1, 3, 2])
    assert outputs.shape == (4, 6, 2 * width)
    assert last.shape == (4, 2 * width)
    assert [type(layer) for layer in state] == [tuple, tuple]
    for layer in state:
        for direction in layer:
            assert direction._fields == find_cell(part).state
            assert all(field.shape == (4, 5) for field in direction)


def test_weights_are_those_that_equations_read(equations):
    cell = RNN(equations, 3, 5).cells[0][0]
    read = cell.equations
    for weights, rows, gates in (("W_x", 3, read.inputs), ("W_h", 5, read.products)):
        parameter = getattr(cell, weights)
        assert (parameter is None) == (not gates)
        assert parameter is None or parameter.shape == (rows, 5 * len(gates))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", range(4))
@pytest.mark.slow
def test_the_kernel_equals_the_loop_R1(equations, dtype, case):
    """Values and all gradients over random shapes, lengths, starts, directions and depths."""
    rng = random.Random(f"{name_of(equations)} {case}")
    delicate = equations in (KINKS | GROWING) - STEPS and dtype == torch.float32
    most = 16 if delicate else HIGHEST
    B, T, D, *widths = (round(most ** rng.random()) for _ in range(4 + case % 3))
    if equations in NORMS and dtype == torch.float32:
        widths = [max(width, 8) for width in widths]
    both = bool(case % 2)
    if equations in STEPS and dtype == torch.float32:
        widths = widths[:1]  # exact for one layer
    rnn = network(equations, D, widths, bidirectional=both, dtype=dtype)
    x = inputs(equations, B, T, D, dtype=dtype)
    lengths = random_lengths(B, T, rng) if case >= 2 else None
    state = start(rnn, equations, B, dtype) if rng.random() < 0.7 else None
    assert_close(on("cpu", rnn, x, lengths, state), on("loop", rnn, x, lengths, state), TOLERANCE[dtype])


@pytest.mark.parametrize("B", [1, 2, 5, 33])
def test_threads_that_share_units_or_rows_equal_the_loop(B):
    """Large enough weights for several threads, in each way of sharing them out."""
    rnn = network("lstm", 20, 150)
    x, lengths = torch.randn(B, 9, 20), random_lengths(B, 9, random.Random(B))
    for given in (None, lengths):
        assert_close(on("cpu", rnn, x, given), on("loop", rnn, x, given), TOLERANCE[torch.float32])


@pytest.mark.parametrize("part", FREE_FORM)
def test_a_free_form_cell_runs_on_the_loop_and_says_so(part):
    rnn = network(part, 3, 5)
    x = torch.randn(2, 4, 3)
    assert "free-form" in repr(rnn)
    assert_close(on("auto", rnn, x), on("loop", rnn, x), 0.0)
    rnn.backend = "cpu"
    with pytest.raises(BackendError, match="free-form cell, which runs on the plain loop"):
        rnn(x)


def finite_differences(part, backend, second):
    rnn = network(part, 2, 3, layers=2, bidirectional=True, backend=backend, dtype=torch.float64)
    lengths = torch.tensor([3, 1])
    x = inputs(part, 2, 3, 2, dtype=torch.float64).requires_grad_()
    state = map_state(lambda t: t.requires_grad_(), start(rnn, part, 2, torch.float64))

    def function(x, *leaves):  # the state and the weights are changed in place
        return torch.cat([value.flatten() for value in values_of(rnn, x, lengths, state).values()])

    leaves = (x, *tensors_of(state), *rnn.parameters())
    check = torch.autograd.gradgradcheck if second else torch.autograd.gradcheck
    options = {"gen_non_contig_grad_outputs": True} if second else {}
    assert check(function, leaves, fast_mode=True, **options)


@pytest.mark.parametrize("backend", ["auto", "loop"])
@pytest.mark.slow
def test_gradients_are_finite_differences(part, backend):
    if part in STEPS:
        pytest.skip("no finite difference sees a step")
    finite_differences(part, backend, second=False)


@pytest.mark.parametrize("part", [*UNLIKE, *USER_CELLS, Phased, *FREE_FORM], ids=name_of)
@pytest.mark.slow
def test_second_derivatives_are_finite_differences(part):
    """Of cells that differ in kind: they are the loop's, whatever the equations."""
    if part in STEPS:
        pytest.skip("no finite difference sees a step")
    finite_differences(part, "auto", second=True)


@pytest.mark.parametrize("backend", ["auto", "loop"])
def test_padding_does_not_matter(part, backend):
    """Neither how much of it there is nor what it holds changes a value or a gradient."""
    rnn = network(part, 3, 5, layers=2, bidirectional=True, backend=backend)
    lengths = torch.tensor([4, 1, 3])
    x = inputs(part, 3, 4, 3)
    padded = torch.cat([x, torch.full((3, 2, 3), 1e4)], 1)
    padded[1, 1:], padded[2, 3:] = 1e4, -1e4
    found, expected = everything_of(rnn, padded, lengths), everything_of(rnn, x, lengths)
    assert all((found[name][:, 4:] == 0).all() for name in ("outputs", "d x"))
    for name in ("outputs", "d x"):
        found[name] = found[name][:, :4]
        expected[name][1, 1:], expected[name][2, 3:] = 0, 0
    # the random upstream gradient depends on the shapes: only values, then gradients of one sum
    names = [name for name in expected if not name.startswith("d ")]
    assert_close({n: found[n] for n in names}, {n: expected[n] for n in names}, 1e-6)
    for sequence in (x, padded):
        rnn.zero_grad()
        rnn(sequence, lengths).outputs.square().sum().backward()
        gradients = {n: torch.zeros(()) if p.grad is None else p.grad for n, p in rnn.named_parameters()}
        expected = {n: g.clone() for n, g in gradients.items()} if sequence is x else expected
    assert_close(gradients, expected, 1e-6)


@pytest.mark.parametrize("backend", ["auto", "loop"])
def test_rows_do_not_see_each_other(part, backend):
    rnn = network(part, 3, 5, layers=2, bidirectional=True, backend=backend)
    lengths = torch.tensor([4, 6, 1, 3])
    x = inputs(part, 4, 6, 3)
    together = values_of(rnn, x, lengths)
    for row, length in enumerate(lengths):
        alone = values_of(rnn, x[row : row + 1, :length])
        expected = {n: v[row : row + 1] for n, v in together.items()}
        expected["outputs"] = expected["outputs"][:, :length]
        assert_close(alone, expected, 1e-6)


@pytest.mark.parametrize("B", [1, 4, 7])
@pytest.mark.parametrize("gradients", [True, False])
def test_steps_equal_the_sequence_R1(part, B, gradients):
    rnn = network(part, 3, 5, layers=2).eval()
    x, state = inputs(part, B, 6, 3).requires_grad_(), None
    outputs = []
    with torch.set_grad_enabled(gradients):
        expected = values_of(rnn, x)
        for x_t in x.unbind(1):
            y, state = rnn.step(x_t, state)
            outputs.append(y)
    found = {"outputs": torch.stack(outputs, 1), "last": y}
    found |= {f"final {i}": t for i, t in enumerate(tensors_of(state))}
    assert_close(found, expected, 1e-5)
    if gradients and part is not Deaf:
        (a,) = torch.autograd.grad(found["outputs"].sum(), x)
        (b,) = torch.autograd.grad(expected["outputs"].sum(), x)
        assert_close({"d x": a}, {"d x": b}, 1e-5)


def option_values(part):
    """Every boolean option of a cell, and every option that names a choice, with all its values."""
    known = {"initialisation": ["orthogonal", "uniform"], "activation": ["tanh", "relu", "logistic"]}
    for name, parameter in inspect.signature(find_cell(part).__init__).parameters.items():
        if isinstance(parameter.default, bool):
            known[name] = [False, True]
        if parameter.default is not parameter.empty and name in known:
            yield from ((name, value) for value in known[name])


@pytest.mark.parametrize(
    ("part", "option", "value"),
    [(part, *pair) for part in PARTS for pair in option_values(part)],
    ids=lambda v: name_of(v) if isinstance(v, (str, type)) else str(v),
)
@pytest.mark.slow
def test_every_option(part, option, value):
    rnn = RNN(part, 3, 5, cell_options={option: value}).double()
    if part in STEPS:
        quantise(rnn)
    cell = rnn.cells[0][0]
    assert getattr(cell, option) == value
    if option == "bias":
        assert (cell.b is not None) == (value and cell.W_x is not None)
    x = inputs(part, 3, 4, 3, dtype=torch.float64)
    assert_close(on("auto", rnn, x, [4, 2, 1]), on("loop", rnn, x, [4, 2, 1]), 1e-10)


def test_saved_weights_load_into_every_backend(part):
    rnn = network(part, 3, 5, layers=2, bidirectional=True)
    file = io.BytesIO()
    torch.save(rnn.state_dict(), file)
    x = inputs(part, 2, 4, 3)
    for backend in ("auto", "loop"):
        file.seek(0)
        other = RNN(part, 3, 5, layers=2, bidirectional=True, backend=backend)
        assert list(other.state_dict()) == list(rnn.state_dict())
        other.load_state_dict(torch.load(file, weights_only=True))
        assert_close(values_of(other, x), values_of(rnn, x), 1e-6)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda rnn: pickle.loads(pickle.dumps(rnn))])
def test_a_copy_is_equal_and_independent(part, duplicate):
    rnn = network(part, 3, 5)
    x = inputs(part, 2, 4, 3)
    before = everything_of(rnn, x)
    other = duplicate(rnn)
    assert_close(everything_of(other, x), before, 0.0)
    disturb(other, 1.0)
    assert_close(everything_of(rnn, x), before, 0.0)
    state = pickle.loads(pickle.dumps(rnn(x).state))
    assert type(state[0]) is type(rnn(x).state[0])


TORCH = {
    "tanh": (nn.RNN, {"nonlinearity": "tanh"}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
}


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", TORCH)
@pytest.mark.slow
def test_torch_has_the_same_networks(kind, bias, both, layers):
    """``from_torch`` and ``to_torch``: outputs, states and input gradients, packed or not."""
    make, options = TORCH[kind]
    module = make(6, 9, num_layers=layers, bias=bias, bidirectional=both, batch_first=True, **options)
    module = module.double()
    rnn = RNN.from_torch(module)
    x, lengths = torch.randn(5, 7, 6, dtype=torch.float64), torch.tensor([3, 7, 1, 5, 7])
    state = map_state(torch.randn_like, rnn.start(5))
    for peer in (module, rnn.to_torch()):
        for given in (None, lengths):
            assert_close(
                through(rnn, x, given, state), through_torch(peer, x, given, state, kind, both), 1e-10
            )


def through(rnn, x, lengths, state):
    x = x.clone().requires_grad_()
    outputs, _, final = rnn(x, lengths, state)
    (outputs.square().sum() + sum(t.sum() for t in tensors_of(final))).backward()
    return {"outputs": outputs, "d x": x.grad, **{str(i): t for i, t in enumerate(tensors_of(final))}}


def through_torch(module, x, lengths, state, kind, both):
    x = x.clone().requires_grad_()
    cells = [cell for layer in state for cell in (layer if both else (layer,))]
    given = [torch.stack(field) for field in zip(*cells, strict=True)]
    sequence = x
    if lengths is not None:
        sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    outputs, final = module(sequence, tuple(given) if kind == "lstm" else given[0])
    if lengths is not None:
        outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True, total_length=x.shape[1])
    fields = final if kind == "lstm" else (final,)
    (outputs.square().sum() + sum(field.sum() for field in fields)).backward()
    flat = [field[i] for i in range(len(fields[0])) for field in fields]
    return {"outputs": outputs, "d x": x.grad, **{str(i): t for i, t in enumerate(flat)}}
