"""Every backend keeps the contract: it says why it refuses, looks before it compiles, equals the loop."""

from typing import Any

import pytest
import torch

from comparison import assert_close, disturb
from elman import RNN, Cell
from elman.errors import ArgumentError, BackendError, ConfigError
from elman.recurrence.backend import Backend, LayerCall, Refusal
from elman.recurrence.contract import NO_NOISE
from elman.recurrence.cpu import compile as compiling
from elman.recurrence.cpu import kernel
from elman.recurrence.triton import launch, module
from elman.recurrence.unroll import ALL_BACKENDS, BACKENDS, choose, streaming_cell, usable_backends
from elman.registry import CELLS
from elman.tensors.transfer import find_device
from elman.training.precision import usable_precisions

B, T, D, H = 3, 4, 2, 5
backends = pytest.mark.parametrize("backend", ALL_BACKENDS, ids=lambda backend: backend.name)


def call_of(cell: Cell, x: torch.Tensor, **changed: Any) -> LayerCall:
    given = {"states": [None], "lengths": None, "noises": [NO_NOISE], "reverse": False, "dtype": x.dtype}
    return LayerCall(cells=[cell], weights=[cell.weights()], x=x, tensors=[x], **given | changed)


def cell_of(name: str) -> Cell:
    torch.manual_seed(0)
    network = RNN(name, D, H)
    disturb(network)
    return network.all_cells()[0]


def test_they_are_what_a_user_may_ask_for():
    assert sorted(BACKENDS) == sorted(["auto", *(backend.name for backend in ALL_BACKENDS)])
    assert all(isinstance(backend, Backend) for backend in ALL_BACKENDS)
    assert ALL_BACKENDS[-1].name == "loop", "what never refuses comes last"
    for name in CELLS.names():
        assert ALL_BACKENDS[-1].refusal(call_of(cell_of(name), torch.zeros(B, T, D))) is None


@backends
@pytest.mark.parametrize("name", CELLS.names())
def test_whatever_serves_computes_what_the_loop_computes(backend, name):
    cell = cell_of(name)
    call = call_of(cell, torch.randn(B, T, D), lengths=torch.tensor([4, 1, 3]))
    refusal = backend.refusal(call)
    if refusal is not None:
        assert isinstance(refusal, Refusal)
        assert refusal.reason
        with pytest.raises(BackendError, match=f"backend '{backend.name}' cannot serve: "):
            cell(call.x, backend=backend.name)
        return
    found = []
    for one in (backend, ALL_BACKENDS[-1]):
        outputs, last, (final,) = one.run(call)
        parameters = dict(cell.named_parameters())
        loss = outputs.square().sum() + last.sum() + sum(field.sum() for field in final)
        gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
        found.append(dict(zip(("outputs", "last", *final._fields), (outputs, last, *final), strict=True)))
        found[-1] |= dict(zip(parameters, gradients, strict=True))
    assert_close(*found, 1e-5)


def equations_of_its_own() -> Cell:
    """A cell that nobody has compiled in this process."""

    class Unheard(Cell):
        state = ("h",)
        gates = ("a",)

        def R(self, x, h, s):
            return self.State(h=0.123456 * s.h + torch.tanh(x.a + h.a))

    return Unheard(D, H)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is compiled or launched, by name."""
    found: list[str] = []

    def noted(name: str, function: Any) -> Any:
        return lambda *given, **named: found.append(name) or function(*given, **named)

    for home, name in ((kernel, "library"), (compiling, "library"), (module, "kernels"), (launch, "kernels")):
        monkeypatch.setattr(home, name, noted(name, getattr(home, name)))
    return found


@backends
def test_asking_compiles_nothing(backend, compilations):
    cell, x = equations_of_its_own(), torch.zeros(B, T, D)
    for call in (call_of(cell, x), call_of(cell, x.long()), call_of(cell_of("layer_norm_lstm"), x)):
        backend.refusal(call)
        choose(call, "auto")
    assert compilations == []


@pytest.mark.skipif(compiling.compiler() is None, reason="no C compiler on this machine")
@pytest.mark.slow
def test_running_compiles_once(compilations):
    cell, x = equations_of_its_own(), torch.zeros(B, T, D)
    for _ in range(2):
        cell(x)
    assert compilations == ["library"]
    assert streaming_cell(cell, x[:, 0], cell.initial_state(B, x)) is not None
    assert compilations == ["library"]


def test_a_message_lists_what_this_machine_can_use(monkeypatch):
    monkeypatch.setattr("elman.recurrence.cpu.backend.compiler", lambda: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert usable_backends() == ["auto", "loop"]
    with pytest.raises(ArgumentError, match=r"backend is 'gpu'; it must be one of 'auto', 'loop'$"):
        RNN("lstm", 3, 5, backend="gpu")
    with pytest.raises(ConfigError, match=r"training\.device is 'gpu'; set 'cpu'$"):
        find_device("gpu", "training.device")
    assert "tf32" not in usable_precisions()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_card_can_be_used_by_its_name():
    assert "triton" in usable_backends()
    with pytest.raises(ArgumentError, match="'triton'"):
        RNN("lstm", 3, 5, backend="tritno")
