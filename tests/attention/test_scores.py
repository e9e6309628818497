"""The contract of a score: every file of the folder, and what users write (rows A1–A4)."""

import itertools
import math

import pytest
import torch

from comparison import assert_close, disturb
from elman import register
from elman.attention.additive import Additive
from elman.attention.base import Attention
from elman.attention.bilinear import Bilinear
from elman.attention.dot import Dot
from elman.attention.location import Location
from elman.errors import ArgumentError, ShapeError, UnknownNameError
from elman.registry import ATTENTIONS, construct

WIDTHS = {"equal": (4, 4), "narrow query": (3, 5), "wide query": (6, 2)}
OPTIONS = {
    "dot": [{}],
    "bilinear": [{}],
    "additive": [{}, {"width": 7}],
    "location": [{}, {"width": 7, "filters": 3, "reach": 1}, {"reach": 0}],
}
CASES = [
    pytest.param(name, *sizes, options, id=f"{name}, {widths}, {options}")
    for name in ATTENTIONS.names()
    for widths, sizes in WIDTHS.items()
    for options in OPTIONS.get(name, [{}])
]
every_score = pytest.mark.parametrize(("name", "Q", "M", "options"), CASES)
every_name = pytest.mark.parametrize("name", ATTENTIONS.names())

USER_SCORE = '''
from elman.attention.base import Attention


class Distance(Attention):
    """The nearer, the more it matters; of the features that both have."""

    def __init__(self, query_size, key_size, *, scale=1.0):
        super().__init__(query_size, key_size)
        self.scale = scale

    def score(self, query, keys, previous):
        common = min(self.query_size, self.key_size)
        apart = query[:, :, None, :common] - keys[:, None, :, :common]
        return -self.scale * apart.square().sum(-1)
'''


@pytest.fixture
def attentions(monkeypatch):
    """The registry of scores, left as it was."""
    monkeypatch.setattr(ATTENTIONS, "_added", dict(ATTENTIONS._added))
    return ATTENTIONS


def made(name, Q, M, options=None):
    attention = construct(ATTENTIONS.find(name), Q, M, options=options or {}, named="attention_options")
    disturb(attention)
    return attention.double()


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def some(Q, M, lengths=(6, 1, 4), T=5):
    """Queries (B, T, Q), states (B, S, M), lengths (B,) and last weights (B, S), zero at padding."""
    lengths = torch.tensor(lengths)
    B, S = len(lengths), int(lengths.max())
    previous = random(B, S).masked_fill(torch.arange(S) >= lengths[:, None], -math.inf).softmax(-1)
    return random(B, T, Q), random(B, S, M), lengths, previous


@every_score
def test_weights_are_a_distribution_over_real_positions_A4(name, Q, M, options):
    attention = made(name, Q, M, options)
    query, states, lengths, _ = some(Q, M)
    context, weights = attention(query, attention.remember(states, lengths))
    assert context.shape == (3, 5, M)
    assert weights.shape == (3, 5, 6)
    assert_close({"sum": weights.sum(-1)}, {"sum": torch.ones(3, 5, dtype=torch.float64)}, 1e-12)
    for row, length in enumerate(lengths):
        assert (weights[row, :, :length] > 0).all()
        assert (weights[row, :, length:] == 0).all()
    assert (weights[1, :, 0] == 1).all()  # one state: nothing to choose


@every_score
def test_the_context_is_the_weighted_sum_A4(name, Q, M, options):
    attention = made(name, Q, M, options)
    query, states, lengths, _ = some(Q, M)
    context, weights = attention(query, attention.remember(states, lengths))
    expected = torch.zeros_like(context)
    for b, i in itertools.product(range(3), range(5)):
        for j in range(lengths[b]):
            expected[b, i] += weights[b, i, j] * states[b, j]
    assert_close({"context": context}, {"context": expected}, 1e-12)


