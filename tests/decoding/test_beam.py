"""Beam search: against a plain one, against every sequence there is, and its penalties."""

import itertools
import math

import pytest
import torch
from step_functions import (
    END,
    STOP,
    Model,
    Table,
    V,
    every_sequence,
    log_probability,
    plain_beam,
    produced,
    row_of,
    run,
)

from elman.decoding.base import decode
from elman.decoding.beam import Beam
from elman.decoding.greedy import Greedy
from elman.errors import ArgumentError

LIMITS = [{}, {"min_length": 2}, {"stop": {STOP, 2}}, {"stop": {STOP}, "min_length": 1}]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_is_the_exhaustive_search_E7(seed, length_penalty, limits):
    model, most, N, n_best = Model(seed, sharpness=0.7), 3, 2, 5
    strategy = Beam(beam=V**most, length_penalty=length_penalty)
    for row, found in enumerate(run(strategy, N, model, max_length=most, n_best=n_best, **limits)):
        scored = [
            (
                log_probability(model, row, row_of(model, N, row), tokens) / len(tokens) ** length_penalty,
                tokens,
            )
            for tokens in every_sequence(most, **limits)
        ]
        best = sorted(scored, reverse=True)[:n_best]
        assert [produced(one) for one in found.hypotheses] == [tokens for _, tokens in best]
        assert [one.score for one in found.hypotheses] == pytest.approx([score for score, _ in best])


@pytest.mark.parametrize("grain", [None, 0.5], ids=["", "ties"])
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (2, 1), (3, 3), (5, 2), (20, 4)])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_a_narrow_beam_is_the_plain_one_E7(limits, beam, n_best, grain):
    """Whatever is done for speed, stopping early among it, does not change what is found."""
    for seed, length_penalty in itertools.product(range(4), (0.0, 1.0, 1.5)):
        model, N, most = Model(seed, sharpness=0.8, grain=grain), 3, 7
        strategy = Beam(beam=beam, length_penalty=length_penalty)
        for row, found in enumerate(run(strategy, N, model, max_length=most, n_best=n_best, **limits)):
            options = {"beam": beam, "length_penalty": length_penalty, "end": END, "max_length": most}
            expected = plain_beam(model, row, row_of(model, N, row), **options, **limits)[:n_best]
            assert [(one.score, produced(one)) for one in found.hypotheses] == expected


@pytest.mark.parametrize("grain", [None, 1.0], ids=["", "ties"])
@pytest.mark.parametrize("size", [513, 640, 700])
def test_a_large_vocabulary_is_searched_as_exactly(size, grain):
    """From so many tokens on, candidates are found by chunks."""
    model, N = Model(1, sharpness=2.0, size=size, grain=grain), 3
    for beam in (1, 4):
        for row, found in enumerate(run(Beam(beam=beam), N, model, end=size - 1, max_length=4, n_best=beam)):
            state = row_of(model, N, row)
            expected = plain_beam(model, row, state, beam=beam, end=size - 1, max_length=4)
            assert [(one.score, produced(one, size - 1)) for one in found.hypotheses] == expected


def test_a_beam_of_one_is_greedy():
    for limits in LIMITS:
        for narrow, greedy in zip(run(Beam(beam=1), **limits), run(Greedy(), **limits), strict=True):
            assert (narrow.best.tokens, narrow.best.stopped) == (greedy.best.tokens, greedy.best.stopped)
            assert narrow.best.log_probability == greedy.best.log_probability


def test_memory_is_bounded_by_examples_times_beam():
    model = Model(2, sharpness=0.5)
    run(Beam(beam=4), 5, model, min_length=3)
    assert max(model.sizes) == 5 * 4


def test_an_example_is_done_when_nothing_better_can_come():
    """Sure of its end, the search does not go on to the greatest length."""
    steps = []

    def step(tokens, state):
        steps.append(len(tokens))
        return torch.tensor([[0.98, 0.01, 0.01]]).log().expand(len(tokens), -1), state, None

    options = {"end": 0, "max_length": 50}
    [found] = decode(step, torch.tensor([1]), None, Beam(beam=3, length_penalty=0.0), **options)
    assert found.best.tokens == []
    assert steps == [1]
    [found] = decode(step, torch.tensor([1]), None, Beam(beam=3, length_penalty=0.0), n_best=3, **options)
    assert [one.tokens for one in found.hypotheses] == [[], [1], [2]]


def test_a_hopeless_row_keeps_its_place_beside_hopeful_ones():
    """Dropped at once, c would not end and narrow the beam: b d d would be found, by luck."""
    a, b, c, d, e, end = range(6)
    p = {
        (): {end: 0.15, a: 0.45, b: 0.3, c: 0.1},
        (a,): {d: 0.9, e: 0.1},
        (b,): {d: 0.9, e: 0.1},
        (c,): {end: 1.0},
        (a, d): {d: 0.5, e: 0.5},
        (b, d): {d: 0.7, e: 0.3},
        (b, d, d): {end: 1.0},
    }
    evenly = dict.fromkeys(range(6), 1 / 6)

    def step(tokens, history):
        history = torch.cat([history, tokens[:, None]], 1)
        rows = [p.get(tuple(row[1:]), evenly) for row in history.tolist()]
        return (
            torch.tensor([[row.get(token, 0.0) for token in range(6)] for row in rows]).log(),
            history,
            None,
        )

    start, options = torch.zeros(1, 0, dtype=torch.long), {"end": end, "max_length": 5}
    [found] = decode(step, torch.tensor([0]), start, Beam(beam=4, length_penalty=0.0), **options)
    [(_, best), *_] = plain_beam(step, 0, start, beam=4, length_penalty=0.0, **options)
    assert produced(found.best, end) == best == [end]


