"""Rules on top of every strategy: prefixes and repetitions."""

import itertools

import pytest
import torch
from step_functions import END, STOP, Model, Table, V, log_probability, plain_beam, produced, row_of, run

from elman.decoding.base import decode
from elman.decoding.beam import Beam
from elman.decoding.diverse import Diverse
from elman.decoding.greedy import Greedy
from elman.decoding.processors import NoRepeat, Prefix, Processor
from elman.decoding.sample import Sample
from elman.errors import ArgumentError

STRATEGIES = [Greedy(), Beam(beam=4), Sample(seed=1), Diverse(seed=1)]


def repeats(tokens, n):
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(grams) - len(set(grams))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_nothing_is_repeated(strategy, n):
    model, options = Model(2), {"max_length": 30, "min_length": {1: 5, 2: 12, 3: 25}[n]}
    assert any(repeats(one.best.tokens, n) for one in run(strategy, model=model, **options))
    for found in run(strategy, model=model, processors=[NoRepeat(n)], **options):
        assert not repeats(found.best.tokens, n)


def test_only_what_would_repeat_is_forbidden():
    """The greedy way by hand, with pairs."""
    model, N = Model(2), 6
    for row, found in enumerate(run(Greedy(), N, model, processors=[NoRepeat(2)], max_length=20)):
        state, previous, tokens = row_of(model, N, row), row % 4, []
        while len(tokens) < 20:
            log_probs, state, _ = model(torch.tensor([previous]), state)
            pairs = set(itertools.pairwise(tokens))
            ranked = log_probs[0].argsort(descending=True).tolist()
            previous = next(token for token in ranked if (*tokens[-1:], token) not in pairs)
            if previous == END:
                break
            tokens.append(previous)
        assert found.best.tokens == tokens


def test_the_end_may_come_where_all_else_would_repeat():
    p, options = [0.1, 0.6, 0.3], {"end": 0, "max_length": 9, "processors": [NoRepeat(1)]}
    [found] = decode(Table(p), torch.tensor([0]), None, Greedy(), **options)
    assert (found.best.tokens, found.best.stopped) == ([1, 2], "end")
    message = "after 2 tokens of example 0: all 3 are forbidden by min_length and no_repeat"
    with pytest.raises(ArgumentError, match=message):
        decode(Table(p), torch.tensor([0]), None, Greedy(), min_length=5, **options)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_prefixes_come_first(strategy):
    prefixes = [[1, 2, 3], [], [5], [0, 0, 0, 0]]
    model, N = Model(3), 4
    options = {"processors": [Prefix(prefixes)], "min_length": 1, "n_best": 1}
    for row, found in enumerate(run(strategy, N, model, **options)):
        one, wanted = found.best, prefixes[row]
        assert one.tokens[: len(wanted)] == wanted
        own = log_probability(model, row, row_of(model, N, row), produced(one))
        assert one.log_probability == pytest.approx(own)  # the model's own, the prefix included


def test_after_a_prefix_the_search_is_free():
    model, N, prefix = Model(3), 3, [2, 0]
    found = run(Beam(beam=3, length_penalty=0.0), N, model, processors=[Prefix([prefix] * N)])
    for row, one in enumerate(found):
        state, previous = row_of(model, N, row), row
        for token in prefix:
            _, state, _ = model(torch.tensor([previous]), state)
            previous = token
        [best, *_] = plain_beam(model, previous, state, beam=3, end=END, max_length=7, length_penalty=0.0)
        assert produced(one.best)[2:] == best[1]


@pytest.mark.parametrize(
    ("prefixes", "options", "message"),
    [
        ([[1]], {}, "1 prefixes for 2 examples; give one for each"),
        ([[1], [1, 7]], {}, "the prefix of example 1 has token 7; the model knows 0 to 6"),
        ([[1], [0] * 10], {}, "example 1 has 10 tokens, more than max_length, which is 9; shorten it"),
        ([[1, END], []], {}, "the prefix of example 0 has token 6, which ends a sequence"),
        ([[], [STOP]], {"stop": {STOP}}, "the prefix of example 1 has token 4, which ends a sequence"),
        ([[], [3]], {"banned": [3]}, "after 0 tokens of example 1: all 7 are forbidden by banned and prefix"),
    ],
)
def test_prefixes_that_cannot_come(prefixes, options, message):
    with pytest.raises(ArgumentError, match=message):
        run(Greedy(), 2, processors=[Prefix(prefixes)], **options)


def test_users_write_their_own_rules():
    class Rising(Processor):
        """No token is smaller than the one before it."""

        name = "rising"

        def process(self, log_probs, live):
            if not live.length:
                return log_probs
            smaller = torch.arange(V) < live.tokens[:, -1:]
            return log_probs.masked_fill(smaller, -torch.inf)

    for strategy in STRATEGIES:
        for found in run(strategy, processors=[Rising()], min_length=4):
            assert found.best.tokens == sorted(found.best.tokens)
    with pytest.raises(NotImplementedError, match=r"Processor has to define process\(\)"):
        run(Greedy(), processors=[Processor()])


def test_a_repetition_has_at_least_one_token():
    with pytest.raises(ArgumentError, match="no_repeat is 0; it must be a whole number of at least 1"):
        NoRepeat(0)
