"""Gradients through time in whole models, beside finite differences and brute force; and what is said."""

import math

import pytest
import torch

from elman import RNN
from elman.attention.additive import Additive
from elman.inspection.asking import passage_of
from elman.inspection.flows import flows, gradient_matrices, step_norms
from elman.inspection.gradients import measure_gradients
from elman.inspection.observation import Observation
from elman.inspection.passages import Passage, Strand
from elman.inspection.spectral import largest_singular_values
from tiny_tasks import TEXTS, ready
from user_cells import UserLSTM

MODELS = {
    "lm": ("lm", {"model.layers": 2, "text.context": "sentence"}),
    "gru": ("lm", {"model.cell": "gru"}),
    "zoneout": ("lm", {"model.layers": 2, "model.zoneout": 0.3, "model.initial_state": "learned"}),
    "matrices": ("tag", {"model.cell": "mogrifier"}),
    "heads": ("tag", {"model.hidden": 6, "model.characters": 0, "model.cell_options": {"heads": 2}}),
    "tag": ("tag", {"model.layers": 2}),
    "crf": ("tag", {"model.crf": True}),
    "classify": ("classify", {"model.pooling": "last"}),
    "class2seq": ("class2seq", {}),
    "before": ("seq2seq", {}),
    "after": ("seq2seq", {"model.placement": "after", "model.input_feeding": True}),
    "additive": ("seq2seq", {"model.attention": "additive", "model.placement": "after"}),
    "location": ("seq2seq", {"model.attention": "location", "model.placement": "before"}),
    "static": ("seq2seq", {"model.attention": "none", "model.context": "every-step"}),
    "copy": (
        "seq2seq",
        {"model.attention": "none", "model.start": "copy", "model.bidirectional": False, "model.layers": 2},
    ),
    "single": ("seq2seq", {"model.form": "single", "model.layers": 2}),
}


def observed(name, folder):
    task, settings = MODELS[name]
    one = ready(task, folder, settings)
    for parameter in one.model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    target = "der Hund läuft" if task == "seq2seq" else None
    return Observation(passage_of(one.task, one.model, TEXTS[task][0], target), one.model)


@pytest.mark.parametrize("name", MODELS)
def test_matrices_are_those_of_brute_force(name, tmp_path):
    seen = observed(name, tmp_path)
    for place, matrix in zip(seen.places, gradient_matrices(seen), strict=True):
        assert matrix.shape == (len(seen.passage.outputs), len(place.strand.tokens))
        for t, loss in enumerate(seen.losses):
            parts = [part for state in place.track.states for part in state]
            options = {"retain_graph": True, "materialize_grads": True, "allow_unused": True}
            squares = [float(one.square().sum()) for one in torch.autograd.grad(loss, parts, **options)]
            fields = len(squares) // len(place.track.states)
            for k in range(len(place.track.states)):
                whole = math.sqrt(sum(squares[k * fields : (k + 1) * fields]))
                assert abs(float(matrix[t, k]) - whole) < 1e-8


@pytest.mark.parametrize("name", ["before", "single", "tag"])
def test_cores_share_the_losses(name, tmp_path):
    seen = observed(name, tmp_path)
    for one, two in zip(gradient_matrices(seen), gradient_matrices(seen, cores=2), strict=True):
        torch.testing.assert_close(one, two, atol=1e-12, rtol=1e-12)


class Centred(Additive):
    def score(self, query, keys, previous):
        found = super().score(query, keys, previous)
        return found - found.mean(-1, keepdim=True)


def test_a_score_of_several_keys_is_carried_back_as_it_is(tmp_path):
    """Where a score is not of one query and one key alone, nothing is put together."""
    seen = observed("additive", tmp_path)
    seen.quick.attention.__class__ = Centred
    again = Observation(seen.passage, seen.quick)
    assert all(look.by_key is None for look in again.handover.looks)
    assert all(look.by_key is not None for look in seen.handover.looks)
    for one, other in zip(gradient_matrices(seen), gradient_matrices(again), strict=True):
        torch.testing.assert_close(one, other)  # a mean changes nothing that a softmax sees


@pytest.mark.parametrize("name", ["lm", "tag", "classify", "class2seq", "before"])
def test_matrices_are_those_of_finite_differences(name, tmp_path):
    """A state is moved a little while the network runs; the losses move as the gradient says."""
    seen = observed(name, tmp_path)
    matrices = gradient_matrices(seen)
    first = seen.places[0].network
    for place, matrix in zip(seen.places, matrices, strict=True):
        if place.network is first and place.layer == 1:  # of every direction
            K = len(place.strand.tokens)
            k = K // 2
            found = moved_losses(seen, place, K - 1 - k if place.direction == "←" else k)
            torch.testing.assert_close(found, matrix[:, k].detach(), atol=1e-4, rtol=1e-4)


