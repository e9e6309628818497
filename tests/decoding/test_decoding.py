"""The walk and its strategies, over a small recurrent step function with a nested state."""

import math

import pytest
import torch
from step_functions import END, STOP, H, Memory, Model, Table, V, log_probability, produced, row_of, run

from elman import RNN
from elman.decoding.base import Choice, Strategy, decode
from elman.decoding.beam import Beam
from elman.decoding.diverse import Diverse
from elman.decoding.greedy import Greedy
from elman.decoding.rows import select
from elman.decoding.sample import Sample
from elman.errors import ArgumentError, ShapeError
from elman.registry import STRATEGIES

STRATEGY_OPTIONS = {"sample": {"seed": 3}, "diverse": {"seed": 3}, "beam": {"beam": 3}}
CASES = [
    {},
    {"stop": {STOP}},
    {"min_length": 3},
    {"min_length": 9},
    {"max_length": 1},
    {"banned": [0, 1], "stop": frozenset({STOP, 3}), "min_length": 2},
]


def strategy_of(name):
    return STRATEGIES.find(name)(**STRATEGY_OPTIONS.get(name, {}))


def test_every_file_of_the_folder_is_a_strategy():
    assert {"greedy", "sample", "beam", "diverse"} <= set(STRATEGIES.names())
    for name in STRATEGIES.names():
        assert issubclass(STRATEGIES.find(name), Strategy)


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize(
    ("name", "n_best"),
    [(name, n_best) for name in STRATEGIES.names() for n_best in ([1] if name == "greedy" else [1, 3])],
)
def test_what_every_strategy_keeps_to(name, n_best, options):
    model, N = Model(), 6
    found = run(strategy_of(name), N, model, n_best=n_best, **options)
    stop, banned = set(options.get("stop", ())), set(options.get("banned", ()))
    least, most = options.get("min_length", 0), options.get("max_length", 9)
    assert len(found) == N
    for row, one in [(row, one) for row, each in enumerate(found) for one in each.hypotheses]:
        assert END not in one.tokens
        assert not banned & set(one.tokens)
        assert not stop & set(one.tokens[:-1])
        if one.stopped == "length":
            assert len(one.tokens) == most
        else:
            assert least <= len(one.tokens) <= most
        assert (one.stopped == "stop") == bool(stop & set(one.tokens[-1:]))
        out = produced(one)
        expected = log_probability(model, row % 4, row_of(model, N, row), out)
        assert math.isclose(one.log_probability, expected, abs_tol=1e-9)
        assert [int(shown["name"]) for shown in one.shown] == [row] * len(out)
        assert [int(shown["step"]) for shown in one.shown] == list(range(len(out)))
        assert [int(shown["read"]) for shown in one.shown] == [row % 4, *out[:-1]]
    for each in found:
        scores = [one.score for one in each.hypotheses]
        assert 1 <= len(scores) <= n_best
        assert scores == sorted(scores, reverse=True)
        assert each.best is each.hypotheses[0]
    assert all(names == sorted(names) for names in model.names)  # rows of an example stand side by side


def test_all_three_ways_to_stop_occur_E4():
    found = [one.best for seed in range(8) for one in run(Greedy(), model=Model(seed), stop={STOP})]
    assert {one.stopped for one in found} == {"end", "stop", "length"}


@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_the_argmax_E7(seed):
    model = Model(seed)
    for row, one in enumerate(run(Greedy(), 4, model)):
        state, previous, expected = row_of(model, 4, row), row, []
        while len(expected) < 9:
            log_probs, state, _ = model(torch.tensor([previous]), state)
            previous = int(log_probs.argmax())
            if previous == END:
                break
            expected.append(previous)
        assert one.best.tokens == expected
        assert one.best.score == one.best.log_probability


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("strategy", [Greedy(), Beam(beam=3)])
def test_a_row_alone_gives_what_it_gives_in_a_batch(strategy, seed):
    model, N = Model(seed), 6
    together = run(strategy, N, model, stop={STOP}, keep_shown=False)
    for row, one in enumerate(together):
        start = row_of(model, N, row)
        [alone] = run(strategy, 1, model, start, torch.tensor([row % 4]), stop={STOP}, keep_shown=False)
        assert alone == one
        assert one.best.shown is None


def test_what_is_finished_leaves_the_batch():
    model = Model(3)
    found = run(Greedy(), 6, model, stop={STOP, 2})
    steps = [len(produced(one.best)) for one in found]
    assert len(set(steps)) > 1
    assert model.sizes == [sum(count >= number for count in steps) for number in range(1, max(steps) + 1)]


