"""Batches hold every example once and keep their limits; a stream serves every prediction once."""

import random
import subprocess
import sys

import numpy as np
import pytest

from elman.errors import ArgumentError
from elman.text.batches import (
    BATCHES_IN_A_POOL,
    Segments,
    Shuffled,
    pad,
    plan_batches,
    rate_share,
    varied_lengths,
)


def check_plan(lengths, batches, size, tokens):
    together = np.concatenate([*batches, np.zeros(0, np.int64)])
    assert together.dtype == np.int64
    assert sorted(together.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) > 0
        assert size is None or len(batch) <= size
        assert tokens is None or len(batch) == 1 or len(batch) * lengths[batch].max() <= tokens


def test_every_example_is_in_exactly_one_batch_within_the_limits():
    chance = random.Random(1)
    for trial in range(200):
        longest = chance.choice([0, 1, 5, 40, 300])
        lengths = np.array(
            [chance.randint(0, longest) for _ in range(chance.randint(0, 400))], dtype=np.int64
        )
        size = chance.choice([None, 1, 2, 7, 64])
        tokens = chance.randint(1, 500) if size is None or trial % 2 else None
        for shuffle in (True, False):
            options = {"size": size, "tokens": tokens, "seed": trial, "epoch": trial % 3, "shuffle": shuffle}
            batches = plan_batches(lengths, **options)
            check_plan(lengths, batches, size, tokens)
            again = plan_batches(lengths, **options)
            assert [batch.tolist() for batch in again] == [batch.tolist() for batch in batches]


def test_batches_are_as_full_as_the_limits_allow():
    lengths = np.array([2, 2, 2, 3, 9, 0, 0, 4])
    plan = plan_batches(lengths, size=3, tokens=8, seed=0, epoch=0, shuffle=False)
    assert [batch.tolist() for batch in plan] == [[5, 6, 0], [1, 2], [3, 7], [4]]


def test_one_example_too_long_is_a_batch_of_its_own():
    plan = plan_batches(np.array([50, 50, 1]), size=None, tokens=10, seed=0, epoch=0, shuffle=False)
    assert [batch.tolist() for batch in plan] == [[2], [0], [1]]


def test_empty_examples_do_not_all_go_together():
    plan = plan_batches(np.zeros(10, np.int64), size=None, tokens=4, seed=0, epoch=0, shuffle=True)
    assert sorted(map(len, plan)) == [2, 4, 4]


def test_without_shuffling_equal_lengths_keep_their_order():
    plan = plan_batches(np.array([2, 1, 2, 1]), size=10, tokens=None, seed=0, epoch=0, shuffle=False)
    assert [batch.tolist() for batch in plan] == [[1, 3, 0, 2]]


def test_shuffling_depends_on_seed_and_epoch():
    lengths = np.arange(100) % 7
    plans = {
        (seed, epoch): str(plan_batches(lengths, size=8, tokens=None, seed=seed, epoch=epoch, shuffle=True))
        for seed in (0, 1, 2)
        for epoch in (0, 1, 2)
    }
    assert len(set(plans.values())) == len(plans)


def test_shuffled_batches_waste_little_and_come_in_no_order_of_length():
    lengths = np.random.default_rng(0).integers(1, 100, 20_000)
    plan = plan_batches(lengths, size=None, tokens=2000, seed=0, epoch=0, shuffle=True)
    positions = sum(len(batch) * lengths[batch].max() for batch in plan)
    assert lengths.sum() / positions > 0.95
    assert len(plan) > 3 * BATCHES_IN_A_POOL
    means = [lengths[batch].mean() for batch in plan]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.2  # chance alone: 0.05 and a little


def test_the_plan_is_the_same_in_every_process():
    code = (
        "import numpy as np\nfrom elman.text.batches import plan_batches\n"
        "print([b.tolist() for b in plan_batches(np.arange(50) % 6, size=4, tokens=20, seed=3, epoch=2, "
        "shuffle=True)])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"size": None, "tokens": None}, "give one of them"),
        ({"size": 0}, "size is 0; it must be at least 1"),
        ({"tokens": -1}, "tokens is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"epoch": -2}, "epoch is -2; it must be at least 0"),
        ({"lengths": np.array([1, -2])}, r"lengths\[1\] is -2"),
        ({"lengths": np.array([1.5])}, "array of float64"),
        ({"lengths": np.ones((2, 2), np.int64)}, r"shape \(2, 2\)"),
    ],
)
def test_mistakes_in_a_plan(change, problem):
    options = {"lengths": np.array([1, 2]), "size": 2, "tokens": None, "seed": 0, "epoch": 0, "shuffle": True}
    with pytest.raises(ArgumentError, match=problem):
        plan_batches(**{**options, **change})


def test_pad():
    padded, lengths = pad([np.array([1, 2, 3], np.int32), np.array([], np.int32), np.array([4])], value=-1)
    assert padded.tolist() == [[1, 2, 3], [-1, -1, -1], [4, -1, -1]]
    assert lengths.tolist() == [3, 0, 1]
    assert padded.dtype == lengths.dtype == np.int64
    assert pad([])[0].shape == (0, 0)


