"""As many threads as torch uses, none of them lost in a fork."""

import os
import shutil
import signal
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from comparison import assert_close, disturb, on, python
from elman import RNN

CC = shutil.which("cc")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


SIZES = {"shared rows": (16, 64), "shared units": (1, 160), "few rows": (3, 160)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cell", ["lstm", "gru", "sru"])
def test_one_thread_gives_what_two_give(two_threads, cell, size):
    B, H = SIZES[size]
    rnn = RNN(cell, 20, H, bidirectional=True)
    disturb(rnn)
    x, lengths = torch.randn(B, 12, 20), torch.arange(B) % 12 + 1
    found = {}
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found[count] = [on("cpu", rnn, x, given) for given in (None, lengths)]
    for count in (2, 3):
        for one, more in zip(found[1], found[count], strict=True):
            assert_close(more, one, 1e-6)


@pytest.mark.parametrize("cell", ["sru", "ind_rnn"])
@pytest.mark.parametrize("B", [1, 3])
def test_threads_share_the_units_of_few_rows_to_the_bit(two_threads, cell, B):
    """Units of a cell without recurrent product need nobody: as many threads as there are change nothing."""
    rnn = RNN(cell, 20, 70)
    with torch.no_grad():
        for parameter in rnn.parameters():
            parameter.uniform_(-0.5, 0.5)
    x, cells = torch.randn(B, 400, 20), rnn.cells[0][0]
    start = tuple(torch.randn(B, 70, requires_grad=True) for _ in cells.state)
    vectors = [getattr(cells, name) for name in cells.vectors]
    for lengths in (None, torch.arange(B) + 398):
        found = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            outputs = rnn(x, lengths, state=(cells.State(*start),)).outputs
            found.append([outputs, *torch.autograd.grad(outputs.square().sum(), [*start, *vectors])])
        for more in found[1:]:
            assert all(map(torch.equal, found[0], more))


@pytest.mark.parametrize("B", [1, 4])
def test_one_thread_streams_what_two_stream(two_threads, B):
    rnn, x, found = RNN("lstm", 128, 160).eval(), torch.randn(B, 5, 128), []
    for count in (1, 2):
        torch.set_num_threads(count)
        state = None
        with torch.no_grad():
            for x_t in x.unbind(1):
                y, state = rnn.step(x_t, state)
        found.append({"y": y, "h": state[0].h, "c": state[0].c})
    assert_close(found[1], found[0], 1e-6)


def test_python_threads_share_a_kernel(two_threads):
    rnn = RNN("lstm", 16, 64)
    x = torch.randn(8, 20, 16)
    expected, found = on("cpu", rnn, x)["outputs"], {}

    def work(name):
        found[name] = torch.stack([rnn(x).outputs.detach() for _ in range(20)])

    workers = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(found) == 3
    for values in found.values():
        assert_close({"y": values}, {"y": expected.expand_as(values)}, 1e-6)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_works_while_the_parent_has_threads(two_threads):
    """Forward only: a torch built for CUDA refuses a backward pass in a child of a process that did."""
    rnn = RNN("lstm", 20, 160)
    x = torch.randn(16, 12, 20)
    expected = on("cpu", rnn, x)
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)  # as a loader's worker does: torch itself would hang in its lost pool
            with torch.no_grad():
                assert_close({"outputs": rnn(x).outputs}, {"outputs": expected["outputs"]}, 1e-5)
            os._exit(0)
        except BaseException:
            os._exit(1)
    deadline, status = time.monotonic() + 60, None
    while status is None and time.monotonic() < deadline:
        pid, code = os.waitpid(child, os.WNOHANG)
        status = code if pid else time.sleep(0.01)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert status == 0, "the child hangs" if status is None else "the child failed"
    assert_close(on("cpu", rnn, x), expected, 0.0)


class Encoded(Dataset):
    """Items that pass a network, in a worker."""

    def __init__(self, rnn):
        self.rnn = rnn

    def __len__(self):
        return 6

    def __getitem__(self, item):
        x = torch.randn(4, 10, 20, generator=torch.Generator().manual_seed(item))
        with torch.no_grad():
            return self.rnn(x).last


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_workers_of_a_data_loader(two_threads, way):
    items = Encoded(RNN("gru", 20, 160))
    expected = torch.stack([items[i] for i in range(len(items))])
    loader = DataLoader(items, batch_size=3, num_workers=2, multiprocessing_context=way, timeout=300)
    assert_close({"y": torch.cat(list(loader))}, {"y": expected}, 1e-5)


def test_no_second_pool_of_threads():
    """A process that uses two threads of torch has no more of them because of a kernel."""
    code = """
import os, torch
from elman import RNN
torch.set_num_threads(2)
def threads(): return len(os.listdir("/proc/self/task"))
a = torch.randn(800, 800)
for _ in range(3): a @ a; torch.exp(a)
y = torch.nn.LSTM(32, 64, batch_first=True)(torch.randn(16, 50, 32))[0]; y.sum().backward()
before = threads()
for _ in range(3): RNN("gru", 32, 128, backend="cpu")(torch.randn(16, 50, 32)).outputs.sum().backward()
print(threads() - before)
"""
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("no /proc on this system")
    assert int(python(code)) <= 1


FORK = """
import os, signal, sys, threading, time, warnings
import torch
from elman import RNN
warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
torch.set_num_threads(1)
x = torch.randn(2, 4, 3)
def run():
    with torch.no_grad():
        RNN("mgu", 3, 5, backend="cpu")(x)
thread = threading.Thread(target=run)
thread.start()
while not os.path.exists({mark!r}): time.sleep(0.01)
child = os.fork()
if child == 0:
    signal.alarm(60)
    run()
    sys.exit(0)
status, alive = os.waitpid(child, 0)[1], thread.is_alive()
open({go!r}, "w").close()
thread.join()
assert status == 0, "the child hangs or failed"
assert alive
"""


@pytest.mark.skipif(CC is None, reason="no C compiler on this machine")
def test_a_child_forked_while_a_thread_compiles(tmp_path):
    """The first call of the compiler, that of the thread, ends only after the child; it loses nothing."""
    mark, go, script, cache = (tmp_path / name for name in ("mark", "go", "compiler", "cache"))
    wait = f"mkdir {mark} 2>/dev/null && while [ ! -e {go} ]; do sleep 0.05; done"
    script.write_text(f'#!/bin/sh\n{wait}\nexec {CC} "$@"\n')
    script.chmod(0o755)
    python(FORK.format(mark=str(mark), go=str(go)), CC=str(script), ELMAN_CACHE=str(cache))
    assert len(list(cache.iterdir())) == 1
