"""What else torch does with modules works around a network, or is a clear error; never silently wrong."""

import copy
import os

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint

from comparison import assert_close, disturb, map_state, on, python, tensors_of, values_of
from elman import RNN, Cell
from elman.errors import BackendError, ShapeError
from elman.layers.bridge import Bridge

CELLS = ["lstm", "gru", "sru"]

# torch's own forward mode loads decompositions that use it
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:DeprecationWarning")


def network(cell="gru", *, layers=1, bidirectional=False, dtype=torch.float64, **options):
    rnn = RNN(cell, 3, 4, layers=layers, bidirectional=bidirectional, **options).to(dtype)
    disturb(rnn)
    return rnn


def sequence(B=2, T=3, D=3, dtype=torch.float64):
    return torch.randn(B, T, D, dtype=dtype)


def loss_of(rnn, lengths=None):
    return lambda x: rnn(x, lengths).outputs.square().sum()


# ---- higher derivatives and transforms ----


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_double_backward_equals_the_loop(cell, both):
    """A gradient penalty: gradients of a function of gradients, for x and every weight."""
    rnn, x, found = network(cell, layers=2, bidirectional=both), sequence(), {}
    for backend in ("cpu", "loop"):
        rnn.backend = backend
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(loss_of(rnn, [3, 1])(leaf), leaf, create_graph=True)
        second = torch.autograd.grad(slope.square().sum(), [leaf, *rnn.parameters()], allow_unused=True)
        found[backend] = {str(i): g for i, g in enumerate(second) if g is not None}
    assert_close(found["cpu"], found["loop"], 1e-10)


def test_hessian_both_ways():
    rnn, x = network(), sequence()
    expected = torch.autograd.functional.hessian(loss_of(network_on("loop", rnn)), x)
    rnn.backend = "auto"
    for hessian in (torch.autograd.functional.hessian(loss_of(rnn), x), torch.func.hessian(loss_of(rnn))(x)):
        assert_close({"H": hessian}, {"H": expected}, 1e-10)


def network_on(backend, rnn):
    rnn.backend = backend
    return rnn


@pytest.mark.parametrize("cell", CELLS)
def test_transforms_of_torch_func(cell):
    rnn, x, v = network(cell, layers=2), sequence(), sequence()
    loss = loss_of(rnn, torch.tensor([3, 2]))
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    assert_close({"grad": torch.func.grad(loss)(x)}, {"grad": expected}, 1e-10)
    _, slope = torch.func.jvp(loss, (x,), (v,))
    assert_close({"jvp": slope}, {"jvp": (expected * v).sum()}, 1e-10)
    xs = torch.stack([x, v])
    assert_close(
        {"vmap": torch.func.vmap(lambda x: rnn(x).outputs)(xs)},
        {"vmap": torch.stack([rnn(x).outputs for x in xs]).detach()},
        1e-10,
    )
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, v)
        tangent = torch.autograd.forward_ad.unpack_dual(loss(dual)).tangent
    assert_close({"dual": tangent}, {"dual": (expected * v).sum()}, 1e-10)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("cell", CELLS)
def test_transforms_of_a_step(cell, mode):
    """The state comes out of it as one that transforms can take apart."""
    rnn, x = network(cell, layers=2).eval(), sequence(B=3, T=2)

    def sequence_of_one(x):
        _, last, state = rnn(x[:, None])
        return last, state

    with mode():
        for transform in (
            lambda step: torch.func.vmap(step)(x),
            lambda step: torch.func.jvp(step, (x[0],), (x[1],)),
        ):
            found, expected = (tensors_of(transform(step)) for step in (rnn.step, sequence_of_one))
            assert_close(dict(enumerate(found)), dict(enumerate(expected)), 1e-10)