def test_a_state_is_left_alone_while_all_rows_go_on():
    states = []

    def step(tokens, state):
        states.append(state)
        return torch.zeros(len(tokens), V), state, None

    start = object()  # could not be indexed
    found = decode(step, torch.tensor([0, 1]), start, Greedy(), end=END, max_length=5)
    assert [one.best.tokens for one in found] == [[0] * 5, [0] * 5]
    assert [one.best.shown for one in found] == [None, None]
    assert states == [start] * 5


def test_an_rnn_streams_through_the_walk_L4():
    rnn, embedding = RNN("lstm", 4, H, layers=2).eval(), torch.randn(V, 4)
    U = torch.randn(H, V) * 3

    def step(tokens, state):
        y, state = rnn.step(embedding[tokens], state)
        return (y @ U).log_softmax(-1), state, None

    found = decode(step, torch.arange(5), rnn.start(5), Greedy(), end=END, stop={STOP}, max_length=8)
    for row, one in enumerate(found):
        out = produced(one.best)
        outputs = rnn(embedding[torch.tensor([[row, *out[:-1]]])]).outputs[0]
        log_probs = (outputs @ U).log_softmax(-1)
        assert log_probs.argmax(1).tolist() == out
        expected = log_probs[range(len(out)), out].sum().item()
        assert math.isclose(one.best.log_probability, expected, abs_tol=1e-4)


def test_nothing_is_kept_for_gradients():
    weight = torch.zeros(V, requires_grad=True)

    def step(tokens, state):
        log_probs = weight.expand(len(tokens), V).log_softmax(-1)
        assert not log_probs.requires_grad
        return log_probs, None, None

    decode(step, torch.tensor([0]), None, Greedy(), end=END, max_length=2)


def test_what_a_step_gave_is_as_it_was():
    """Rules hide tokens without a copy; whoever holds the tensor sees nothing of it."""
    table = torch.randn(3, V).log_softmax(-1)
    before, given = table.clone(), []

    def step(tokens, state):
        given.append(table[: len(tokens)])
        return given[-1], None, None

    options = {"end": END, "banned": [0, 3], "min_length": 2, "max_length": 4}
    found = decode(step, torch.arange(3), None, Greedy(), **options)
    assert torch.equal(table, before)
    with torch.inference_mode():
        table = table.clone()
    assert decode(step, torch.arange(3), None, Greedy(), **options) == found
    table = before.T.contiguous().T
    assert decode(step, torch.arange(3), None, Greedy(), **options) == found
    assert len(given) == 12


@pytest.mark.parametrize(
    ("strategy", "n_best"),
    [
        (Greedy(), 1),
        (Beam(beam=4), 3),
        (Beam(beam=4, length_penalty=0.0), 1),  # examples are done at different steps, with rows left
        (Sample(seed=1), 3),
        (Diverse(seed=1), 3),
    ],
)
def test_a_trace_tells_the_whole_search(strategy, n_best):
    model, N = Model(1, sharpness=1.0), 4
    options = {"stop": {STOP}, "banned": [2], "max_length": 5, "n_best": n_best}
    for row, found in enumerate(run(strategy, N, model, trace=3, **options)):
        paths = {}
        for number, node in enumerate(found.tree):
            assert node.number == number
            before = [] if node.parent is None else paths[node.parent]
            assert node.step == len(before) + 1
            assert node.parent is None or found.tree[node.parent].stopped is None
            paths[number] = [*before, node.token]
            expected = log_probability(model, row, row_of(model, N, row), paths[number])
            assert math.isclose(node.log_probability, expected, abs_tol=1e-9)
        complete = [(paths[node.number], node.stopped) for node in found.tree if node.stopped]
        for one in found.hypotheses:
            out = produced(one)
            assert (out, one.stopped) in complete
            state, previous = row_of(model, N, row), row
            for t, token in enumerate(out):
                log_probs, state, _ = model(torch.tensor([previous]), state)
                best = log_probs[0].topk(3)
                assert [token for token, _ in one.trace.top[t]] == best.indices.tolist()
                assert [value for _, value in one.trace.top[t]] == pytest.approx(best.values.tolist())
                entropy = -(log_probs.exp() * log_probs).sum().item()
                assert one.trace.entropies[t] == pytest.approx(entropy)
                assert one.trace.log_probabilities[t] == pytest.approx(log_probs[0, token].item())
                previous = token
            assert len(one.trace.log_probabilities) == len(one.trace.top) == len(out)


