"""Which examples are held out: a share of every label, never all of one, the same whenever asked."""

from itertools import islice

import numpy as np
import pytest

from elman.training import holding_out
from elman.training.holding_out import by_number, by_strata


@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.5])
def test_every_label_has_its_share(share):
    labels = [["often"]] * 1000 + [["seldom"]] * 100 + [["rare"]] * 20
    held_out = np.array(by_strata(labels, share))
    parts = held_out[:1000], held_out[1000:1100], held_out[1100:]
    for part in parts:
        assert abs(part.sum() - share * len(part)) <= 1
    assert by_strata(labels, share) == held_out.tolist()
    halves = held_out[:500].sum(), held_out[500:1000].sum()  # drawn, not the first ones
    assert min(halves) > 0.3 * sum(halves)


def test_no_label_is_held_out_altogether():
    random = np.random.default_rng(7)
    labels = [[f"t{n}" for n in random.zipf(1.6, 5)] for _ in range(400)]  # most of them occur once
    held_out = by_strata(labels, 0.5)
    trained = {label for own, out in zip(labels, held_out, strict=True) if not out for label in own}
    assert trained == {label for own in labels for label in own}
    assert 0.05 * 400 < sum(held_out) <= 0.5 * 400


@pytest.mark.parametrize(
    ("labels", "expected"), [([], []), ([["a"]], [False]), ([["a"], ["b"]], [False] * 2), ([[]], [False])]
)
def test_too_few_are_all_trained_on(labels, expected):
    assert by_strata(labels, 0.5) == expected


def test_lines_of_a_block_stay_together():
    held_out = by_strata([[]] * 1005, 0.1, block=100)
    assert len(held_out) == 1005
    assert {tuple(held_out[start : start + 100]) for start in range(0, 1000, 100)} <= {
        (True,) * 100,
        (False,) * 100,
    }
    assert sum(held_out) in (100, 5)


def test_a_large_sorted_file_is_judged_on_all_labels(monkeypatch):
    monkeypatch.setattr(holding_out, "MOST", 50)
    held_out = by_strata([["a"]] * 5000 + [["b"]] * 5000, 0.1)
    assert (sum(held_out[:5000]), sum(held_out[5000:])) == (25, 25)


def test_runs_of_earlier_versions_hold_out_what_they_did():
    assert [n for n, out in enumerate(islice(by_number(0.1, 1), 60)) if out] == [23, 27, 33, 37]
