"""What is watched is what happens: every gate and state by its name, for any cell; nothing else changes."""

import sys

import pytest
import torch
from torch import sigmoid, tanh

from elman import RNN, Cell
from elman.errors import ArgumentError
from elman.inspection.watching import Clamp, Watch
from elman.registry import CELLS
from user_cells import Everything, Phased, Ranked, Readout, UserLSTM


class Forgetful(Cell):
    """As a user writes one: f is the gate, candidate what is written."""

    state = ("h",)
    gates = ("f", "z")

    def R(self, x, h, s):
        f = sigmoid(x.f + h.f)
        candidate = tanh(x.z)
        return self.State(h=f * s.h + (1 - f) * candidate)


def lstm(cell, x, s):
    h, c = s

    def a(gate):
        return x @ cell.block("W_x", gate) + cell.block("b", gate) + h @ cell.block("W_h", gate)

    i, f, o, z = sigmoid(a("i")), sigmoid(a("f")), sigmoid(a("o")), tanh(a("z"))
    c = f * c + i * z
    return (o * tanh(c), c), {"i": i, "f": f, "o": o, "z": z}


def user_lstm(cell, x, s):
    new, gates = lstm(cell, x, s)
    return new, {name: gates[name] for name in "ifo"}  # z has no name in its equations


def gru(cell, x, s):
    (h,) = s

    def part(gate):
        return x @ cell.block("W_x", gate) + cell.block("b", gate), h @ cell.block("W_h", gate)

    r, z = (sigmoid(sum(part(gate))) for gate in "rz")
    from_x, from_h = part("n")
    n = tanh(from_x + r * (from_h + cell.m))
    return ((1 - z) * n + z * h,), {"r": r, "z": z, "n": n}


def forgetful(cell, x, s):
    f = sigmoid(x @ cell.block("W_x", "f") + cell.block("b", "f") + s[0] @ cell.block("W_h", "f"))
    candidate = tanh(x @ cell.block("W_x", "z") + cell.block("b", "z"))
    return (f * s[0] + (1 - f) * candidate,), {"f": f, "candidate": candidate}


@pytest.mark.parametrize(
    ("cell", "step"), [("lstm", lstm), ("gru", gru), (UserLSTM, user_lstm), (Forgetful, forgetful)]
)
def test_gates_and_states_are_those_of_the_equations_by_hand(cell, step):
    torch.manual_seed(3)
    rnn = RNN(cell, 3, 5, layers=2, bidirectional=True)
    for parameter in rnn.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(1, 7, 3)
    watch = Watch(rnn)
    outputs = watch.model(x.double()).outputs
    tracks = watch.tracks(watch.model, 7)
    below = x.double()[0]
    cells = rnn.double().all_cells()
    with torch.no_grad():
        for layer in range(2):
            sides = []
            for direction in range(2):
                own, track = cells[2 * layer + direction], tracks[layer][direction]
                state = [torch.zeros(1, 5).double() for _ in own.state]
                side = [None] * 7
                for t in reversed(range(7)) if direction else range(7):
                    state, gates = step(own, below[t : t + 1], state)
                    assert track.gates[t].keys() == gates.keys()
                    for name, value in gates.items():
                        torch.testing.assert_close(track.gates[t][name], value, atol=1e-9, rtol=0)
                    for found, value in zip(track.states[t], state, strict=True):
                        torch.testing.assert_close(found, value, atol=1e-9, rtol=0)
                    side[t] = state[0]
                sides.append(torch.cat(side))
            below = torch.cat(sides, -1)
    torch.testing.assert_close(outputs[0], below, atol=1e-9, rtol=0)


@pytest.mark.parametrize("cell", [*CELLS.names(), Everything, Readout, Phased, Ranked], ids=str)
def test_any_cell_runs_as_it_does_unwatched(cell):
    torch.manual_seed(1)
    rnn = RNN(cell, 3, 4, layers=2).double().eval()
    x, lengths = torch.randn(2, 6, 3).double(), torch.tensor([6, 4])
    watch = Watch(rnn)
    found, wanted = watch.model(x, lengths), rnn(x, lengths)
    torch.testing.assert_close(found.outputs, wanted.outputs)
    torch.testing.assert_close(found.last, wanted.last)
    track = watch.tracks(watch.model, 6)[0][0]
    assert len(track.states) == len(track.gates) == len(track.inputs) == 6
    assert track.states[0]._fields == rnn.cell_class.state


def test_a_free_form_cell_shows_its_variables():
    class Own(Cell):
        state = ("h",)
        gates = ("a", "g")

        def step(self, x, s, product):
            gate = sigmoid(x.g + product(s.h, "g"))
            return self.State(gate * s.h + (1 - gate) * tanh(x.a))

    watch = Watch(RNN(Own, 2, 3))
    watch.model(torch.randn(1, 4, 2).double())
    [[track]] = watch.tracks(watch.model, 4)
    assert list(track.gates[0]) == ["gate"]
    assert sys.getprofile() is None


def test_a_clamped_state_is_held_inside_the_equations():
    torch.manual_seed(2)
    rnn, x = RNN("lstm", 3, 4), torch.randn(1, 5, 3).double()
    watch = Watch(rnn, [Clamp.read("c:3=0.25"), Clamp.read("c:1=0"), Clamp.read("o:2=0")])
    watch.model(x)
    [[track]] = watch.tracks(watch.model, 5)
    for gates, state in zip(track.gates, track.states, strict=True):
        assert state.c[0, 2] == 0.25
        assert state.c[0, 0] == state.h[0, 0] == 0
        assert gates["o"][0, 1] == state.h[0, 1] == 0
        torch.testing.assert_close(state.h[0, 2], gates["o"][0, 2] * torch.tensor(0.25).double().tanh())


def test_a_clamp_that_fits_nothing_is_named():
    rnn = RNN("lstm", 3, 4)
    with pytest.raises(ArgumentError, match="as c:3=0"):
        Clamp.read("c3=0")
    with pytest.raises(ArgumentError, match="no gate or state is called 'q'"):
        Watch(rnn, [Clamp("q", 1, 0.0)])
    with pytest.raises(ArgumentError, match="no unit 5"):
        Watch(rnn, [Clamp("c", 5, 0.0)])
    Watch(RNN("lstm", 3, [4, 9]), [Clamp.read("2.c:9=0")])  # the second layer has it


def test_the_network_itself_stays_as_it_was():
    rnn = RNN("gru", 3, 4)
    before = {name: value.clone() for name, value in rnn.state_dict().items()}
    watch = Watch(rnn, [Clamp("z", 1, 1.0)])
    watch.model(torch.randn(1, 3, 3).double())
    assert rnn.training
    assert not rnn.all_cells()[0].has_hooks
    for name, value in rnn.state_dict().items():
        assert torch.equal(value, before[name])