def test_a_trace_changes_nothing_and_is_only_there_if_asked_for():
    for strategy in (Greedy(), Beam(beam=3)):
        plain, traced = run(strategy, keep_shown=False), run(strategy, keep_shown=False, trace=0)
        for one, other in zip(plain, traced, strict=True):
            assert one.best.tokens == other.best.tokens
            assert one.best.log_probability == other.best.log_probability
            assert one.tree is None
            assert one.best.trace is None
            assert other.best.trace.top == [[] for _ in produced(other.best)]


def test_an_impossible_token_has_no_entropy():
    options = {"end": 0, "max_length": 2, "trace": 1}
    [found] = decode(Table([0.0, 0.5, 0.5]), torch.tensor([0]), None, Greedy(), **options)
    assert found.best.trace.entropies == pytest.approx([math.log(2)] * 2)


def drawn(strategy, p, N=4000, **options):
    found = decode(Table(p), torch.zeros(N, dtype=torch.long), None, strategy, end=0, max_length=1, **options)
    counts = torch.zeros(len(p))
    for one in found:
        counts[one.best.tokens[0] if one.best.tokens else 0] += 1
    return counts / N


P = [0.0, 0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, P),
        ({"temperature": 0.5}, [0, 16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        ({"temperature": 1e-6}, [0, 1, 0, 0, 0]),
        ({"temperature": 1e6}, [0, 0.25, 0.25, 0.25, 0.25]),
        ({"temperature": 1e-310}, [0, 1, 0, 0, 0]),  # neither is a number of float32
        ({"temperature": 1e300}, [0, 0.25, 0.25, 0.25, 0.25]),
        ({"top_k": 2}, [0, 4 / 7, 3 / 7, 0, 0]),
        ({"top_k": 1}, [0, 1, 0, 0, 0]),
        ({"top_k": 99}, P),
        ({"top_p": 0.65}, [0, 4 / 7, 3 / 7, 0, 0]),
        ({"top_p": 0.75}, [0, 4 / 9, 3 / 9, 2 / 9, 0]),
        ({"top_p": 1e-9}, [0, 1, 0, 0, 0]),
        ({"top_p": 1.0}, P),
        ({"top_k": 3, "top_p": 0.5}, [0, 4 / 7, 3 / 7, 0, 0]),  # of 4/9, 3/9, 2/9
        ({"temperature": 0.5, "top_p": 0.5}, [0, 1, 0, 0, 0]),  # cut after the temperature
    ],
    ids=str,
)
def test_sampling_follows_its_distribution(options, expected):
    expected, strategy = torch.tensor(expected, dtype=torch.float32), Sample(seed=1, **options)
    shown = strategy.distribution(torch.tensor([P]).log())
    assert torch.allclose(shown[0].float(), expected, atol=1e-5)
    found = drawn(strategy, P)
    assert (found[shown[0] == 0] == 0).all()
    assert torch.allclose(found, expected, atol=0.03)


def test_what_is_banned_is_shared_among_the_rest():
    found = drawn(Sample(seed=1), P, banned=[1])
    assert torch.allclose(found, torch.tensor([0, 0, 3 / 6, 2 / 6, 1 / 6]), atol=0.03)


def test_the_log_probability_is_the_models_own():
    strategy = Sample(temperature=0.1, top_k=1, seed=1)
    [found] = decode(Table(P), torch.tensor([0]), None, strategy, end=0, banned=[2], max_length=3)
    one = found.best
    assert one.tokens == [1, 1, 1]
    assert math.isclose(one.log_probability, 3 * math.log(0.4), rel_tol=1e-6)


