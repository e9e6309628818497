"""Kernels compute what the plain loop computes, for equations at random.

``ELMAN_FUZZ=5000 pytest tests/recurrence/test_random_cells.py`` tries more of them; ``ELMAN_FUZZ_FROM``
is the seed of the first.
"""

import os

import pytest
import torch
from random_cells import changed, difference, random_case, run, run_by_rows

from elman import RNN
from elman.recurrence.cpu.compile import compiler

COUNT, FIRST = int(os.environ.get("ELMAN_FUZZ", "60")), int(os.environ.get("ELMAN_FUZZ_FROM", "0"))
EPSILON = torch.finfo(torch.float64).eps


@pytest.fixture(autouse=True)
def _quickly_compiled(request, monkeypatch):
    """Most kernels without optimisation, which takes a third of the time; every sixth as users get it."""
    if "gpu" not in request.keywords and request.node.callspec.params["seed"] % 6:
        monkeypatch.setenv("ELMAN_CFLAGS", f"{os.environ.get('ELMAN_CFLAGS', '')} -O0")


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
@pytest.mark.filterwarnings(
    "ignore::UserWarning:torch.autograd"
)  # create_graph makes a cycle, which is meant
@pytest.mark.parametrize("seed", [*range(FIRST, FIRST + COUNT), 1954, 2059, 2443, 2835, 3230])
def test_a_random_cell_on_the_cpu(seed):
    case = random_case(seed)
    expected = run_by_rows(case)
    assert difference(case, run(case, "cpu"), expected, EPSILON, 1e3 * EPSILON) is None, str(case)
    if seed % 5 == 0:  # as it is differentiated where its gradient is to be differentiated again
        again = run(case, "cpu", create_graph=True)
        if case.lengths is None:
            assert difference(case, again, expected, EPSILON, 1e3 * EPSILON) is None, str(case)


# of the second family: one number for a row as state, as gradient, beside units that are summed; products of
# what is not a number where no gradient arrives; norms of equal units; recurrent parts that are only compared
FOUND = [97, 138, 152, 202, 493, 540, 634]


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.autograd")
@pytest.mark.parametrize("seed", [*range(FIRST, FIRST + COUNT // 2), *FOUND])
def test_a_random_cell_of_several_phases_on_the_cpu(seed):
    case = random_case(seed, phased=True)
    expected = run_by_rows(case)
    assert difference(case, run(case, "cpu"), expected, EPSILON, 1e3 * EPSILON) is None, str(case)
    if seed % 5 == 0 and case.lengths is None:
        again = run(case, "cpu", create_graph=True)
        assert difference(case, again, expected, EPSILON, 1e3 * EPSILON) is None, str(case)


@pytest.mark.skipif(compiler() is None, reason="there is no C compiler")
@pytest.mark.parametrize("phased", [False, True], ids=["pointwise", "phased"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT, 4))
def test_a_random_cell_as_a_stream(seed, phased):
    case = random_case(seed, phased=phased)
    rnn = RNN(type(case.cell), case.cell.input_size, case.cell.hidden_size).double().eval()
    rnn.cells[0][0] = case.cell.eval()
    with torch.no_grad():
        expected = rnn(case.x).outputs
        state, steps = None, []
        for x in case.x.unbind(1):
            y, state = rnn.step(x, state)
            steps.append(y)
    found = torch.stack(steps, 1)
    assert torch.equal(torch.isnan(found), torch.isnan(expected))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9, equal_nan=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("tf32", [False, True], ids=["ieee", "tf32"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_a_random_cell_on_a_gpu(seed, tf32):
    """With TF32 products the recurrent weights stay on the chip; with IEEE ones it goes step by step."""
    case = random_case(seed, torch.float32, wide=True)
    there = changed(case, lambda t: t.cuda())
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        found = [result.cpu() for result in run(there, "triton")]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    epsilon, room = (1e-3, 3e-2) if tf32 else (2e-7, 1e-4)
    assert difference(case, found, run_by_rows(case), epsilon, room) is None, str(case)
