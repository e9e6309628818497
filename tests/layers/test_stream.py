"""The short way of a streaming step is never taken where it would be wrong."""

import copy
import gc
import pickle
import weakref

import pytest
import torch

from comparison import assert_close, disturb
from elman import RNN, Cell
from elman.errors import ShapeError
from elman.layers.stream import StreamState


def begun(cell="lstm", B=1, **options):
    """A network and the state after one step of a stream."""
    rnn = RNN(cell, 3, 5, **options).eval()
    disturb(rnn)
    with torch.no_grad():
        return rnn, rnn.step(torch.randn(B, 3))[1]


def assert_right(rnn, x, state):
    """The next step is that of the sequence form, from the plain state."""
    plain = tuple(type(s)(*s) for s in state)
    expected = rnn(x[:, None], state=plain)
    y, after = rnn.step(x, state)
    assert_close(
        {"y": y, **dict(after[0]._asdict())}, {"y": expected.last, **expected.state[0]._asdict()}, 1e-6
    )


def change_weights(rnn):
    disturb(rnn, 1.0)


def load_weights(rnn):
    rnn.load_state_dict(begun()[0].state_dict())


def replace_weights(rnn):
    cell = rnn.cells[0][0]
    cell.W_h = torch.nn.Parameter(torch.randn_like(cell.W_h).t().contiguous().t().reshape(cell.W_h.shape))


def transpose_weights(rnn):
    cell = rnn.cells[0][0]
    cell.W_h = torch.nn.Parameter(torch.randn(20, 5).t())  # no longer contiguous


def replace_cell(rnn):
    rnn.cells[0][0] = begun()[0].cells[0][0]


def replace_layers(rnn):
    rnn.cells = begun()[0].cells


def drop_bias(rnn):
    rnn.cells[0][0].b = None


def use_the_loop(rnn):
    rnn.backend = "loop"


def move_weights(rnn):
    """Into the midst of a larger memory."""
    cell = rnn.cells[0][0]
    cell.W_h.data = torch.cat([cell.W_h.data, 2 * cell.W_h.data])[5:]