@every_score
@pytest.mark.parametrize("junk", [7.0, math.inf, math.nan])
def test_nothing_of_the_padding_leaks_A4(name, Q, M, options, junk):
    attention = made(name, Q, M, options)
    query, states, lengths, previous = some(Q, M, T=1)
    results = []
    for value in (0.0, junk):
        given = states.clone()
        for row, length in enumerate(lengths):
            given[row, length:] = value
        given.requires_grad_()
        context, weights = attention(query, attention.remember(given, lengths), previous)
        leaves = [given, *attention.parameters()]
        gradients = torch.autograd.grad(context.square().sum() + weights.square().sum(), leaves)
        results.append(dict(enumerate([context, weights, *gradients])))
    assert_close(results[1], results[0], 0.0)


@every_score
def test_a_row_alone_equals_the_row_in_its_batch(name, Q, M, options):
    attention = made(name, Q, M, options)
    query, states, lengths, previous = some(Q, M, T=1)
    together, weights = attention(query, attention.remember(states, lengths), previous)
    for row, length in enumerate(lengths):
        memory = attention.remember(states[row : row + 1, :length], lengths[row : row + 1])
        context, alone = attention(query[row : row + 1], memory, previous[row : row + 1, :length])
        assert_close(
            {"c": context[0], "w": alone[0]}, {"c": together[row], "w": weights[row, :, :length]}, 1e-12
        )


@every_score
def test_all_queries_at_once_equal_one_at_a_time(name, Q, M, options):
    """Of a sequential score this holds where no query knows of the one before."""
    attention = made(name, Q, M, options)
    query, states, lengths, _ = some(Q, M)
    memory = attention.remember(states, lengths)
    context, weights = attention(query, memory)
    for t in range(query.shape[1]):
        one, where = attention(query[:, t : t + 1], memory)
        assert_close({"c": one[:, 0], "w": where[:, 0]}, {"c": context[:, t], "w": weights[:, t]}, 1e-12)


@every_score
def test_only_a_sequential_score_looks_at_the_last_weights(name, Q, M, options):
    attention = made(name, Q, M, options)
    query, states, lengths, previous = some(Q, M, T=1)
    memory = attention.remember(states, lengths)
    _, without = attention(query, memory)
    _, knowing = attention(query, memory, previous)
    assert attention.sequential != torch.equal(without, knowing)


@every_score
def test_gradients_reach_everything(name, Q, M, options):
    attention = made(name, Q, M, options)
    query, states, lengths, previous = some(Q, M, T=1)
    leaves = {"query": query, "states": states, **dict(attention.named_parameters())}
    for leaf in leaves.values():
        leaf.requires_grad_()
    context, _ = attention(query, attention.remember(states, lengths), previous)
    (context * random(*context.shape)).sum().backward()
    for leaf_name, leaf in leaves.items():
        assert leaf.grad is not None, leaf_name
        assert (leaf.grad != 0).any(), leaf_name
    assert (query.grad[1] == 0).all()  # a single state leaves no choice
    assert (states.grad[1, 1:] == 0).all()  # padding


@every_score
def test_gradients_against_finite_differences(name, Q, M, options):
    attention = made(name, Q, M, options)
    query, states, lengths, previous = some(Q, M, lengths=(3, 2), T=1)
    parameters = dict(attention.named_parameters())

    class Asked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = attention

        def forward(self, query, states, previous):
            return self.attention(query, self.attention.remember(states, lengths), previous)

    def function(query, states, previous, *weights):
        named = {f"attention.{key}": weight for key, weight in zip(parameters, weights, strict=True)}
        return torch.func.functional_call(Asked(), named, (query, states, previous))

    inputs = [query, states, *(p.detach() for p in parameters.values())]
    inputs.insert(2, previous)
    for tensor in inputs:
        tensor.requires_grad_()
    if not attention.sequential:
        previous.requires_grad_(False)
    assert torch.autograd.gradcheck(function, inputs)


