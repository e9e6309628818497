"""The walk and its strategies, over a small recurrent step function with a nested state."""

import itertools
import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from elman import RNN
from elman.decoding.base import Choice, Strategy, decode, select
from elman.decoding.greedy import Greedy
from elman.decoding.sample import Sample
from elman.errors import ArgumentError, ShapeError
from elman.registry import STRATEGIES

V, H, END, STOP = 7, 5, 6, 4


class Memory(NamedTuple):
    h: Tensor
    seen: Tensor


class Model:
    """A step function that notes the batches it was given."""

    def __init__(self, seed=0, sharpness=2.0):
        generator = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(V, H, generator=generator, dtype=torch.float64)
        self.W = torch.randn(H, H, generator=generator, dtype=torch.float64)
        self.U = torch.randn(H, V, generator=generator, dtype=torch.float64) * sharpness
        self.sizes = []

    def start(self, N, seed=5):
        h = torch.randn(N, H, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return {
            "layers": (Memory(h, torch.zeros(N, dtype=torch.long)),),
            "names": torch.arange(N),
            "none": None,
        }

    def __call__(self, tokens, state):
        self.sizes.append(len(tokens))
        (memory,) = state["layers"]
        h = torch.tanh(
            self.embedding[tokens] + (memory.h[:, None, :] * self.W.T).sum(-1)
        )  # alike for every N
        log_probs = (h[:, None, :] * self.U.T).sum(-1).log_softmax(-1)
        after = {**state, "layers": (Memory(h, memory.seen + 1),)}
        return log_probs, after, {"name": state["names"], "step": memory.seen, "read": tokens}


def run(strategy, N=6, model=None, start=None, first=None, **options):
    model = model or Model()
    first = torch.arange(N) % 4 if first is None else first
    options = {"end": END, "max_length": 9, **options}
    return decode(model, first, start or model.start(N), strategy, **options)


def log_probability(model, first, state, tokens):
    """By feeding the tokens one after the other: of all of them together."""
    total, previous = 0.0, first
    for token in tokens:
        log_probs, state, _ = model(torch.tensor([previous]), state)
        total += log_probs[0, token].item()
        previous = token
    return total


STRATEGY_OPTIONS = {"greedy": {}, "sample": {"seed": 3}}
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
    assert {"greedy", "sample"} <= set(STRATEGIES.names())
    for name in STRATEGIES.names():
        assert issubclass(STRATEGIES.find(name), Strategy)


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize("name", STRATEGIES.names())
def test_what_every_strategy_keeps_to(name, options):
    model, N = Model(), 6
    found = run(strategy_of(name), N, model, **options)
    stop, banned = set(options.get("stop", ())), set(options.get("banned", ()))
    least, most = options.get("min_length", 0), options.get("max_length", 9)
    assert len(found) == N
    for row, one in enumerate(found):
        assert END not in one.tokens
        assert not banned & set(one.tokens)
        assert not stop & set(one.tokens[:-1])
        if one.stopped == "length":
            assert len(one.tokens) == most
        else:
            assert least <= len(one.tokens) <= most
        assert (one.stopped == "stop") == bool(stop & set(one.tokens[-1:]))
        produced = [*one.tokens, *([END] if one.stopped == "end" else [])]
        start = select(model.start(N), torch.tensor([row]))
        assert math.isclose(
            one.log_probability, log_probability(model, row % 4, start, produced), abs_tol=1e-9
        )
        assert [int(trace["name"]) for trace in one.trace] == [row] * len(produced)
        assert [int(trace["step"]) for trace in one.trace] == list(range(len(produced)))
        assert [int(trace["read"]) for trace in one.trace] == [row % 4, *produced[:-1]]


def test_all_three_ways_to_stop_occur_E4():
    found = [one for seed in range(8) for one in run(Greedy(), model=Model(seed), stop={STOP})]
    assert {one.stopped for one in found} == {"end", "stop", "length"}


@pytest.mark.parametrize("seed", range(5))
def test_greedy_is_the_argmax_E7(seed):
    model = Model(seed)
    for row, one in enumerate(run(Greedy(), 4, model)):
        state, previous, expected = select(model.start(4), torch.tensor([row])), row, []
        while len(expected) < 9:
            log_probs, state, _ = model(torch.tensor([previous]), state)
            previous = int(log_probs.argmax())
            if previous == END:
                break
            expected.append(previous)
        assert one.tokens == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_row_alone_gives_what_it_gives_in_a_batch(seed):
    model, N = Model(seed), 6
    together = run(Greedy(), N, model, stop={STOP})
    for row, one in enumerate(together):
        start = select(model.start(N), torch.tensor([row]))
        (alone,) = run(Greedy(), 1, model, start, torch.tensor([row % 4]), stop={STOP})
        assert (alone.tokens, alone.stopped) == (one.tokens, one.stopped)
        assert alone.log_probability == one.log_probability


def test_what_is_finished_leaves_the_batch():
    model = Model(3)
    found = run(Greedy(), 6, model, stop={STOP, 2})
    steps = [len(one.tokens) + (one.stopped == "end") for one in found]
    assert len(set(steps)) > 1
    assert model.sizes == [sum(count >= number for count in steps) for number in range(1, max(steps) + 1)]


def test_a_state_is_left_alone_while_all_rows_go_on():
    states = []

    def step(tokens, state):
        states.append(state)
        return torch.zeros(len(tokens), V), state, None

    start = object()  # could not be indexed
    found = decode(step, torch.tensor([0, 1]), start, Greedy(), end=END, max_length=5)
    assert [one.tokens for one in found] == [[0] * 5, [0] * 5]
    assert [one.trace for one in found] == [None, None]
    assert states == [start] * 5


def test_an_rnn_streams_through_the_walk_L4():
    rnn, embedding = RNN("lstm", 4, H, layers=2).eval(), torch.randn(V, 4)
    U = torch.randn(H, V) * 3

    def step(tokens, state):
        y, state = rnn.step(embedding[tokens], state)
        return (y @ U).log_softmax(-1), state, None

    found = decode(step, torch.arange(5), rnn.start(5), Greedy(), end=END, stop={STOP}, max_length=8)
    for row, one in enumerate(found):
        produced = [*one.tokens, *([END] if one.stopped == "end" else [])]
        outputs = rnn(embedding[torch.tensor([[row, *produced[:-1]]])]).outputs[0]
        log_probs = (outputs @ U).log_softmax(-1)
        assert log_probs.argmax(1).tolist() == produced
        expected = log_probs[range(len(produced)), produced].sum().item()
        assert math.isclose(one.log_probability, expected, abs_tol=1e-4)


def test_nothing_is_kept_for_gradients():
    weight = torch.zeros(V, requires_grad=True)

    def step(tokens, state):
        log_probs = weight.expand(len(tokens), V).log_softmax(-1)
        assert not log_probs.requires_grad
        return log_probs, None, None

    decode(step, torch.tensor([0]), None, Greedy(), end=END, max_length=2)


class Beam(Strategy):
    """The ``width`` best continuations of every example; it shows that the interface carries a beam."""

    def __init__(self, width):
        self.width = width

    def choose(self, log_probs, live, generator):
        totals = live.log_probability[:, None] + log_probs
        tokens, rows = [], []
        for example in sorted(set(live.examples.tolist())):
            own = (live.examples == example).nonzero().squeeze(1)
            best = max((one.log_probability for one in live.finished[example]), default=-math.inf)
            values, places = totals[own].flatten().sort(descending=True)
            values, places = values[: self.width], places[: self.width]
            places = places[values > best]  # probabilities only fall
            tokens.append(places % V)
            rows.append(own[places // V])
        return Choice(torch.cat(tokens), torch.cat(rows))


def every_sequence(most):
    others = [token for token in range(V) if token != END]
    for length in range(most + 1):
        for tokens in itertools.product(others, repeat=length):
            yield [*tokens, END] if length < most else list(tokens)


@pytest.mark.parametrize("seed", range(3))
def test_a_beam_can_be_written_over_the_interface(seed):
    model, most, N = Model(seed, sharpness=0.7), 3, 3
    found = run(Beam(V**most), N, model, max_length=most)
    for row, one in enumerate(found):
        start = select(model.start(N), torch.tensor([row]))
        sequences = list(every_sequence(most))
        values = [log_probability(model, row, start, tokens) for tokens in sequences]
        best = sequences[max(range(len(values)), key=values.__getitem__)]
        assert [*one.tokens, *([END] if one.stopped == "end" else [])] == best
        assert math.isclose(one.log_probability, max(values), abs_tol=1e-9)
        assert [int(trace["read"]) for trace in one.trace] == [row, *best[:-1]]


def test_a_beam_of_one_is_greedy():
    for narrow, greedy in zip(run(Beam(1)), run(Greedy()), strict=True):
        assert (narrow.tokens, narrow.stopped) == (greedy.tokens, greedy.stopped)


def test_rank_decides_among_the_finished():
    class Longest(Beam):
        def choose(self, log_probs, live, generator):
            return Choice(log_probs[0].topk(3).indices, torch.zeros(3, dtype=torch.long))

        def rank(self, hypothesis):
            return len(hypothesis.tokens)

    first = torch.tensor([0])
    (found,) = run(Longest(3), 1, first=first, max_length=4)
    assert (len(found.tokens), found.stopped) == (4, "length")


class Table(NamedTuple):
    """A step function of fixed probabilities, whatever was read."""

    p: list[float]

    def __call__(self, tokens, state):
        return torch.tensor(self.p).log().expand(len(tokens), -1), state, None


def drawn(strategy, p, N=4000, **options):
    found = decode(Table(p), torch.zeros(N, dtype=torch.long), None, strategy, end=0, max_length=1, **options)
    counts = torch.zeros(len(p))
    for one in found:
        counts[one.tokens[0] if one.tokens else 0] += 1
    return counts / N


P = [0.0, 0.4, 0.3, 0.2, 0.1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, P),
        ({"temperature": 0.5}, [0, 16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        ({"temperature": 1e-6}, [0, 1, 0, 0, 0]),
        ({"temperature": 1e6}, [0, 0.25, 0.25, 0.25, 0.25]),
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
    (one,) = decode(Table(P), torch.tensor([0]), None, strategy, end=0, banned=[2], max_length=3)
    assert one.tokens == [1, 1, 1]
    assert math.isclose(one.log_probability, 3 * math.log(0.4), rel_tol=1e-6)


def test_a_seed_gives_the_same_draws_and_other_seeds_others():
    def tokens(strategy, **options):
        return [one.tokens for one in run(strategy, 20, model=Model(1, 0.3), **options)]

    assert tokens(Sample(seed=1)) == tokens(Sample(seed=1))
    assert tokens(Sample(seed=1)) != tokens(Sample(seed=2))
    assert tokens(Sample()) != tokens(Sample())
    goes_on = Sample(seed=1)
    assert tokens(goes_on) != tokens(goes_on)
    given = [tokens(Sample(), generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert given[0] == given[1] == tokens(Sample(seed=1))
    torch.manual_seed(4)
    before = torch.get_rng_state()
    tokens(Sample(seed=1))
    assert torch.equal(before, torch.get_rng_state())


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
        ({"banned": range(7)}, "no token may come"),
        ({"banned": range(6), "min_length": 1}, "no token may come"),
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

    with pytest.raises(ArgumentError, match="Careless dropped all sequences of example 1 unfinished"):
        run(Careless(), 2)
    with pytest.raises(NotImplementedError, match=r"Strategy has to define choose\(\)"):
        run(Strategy())


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