def test_gradients_of_each_sample():
    rnn, x = network(), sequence(B=4)
    weights = {name: p.detach() for name, p in rnn.named_parameters()}

    def loss(weights, row):
        return functional_call(rnn, weights, (row[None],)).outputs.square().sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)
    for i, row in enumerate(x):
        expected = torch.autograd.grad(loss_of(rnn)(row[None]), list(rnn.parameters()))
        names = [name for name, _ in rnn.named_parameters()]
        assert_close({n: found[n][i] for n in names}, dict(zip(names, expected, strict=True)), 1e-10)


def test_the_kernel_asked_for_under_a_transform_is_a_clear_error():
    rnn = network(backend="cpu")
    with pytest.raises(BackendError, match=r"torch\.func transform is at work; use backend='auto' or 'loop'"):
        torch.func.grad(loss_of(rnn))(sequence())


def test_many_gradients_at_once():
    """``is_grads_batched`` runs backward under vmap."""
    rnn, x = network(), sequence().requires_grad_()
    last = rnn(x).last
    directions = torch.randn(5, *last.shape, dtype=last.dtype)
    expected = torch.stack([torch.autograd.grad(last, x, d, retain_graph=True)[0] for d in directions])
    (found,) = torch.autograd.grad(last, x, directions, is_grads_batched=True)
    assert_close({"J": found}, {"J": expected}, 1e-10)


# ---- modes ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_keeps_the_precision_of_the_weights(dtype):
    rnn, x = network(dtype=torch.float32, layers=2), sequence(dtype=torch.float32)
    found = []
    for short in (True, False):
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=dtype, enabled=short):
            values = values_of(rnn, leaf)
        gradients = torch.autograd.grad(values["outputs"].square().sum(), [leaf, *rnn.parameters()])
        found.append(values | {str(i): g for i, g in enumerate(gradients)})
    assert_close(found[0], found[1], 1e-6)
    with torch.autocast("cpu", dtype=dtype):
        short = rnn(x.to(dtype))
    assert short.outputs.dtype == torch.float32


class ReadOut(Cell):
    state = ("h",)
    gates = ("a",)

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.head = nn.Linear(hidden_size, 2)

    def R(self, x, h, s):
        return self.State(h=torch.tanh(x.a + h.a))

    def O(self, s):
        return self.head(s.h)


@pytest.mark.parametrize("backend", ["cpu", "loop"])
def test_autocast_changes_no_output(backend):
    rnn, x = network(ReadOut, dtype=torch.float32, backend=backend), sequence(dtype=torch.float32)
    expected = rnn(x).last
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, last, _ = rnn(x)
    assert_close({"outputs": outputs[:, -1], "last": last}, {"outputs": expected, "last": expected}, 1e-6)
    assert outputs.dtype == last.dtype == torch.float32


def test_gradients_to_be_differentiated_keep_their_precision_in_autocast():
    rnn, x = network("lstm", dtype=torch.float32), sequence(dtype=torch.float32).requires_grad_()
    found = []
    for short in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=short):
            slopes = torch.autograd.grad(loss_of(rnn)(x), [x, *rnn.parameters()], create_graph=True)
        found.append({str(i): g for i, g in enumerate(slopes)})
    assert_close(found[0], found[1], 1e-6)


def test_autocast_through_a_bridge():
    """A learned bridge computes in the short type; the target takes its state all the same."""
    source, target = network("lstm", dtype=torch.float32), network("gru", dtype=torch.float32)
    bridge = Bridge(source, target)
    x = sequence(dtype=torch.float32)
    expected = target(x, state=bridge(source(x).state)).outputs
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = target(x, state=bridge(source(x).state)).outputs
    assert_close({"y": found}, {"y": expected}, 0.05)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("cell", CELLS)
def test_modes_without_gradients(cell, mode):
    rnn, x = network(cell, layers=2), sequence()
    expected = {name: value.detach() for name, value in values_of(rnn, x).items()}
    with mode():
        found = values_of(rnn, x)
    assert not any(value.requires_grad for value in found.values())
    assert_close(found, expected, 1e-10)


