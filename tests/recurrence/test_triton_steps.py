"""Steps as they are recorded on a GPU; what the steps compute is compared in the interpreter."""

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor

from comparison import distance, disturb, values_of
from elman import RNN
from elman.recurrence.triton import backend, recording
from elman.recurrence.triton.tiling import tilings
from user_cells import Lopsided, Readout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]
NUMBERS = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Everything goes by steps, and nothing has been recorded."""
    monkeypatch.setattr(backend, "tilings", lambda workload, card: tilings(workload, card)[-1:])
    monkeypatch.setattr(recording, "_recordings", OrderedDict())
    return recording._recordings


def gpu_network(cell: Any = "peephole_lstm", dtype: torch.dtype = torch.float32) -> RNN:
    network = RNN(cell, 8, 133, bidirectional=True, backend="triton")
    disturb(network)
    return network.to("cuda", dtype)


def gpu_input(network: RNN, B: int = 6, T: int = 75) -> Tensor:
    return torch.randn(B, T, 8).to(next(network.parameters()))


def results_of(network: RNN, x: Tensor, lengths: Tensor | None = None) -> list[Tensor]:
    """Values, and the gradients of a sum of them.

    Nothing keeps the graph of autograd: it belongs to its stream, and no other could record beside it.
    """
    x = x.clone().requires_grad_()
    values = list(values_of(network, x, lengths).values())
    gradients = gradients_of(network, x, values)
    return [*(value.detach() for value in values), *gradients]


def gradients_of(network: RNN, x: Tensor, values: list[Tensor]) -> list[Tensor]:
    loss = sum((value.float().square().sum() for value in values), torch.zeros((), device="cuda"))
    return list(torch.autograd.grad(loss, [x, *network.parameters()]))


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    assert [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if not torch.equal(a, b)] == []


def assert_near(found: list[Tensor], expected: list[Tensor]) -> None:
    """On another stream cuBLAS has other working memory, and may add up in another order."""
    assert max(distance(a, b) for a, b in zip(found, expected, strict=True)) < 1e-5


@NUMBERS
@pytest.mark.parametrize("cell", ["lstm", "gru", "peephole_lstm", Lopsided, Readout])
def test_recorded_steps_compute_what_launched_ones_do(cell, dtype, recordings):
    network = gpu_network(cell, dtype)
    inputs = [gpu_input(network, T=T) for T in (75, 9, 1)]
    launched = []
    for x in inputs:
        recordings.clear()
        launched.append(results_of(network, x))
        assert set(recordings.values()) == {None}
    for x, expected in zip(inputs, launched, strict=True):
        assert_equal(results_of(network, x), expected)
        assert_equal(results_of(network, x), expected)
    assert len(recordings) == 2  # forward and back, whatever the number of steps
    assert all(set(steps.graphs) == {64, 8, 2, 1} for steps in recordings.values())


@NUMBERS
def test_recorded_steps_agree_with_the_loop(dtype, recordings):
    """Rounding grows some thirtyfold on the way back through 75 steps of this cell, whatever the numbers."""
    network = gpu_network(dtype=dtype)
    x, lengths = gpu_input(network), torch.tensor([75, 1, 30, 64, 65, 8], device="cuda")
    exact = RNN("peephole_lstm", 8, 133, bidirectional=True, backend="loop").to("cuda", torch.float64)
    exact.load_state_dict(network.state_dict())
    expected = results_of(exact, x.double(), lengths)
    for _ in range(3):
        found = results_of(network, x, lengths)
        for a, b in zip(found, expected, strict=True):
            assert distance(a.double(), b) < (1e-5 if dtype == torch.float32 else 1e-1)


def test_two_sequences_may_be_under_way_before_their_backward_passes(recordings):
    network = gpu_network()
    inputs = [gpu_input(network) for _ in range(2)]
    expected = [results_of(network, x) for x in inputs]
    leaves = [x.clone().requires_grad_() for x in inputs]
    values = [list(values_of(network, x).values()) for x in leaves]
    for x, found, wanted in zip(leaves, values, expected, strict=True):
        assert_equal([*found, *gradients_of(network, x, found)], wanted)


def test_a_user_may_record_the_sequence(recordings):
    network = gpu_network()
    first, second = (gpu_input(network) for _ in range(2))
    expected = [results_of(network, x) for x in (first, second)]
    x, graph = first.clone(), torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        results_of(network, x)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        found = results_of(network, x)
    for given, wanted in zip((second, first), reversed(expected), strict=True):
        x.copy_(given)
        graph.replay()
        assert_near(found, wanted)


def test_a_recording_made_in_inference_mode_serves_others(recordings):
    network, found = gpu_network(), []
    x = gpu_input(network)
    for context in (torch.inference_mode, torch.inference_mode, torch.no_grad, torch.inference_mode):
        with context():
            found.append(network(x).outputs.clone())
    assert next(iter(recordings.values())).graphs
    assert all(torch.equal(outputs, found[0]) for outputs in found)


def test_streams_share_no_recording_and_old_ones_are_forgotten(recordings, monkeypatch):
    monkeypatch.setattr(recording, "MOST", 2)
    network = gpu_network()
    x = gpu_input(network)
    expected = results_of(network, x)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                assert_near(results_of(network, x), expected)
        assert len(recordings) == 2
        assert {key[4] for key in recordings} == {stream.cuda_stream}


def test_where_memory_is_short_nothing_is_recorded(recordings, monkeypatch):
    monkeypatch.setattr(recording, "SHARE", 0.0)
    network = gpu_network()
    x = gpu_input(network)
    first, second = results_of(network, x), results_of(network, x)
    assert_equal(second, first)
    assert set(recordings.values()) == {None}