CHANGES = [
    change_weights,
    move_weights,
    load_weights,
    replace_weights,
    transpose_weights,
    replace_cell,
    replace_layers,
    drop_bias,
    use_the_loop,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_network_that_changed_between_steps(change):
    rnn, state = begun()
    with torch.no_grad():
        change(rnn)
        assert_right(rnn, torch.randn(1, 3), state)


def test_weights_that_lie_oddly_from_the_beginning():
    """The kernel reads contiguous weights only."""
    rnn = RNN("lstm", 3, 5).eval()
    transpose_weights(rnn)
    state = None
    with torch.no_grad():
        for x in torch.randn(3, 1, 3):
            assert_right(rnn, x, state if state is not None else rnn.start(1))
            _, state = rnn.step(x, state)


@pytest.mark.slow
def test_an_option_that_changed_between_steps():
    rnn, state = begun("elman")
    rnn.cells[0][0].activation = "relu"
    with torch.no_grad():
        assert_right(rnn, torch.randn(1, 3), state)


@pytest.mark.slow
def test_the_state_of_another_network():
    """Even of one that is gone, whose address a new one may have."""
    x = torch.randn(1, 3)
    for _ in range(20):
        rnn, state = begun()
        del rnn
        gc.collect()
        other, _ = begun()
        with torch.no_grad():
            assert_right(other, x, state)
            assert_right(copy.deepcopy(other), x, state)


@pytest.mark.parametrize("B", [1, 4, 5, 9])
def test_inputs_of_another_kind(B):
    rnn, state = begun(B=B)
    x = torch.randn(3, B).t()
    with torch.no_grad():
        assert_right(rnn, x, state)
    assert_right(rnn, x.clone().requires_grad_(), state)  # with gradients
    x = x.clone().requires_grad_()
    rnn.step(x, state)[0].sum().backward()
    assert (x.grad != 0).all()


def test_a_batch_that_changes_is_an_error():
    rnn, state = begun()
    with (
        torch.no_grad(),
        pytest.raises(ValueError, match=r"state\[0\].h has shape \(1, 5\); it must be \(2, 5\)"),
    ):
        rnn.step(torch.randn(2, 3), state)
    with torch.no_grad(), pytest.raises(ValueError, match=r"x is torch\.float64"):
        rnn.step(torch.randn(1, 3).double(), state)
    with torch.no_grad(), pytest.raises(ValueError, match=r"x has shape \(1, 4\)"):
        rnn.step(torch.randn(1, 4), state)
    with torch.no_grad(), pytest.raises(ValueError, match="x is a list"):
        rnn.step([1.0], state)


def test_a_step_does_not_change_what_it_is_given():
    rnn, state = begun()
    before, x = copy.deepcopy(tuple(state)), torch.randn(1, 3)
    with torch.no_grad():
        one, two = rnn.step(x, state), rnn.step(x, state)
    assert_close({"h": state[0].h, "c": state[0].c}, {"h": before[0].h, "c": before[0].c}, 0.0)
    assert_close({"y": one[0]}, {"y": two[0]}, 0.0)


def test_the_state_of_a_stream_is_a_state():
    rnn, state = begun(layers=2)
    assert isinstance(state, tuple)
    assert len(state) == 2
    x = torch.randn(1, 4, 3)
    copies = [pickle.loads(pickle.dumps(state)), copy.deepcopy(state), tuple(state), list(state)]
    for again in copies:
        assert_close({"y": rnn(x, state=again).last}, {"y": rnn(x, state=state).last}, 0.0)


DAMAGES = {
    "smaller": lambda t: t.set_(torch.zeros(1)),
    "turned": lambda t: t.set_(torch.randn(5, 4).t()),
    "no memory": lambda t: t.untyped_storage().resize_(0),
    "other numbers": lambda t: setattr(t, "data", t.double()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_state_that_was_changed_in_its_place(damage):
    """A step reads its state by address: it looks whether that is still all there."""
    rnn, state = begun(B=4)
    x = torch.randn(4, 3)
    with torch.no_grad():
        expected = None
        DAMAGES[damage](state[0].c)
        if damage == "turned":
            plain = tuple(type(s)(*(t.clone() for t in s)) for s in state)
            expected = rnn.step(x, plain)[0]
        try:
            found = rnn.step(x, state)[0]
        except ShapeError:
            assert damage != "turned"
        else:
            assert expected is not None
            torch.testing.assert_close(found, expected)


def test_a_weight_that_became_a_part_of_itself_is_refused():
    rnn, state = begun()
    cell = rnn.cells[0][0]
    cell.W_h.data = cell.W_h.data[:1]
    with torch.no_grad(), pytest.raises(ShapeError, match="W_h has shape"):
        rnn.step(torch.randn(1, 3), state)


class Moody(Cell):
    """h' = tanh(x W + h W) while it learns; half of it afterwards."""

    state = ("h",)
    gates = ("z",)

    def R(self, x, h, s):
        new = torch.tanh(x.z + h.z)
        return self.State(h=new if self.training else 0.5 * new)


@pytest.mark.parametrize("cell", ["lstm", Moody])
def test_the_short_way_is_that_of_the_present_mode(cell):
    rnn, state = begun(cell)
    with torch.no_grad():
        for training in (True, False, True):
            rnn.train(training)
            assert_right(rnn, torch.randn(1, 3), state)
            for _ in range(2):
                _, state = rnn.step(torch.randn(1, 3), state)
                assert type(state) is StreamState
                assert_right(rnn, torch.randn(1, 3), state)


NOISES = [{"zoneout": 0.5}, {"zoneout": {"c": 0.5}}, {"layers": 2, "dropout": 0.5}]


@pytest.mark.parametrize("options", NOISES, ids=str)
def test_a_step_that_is_random_is_drawn_anew(options):
    rnn, state = begun(**options)
    x = torch.ones(1, 3)
    with torch.no_grad():
        assert type(rnn.step(x, state)[1]) is StreamState
        rnn.train()
        for start in (state, None, tuple(state)):
            found = [rnn.step(x, start) for _ in range(20)]
            assert {type(after) for _, after in found} == {tuple}
            assert len({tuple(after[-1].c.flatten().tolist()) for _, after in found}) > 1


def test_dropout_of_a_single_layer_is_not_drawn():
    rnn, _ = begun(dropout=0.5)
    with torch.no_grad():
        assert type(rnn.train().step(torch.randn(1, 3))[1]) is StreamState


def test_dropout_that_begins_between_steps_in_training():
    rnn, _ = begun(layers=2)
    x = torch.ones(1, 3)
    with torch.no_grad():
        _, state = rnn.train().step(x)
        assert type(state) is StreamState
        rnn.dropout = 0.9
        assert type(rnn.step(x, state)[1]) is tuple
        assert len({tuple(rnn.step(x, state)[0].flatten().tolist()) for _ in range(30)}) > 1


@pytest.mark.parametrize("start", ["zero", "learned"])
@pytest.mark.parametrize("B", [1, 3])
def test_the_first_step_of_any_stream_is_the_same(start, B):
    """Whether the short way was known before changes no bit."""
    rnn = RNN("lstm", 3, 5, layers=2, initial_state=start)
    disturb(rnn)
    x = torch.randn(B, 3)
    with torch.inference_mode():
        first, second, third = (rnn.step(x, state) for state in (None, None, rnn.start(B)))
        assert_close({"y": first[0]}, {"y": rnn(x[:, None]).last}, 1e-6)
    for y, after in (second, third):
        assert torch.equal(y, first[0])
        assert all(map(torch.equal, after[1], first[1][1]))


def test_a_state_of_a_users_own():
    """Laid out otherwise, a parameter, or given under another network's name."""
    rnn, _ = begun(B=4)
    x, turned = torch.randn(4, 3), torch.randn(5, 4).t()
    State = rnn.cells[0][0].State
    with torch.no_grad():
        for h in (turned, torch.nn.Parameter(turned.contiguous()), torch.randn(1, 5).expand(4, 5)):
            assert_right(rnn, x, (State(h, turned),))
            assert_right(rnn, torch.randn(3, 4).t(), (State(h, turned),))


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_network_that_changed_between_streams(change):
    rnn, _ = begun()
    with torch.no_grad():
        change(rnn)
        assert_right(rnn, torch.randn(1, 3), rnn.start(1))


def test_a_hook_that_comes_between_steps_hears_of_them():
    rnn, state = begun()
    heard = []
    rnn.cells[0][0].register_forward_hook(lambda *call: heard.append(1))
    with torch.no_grad():
        for start in (state, None, tuple(state)):
            rnn.step(torch.randn(1, 3), start)
    assert len(heard) == 3


def test_a_stream_keeps_no_network():
    rnn, state = begun()
    gone = weakref.ref(rnn)
    del rnn
    gc.collect()
    assert gone() is None
    assert len(state) == 1