@every_name
def test_nothing_is_kept_in_the_module(name):
    attention = made(name, 4, 4)
    query, states, lengths, previous = some(4, 4, T=1)
    before = set(vars(attention)), {key: value.clone() for key, value in attention.state_dict().items()}
    first = attention(query, attention.remember(states, lengths), previous)
    attention(query.flip(0), attention.remember(states.flip(0), lengths.flip(0)), None)
    again = attention(query, attention.remember(states, lengths), previous)
    assert torch.equal(first[1], again[1])
    assert set(vars(attention)) == before[0]
    assert_close(attention.state_dict(), before[1], 0.0)


@every_name
def test_saved_weights_give_the_same_scores(name):
    one, other = made(name, 3, 5), made(name, 3, 5)
    query, states, lengths, previous = some(3, 5, T=1)
    other.load_state_dict(one.state_dict())
    for found, expected in zip(
        other(query, other.remember(states, lengths), previous),
        one(query, one.remember(states, lengths), previous),
        strict=True,
    ):
        assert torch.equal(found, expected)


@every_name
def test_it_runs_under_autocast(name):
    attention = made(name, 3, 5).float()
    query, states, lengths, previous = (
        part.float() if part.is_floating_point() else part for part in some(3, 5, T=1)
    )
    expected, _ = attention(query, attention.remember(states, lengths), previous)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        context, weights = attention(query, attention.remember(states, lengths), previous)
    assert_close({"c": context.float()}, {"c": expected}, 0.05)
    assert (weights[1, :, 1:] == 0).all()


# The equations, by plain loops


def scores_of(attention, query, states, previous=None):
    return attention.score(query, attention.keys(states), previous)


def by_loops(query, states, function):
    """(B, T, S) from a function of one query and the place (row, position) of one state."""
    (B, T, _), S = query.shape, states.shape[1]
    result = query.new_zeros(B, T, S)
    for b, i, j in itertools.product(range(B), range(T), range(S)):
        result[b, i, j] = function(query[b, i], b, j)
    return result


def test_dot_A1():
    query, states, _, _ = some(4, 4)
    expected = by_loops(query, states, lambda h, b, j: sum(h[k] * states[b, j, k] for k in range(4)))
    attention = made("dot", 4, 4)
    assert_close({"score": scores_of(attention, query, states)}, {"score": expected}, 1e-12)
    assert not list(attention.parameters())


def test_dot_of_unequal_widths_has_one_matrix_and_says_so_A1():
    query, states, _, _ = some(3, 5)
    attention = made("dot", 3, 5)
    [W] = attention.parameters()
    assert W.shape == (5, 3)
    expected = by_loops(query, states, lambda h, b, j: (W @ h) @ states[b, j])
    assert_close({"score": scores_of(attention, query, states)}, {"score": expected}, 1e-12)
    assert "a learned matrix is between" in attention.describe()
    assert "learned" not in made("dot", 4, 4).describe()


@pytest.mark.parametrize(("Q", "M"), WIDTHS.values())
def test_bilinear_A2(Q, M):
    query, states, _, _ = some(Q, M)
    attention = made("bilinear", Q, M)
    [W] = attention.parameters()  # one for all steps; stored as (Q, M), the transpose of W_a
    expected = by_loops(query, states, lambda h, b, j: states[b, j] @ W.T @ h)
    assert_close({"score": scores_of(attention, query, states)}, {"score": expected}, 1e-12)


@pytest.mark.parametrize("width", [None, 7])
def test_additive_A3(width):
    query, states, _, _ = some(3, 5)
    attention = made("additive", 3, 5, {"width": width})
    Wq, Wk, b_k = attention.of_query.weight, attention.of_keys.weight, attention.of_keys.bias
    assert len(attention.v) == (width or 3)
    expected = by_loops(
        query, states, lambda h, b, j: attention.v @ torch.tanh(Wq @ h + Wk @ states[b, j] + b_k)
    )
    assert_close({"score": scores_of(attention, query, states)}, {"score": expected}, 1e-12)


