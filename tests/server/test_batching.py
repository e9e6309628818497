"""Requests that are computed together: bounded, soon, and each with its own answer."""

import asyncio
import time

from elman.errors import DataError
from elman.server import limits
from elman.server.batching import Batcher, BusyError, ModelThread


def batched(work, seconds=0.0, error=None, **options):
    """What ``work`` returns, given a batcher whose model says texts in capitals; and all batches."""
    batches = []

    def compute(texts):
        batches.append(list(texts))
        time.sleep(seconds)
        if error is not None:
            raise error
        return [DataError("bad") if text == "bad" else text.upper() for text in texts]

    async def run():
        thread = ModelThread()
        try:
            return await work(Batcher(compute, thread, **options))
        finally:
            thread.close()

    return asyncio.run(run()), batches


async def gathered(batcher, *requests):
    return await asyncio.gather(*(batcher.submit(one) for one in requests), return_exceptions=True)


def test_who_is_alone_does_not_wait():
    async def work(batcher):
        start = time.monotonic()
        found = await batcher.submit(["a"])
        return found, time.monotonic() - start

    (found, seconds), batches = batched(work, wait=5.0)
    assert (found, batches) == (["A"], [["a"]])
    assert seconds < 2.5


def test_many_share_a_pass_and_each_gets_its_own():
    requests = [[f"t{n}-{k}" for k in range(1 + n % 3)] for n in range(100)]
    found, batches = batched(lambda batcher: gathered(batcher, *requests), 0.001)
    assert found == [[text.upper() for text in one] for one in requests]
    assert max(map(len, batches)) == limits.ROWS
    assert len(batches) <= 2 + sum(map(len, requests)) // limits.ROWS


def test_who_comes_again_finds_the_others():
    """After an answer all ask again: the batch waits for them, as long as it may."""

    async def work(batcher):
        async def client(n):
            for _ in range(5):
                await batcher.submit([str(n)])

        await asyncio.gather(*map(client, range(8)))

    _, batches = batched(work, 0.002, wait=0.3)
    assert len(batches) <= 12


def test_an_error_is_whose_text_it_is():
    found, _ = batched(lambda batcher: gathered(batcher, ["a"], ["bad"], ["b", "bad", "c"], ["d"]))
    assert [found[0], found[3]] == [["A"], ["D"]]
    assert all(isinstance(found[n], DataError) for n in (1, 2))


def test_a_fault_of_the_model_is_told_to_all_and_ends_nothing():
    found, batches = batched(lambda batcher: gathered(batcher, ["a"], ["b"]), error=RuntimeError("x"))
    assert all(isinstance(one, RuntimeError) for one in found)
    assert batches


def test_nobody_waits_beyond_a_deadline():
    """Neither behind others nor for what is being computed."""

    async def work(batcher):
        start = time.monotonic()
        found = await gathered(batcher, ["slow"], ["behind"])
        return found, time.monotonic() - start

    (found, seconds), batches = batched(work, 0.6, deadline=0.1, rows=1)
    assert all(isinstance(one, BusyError) for one in found)
    assert seconds < 0.5
    assert batches == [["slow"]]


def test_long_texts_leave_others_their_turn():
    long = "x" * limits.TEXT
    found, batches = batched(lambda batcher: gathered(batcher, [long] * 4, ["a"]), 0.001)
    assert found[1] == ["A"]
    assert all(sum(map(len, one)) <= limits.TOGETHER for one in batches)


def test_answered_requests_are_forgotten():
    async def work(batcher):
        for _ in range(50):
            await batcher.submit(["a"])
        await asyncio.sleep(0.01)
        return len(batcher._jobs), len(batcher._queue)

    assert batched(work)[0] == (0, 0)


def test_what_nobody_waits_for_is_not_computed():
    async def work(batcher):
        first = batcher.submit(["first"])
        gone = batcher.submit(["gone"])
        gone.cancel()
        await first
        await batcher.submit(["last"])

    _, batches = batched(work, 0.01, rows=1)
    assert batches == [["first"], ["last"]]


def test_slow_work_is_bounded():
    async def work(_):
        thread = ModelThread()
        waiting = [thread.run_slowly(time.sleep, 0.02) for _ in range(limits.SLOW + 3)]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        thread.close()
        return found

    found, _ = batched(work)
    assert sum(isinstance(one, BusyError) for one in found) == 3
