"""Ways of the kernel that small examples do not take by themselves."""

import pytest
import torch

from elman import RNN
from elman.recurrence.cpu import scan


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
def test_a_large_batch_goes_through_in_groups(monkeypatch, reverse, noisy):
    rnn = RNN("gru", 3, 5, bidirectional=reverse, zoneout=0.2, recurrent_dropout=0.3).train(noisy)
    x, state = torch.randn(50, 4, 3), rnn.start(50)
    results = []
    for bulk in (scan.BULK, 1):
        monkeypatch.setattr(scan, "BULK", bulk)
        torch.manual_seed(3)
        with torch.no_grad():
            results.append(rnn(x, state=state))
    whole, grouped = results
    torch.testing.assert_close(grouped.outputs, whole.outputs, rtol=0, atol=1e-6)
    torch.testing.assert_close(grouped.last, whole.last, rtol=0, atol=1e-6)


@pytest.mark.parametrize("split", [1, 1 << 60], ids=["threads share units", "threads share rows"])
def test_threads_share_rows_or_units(monkeypatch, split):
    monkeypatch.setattr(scan, "SMALL", 0)
    monkeypatch.setattr(scan, "SPLIT", split)
    threads = torch.get_num_threads()
    rnn = RNN("peephole_lstm", 6, 70)
    x, lengths = torch.randn(4, 9, 6, requires_grad=True), torch.tensor([9, 2, 5, 1])
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            outputs = rnn(x, lengths).outputs
            results.append((outputs, *torch.autograd.grad(outputs.square().sum(), [x, *rnn.parameters()])))
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-5, atol=1e-5)


def test_a_graph_may_be_differentiated_twice():
    rnn = RNN("lstm", 3, 5)
    x = torch.randn(2, 4, 3, requires_grad=True)
    outputs = rnn(x).outputs
    first, second = (torch.autograd.grad(outputs.sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