@pytest.mark.parametrize("reach", [0, 1, 5])
def test_location_sees_where_it_looked_A3(reach):
    query, states, _, previous = some(3, 5, T=1)
    attention = made("location", 3, 5, {"filters": 2, "reach": reach})
    Wq, Wk, b_k = attention.of_query.weight, attention.of_keys.weight, attention.of_keys.bias
    F, U, S = attention.filters.weight, attention.of_filters.weight, states.shape[1]
    assert F.shape == (2, 1, 2 * reach + 1)

    def score(h, b, j):
        seen = torch.zeros(2, dtype=torch.float64)
        for offset in range(-reach, reach + 1):
            if 0 <= j + offset < S:
                seen += F[:, 0, reach + offset] * previous[b, j + offset]
        return attention.v @ torch.tanh(Wq @ h + Wk @ states[b, j] + U @ seen + b_k)

    expected = by_loops(query, states, score)
    assert_close({"score": scores_of(attention, query, states, previous)}, {"score": expected}, 1e-12)


def test_location_without_last_weights_is_additive_A3():
    location, additive = made("location", 3, 5), made("additive", 3, 5)
    additive.load_state_dict(location.state_dict(), strict=False)
    query, states, _, previous = some(3, 5)
    expected = {"score": scores_of(additive, query, states)}
    assert_close({"score": scores_of(location, query, states)}, expected, 0.0)
    nowhere = scores_of(location, query, states, torch.zeros_like(previous))
    assert_close({"score": nowhere}, expected, 1e-12)


# Names, options and mistakes


def test_every_file_of_the_folder_is_a_score():
    found = {"dot": Dot, "bilinear": Bilinear, "additive": Additive, "location": Location}
    assert {name: ATTENTIONS.find(name) for name in found} == found


@every_name
def test_it_describes_itself_with_the_widths(name):
    assert made(name, 3, 5).describe().startswith(f"{name}, a query of 3 over states of 5")


def test_a_registered_score_is_a_name(attentions):
    class Flat(Attention):
        """Everything matters equally."""

        def score(self, query, keys, previous):
            return query.new_zeros(len(query), query.shape[1], keys.shape[1])

    register("flat", Flat)
    assert "flat" in attentions.names()
    query, states, lengths, _ = some(3, 5)
    attention = made("flat", 3, 5)
    context, _ = attention(query, attention.remember(states, lengths))
    for row, length in enumerate(lengths):
        mean = states[row, :length].mean(0).expand(5, -1)
        assert_close({"c": context[row]}, {"c": mean}, 1e-12)
    with pytest.raises(ArgumentError, match="'dot' is a built-in attention; choose another name"):
        register("dot", Flat)


def test_a_score_of_the_users_own_file(tmp_path):
    path = tmp_path / "scores.py"
    path.write_text(USER_SCORE, encoding="utf-8")
    query, states, lengths, _ = some(3, 5)
    attention = made(f"{path}:Distance", 3, 5, {"scale": 2.0})
    _, weights = attention(query, attention.remember(states, lengths))
    expected = by_loops(query, states, lambda h, b, j: -2.0 * (h - states[b, j, :3]).square().sum())
    assert_close({"w": weights[0]}, {"w": expected[0].softmax(-1)}, 1e-12)
    with pytest.raises(ArgumentError, match=r"attention_options has 'scael', unknown to Distance; .*'scale'"):
        made(f"{path}:Distance", 3, 5, {"scael": 2.0})
    with pytest.raises(UnknownNameError, match="has no attention named 'Distanse'; did you mean 'Distance'"):
        ATTENTIONS.find(f"{path}:Distanse")
    with pytest.raises(UnknownNameError, match="cannot be loaded"):
        ATTENTIONS.find(f"{tmp_path / 'none.py'}:Distance")


