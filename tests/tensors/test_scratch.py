"""Memory that calls use one after the other: never two at once, never more than is kept, seen by nobody."""

import threading

import pytest
import torch

from comparison import disturb
from elman import RNN
from elman.tensors import scratch
from elman.tensors.memory import is_dense, new_memory
from elman.tensors.scratch import Scratch


@pytest.fixture(autouse=True)
def a_block_of_its_own(monkeypatch):
    monkeypatch.setattr(scratch, "KEPT", 32 << 20)
    monkeypatch.setattr(scratch, "_own", scratch._ThreadsOwn())


def taken(*sizes, dtype=torch.float32):
    with Scratch(dtype) as own:
        return [own.empty(size).data_ptr() for size in sizes]


def test_the_next_call_gets_the_same_memory():
    taken(100, 7)
    assert taken(100, 7) == taken(100, 7)
    first, second = taken(100, 7)
    assert second - first == 448  # 400 bytes, up to whole vectors
    assert first % 64 == second % 64 == 0


def test_tensors_inside_each_other_do_not_overlap():
    for _ in range(2):  # without a block, and with one
        with Scratch(torch.float64) as outer:
            a = outer.empty(3, 5).fill_(1.0)
            with Scratch(torch.float32) as inner:
                b = inner.empty(50).fill_(2.0)
                c = outer.empty(4).fill_(3.0)
            assert [a.unique().tolist(), b.unique().tolist(), c.unique().tolist()] == [[1.0], [2.0], [3.0]]


def test_a_block_is_bounded():
    taken(100)
    taken(scratch.KEPT)  # four times as many bytes
    assert scratch._own.size == 448
    assert scratch._own.block.nbytes == 448
    taken(scratch.KEPT // 4)
    assert scratch._own.size == scratch.KEPT


def test_an_error_gives_everything_back():
    with pytest.raises(RuntimeError), Scratch(torch.float32) as own:
        own.empty(10).view(3)
    assert scratch._own.taken == 0


def test_a_block_of_inference_can_be_trained_with():
    with torch.inference_mode():
        taken(100)
    with Scratch(torch.float32) as own:
        own.empty(100)[:50] = torch.zeros(50)
        assert not own.empty(0).is_inference()


def test_each_thread_has_its_own():
    taken(100)
    mine, found = taken(100), []

    def work():
        taken(100)
        found.extend(taken(100))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found != mine


@pytest.mark.parametrize("cell", ["lstm", "sru", "layer_norm_lstm", "mgu_original"])
def test_nothing_that_is_returned_lies_there(cell):
    """Neither outputs nor gradients change when the next calls write into the same memory."""
    rnn = RNN(cell, 3, 20, layers=2)
    disturb(rnn)
    x = torch.randn(2, 6, 3, requires_grad=True)
    for _ in range(2):
        outputs, last, state = rnn(x)
        found = [
            *torch.autograd.grad(outputs.sum(), [x, *rnn.parameters()], retain_graph=True),
            outputs,
            last,
        ]
    found += [field for layer in state for field in layer]
    before = [tensor.detach().clone() for tensor in found]
    scratch._own.block.fill_(0xFF)
    for now, then in zip(found, before, strict=True):
        assert torch.equal(now, then)
    again = torch.autograd.grad(outputs.sum(), [x, *rnn.parameters()])
    assert all(map(torch.equal, again, found))


def test_large_memory_is_memory():
    large = new_memory((3, 1 << 20), torch.float64)
    assert is_dense(large.fill_(1.0))
    assert large.sum() == large.numel()