@pytest.mark.parametrize("kind", [Sample, Diverse])
def test_a_seed_gives_the_same_draws_and_other_seeds_others(kind):
    def tokens(strategy, **options):
        return [one.best.tokens for one in run(strategy, 20, model=Model(1, 0.3), **options)]

    assert tokens(kind(seed=1)) == tokens(kind(seed=1))
    assert tokens(kind(seed=1)) != tokens(kind(seed=2))
    assert tokens(kind()) != tokens(kind())
    goes_on = kind(seed=1)
    assert tokens(goes_on) != tokens(goes_on)
    given = [tokens(kind(), generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert given[0] == given[1] == tokens(kind(seed=1))
    torch.manual_seed(4)
    before = torch.get_rng_state()
    tokens(kind(seed=1))
    assert torch.equal(before, torch.get_rng_state())


def test_several_drawn_sequences_are_independent():
    [found] = decode(
        Table(P), torch.tensor([0]), None, Sample(seed=1), end=0, max_length=2, n_best=4000, keep_shown=False
    )
    counts = torch.zeros(5, 5)
    for one in found.hypotheses:
        counts[tuple(one.tokens)] += 1
    p = torch.tensor(P)
    assert torch.allclose(counts / 4000, p[:, None] * p, atol=0.03)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0}, "temperature is 0; it must be above 0"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": "hot"}, "temperature is 'hot'; it must be a number"),
        ({"top_k": 0}, "top_k is 0; it must be a whole number of at least 1"),
        ({"top_p": 0}, "top_p is 0; it must be a probability above 0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_options_of_sampling_are_checked(options, message):
    with pytest.raises(ArgumentError, match=message):
        Sample(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length is 0; it must be a whole number of at least 1"),
        ({"min_length": -1}, "min_length is -1"),
        ({"min_length": 10}, "min_length is 10, more than max_length, which is 9"),
        ({"end": 7}, "end has token 7; the model knows 0 to 6"),
        ({"stop": {-1}}, "stop has token -1"),
        ({"banned": [3, 70]}, "banned has token 70"),
        (
            {"banned": range(7)},
            "no token may come after 0 tokens of example 0: all 7 are forbidden by banned; lift a rule",
        ),
        ({"banned": range(6), "min_length": 1}, "are forbidden by banned and min_length"),
        ({"n_best": 0}, "n_best is 0"),
        ({"n_best": 2}, "n_best is 2; greedy finds one sequence: use beam, sample or diverse"),
        ({"trace": -1}, "trace is -1"),
        (
            {"first": torch.zeros(2, 2, dtype=torch.long)},
            r"first_tokens has shape \(2, 2\); it must be \(N\)",
        ),
    ],
)
def test_mistakes_are_explained(options, message):
    with pytest.raises(ArgumentError, match=message):
        run(Greedy(), **options)


def test_a_strategy_that_loses_an_example_is_named():
    class Careless(Strategy):
        def choose(self, log_probs, live, generator):
            return Choice(torch.tensor([0]), torch.tensor([0]))

    with pytest.raises(ArgumentError, match="Careless dropped all sequences, unfinished, of example 1"):
        run(Careless(), 2)

    class Disorderly(Strategy):
        def choose(self, log_probs, live, generator):
            return Choice(torch.tensor([0, 0]), torch.tensor([1, 0]))

    with pytest.raises(ArgumentError, match="Disorderly mixed the examples"):
        run(Disorderly(), 2)

    class Lawless(Strategy):
        def choose(self, log_probs, live, generator):
            return Choice(torch.tensor([0, 3]), torch.tensor([0, 1]))

    with pytest.raises(ArgumentError, match="Lawless chose a token that may not come of example 1"):
        run(Lawless(), 2, banned=[3])

    class Lacking(Strategy):
        pass

    for kind in (Strategy, Lacking):
        with pytest.raises(ArgumentError, match=rf"{kind.__name__} has to define choose\(self, log_probs, "):
            kind()


@pytest.mark.parametrize("strategy", [Greedy(), Beam(beam=2), Sample(seed=1), Diverse(seed=1)])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-math.inf, "no token may come after 0 tokens of example 1: all 7 are forbidden by the model"),
        (math.nan, "log probabilities of example 1 are NaN after 0 tokens"),
    ],
)
def test_a_row_without_a_token_is_explained(value, message, strategy):
    def step(tokens, state):
        return torch.full((len(tokens), V), -1.0).index_fill(0, torch.tensor([1]), value), state, None

    with pytest.raises(ArgumentError, match=message):
        decode(step, torch.zeros(3, dtype=torch.long), None, strategy, end=END, max_length=2)


def test_select_keeps_the_nesting():
    state = ({"a": torch.arange(6).view(3, 2)}, [Memory(torch.arange(3), torch.arange(3) * 10)], None)
    found = select(state, torch.tensor([2, 0, 0]))
    assert found[0]["a"].tolist() == [[4, 5], [0, 1], [0, 1]]
    assert isinstance(found[1], list)
    assert isinstance(found[1][0], Memory)
    assert found[1][0].seen.tolist() == [20, 0, 0]
    assert found[2] is None
    assert select(state, 1)[0]["a"].tolist() == [2, 3]
    for wrong in (3, torch.tensor(3), {"a": "text"}):
        with pytest.raises(ShapeError, match="a state holds"):
            select((torch.zeros(2), wrong), torch.tensor([0]))