def test_only_some_weights_learn():
    for frozen in ("W_x", "W_h", "b", "m"):
        rnn, x = network(), sequence()
        getattr(rnn.cells[0][0], frozen).requires_grad_(False)
        assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)
        rnn(x).last.sum().backward()
        assert getattr(rnn.cells[0][0], frozen).grad is None
    rnn.requires_grad_(False)
    assert not rnn(x).outputs.requires_grad
    assert rnn(x.requires_grad_()).outputs.requires_grad


def test_inputs_that_lie_oddly_in_memory():
    rnn, x = network(layers=2), sequence(4, 6)
    state = map_state(
        lambda t: torch.randn(4, 2, dtype=t.dtype).repeat(1, 2)[:, :1].expand(4, 4), rnn.start(4)
    )
    expected = on("loop", rnn, x, [6, 2, 3, 1], state)
    wide = torch.zeros(4, 6, 6, dtype=x.dtype)
    wide[..., ::2] = x
    for odd in (x.transpose(0, 1).contiguous().transpose(0, 1), x.flip(1).flip(1), wide[..., ::2]):
        assert_close({"y": rnn(odd, [6, 2, 3, 1], state).outputs}, {"y": expected["outputs"]}, 1e-10)
    assert_close(on("cpu", rnn, x, [6, 2, 3, 1], state), expected, 1e-10)


def test_backward_twice_and_changed_outputs():
    rnn, x = network(), sequence().requires_grad_()
    last = rnn(x).last.sum()
    last.backward(retain_graph=True)
    first = x.grad.clone()
    last.backward()
    assert_close({"d x": x.grad}, {"d x": 2 * first}, 1e-10)
    outputs = rnn(x).outputs
    with torch.no_grad():
        outputs.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    rnn, x = network("lstm", layers=2), sequence().requires_grad_()
    names = ["x", *(name for name, _ in rnn.named_parameters())]
    found = []
    for call in (rnn, lambda x: checkpoint(lambda x: rnn(x).outputs, x, use_reentrant=reentrant)):
        rnn.zero_grad()
        x.grad = None
        result = call(x)
        (result if isinstance(result, torch.Tensor) else result.outputs).square().sum().backward()
        found.append(dict(zip(names, [x.grad, *(p.grad for p in rnn.parameters())], strict=True)))
    assert_close(found[1], found[0], 1e-10)


# ---- modules ----


@pytest.mark.parametrize("kind", ["weight_norm", "orthogonal", "spectral_norm"])
def test_parametrisations(kind):
    """The kernel sees the computed weight, and its gradient reaches what the weight is computed from."""
    rnn, x = network("lstm").eval(), sequence()
    getattr(parametrizations, kind)(rnn.cells[0][0], "W_h")
    assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)
    optimiser = torch.optim.SGD(rnn.parameters(), 0.5)
    for _ in range(2):
        optimiser.zero_grad()
        rnn(x).last.sum().backward()
        optimiser.step()
    assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)
    state = None
    with torch.no_grad():
        for x_t in x.unbind(1):
            y, state = rnn.step(x_t, state)
        assert_close({"y": y}, {"y": rnn(x).last}, 1e-10)


class Softened(nn.Module):
    def forward(self, vector):
        return torch.tanh(vector) + 0.5


@pytest.mark.parametrize("cell", ["gru", "sru", "peephole_lstm"])
def test_parametrisations_of_vectors(cell):
    """Equations name a vector that is computed as they name any other, once and again."""
    rnn, x = network(cell), sequence()
    for one in rnn.cells[0]:
        parametrize.register_parametrization(one, one.vectors[0], Softened())
    for mode in (True, False):
        rnn.train(mode)
        assert_close(on("cpu", rnn, x), on("loop", rnn, x), 1e-10)
    assert_close(on("cpu", copy.deepcopy(rnn), x), on("loop", rnn, x), 1e-10)
    found = []
    for rnn.backend in ("cpu", "loop"):
        inputs = dict(rnn.named_parameters())
        first = torch.autograd.grad(rnn(x).outputs.square().sum(), list(inputs.values()), create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), list(inputs.values()))
        found.append(dict(zip(inputs, second, strict=True)))
    assert_close(*found, 1e-10)