def test_every_prediction_of_a_stream_is_served_once_and_rows_continue():
    chance = random.Random(2)
    for _ in range(300):
        rows, length = chance.randint(1, 9), chance.randint(1, 30)
        ids = np.arange(chance.randint(rows + 1, 400), dtype=np.int32)
        stream = Segments(ids, rows, length)
        segments = list(stream)
        assert len(segments) == len(stream)
        inputs = np.concatenate([segment[0] for segment in segments], axis=1)
        targets = np.concatenate([segment[1] for segment in segments], axis=1)
        assert inputs.dtype == targets.dtype == np.int64
        # Ids are their own places here: rows, laid end to end, count up without a gap.
        assert inputs.ravel().tolist() == list(range(len(ids) - 1 - stream.remainder))
        assert (targets == inputs + 1).all()
        assert inputs.shape == (rows, stream.steps)
        assert 0 <= stream.remainder < rows
        assert all(segment[0].shape[1] == length for segment in segments[:-1])
        assert 1 <= segments[-1][0].shape[1] <= length


def test_segments_of_varied_length_serve_every_prediction_once():
    ids, length = np.arange(20_001), 70
    epochs = [Segments(ids, 4, length, varied=(3, epoch)) for epoch in range(3)]
    for stream in epochs:
        inputs = np.concatenate([inputs for inputs, _ in stream], axis=1)
        assert inputs.ravel().tolist() == list(range(20_000))
    lengths = [[inputs.shape[1] for inputs, _ in stream] for stream in epochs]
    assert lengths[0] != lengths[1]
    assert sorted(lengths[0]) == sorted(lengths[1]) == sorted(lengths[2])
    assert lengths[1] == [one.shape[1] for one, _ in Segments(ids, 4, length, varied=(3, 1))]
    assert lengths[1] != [one.shape[1] for one, _ in Segments(ids, 4, length, varied=(4, 1))]


@pytest.mark.parametrize(("steps", "length"), [(1, 70), (5, 1), (400, 3), (100_000, 70), (50_000, 35)])
def test_varied_lengths_are_few_and_about_as_long_as_was_said(steps, length):
    lengths = varied_lengths(steps, length, seed=7, epoch=2)
    assert lengths.sum() == steps
    assert lengths.min() >= 1
    assert len(set(lengths.tolist())) <= 11  # five around the length, five around its half, and the last
    if steps > 1000:
        unit = round(length / 14)
        assert abs(lengths.mean() / (0.95 * length + 0.05 * (length // 2)) - 1) < 0.02
        assert lengths.max() == length + 2 * unit
        assert 0.02 < (lengths < 0.7 * length).mean() < 0.09


def test_the_learning_rate_goes_with_the_length_of_a_segment():
    stream = Segments(np.arange(2_001), 2, 70, varied=(1, 0))
    shares = [rate_share(stream, [place]) for place in range(len(stream))]
    assert shares == [inputs.shape[1] / 70 for inputs, _ in stream]
    assert rate_share(stream, [0, 1]) == pytest.approx(sum(shares[:2]) / 2)
    assert rate_share(Segments(np.arange(2_001), 2, 70), [14]) == 1.0  # the last, which is short by chance
    assert rate_share([[1, 2]], [0]) == 1.0


def test_one_row_covers_every_id_but_the_first():
    ids = np.array([7, 8, 9, 7, 5])
    targets = np.concatenate([targets[0] for _, targets in Segments(ids, 1, 3)])
    assert targets.tolist() == [8, 9, 7, 5]


def test_segments_of_a_stream_by_number():
    stream = Segments(np.arange(12), rows=2, length=3)
    assert stream[-1][0].tolist() == stream[1][0].tolist() == [[3, 4], [8, 9]]
    for outside in (2, -3):
        with pytest.raises(IndexError):
            stream[outside]


def test_what_a_stream_gives_may_be_changed():
    ids = np.arange(10)
    inputs, _ = Segments(ids, 1, 5)[0]
    inputs[:] = 0
    assert ids.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("count", "rows", "length", "problem"),
    [
        (4, 4, 5, "a stream of 4 ids is too short for 4 rows"),
        (0, 1, 5, "a stream of 0 ids"),
        (9, 0, 5, "rows is 0"),
        (9, 1, 0, "length is 0"),
    ],
)
def test_mistakes_in_a_stream(count, rows, length, problem):
    with pytest.raises(ArgumentError, match=problem):
        Segments(np.arange(count), rows, length)


def test_batches_of_an_epoch_are_the_plan():
    lengths = np.random.default_rng(1).integers(1, 20, 200)
    options = {"size": 7, "tokens": 60, "seed": 3, "epoch": 2}
    batches, plan = Shuffled(lengths, **options), plan_batches(lengths, **options, shuffle=True)
    assert (len(batches), batches.examples) == (len(plan), 200)
    assert all(np.array_equal(batches[place], batch) for place, batch in enumerate(plan))
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in plan]  # it can be walked
    other = Shuffled(lengths, **options | {"epoch": 3})
    assert [batch.tolist() for batch in other] != [batch.tolist() for batch in plan]


@pytest.mark.parametrize(("count", "rows", "length"), [(12, 2, 3), (100, 4, 7), (9, 8, 5)])
def test_an_example_of_a_stream_is_a_segment_of_a_row(count, rows, length):
    stream = Segments(np.arange(count), rows, length)
    assert stream.examples == sum(len(inputs) for inputs, _ in stream)
