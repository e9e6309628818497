"""Diverse sampling: sequences drawn without replacement have the right chances, and differ."""

import math

import pytest
import torch
from step_functions import Model, Table, every_sequence, log_probability, produced, row_of, run

from elman.decoding.base import decode
from elman.decoding.diverse import Diverse
from elman.errors import ArgumentError

SIZE, STOP_AT, MOST, DRAWS = 3, 2, 3, 6000


def distribution(model, temperature=1.0):
    """Every sequence with its probability, each token at this temperature."""
    sequences = [tuple(one) for one in every_sequence(MOST, size=SIZE, end=STOP_AT)]
    p = []
    for tokens in sequences:
        state, previous, total = row_of(model, 1, 0), 0, 0.0
        for token in tokens:
            log_probs, state, _ = model(torch.tensor([previous]), state)
            total += (log_probs / temperature).log_softmax(-1)[0, token].item()
            previous = token
        p.append(math.exp(total))
    assert math.isclose(sum(p), 1)
    return sequences, p


def drawn(model, n_best, seed=1, **options):
    """What each of many examples gets, all of them alike."""
    one = row_of(model, 1, 0)
    state = {
        "layers": tuple(type(m)(*(part.repeat_interleave(DRAWS, 0) for part in m)) for m in one["layers"]),
        "names": torch.arange(DRAWS),
        "none": None,
    }
    first = torch.zeros(DRAWS, dtype=torch.long)
    strategy = Diverse(seed=seed, **options)
    found = decode(
        model, first, state, strategy, end=STOP_AT, max_length=MOST, n_best=n_best, keep_shown=False
    )
    return [[tuple(produced(one, STOP_AT)) for one in each.hypotheses] for each in found]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_one_draw_has_the_models_distribution(temperature):
    model = Model(4, sharpness=0.7, size=SIZE)
    sequences, p = distribution(model, temperature)
    found = [one for [one] in drawn(model, 1, temperature=temperature)]
    shares = [found.count(tokens) / DRAWS for tokens in sequences]
    assert shares == pytest.approx(p, abs=0.025)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.slow
def test_two_draws_are_without_replacement(temperature):
    """Chance of a pair: p_i p_j / (1 - p_i) + p_j p_i / (1 - p_j)."""
    model = Model(4, sharpness=0.7, size=SIZE)
    sequences, p = distribution(model, temperature)
    found = [frozenset(pair) for pair in drawn(model, 2, temperature=temperature)]
    assert all(len(pair) == 2 for pair in found)
    for i, first in enumerate(sequences):
        for j, second in enumerate(sequences[:i]):
            expected = p[i] * p[j] * (1 / (1 - p[i]) + 1 / (1 - p[j]))
            assert found.count(frozenset({first, second})) / DRAWS == pytest.approx(expected, abs=0.025)


def test_three_draws_include_each_sequence_as_often_as_they_should():
    model = Model(5, sharpness=0.5, size=SIZE)
    sequences, p = distribution(model)
    found = drawn(model, 3)
    assert all(len(set(each)) == 3 for each in found)
    for i, tokens in enumerate(sequences):
        missed = sum(
            p[j] * p[k] / (1 - p[j]) * p[m] / (1 - p[j] - p[k])
            for j in range(len(p))
            for k in range(len(p))
            for m in range(len(p))
            if i not in (j, k, m) and len({j, k, m}) == 3
        )
        share = sum(tokens in each for each in found) / DRAWS
        assert share == pytest.approx(1 - missed, abs=0.025)


def test_all_there_is_can_be_drawn():
    model = Model(4, sharpness=0.7, size=SIZE)
    sequences, _ = distribution(model)
    options = {"end": STOP_AT, "max_length": MOST}
    [found] = run(Diverse(seed=1), 1, model, n_best=len(sequences) + 5, **options)
    assert {tuple(produced(one, STOP_AT)) for one in found.hypotheses} == set(sequences)
    scores = [one.score for one in found.hypotheses]
    assert scores == sorted(scores, reverse=True)
    for one in found.hypotheses:
        own = log_probability(model, 0, row_of(model, 1, 0), produced(one, STOP_AT))
        assert one.score == pytest.approx(own)


def test_sequences_of_a_real_size_all_differ():
    model = Model(2, sharpness=1.0, size=700)
    for found in run(Diverse(seed=3), 4, model, end=699, n_best=20, max_length=6):
        assert len({tuple(produced(one, 699)) for one in found.hypotheses}) == 20


def test_what_cannot_come_is_not_drawn():
    options = {"end": 0, "max_length": 2, "n_best": 6, "banned": [3]}
    [found] = decode(Table([0.0, 0.7, 0.2, 0.1]), torch.tensor([0]), None, Diverse(seed=1), **options)
    assert sorted(one.tokens for one in found.hypotheses) == [[1, 1], [1, 2], [2, 1], [2, 2]]


def test_options_of_diverse_sampling_are_checked():
    with pytest.raises(ArgumentError, match="temperature is 0; it must be above 0"):
        Diverse(temperature=0)
    with pytest.raises(ArgumentError, match="seed is -1"):
        Diverse(seed=-1)