def moved_losses(seen, place, step_number, epsilon=1e-5):
    """The lengths of what losses gain where the state after a step, counted as it runs, is moved."""
    cell = place.network.all_cells()[place.direction == "←"]
    closure = (part.cell_contents for part in cell.__dict__["forward"].__closure__)
    [watched] = [one for one in closure if type(one).__name__ == "WatchedCell"]
    plain, columns = watched.step, []
    for field in cell.state:
        for unit in range(cell.hidden_size):
            moved = []
            for sign in (1, -1):
                count = [0]

                def step(x, s, product, field=field, unit=unit, sign=sign, count=count):
                    new, number = plain(x, s, product), count[0]
                    count[0] += 1
                    return moved_state(new, field, unit, sign * epsilon) if number == step_number else new

                watched.step = step
                with torch.no_grad():
                    moved.append(-seen.passage.chosen(seen.passage.log_probs(seen.model, seen.x))[0])
            columns.append((moved[0] - moved[1]) / (2 * epsilon))
    watched.step = plain
    return torch.stack(columns).square().sum(0).sqrt()


def moved_state(state, field, unit, by):
    value = getattr(state, field).clone()
    value[..., unit] += by
    return state._replace(**{field: value})


def test_a_step_has_the_norm_of_its_jacobian(tmp_path):
    seen = observed("tag", tmp_path)
    for place in seen.places[:2]:
        cell = place.network.all_cells()[place.direction == "←"]
        order = range(len(place.track.states))
        order = list(reversed(order)) if place.direction == "←" else list(order)
        state, norms = place.track.start, step_norms(place)
        for k in order:
            old = torch.cat([part.detach() for part in state], 1)
            x = place.track.inputs[k].detach()

            def after(flat, x=x, cell=cell):
                return torch.cat([*cell(x[:, None], cell.State(*flat.chunk(2, 1))).state], 1)

            jacobian = torch.autograd.functional.jacobian(after, old)[0, :, 0]
            assert abs(float(norms[k]) - float(torch.linalg.matrix_norm(jacobian, 2))) < 1e-8
            state = place.track.states[k]


def test_the_largest_singular_value_of_what_is_large():
    torch.manual_seed(0)
    W = torch.randn(300, 200, dtype=torch.float64)
    x = torch.randn(3, 300, dtype=torch.float64, requires_grad=True)
    found = largest_singular_values([x], [x @ W])
    torch.testing.assert_close(found, torch.linalg.matrix_norm(W, 2).expand(3), rtol=1e-6, atol=0)
    constant = torch.ones(3, 2, dtype=torch.float64)
    assert largest_singular_values([x], [constant]).tolist() == [0, 0, 0]


class Chain(Passage):
    """A bare network, whose loss is the sum of its outputs at every step."""

    def __init__(self, rnn, T):
        self.task, self.text, self.notes = None, "", []
        tokens = [str(t) for t in range(T)]
        self.inputs = self.outputs = tokens
        self.numbers, self.names = [0] * T, ["sum"]
        self.strands = [Strand("network", "", tokens, ["text"] * T, True)]
        self.T = T

    def embed(self, model):
        return torch.zeros(1, self.T, model.input_size)

    def log_probs(self, model, x):
        return -model(x).outputs.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    ("factor", "T", "verdict"),
    [
        (0.5, 30, "vanishes"),
        (0.98, 30, "holds"),
        (1.0, 60, "holds"),
        (1.02, 60, "holds"),
        (1.5, 30, "explodes"),
    ],
)
def test_what_is_said_is_right(factor, T, verdict):
    rnn = RNN("elman", 2, 3)  # at zero, tanh has slope 1
    with torch.no_grad():
        rnn.cells[0][0].W_h.copy_(factor * torch.eye(3))
    [flow] = flows(Observation(Chain(rnn, T), rnn))
    assert flow.verdict == verdict
    assert flow.rate == pytest.approx(factor, abs=1e-6)
    assert flow.spectral == pytest.approx([factor] * T)
    assert flow.matrix[-1, 0] == pytest.approx(3**0.5 * factor ** (T - 1), rel=1e-4)
    if factor == 0.5:
        assert flow.half_life == pytest.approx(1)
        assert "is halved after 1 and below 1 % after 7 steps" in flow.sentence
    if factor >= 1:
        assert flow.half_life is None
    assert flow.sentence.endswith(f"it {verdict}.")


def test_a_backward_direction_is_read_from_the_end(tmp_path):
    seen = observed("tag", tmp_path)
    found = {flow.place: flow for flow in flows(seen)}
    back = found["LSTM, layer 2 ←"]
    T = len(seen.passage.outputs)
    assert (back.matrix[-1, : T - 1] == 0).all()  # the last loss hears only the last state of this direction
    assert (found["LSTM, layer 2 →"].matrix[0, 1:] == 0).all()
    assert back.curve[0] == pytest.approx(sorted(back.matrix.diagonal())[(T - 1) // 2])


def test_a_users_cell_needs_no_change(tmp_path):
    rnn = RNN(UserLSTM, 2, 3)
    [flow] = flows(Observation(Chain(rnn, 5), rnn))
    assert flow.place == "UserLSTM"
    assert flow.matrix.shape == (5, 5)


def test_a_bare_network_is_measured_as_ever():
    torch.manual_seed(4)
    rnn = RNN("lstm", 2, 3)
    [flow] = flows(Observation(Chain(rnn, 6), rnn))
    reach = measure_gradients(rnn, torch.zeros(1, 6, 2), loss=lambda y: y.sum(-1))
    assert flow.matrix[-1] == pytest.approx(reach.loss[0].numpy(), abs=1e-9)
