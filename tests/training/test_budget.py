"""The arithmetic of time, with a clock that tells what a test says."""

from dataclasses import replace

import pytest

from elman.config import changed, lookup, validate
from elman.training.budget import (
    LONGER,
    VALIDATING,
    VALIDATIONS,
    Speed,
    mean_seconds,
    narrower,
    planned,
    spread,
)
from elman.training.settings import settings_class

USUAL = Speed(update=0.1, validation=2.0, start=5.0, total=3000, every=300)


@pytest.mark.parametrize("left", [20, 60, 180, 600, 3600])
@pytest.mark.parametrize("update", [0.001, 0.1, 2.0])
@pytest.mark.parametrize("validation", [0.0, 0.05, 5.0])
@pytest.mark.parametrize("every", [None, 10, 300])
def test_what_is_planned_takes_the_time_that_is_left(left, update, validation, every):
    speed = replace(USUAL, update=update, validation=validation)
    plan = planned(speed, left, LONGER * USUAL.total, every)
    assert plan.seconds <= left + 1e-6
    if plan.total < LONGER * USUAL.total:  # no further update would fit, nor one with its validation
        assert plan.seconds + update + (validation if every else 0) * 2 > left - validation


def test_validations_take_their_share_and_no_more():
    plan = planned(replace(USUAL, validation=1.0), 605.0, 10**9)
    assert plan.validations == VALIDATIONS
    plan = planned(replace(USUAL, validation=10.0), 605.0, 10**9)
    assert plan.validations * 10.0 <= VALIDATING * 600.0
    plan = planned(replace(USUAL, validation=300.0), 605.0, 10**9)
    assert plan.validations == 1  # a model that nobody looked at is none


@pytest.mark.parametrize("left", [-10.0, 0.0, 4.0, 6.0])
def test_too_little_time_is_for_one_update(left):
    plan = planned(USUAL, left, 9000)
    assert (plan.total, plan.every, plan.validations) == (1, 1, 1)


def test_more_time_than_enough_is_left():
    plan = planned(USUAL, 1e6, LONGER * USUAL.total)
    assert plan.total == LONGER * USUAL.total
    assert plan.validations <= VALIDATIONS


def test_more_minutes_are_never_fewer_updates():
    found = [planned(USUAL, left, 9000).total for left in range(10, 2000, 7)]
    assert found == sorted(found)


def settings(**model):
    return validate(settings_class("lm"), {"task": "lm", "model": model})


def test_widths_are_halved_down_to_a_limit_and_only_those_that_were_chosen():
    both = ("model.hidden", "model.embedding", "training.epochs")
    config = settings(hidden=400, embedding=70)
    assert narrower(config, both) == {"model.hidden": 200, "model.embedding": 35}
    assert narrower(config, ["model.embedding"]) == {"model.embedding": 35}
    assert narrower(config, []) == {}
    while changes := narrower(config, both):
        config = changed(config, changes)
    assert (lookup(config, "model.hidden"), lookup(config, "model.embedding")) == (100, 35)
    assert narrower(settings(hidden=[400, 300], embedding=0), both) == {}  # nothing that one number says


def test_the_first_few_batches_are_like_all():
    sizes = [round(10 * 1.02**k) for k in range(200)]
    mean = sum(sizes) / len(sizes)
    for count in (3, 7, 15, 31):
        places = spread(sizes, count)
        assert len(places) == count
        found = sum(sizes[place] for place in places) / count
        assert abs(found / mean - 1) < 1 / count
    assert spread([5], 10) == [0]
    assert sorted(spread([3, 1, 2], 10)) == [0, 1, 2]


def test_seconds_follow_the_positions_of_batches():
    assert mean_seconds(2.0, [10, 10], [10, 30]) == 2.0
    assert mean_seconds(3.0, [1, 1, 1], [1] * 50) == 1.0
