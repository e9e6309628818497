"""When the kernels for CUDA serve, and what is said where they cannot; nothing here needs a GPU."""

import importlib
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from comparison import python
from elman import RNN
from elman.errors import ArgumentError, BackendError, BackendNotice
from elman.recurrence import backend as contract
from elman.recurrence import notices, trace, unroll
from elman.recurrence.contract import NO_NOISE
from elman.recurrence.triton import backend
from user_cells import Ranked

OLD = (7, 5)


def test_it_is_among_the_backends():
    assert unroll.BACKENDS == ("auto", "loop", "cpu", "triton")
    assert RNN("lstm", 3, 4, backend="triton").backend == "triton"
    with pytest.raises(ArgumentError, match=r"backend is 'tritno'; it must be one of 'auto'"):
        RNN("lstm", 3, 4, backend="tritno")


def test_tensors_on_the_cpu_are_an_error_that_says_so():
    rnn = RNN("lstm", 3, 4, backend="triton")
    with pytest.raises(
        BackendError, match=r"E301: backend 'triton' cannot serve: the tensors are on cpu; use"
    ):
        rnn(torch.randn(2, 5, 3))


def test_a_free_form_cell_is_an_error_that_says_so():
    rnn = RNN(Ranked, 3, 4, backend="triton")
    with pytest.raises(
        BackendError, match="is a free-form cell, which runs on the plain loop; use backend='auto'"
    ):
        rnn(torch.randn(2, 5, 3))


@pytest.fixture
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Choose a backend for a stand-in of a tensor on a card of this generation; nothing was said so far."""
    backend.unavailable.cache_clear()
    monkeypatch.setattr(notices, "_noticed", set())
    monkeypatch.setattr(contract, "extraordinary", lambda *tensors: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    monkeypatch.setattr(backend, "card_of", lambda device: importlib.import_module("triton"))

    def choose(wanted: str, dtype: torch.dtype = torch.float32, capability: tuple[int, int] = (9, 0)) -> str:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        device = torch.device("cuda", 100 + capability[0])  # no card that is really there
        x = SimpleNamespace(device=device, is_cuda=True, dtype=dtype)
        cell = RNN("lstm", 3, 4).cells[0][0]
        call = contract.LayerCall(
            (cell,), (cell.weights(),), x, (None,), None, (NO_NOISE,), False, dtype, (x,)
        )
        return unroll.choose(call, wanted).name

    yield choose
    backend.unavailable.cache_clear()


@pytest.mark.parametrize("dtype", backend.NUMBERS, ids=str)
def test_tensors_on_a_card_take_its_kernels(on_cuda, dtype):
    pytest.importorskip("triton")
    assert on_cuda("auto", dtype) == "triton"
    assert on_cuda("triton", dtype) == "triton"
    assert on_cuda("loop", dtype) == "loop"
    with pytest.raises(BackendError, match="backend 'cpu' cannot serve: the tensors are on cuda"):
        on_cuda("cpu", dtype)


@pytest.mark.parametrize(
    ("dtype", "capability", "reason"),
    [
        (
            torch.float64,
            (9, 0),
            "kernels on the GPU compute in float32, bfloat16 and float16, not torch.float64",
        ),
        (torch.int64, (9, 0), "the tensors are torch.int64"),
    ],
)
def test_other_numbers_run_on_the_loop(on_cuda, dtype, capability, reason):
    assert on_cuda("auto", dtype, capability) == "loop"
    with pytest.raises(BackendError, match=f"backend 'triton' cannot serve: {reason}; use backend='auto'"):
        on_cuda("triton", dtype, capability)


def test_an_old_card_runs_on_the_loop_with_a_notice(on_cuda):
    with pytest.warns(BackendNotice, match=r"a card is too old: kernels need compute capability 8\.0.*loop"):
        assert on_cuda("auto", torch.float32, OLD) == "loop"
    with pytest.raises(BackendError, match="backend 'triton' cannot serve: a card is too old"):
        on_cuda("triton", torch.float32, OLD)


def test_equations_that_are_too_large_stay_on_the_loop(on_cuda, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(trace, "MOST_OPERATIONS", 20)
    with pytest.warns(BackendNotice, match=r"operations, and kernels are made of 20 at most: cells run on"):
        assert on_cuda("auto") == "loop"
    with pytest.raises(BackendError, match=r"E301: backend 'triton' cannot serve: a step and its gradient"):
        on_cuda("triton")


def test_without_triton_one_notice_says_what_to_install(on_cuda, monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.warns(BackendNotice, match="Triton is not installed.*pip install triton.*plain loop"):
        assert on_cuda("auto") == "loop"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert on_cuda("auto") == "loop"
        with pytest.raises(BackendError, match="backend 'triton' cannot serve: Triton is not installed"):
            on_cuda("triton")


WITHOUT_TRITON = """
import importlib
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "triton":
            raise ImportError("no Triton here")

sys.meta_path.insert(0, Forbidden())
import torch
import elman
from elman.errors import BackendError

rnn, x = elman.RNN("gru", 3, 5, bidirectional=True), torch.randn(2, 4, 3, requires_grad=True)
found = []
for rnn.backend in ("auto", "loop"):
    outputs = rnn(x, [4, 2]).outputs
    found.append(torch.cat([outputs.flatten(), torch.autograd.grad(outputs.square().sum(), x)[0].flatten()]))
torch.testing.assert_close(*found)
rnn.backend = "triton"
try:
    rnn(x)
except BackendError as error:
    print(error)
assert "triton" not in sys.modules
"""


def test_the_package_works_without_triton():
    assert "backend 'triton' cannot serve: the tensors are on cpu" in python(WITHOUT_TRITON)


def test_triton_is_not_imported_before_it_is_needed():
    run = "import sys, torch, elman; elman.RNN('lstm', 3, 4)(torch.randn(2, 5, 3))"
    code = f"{run}; print('triton' in sys.modules)"
    assert python(code).strip() == "False"