@pytest.mark.parametrize("name", ["additiv", "base", "none", "cosine"])
def test_an_unknown_score_lists_the_known_ones(name):
    with pytest.raises(UnknownNameError) as caught:
        ATTENTIONS.find(name)
    message = str(caught.value)
    assert f"E103: no attention named {name!r}" in message
    assert "Known: additive, bilinear, dot, location" in message
    assert ("did you mean 'additive'?" in message) == (name == "additiv")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dot", {"width": 3}, "attention_options has 'width', unknown to Dot; Known: none"),
        (
            "additive",
            {"widht": 3},
            "attention_options has 'widht', unknown to Additive; did you mean 'width'?",
        ),
        ("additive", {"key_size": 3}, "attention_options has 'key_size', unknown to Additive"),
        ("additive", {"width": 0}, "width is 0; it must be a whole number of at least 1"),
        ("additive", {"width": 2.5}, "width is 2.5; it must be a whole number of at least 1"),
        ("location", {"width": "3"}, "width is '3'; it must be a whole number of at least 1"),
        ("location", {"filters": 0}, "filters is 0; it must be a whole number of at least 1"),
        ("location", {"reach": -1}, "reach is -1; it must be a whole number of at least 0"),
        ("dot", [3], "attention_options is [3]; it must be a mapping of names to values"),
    ],
)
def test_a_wrong_option_is_named(name, options, message):
    with pytest.raises(ArgumentError) as caught:
        made(name, 3, 5, options)
    assert message in str(caught.value)


@every_name
def test_a_wrong_width_is_named(name):
    with pytest.raises(ArgumentError, match="query_size is 0; it must be a whole number"):
        made(name, 0, 5)
    with pytest.raises(ArgumentError, match="key_size is '5'; it must be a whole number"):
        made(name, 3, "5")


@pytest.mark.parametrize("lengths", [[3, 0], [3, 4], [3]])
def test_lengths_that_do_not_fit_are_refused(lengths):
    """A row without a real state would have no weights."""
    with pytest.raises(ShapeError, match="lengths"):
        made("dot", 4, 4).remember(random(2, 3, 4), torch.tensor(lengths))


def test_a_score_has_to_be_written():
    with pytest.raises(ArgumentError, match=r"Attention has to define score\(self, query, keys, previous\)"):
        Attention(3, 5)

    class Uniform(Attention):
        def forward(self, query, memory, previous=None):
            return memory.values.mean(1, keepdim=True), memory.mask[:, None].float()

    assert Uniform(3, 5).key_size == 5


def test_a_score_of_another_shape_is_named():
    """One number a state, without the queries, would be broadcast over the batch."""

    class Flat(Attention):
        def score(self, query, keys, previous):
            return keys.sum(-1)

    flat = Flat(3, 5)
    memory = flat.remember(random(2, 4, 5), torch.tensor([4, 2]))
    message = r"what score\(\) of Flat returned has shape \(2, 4\); it must be \(2, 1, 4\)"
    with pytest.raises(ShapeError, match=message):
        flat(random(2, 1, 3), memory)


@pytest.mark.slow
def test_many_long_queries_are_scored_in_parts_A3(monkeypatch):
    """The same scores and gradients, without all of (B, T, S, ·) in memory."""
    torch.manual_seed(0)
    score = Additive(6, 5, width=7)
    query, states = torch.randn(2, 9, 6, requires_grad=True), torch.randn(2, 4, 5, requires_grad=True)
    inputs = [query, states, *score.parameters()]
    found = []
    for limit in (1 << 26, 2 * 4 * 7 * 2):  # all, and two steps at a time
        monkeypatch.setattr("elman.attention.additive.LARGE", limit)
        scores = score.score(query, score.keys(states), None)
        found.append([scores, *torch.autograd.grad(scores.square().sum(), inputs)])
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(whole, parts)