@pytest.mark.parametrize("kind", ["prune", "spectral_norm"])
def test_weights_kept_by_hooks(kind):
    """These compute a weight before ``forward`` of its module: it must be fresh after an update."""
    rnn, x = network("lstm"), sequence()
    cell = rnn.cells[0][0]
    if kind == "prune":
        prune.random_unstructured(cell, "W_h", 0.5)
    else:
        nn.utils.spectral_norm(cell, "W_h")
    optimiser = torch.optim.SGD(rnn.parameters(), 1.0)
    before = cell.W_h_orig.detach().clone()
    rnn(x).last.sum().backward()
    optimiser.step()
    assert not torch.equal(cell.W_h_orig, before), "the weight does not learn"
    if kind == "prune":
        fresh = network("lstm")
        fresh.load_state_dict(
            {k.replace("W_h_orig", "W_h"): v for k, v in rnn.state_dict().items() if "mask" not in k}
        )
        with torch.no_grad():
            fresh.cells[0][0].W_h.mul_(cell.W_h_mask)
        assert_close(values_of(rnn, x), values_of(fresh, x), 1e-10)


@pytest.mark.parametrize("kind", ["prune", "spectral_norm"])
def test_weights_kept_by_hooks_are_dropped_as_they_are_now(kind):
    """Weight drop is drawn before the cell is called, and with it the hook that computes the weight."""
    rnn, x = network("lstm", weight_drop=1e-9), sequence()
    cell = rnn.cells[0][0]
    prune.identity(cell, "W_h") if kind == "prune" else nn.utils.spectral_norm(cell, "W_h")
    for _ in range(2):
        rnn(x).last.sum().backward()
        with torch.no_grad():
            cell.W_h_orig.mul_(-1)
    dropped = rnn(x).last
    rnn.regularisers = network().regularisers
    cell.eval()  # spectral norm as it was
    assert_close({"y": dropped}, {"y": rnn(x).last}, 1e-6)


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_hooks_of_the_way_back(register):
    rnn, x, seen = network("lstm"), sequence().requires_grad_(), []
    expected = torch.autograd.grad(rnn(x).outputs.sum(), x)[0]
    getattr(rnn.cells[0][0], register)(lambda cell, *gradients: seen.append(gradients[-1][0]))
    found = torch.autograd.grad(rnn(x).outputs.sum(), x)[0]
    assert_close(
        {"d x": found, "d outputs": seen[0]},
        {"d x": expected, "d outputs": torch.ones(2, 3, 4).double()},
        0.0,
    )


def test_torch_sees_every_operation_that_it_notes_down():
    """In a fresh interpreter: a kernel that took the sizes of a trace for addresses would end it."""
    code = """
import torch, warnings
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode
from elman import RNN

warnings.simplefilter("ignore")  # torch.jit is deprecated
rnn, x = RNN("lstm", 5, 7, bidirectional=True).eval(), torch.randn(3, 6, 5)
for gradients in (True, False):
    with torch.set_grad_enabled(gradients):
        for noted in (torch.jit.trace(rnn, x, strict=False), make_fx(lambda x: tuple(rnn(x)[:2]))(x)):
            torch.testing.assert_close(noted(2 * x)[0], rnn(2 * x)[0])
with FlopCounterMode(display=False) as counter:
    rnn(x)
print(counter.get_total_flops() // (2 * 3 * 6 * 2 * (5 + 7) * 4 * 7))
"""
    assert python(code).strip() == "1"


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_torch_compile_around_a_network(backend):
    if backend == "inductor" and os.system("c++ --version >/dev/null 2>&1"):
        pytest.skip("torch.compile needs a C++ compiler")
    rnn, head = network(layers=2, dtype=torch.float32), nn.Linear(4, 2)

    def model(x, lengths):
        return head(torch.relu(rnn(x * 2, lengths).outputs))

    compiled = torch.compile(model, backend=backend)
    for T in (3, 5):
        x, lengths = sequence(T=T, dtype=torch.float32), torch.tensor([T, 1])
        found = []
        for call in (compiled, model):
            leaf = x.clone().requires_grad_()
            y = call(leaf, lengths)
            gradients = torch.autograd.grad(y.square().sum(), [leaf, *rnn.parameters()])
            found.append({"y": y, **{str(i): g for i, g in enumerate(gradients)}})
        assert_close(found[0], found[1], 1e-5)


