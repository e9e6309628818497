"""Intervals cover: equal networks are seldom called different, and better ones are found."""

import math
import random

import pytest

from elman.comparing.results import Comparison, Result
from elman.comparing.statistics import differences, interval, t_inside, t_quantile

SIMULATED = 1000


def called(draw, contenders=2, seeds=5):
    """The share of simulated comparisons in which any pair is called different."""
    wrong = 0
    for number in range(SIMULATED):
        noise = random.Random(number)
        shared = [noise.gauss(80, 1) for _ in range(seeds)]  # what a seed does to all of them
        figures = {
            str(one): [shared[k] + draw(noise, one) for k in range(seeds)] for one in range(contenders)
        }
        wrong += any(found.excludes_zero for found in differences(figures).values())
    return wrong / SIMULATED


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
@pytest.mark.parametrize("contenders", [2, 4])
def test_equal_networks_are_seldom_called_different(seeds, contenders):
    assert called(lambda noise, _: noise.gauss(0, 0.5), contenders, seeds) <= 0.07


def test_figures_that_are_skewed_or_of_unequal_spread_do_not_mislead():
    assert called(lambda noise, _: noise.expovariate(2)) <= 0.07
    assert called(lambda noise, one: noise.gauss(0, 0.2 + one)) <= 0.07


def test_a_better_network_is_found():
    assert called(lambda noise, one: noise.gauss(1.5 * one, 0.3)) >= 0.95


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_what_is_told_of_a_comparison_is_as_true(higher_is_better):
    def told(ahead):
        """The shares of comparisons in which the better is called so, and in which the other is."""
        right = wrong = 0
        for number in range(SIMULATED):
            noise = random.Random(number)
            shared = [noise.gauss(80, 1) for _ in range(5)]
            figures = {
                "better": [one + noise.gauss(ahead, 0.3) for one in shared],
                "other": [one + noise.gauss(0, 0.3) for one in shared],
            }
            results = [Result(name, 1, values, 1, 1, 1, []) for name, values in figures.items()]
            found = Comparison("", "accuracy", "", "updates", 5, higher_is_better, results)
            right += found.better_than("better") == ["other"]
            wrong += found.better_than("other") == ["better"]
        return right / SIMULATED, wrong / SIMULATED

    right, wrong = told(1.5 if higher_is_better else -1.5)
    assert right >= 0.95
    assert wrong == 0
    assert sum(told(0)) <= 0.07


def test_one_seed_says_nothing():
    assert interval([3.0]) == (3.0, -math.inf, math.inf)
    assert not differences({"a": [1.0], "b": [2.0]})["a", "b"].excludes_zero


def test_equal_figures_differ_by_nothing():
    assert differences({"a": [1.0, 2.0], "b": [1.0, 2.0]})["a", "b"] == (0, 0, 0)


@pytest.mark.parametrize("freedom", [*range(1, 12), 50, 101])
def test_the_distribution_is_students(freedom):
    from scipy.stats import t

    for level in (0.5, 0.9, 0.95, 0.999):
        assert t_quantile(level, freedom) == pytest.approx(t.ppf((1 + level) / 2, freedom), rel=1e-6)
    assert t_inside(0, freedom) == 0
