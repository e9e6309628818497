"""Steps of several phases, with norms, softmax and products of what was computed: the kernel is the loop."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn, tanh
from torch.nn.utils import parametrize, prune

from comparison import TOLERANCE, assert_close, disturb, everything_of, map_state, on, tensors_of, values_of
from elman import RNN, Cell
from elman.errors import ShapeError
from elman.recurrence.cpu import phased
from elman.recurrence.cpu.compile import compiler
from elman.recurrence.functions import norm, rms
from user_cells import Phased

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C compiler")


class Chained(Cell):
    """Products of products, of two states by one matrix, and states that are no work at all."""

    state = ("h", "before", "fixed", "unread", "row")
    gates = ("a",)
    matrices = ("n", "m")

    def R(self, x, h, s):
        inner = tanh(self.n(s.before) + self.n(rms(s.h, epsilon=0.1)) + s.fixed)
        new = tanh(x.a + self.m(inner) + 0.1 * s.row)
        row = (new * s.h).sum(-1, keepdim=True) / (1 + x.a.abs().amax(-1, keepdim=True))
        return self.State(h=new, before=s.h, fixed=0.25, unread=self.m(new) + s.unread, row=row)


class Tied(Cell):
    """No recurrent product; a maximum that several units share."""

    state = ("h",)
    gates = ("a", "b")
    vectors = ("gain", "shift")

    def R(self, x, h, s):
        top = torch.amax(s.h.mean(-1, keepdim=True) + self.shift, -1, keepdim=True)
        a = self.gain * norm(x.a + s.h, epsilon=1e-3) + self.shift
        return self.State(h=tanh(a - top) + torch.softmax(x.b - s.h, -1))


class Silent(Cell):
    """Reads no input and has no recurrent parts."""

    state = ("h",)
    gates = ()
    matrices = ("n",)

    def R(self, x, h, s):
        return self.State(h=tanh(self.n(s.h)) + 0.1 * s.h.mean(-1, keepdim=True))


CELLS = (Phased, Chained, Tied, Silent)
SIZES = (1, 5, 16, 17, 33, 100)
LENGTHS = {1: [1, 1, 1], 2: [1, 2, 1], 9: [4, 9, 1]}


def network(cell=Phased, H=5, *, D=3, dtype=torch.float64, **options):
    rnn = RNN(cell, D, H, **options).to(dtype)
    disturb(rnn)
    for one in (one for one in rnn.all_cells() if isinstance(one, Tied)):
        one.shift.data = (one.shift.data * 4).round() / 4  # so that units are equal
    return rnn


def sequence(B=3, T=4, D=3, dtype=torch.float64):
    return torch.randn(B, T, D, dtype=dtype)


def start(rnn, B):
    return map_state(torch.randn_like, rnn.start(B))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("H", SIZES)
@pytest.mark.parametrize("cell", CELLS)
def test_the_kernel_equals_the_loop(cell, H, dtype):
    """Values and all gradients, whatever is left of a vector, a panel or a tile of rows."""
    for B in (1, 3, 40):
        for T in (1, 2, 9):
            rnn, x = network(cell, H, dtype=dtype), sequence(B, T, dtype=dtype)
            lengths = (LENGTHS[T] * 14)[:B] if T % 2 else None
            state = start(rnn, B) if B != 3 else None
            found, expected = (on(backend, rnn, x, lengths, state) for backend in ("cpu", "loop"))
            assert_close(found, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("cell", CELLS)
def test_both_directions_and_several_layers(cell):
    rnn, x = network(cell, 7, layers=2, bidirectional=True), sequence(4, 5)
    state = start(rnn, 4)
    for lengths in (None, [5, 1, 3, 5]):
        assert_close(on("cpu", rnn, x, lengths, state), on("loop", rnn, x, lengths, state), 1e-10)


@pytest.mark.parametrize("cell", ["layer_norm_lstm", "mgu_original"])
def test_reversed_rows_begin_at_their_own_end(cell):
    one, x = network(cell).cells[0][0], sequence(3, 5)
    for lengths in (None, [5, 2, 3]):
        found = [one(x, None, lengths, reverse=True, backend=backend) for backend in ("cpu", "loop")]
        assert_close({"y": found[0].outputs}, {"y": found[1].outputs}, 1e-10)
        turned = x.clone()
        for row, length in enumerate(lengths or [5] * 3):
            turned[row, :length] = x[row, :length].flip(0)
        assert_close({"y": found[0].last}, {"y": one(turned, None, lengths).last}, 1e-10)


NOISE = {
    "zoneout": {"zoneout": 0.3},
    "zoneout of one state": {"zoneout": {"c": 0.4}},
    "dropout": {"recurrent_dropout": 0.4},
    "weight drop": {"weight_drop": 0.4},
    "everything": {"zoneout": 0.2, "recurrent_dropout": 0.3, "weight_drop": 0.2, "input_dropout": 0.2},
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", NOISE.values(), ids=NOISE)
def test_regularisers(options, training):
    rnn, x = network(Phased, 6, layers=2, **options).train(training), sequence(4, 5)
    for lengths in (None, [5, 1, 3, 2]):
        assert_close(on("cpu", rnn, x, lengths), on("loop", rnn, x, lengths), 1e-10)


LOSSES = {
    "outputs": lambda found: found.outputs.square().sum(),
    "one output": lambda found: found.outputs[:, 1].sum(),
    "last": lambda found: found.last.square().sum(),
    "another state": lambda found: found.state[0][1].sum(),
    "last and another state": lambda found: found.last.sum() + found.state[0][-1].square().sum(),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("cell", [Phased, Chained, "layer_norm_lstm"])
def test_gradients_from_anywhere(cell, loss):
    """Also where a state, or all but the last step, has none."""
    rnn, x, found = network(cell), sequence().requires_grad_(), {}
    state = map_state(lambda t: t.requires_grad_(), start(rnn, 3))
    leaves = {"x": x, **dict(enumerate(tensors_of(state))), **dict(rnn.named_parameters())}
    for lengths in (None, [4, 1, 3]):
        for rnn.backend in ("cpu", "loop"):
            value = loss(rnn(x, lengths, state))
            gradients = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
            zeros = [torch.zeros_like(leaf) for leaf in leaves.values()]
            pairs = zip(leaves, gradients, zeros, strict=True)
            found[rnn.backend] = {name: zero if g is None else g for name, g, zero in pairs}
        assert_close(found["cpu"], found["loop"], 1e-10)


class Rooted(Cell):
    """Derivatives that are infinite where nothing arrives."""

    state = ("h", "d", "e")
    gates = ("a",)
    matrices = ("n",)

    def R(self, x, h, s):
        return self.State(h=tanh(x.a + h.a), d=torch.sqrt(s.h), e=self.n(torch.log(torch.relu(s.h))))


@pytest.mark.parametrize("lengths", [None, [4, 1, 3]], ids=str)
def test_a_gradient_that_is_absent_is_not_zero(lengths):
    rnn, x = network(Rooted), sequence()
    names = [name for name, _ in rnn.named_parameters()]
    for loss in ("outputs", "last"):
        found = {}
        for rnn.backend in ("cpu", "loop"):
            value = getattr(rnn(x, lengths), loss).square().sum()
            gradients = torch.autograd.grad(value, list(rnn.parameters()), allow_unused=True)
            pairs = zip(names, gradients, rnn.parameters(), strict=True)
            found[rnn.backend] = {n: torch.zeros_like(p) if g is None else g for n, g, p in pairs}
        assert all(torch.isfinite(g).all() for g in found["cpu"].values())
        assert_close(found["cpu"], found["loop"], 1e-10)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", [Phased, Tied])
def test_second_derivatives(cell, both):
    """A gradient penalty: gradients of a function of gradients, for x and every weight."""
    rnn, x, found = network(cell, layers=2, bidirectional=both, zoneout=0.2), sequence(), {}
    for rnn.backend in ("cpu", "loop"):
        torch.manual_seed(0)
        leaf = x.clone().requires_grad_()
        loss = rnn(leaf, [4, 2, 1]).outputs.square().sum()
        first = torch.autograd.grad(loss, [leaf, *rnn.parameters()], create_graph=True, allow_unused=True)
        penalty = sum(g.square().sum() for g in first if g is not None)
        second = torch.autograd.grad(penalty, [leaf, *rnn.parameters()], allow_unused=True)
        found[rnn.backend] = {str(i): g for i, g in enumerate((*first, *second)) if g is not None}
    assert_close(found["cpu"], found["loop"], 1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_short_numbers_are_computed_in_float32(dtype):
    rnn, x = network(dtype=dtype), sequence(dtype=dtype)
    wide = copy.deepcopy(rnn).float()
    found, expected = on("cpu", rnn, x, [4, 1, 3]), on("loop", wide, x.float(), [4, 1, 3])
    assert {value.dtype for value in found.values()} == {dtype}
    assert_close({n: v.float() for n, v in found.items()}, expected, 0.02)


def test_autocast_keeps_the_precision_of_the_weights():
    rnn, x = network(dtype=torch.float32), sequence(dtype=torch.float32)
    expected = on("cpu", rnn, x)
    with torch.autocast("cpu", torch.bfloat16):
        found = values_of(rnn, x.requires_grad_())
    gradients = torch.autograd.grad(found["outputs"].sum(), [x, *rnn.parameters()])
    plain = torch.autograd.grad(rnn(x).outputs.sum(), [x, *rnn.parameters()])
    assert_close(found, {name: expected[name] for name in found}, 1e-6)
    assert_close(dict(enumerate(gradients)), dict(enumerate(plain)), 1e-6)


@pytest.mark.parametrize("shared", [False, True], ids=["rows apart", "columns shared"])
@pytest.mark.parametrize("cell", CELLS)
def test_two_threads(monkeypatch, cell, shared):
    monkeypatch.setattr(phased, "SMALL", 0)
    monkeypatch.setattr(phased, "SPLIT", 0 if shared else 1 << 60)
    threads, found = torch.get_num_threads(), []
    rnn, x = network(cell, 33), sequence(5, 6)
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append([on("cpu", rnn, x, lengths) for lengths in (None, [6, 2, 5, 1, 6])])
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*found, strict=True):
        assert_close(two, one, 1e-12)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("cell", CELLS)
def test_without_gradients(cell, mode):
    """The same values, whole and as a stream."""
    rnn, x = network(cell, 6, layers=2, zoneout=0.2).eval(), sequence()
    rnn.backend = "cpu"
    expected = {name: value.detach() for name, value in values_of(rnn, x, [4, 1, 3]).items()}
    with mode():
        found = values_of(rnn, x, [4, 1, 3])
        assert not any(value.requires_grad for value in found.values())
        assert_close(found, expected, 1e-12)
        steps, state = [], None
        for x_t in x.unbind(1):
            y, state = rnn.step(x_t, state)
            steps.append(y)
        assert_close({"y": torch.stack(steps, 1)}, {"y": rnn(x).outputs}, 1e-12)


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_torch_compile_around_it():
    rnn, head = network(dtype=torch.float32, layers=2), nn.Linear(5, 2)

    def model(x, lengths):
        return head(torch.relu(rnn(x * 2, lengths).outputs))

    compiled = torch.compile(model, backend="eager")
    for T in (3, 5):
        x, found = sequence(T=T, dtype=torch.float32), []
        for call in (compiled, model):
            leaf = x.clone().requires_grad_()
            y = call(leaf, torch.tensor([T, 1, 2]))
            gradients = torch.autograd.grad(y.square().sum(), [leaf, *rnn.parameters()])
            found.append({"y": y, **{str(i): g for i, g in enumerate(gradients)}})
        assert_close(found[0], found[1], 1e-5)


def through_file(rnn):
    file = io.BytesIO()
    torch.save(rnn.state_dict(), file)
    file.seek(0)
    other = network(Phased, layers=2)
    other.load_state_dict(torch.load(file, weights_only=True))
    return other


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rnn: pickle.loads(pickle.dumps(rnn)), through_file])
def test_copies(copied):
    rnn, x = network(Phased, layers=2), sequence()
    names = {name.rpartition(".")[2]: tuple(p.shape) for name, p in rnn.cells[0][0].named_parameters()}
    assert names == {"gain": (5,), "n": (5, 5), "m": (5, 5), "W_x": (3, 10), "W_h": (5, 10), "b": (10,)}
    before = on("cpu", rnn, x)
    other = copied(rnn)
    assert_close(on("cpu", other, x), before, 0.0)
    disturb(other)
    assert_close(on("cpu", rnn, x), before, 0.0)


class Softened(nn.Module):
    def forward(self, matrix):
        return torch.tanh(matrix) + 0.1


def test_a_matrix_that_is_computed():
    rnn, x = network(), sequence()
    parametrize.register_parametrization(rnn.cells[0][0], "n", Softened())
    for rnn.training in (True, False):
        assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)


def test_a_matrix_that_a_hook_computes_is_dropped_as_it_is_now():
    """Weight drop is drawn before the cell is called, and with it the hook that computes the matrix."""
    rnn, x = network(weight_drop=1e-9), sequence()
    cell = rnn.cells[0][0]
    prune.identity(cell, "n")
    for _ in range(2):
        rnn(x).last.sum().backward()
        with torch.no_grad():
            cell.n_orig.mul_(-1)
    dropped = rnn(x).last
    rnn.regularisers = network().regularisers
    assert_close({"y": dropped}, {"y": rnn(x).last}, 1e-6)


def test_only_some_weights_learn():
    for frozen in ("W_x", "W_h", "b", "gain", "n"):
        rnn, x = network(), sequence()
        getattr(rnn.cells[0][0], frozen).requires_grad_(False)
        assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)
        rnn(x).last.sum().backward()
        assert getattr(rnn.cells[0][0], frozen).grad is None


@pytest.mark.parametrize("name", ["W_h", "n", "gain"])
def test_a_weight_that_is_altered_before_the_way_back(name):
    """Torch does not notice what is done to ``.data``; the kernel must not read what is not there."""
    for alter in (lambda p: torch.zeros(1, dtype=p.dtype), lambda p: p.data.half()):
        rnn = network()
        outputs, _, state = rnn(sequence())
        loss = outputs.sum() + sum(t.sum() for t in tensors_of(state))
        parameter = getattr(rnn.cells[0][0], name)
        parameter.data = alter(parameter)
        with pytest.raises(ShapeError, match=r"has shape|is no dense memory|float16"):
            loss.backward()


def test_saved_values_that_come_back_otherwise():
    """What the kernel saved for itself is looked at, too."""
    rnn, x = network(), sequence(3, 4)

    def unpack(t):
        return t[:1].clone() if t.dim() == 2 and len(t) == 12 and t.shape[1] != 10 else t

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        outputs, _, state = rnn(x)
        loss = outputs.sum() + sum(t.sum() for t in tensors_of(state))
    with pytest.raises((ShapeError, RuntimeError)):
        loss.backward()


def test_a_step_that_needs_several_phases_says_so():
    assert [cell(3, 5).equations.pointwise for cell in CELLS] == [False] * 4
    assert RNN("lstm", 3, 5).cells[0][0].equations.pointwise
    assert "free-form" not in repr(network())


def test_everything_is_repeatable():
    rnn, x = network(H=40), sequence(9, 7)
    assert_close(everything_of(rnn, x), everything_of(rnn, x), 0.0)