def test_distributed_data_parallel(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        rnn, x = network("lstm", layers=2, bidirectional=True), sequence()
        expected = torch.autograd.grad(rnn(x).outputs.sum(), list(rnn.parameters()))
        parallel = nn.parallel.DistributedDataParallel(rnn)
        for _ in range(2):
            rnn.zero_grad()
            parallel(x).outputs.sum().backward()
        found = {str(i): p.grad for i, p in enumerate(rnn.parameters())}
        assert_close(found, {str(i): g for i, g in enumerate(expected)}, 1e-10)
    finally:
        torch.distributed.destroy_process_group()


def test_other_places_and_kinds_of_tensors():
    rnn = network().to("meta")
    outputs, _, state = rnn(sequence().to("meta"))
    assert outputs.shape == (2, 3, 4)
    assert all(t.device.type == "meta" for t in tensors_of(state))

    class Marked(torch.Tensor):
        pass

    rnn, x = network(), sequence()
    assert_close(
        {"y": rnn(x.as_subclass(Marked)).outputs.as_subclass(torch.Tensor)}, {"y": rnn(x).outputs}, 1e-10
    )


WRONG_LENGTHS = ([9, 1, 1], [6, 5, 5], [-3, 1, 1], [0, 5, 5], [2**62, 1, 1])


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize("cell", ["lstm", "gru", "layer_norm_lstm"])
def test_wrong_lengths_reach_no_memory_when_compiled(cell):
    """A compiler has no values to look at; whoever calls the kernel looks at those that it gets."""
    rnn = torch.compile(RNN(cell, 4, 6, layers=2, bidirectional=True), backend="eager")
    x = torch.randn(3, 5, 4)
    for wrong in WRONG_LENGTHS:
        for lengths in (torch.tensor(wrong), wrong):
            with pytest.raises(ShapeError, match="a length is at least 1 and at most the 5 steps of x"):
                rnn(x, lengths).outputs.sum().backward()
    rnn(x, [5, 1, 2]).outputs.sum().backward()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
@pytest.mark.parametrize(
    ("cell", "options"),
    [("lstm", {"zoneout": 0.1}), ("gru", {"layers": 2, "bidirectional": True}), ("layer_norm_lstm", {})],
)
def test_exported_programs(cell, options, strict):
    """Both ways of exporting give the network; wrong lengths are a numbered error there too."""
    if strict and torch.__version__ < "2.13":
        pytest.skip("the strict exporter of torch 2.11 cannot follow a copied __dict__")
    rnn, x = RNN(cell, 4, 6, **options).eval(), torch.randn(3, 5, 4)
    lengths = torch.tensor([5, 2, 3])
    program = torch.export.export(rnn, (x, lengths), strict=strict).module()
    assert_close({"y": program(x, lengths)[0]}, {"y": rnn(x, lengths).outputs}, 1e-5)
    for wrong in WRONG_LENGTHS[:4]:
        with pytest.raises(RuntimeError, match="E102: a length is at least 1"):
            program(x, torch.tensor(wrong))


class Scaled(Cell):
    state, gates, scale = ("h",), ("a",), 1.0

    def R(self, x, h, s):
        scale = self.scale if self.training else 0.1
        return self.State(h=torch.tanh(scale * (x.a + h.a)))


CHANGES = {
    "option": lambda cell: setattr(cell, "scale", 3.0),
    "evaluation": lambda cell: cell.eval(),
    "class": lambda cell: setattr(Scaled, "scale", 5.0),
    "deleted": lambda cell: delattr(cell, "scale"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_differentiated_again_are_the_equations_that_ran(change, monkeypatch):
    """Not what the cell has become between the sequence and its gradient."""
    monkeypatch.setattr(Scaled, "scale", 1.0)
    rnn, x = RNN(Scaled, 3, 4).double(), torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    rnn.cells[0][0].scale = 0.7
    loss = rnn(x).outputs.square().sum()
    (expected,) = torch.autograd.grad(loss, x, retain_graph=True)
    CHANGES[change](rnn.cells[0][0])
    (found,) = torch.autograd.grad(loss, x, create_graph=True)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


KINDS = {
    "sparse": lambda t: t.to_sparse(),
    "compressed": lambda t: t.flatten(0, -2).to_sparse_csr(),
    "mkldnn": lambda t: t.float().to_mkldnn(),
    "nested": lambda t: torch.nested.nested_tensor(list(t)),
    "jagged": lambda t: torch.nested.nested_tensor(list(t), layout=torch.jagged),
}


@pytest.mark.filterwarnings("ignore")  # torch warns that these kinds are young
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_that_are_no_plain_memory_are_refused(kind):
    rnn, x = RNN("lstm", 4, 6), torch.randn(3, 5, 4)
    change = KINDS[kind]
    with pytest.raises(ShapeError, match="tensor"):
        rnn(change(x))
    with pytest.raises(ShapeError, match="tensor"):
        rnn.step(change(x[:, 0]))
    state = rnn(x).state
    with pytest.raises(ShapeError, match="tensor"):
        rnn(x, state=(state[0]._replace(c=change(state[0].c)),))
    if kind in ("sparse", "mkldnn"):
        with pytest.raises(ShapeError, match="lengths"):
            rnn(x, change(torch.tensor([5, 5, 5])))


def test_numbers_that_memory_does_not_hold():
    """Torch puts off turning signs, and has zeros without memory."""
    rnn, x = network("lstm"), sequence()
    expected = rnn(x).outputs
    assert_close({"y": rnn(torch._neg_view(-x)).outputs}, {"y": expected}, 1e-12)
    zeros = torch._efficientzerotensor(x.shape, dtype=x.dtype)
    assert_close({"y": rnn(zeros).outputs}, {"y": rnn(torch.zeros_like(x)).outputs}, 1e-12)
    one = RNN("elman", 1, 1).double()  # what has one number is dense with any strides
    leaf = torch.randn(1, 1, 1, dtype=torch.float64, requires_grad=True)
    turned = torch.autograd.grad(one(leaf).outputs, leaf, torch._neg_view(torch.ones_like(leaf)))
    plain = torch.autograd.grad(one(leaf).outputs, leaf, -torch.ones_like(leaf))
    torch.testing.assert_close(turned, plain)


ALTERATIONS = {
    "smaller": lambda p: setattr(p, "data", torch.zeros(1, dtype=p.dtype)),
    "turned": lambda p: setattr(p, "data", p.data.t().contiguous().t()),
    "shorter numbers": lambda p: setattr(p, "data", p.data.half()),
    "no memory": lambda p: p.untyped_storage().resize_(0),
}


@pytest.mark.parametrize("alteration", ALTERATIONS)
@pytest.mark.parametrize("name", ["W_x", "W_h"])
def test_a_weight_that_is_altered_before_the_way_back(name, alteration):
    """Torch does not notice what is done to ``.data``; the kernel must not read what is not there."""
    rnn = RNN("lstm", 7, 9)
    loss = rnn(torch.randn(3, 5, 7)).outputs.sum()
    ALTERATIONS[alteration](getattr(rnn.cells[0][0], name))
    with pytest.raises(ShapeError, match=r"has shape|is no dense memory"):
        loss.backward()


def test_saved_values_that_come_back_otherwise():
    rnn, x = RNN("lstm", 4, 6), torch.randn(3, 5, 4)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[:1].clone()):
        loss = rnn(x).outputs.sum()
    with pytest.raises((ShapeError, RuntimeError)):
        loss.backward()
