"""A decoder's walk on a GPU: in Triton's interpreter beside the C kernel, and on a card beside the steps."""

import itertools
import os
import sys

import numpy
import pytest
import torch
from test_decoder import IDS, LENGTHS, PREVIOUS, SCORES, SOURCES, computed, made

from comparison import assert_close, python
from elman.recurrence.cpu.backend import CpuBackend

NOISE = {"zoneout": 0.2, "recurrent_dropout": 0.3, "weight_drop": 0.2, "input_dropout": 0.2}
CASES = {
    f"{attention} {placement}{' fed' if feeding else ''}": {
        "attention": attention,
        "placement": placement,
        "feeding": feeding,
    }
    for attention, placement, feeding in itertools.product(SCORES, ("before", "after"), (False, True))
    if placement == "before" or feeding or attention == "location"
} | {
    "noise": {"cell": "gru", "hidden": [6, 5], "feeding": True, "decoder": NOISE},
    "products": {"cell": "mgu_original", "hidden": [5, 20]},
    "no attention": {"attention": "none", "feeding": True},
}


def model_of(name):
    torch.manual_seed(1)
    return made(**CASES[name]).float().train()


def compute(path):
    """What the kernels of the GPU give for all cases, in the interpreter."""
    from elman.recurrence.triton.walk import run_walk

    found = {}
    with pytest.MonkeyPatch.context() as patch, numpy.errstate(all="ignore"):
        patch.setattr(CpuBackend, "walk", lambda self, *call: run_walk(*call, torch.float32))
        for name in CASES:
            found[name] = computed(model_of(name), "cpu")
        found["inferred"] = inferred(model_of("location before fed"))
    torch.save(found, path)


@torch.no_grad()
def inferred(model):
    model.rnn.backend = "cpu"
    return model(model.eval().read(IDS, SOURCES), PREVIOUS, LENGTHS)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("interpreter") / "found.pt"
    python(
        f"import test_decoder_gpu; test_decoder_gpu.compute({str(path)!r})",
        TRITON_INTERPRET="1",
        PYTHONPATH=os.pathsep.join(sys.path),
    )
    return torch.load(path)


@pytest.mark.parametrize("name", CASES)
def test_the_walk_is_that_of_the_cpu(interpreted, name):
    assert_close(interpreted[name], computed(model_of(name), "cpu"), 1e-4)


def test_without_gradients(interpreted):
    expected = inferred(model_of("location before fed"))
    assert_close({"readouts": interpreted["inferred"]}, {"readouts": expected}, 1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
class TestOnACard:
    """Beside the same model step by step, in float64."""

    @pytest.mark.parametrize("name", CASES)
    @pytest.mark.parametrize(("numbers", "tolerance"), [("float32", 1e-3), ("bfloat16", 2e-2)])
    def test_values_and_gradients(self, name, numbers, tolerance):
        if "noise" in name:
            pytest.skip("noise is drawn in other numbers there")
        expected = self.computed(name, torch.float64, "loop")
        for _ in range(3):  # the second is recorded, the third replayed
            found = self.computed(name, getattr(torch, numbers), "auto")
        largest = max(e.norm() for e in expected.values())  # small ones are what is left of sums near zero
        error = {k: (found[k] - e).norm() / (e.norm() + 0.1 * largest) for k, e in expected.items()}
        assert max(error.values()) <= tolerance, error

    @staticmethod
    def computed(name, numbers, backend):
        model = model_of(name).cuda().to(torch.float64 if numbers == torch.float64 else torch.float32)
        model.rnn.backend = backend
        given = [IDS.cuda(), SOURCES, PREVIOUS.cuda(), LENGTHS]  # lengths stay with the host, as in training
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=numbers == torch.bfloat16):
            readouts = model(model.read(*given[:2]), *given[2:])
        upstream = torch.linspace(-1, 1, readouts.numel(), device="cuda").view_as(readouts)
        named = dict(model.named_parameters())
        loss = (readouts.double() * upstream).sum()
        gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        present = {n: g.double() for n, g in zip(named, gradients, strict=True) if g is not None}
        return {"readouts": readouts.detach().double(), **present}