def test_damaged_numbers_are_found_in_any_row_of_a_beam():
    def step(tokens, state):
        log_probs = torch.full((len(tokens), V), -2.0)
        log_probs[tokens == 2, 0] = math.nan
        return log_probs, state, None

    with pytest.raises(ArgumentError, match="log probabilities of example 0 are NaN after 1 tokens"):
        decode(step, torch.tensor([0]), None, Beam(beam=4), end=END, max_length=3)


def test_long_sequences_win_where_length_is_paid_for():
    p = [0.4, 0.6]
    lengths = []
    for length_penalty in (0.0, 1.0):
        strategy = Beam(beam=4, length_penalty=length_penalty)
        [found] = decode(Table(p), torch.tensor([0]), None, strategy, end=0, max_length=6)
        lengths.append(len(found.best.tokens))
    assert lengths == [0, 6]


class Attending:
    """A model whose attention depends on what it read; positions past the length get weight, too."""

    def __init__(self, seed, S=4):
        self.model, self.S = Model(seed, sharpness=0.7), S
        self.weights = torch.rand(V, S, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        self.weights[0, 1] = 0.0  # as small as a weight gets

    def __call__(self, tokens, state):
        log_probs, after, shown = self.model(tokens, state)
        lengths = torch.tensor([4, 2, 3])[shown["name"]]
        return log_probs, after, {"attention": self.weights[tokens] / 2, "source_length": lengths}


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_coverage_counts_the_real_positions_A4(length_penalty):
    model, N, most, penalty = Attending(3), 3, 3, 0.3
    strategy = Beam(beam=V**most, length_penalty=length_penalty, coverage_penalty=penalty)
    options = {"end": END, "max_length": most, "n_best": 4}
    found = decode(model, torch.arange(N), model.model.start(N), strategy, **options)
    for row, one in enumerate(found):
        scored = []
        for tokens in every_sequence(most):
            value = log_probability(model.model, row, row_of(model.model, N, row), tokens)
            looked = sum(model.weights[token] / 2 for token in [row, *tokens[:-1]])[: [4, 2, 3][row]]
            coverage = sum(math.log(min(max(weight, torch.finfo().tiny), 1)) for weight in looked.tolist())
            if looked.min() > 0:  # else it comes last
                scored.append((value / len(tokens) ** length_penalty + penalty * coverage, tokens))
        best = sorted(scored, reverse=True)[:4]
        assert [produced(each) for each in one.hypotheses] == [tokens for _, tokens in best]
        assert [each.score for each in one.hypotheses] == pytest.approx([score for score, _ in best])


def test_a_source_that_gets_shorter_with_the_batch_is_covered_all_the_same():
    wide = Attending(3)

    def narrow(tokens, state):
        log_probs, after, shown = wide(tokens, state)
        S = int(shown["source_length"].max())
        return log_probs, after, shown | {"attention": shown["attention"][:, :S]}

    strategy = Beam(beam=3, coverage_penalty=0.5)
    found = [
        decode(step, torch.arange(3), wide.model.start(3), strategy, end=END, max_length=6, keep_shown=False)
        for step in (wide, narrow)
    ]
    assert found[0] == found[1]


def test_coverage_needs_attention():
    message = "coverage_penalty is 0.5, but the model shows no attention; set it to 0"
    with pytest.raises(ArgumentError, match=message):
        run(Beam(coverage_penalty=0.5))
    with pytest.raises(ArgumentError, match=message):
        decode(Table([0.5, 0.5]), torch.tensor([0]), None, Beam(coverage_penalty=0.5), end=0, max_length=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam is 0; it must be a whole number of at least 1"),
        ({"length_penalty": -0.1}, "length_penalty is -0.1; it must be 0 or more"),
        ({"length_penalty": math.nan}, "length_penalty is nan"),
        ({"coverage_penalty": math.inf}, "coverage_penalty is inf"),
        ({"coverage_penalty": "much"}, "coverage_penalty is 'much'; it must be a number"),
    ],
)
def test_options_of_beam_search_are_checked(options, message):
    with pytest.raises(ArgumentError, match=message):
        Beam(**options)


def test_a_length_penalty_beyond_all_numbers_is_named():
    with pytest.raises(ArgumentError, match=r"length_penalty is 400; .* tokens to that power are beyond"):
        run(Beam(beam=3, length_penalty=400))


def test_more_hypotheses_than_the_beam_holds():
    with pytest.raises(ArgumentError, match="n_best is 4, more than beam, which is 3; raise beam"):
        run(Beam(beam=3), n_best=4)
