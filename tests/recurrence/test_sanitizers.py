"""The generated C under AddressSanitizer and UBSan: no access out of bounds, nothing undefined."""

import shutil
import subprocess
from pathlib import Path

import pytest

from comparison import python

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -g -O0"
SEQUENCES = """
import torch
from torch.nn import functional as F
from elman import RNN, Cell
from elman.tensors import scratch
scratch.KEPT = 0  # every tensor has memory of its own, whose ends are watched

class Some(Cell):
    state, gates, vectors = ("h", "c"), ("i", "z"), ("p",)
    def R(self, x, h, s):
        i = torch.sigmoid(x.i + h.i + self.p * s.c)
        c = torch.clamp(s.c, -2.0, 2.0) * (1 - i) + i * torch.tanh(x.z + h.z)
        return self.State(h=F.softplus(c) * torch.exp(-c.abs()), c=torch.where(c > 3, s.c, c))

class Long(Cell):
    state, gates = ("h",), ("a",)
    def R(self, x, h, s):
        y = x.a + h.a
        for _ in range(40):
            y = torch.tanh(y * s.h + y)
        return self.State(h=y)

for cell, dtype, more in (
    (Some, torch.float32, {"zoneout": {"c": 0.2}, "recurrent_dropout": 0.3, "weight_drop": 0.3}),
    (Long, torch.float64, {}),
):
    for hidden in (1, 16, 31):
        rnn = RNN(cell, 3, hidden, bidirectional=True, backend="cpu", **more).to(dtype)
        for B, T in ((1, 1), (13, 5)):
            x = torch.randn(B, T, 3, dtype=dtype, requires_grad=True)
            for lengths in (None, torch.randint(1, T + 1, (B,))):
                rnn.train()(100 * x, lengths).outputs.sum().backward()
        single, state = RNN(cell, 3, hidden, backend="cpu").to(dtype).eval(), None
        with torch.no_grad():
            for x_t in torch.randn(3, 2, 3, dtype=dtype):
                _, state = single.step(x_t, state)

from elman.config import NetworkSettings
from elman.models.embedding import Tokens
from elman.models.seq2seq import Seq2Seq
for attention, hidden in (("location", [5, 17]), ("dot", 4)):  # steps of several phases that look at a memory
    networks = NetworkSettings(cell="gru", hidden=hidden), NetworkSettings(cell="mgu_original", hidden=hidden)
    model = Seq2Seq(Tokens(9, 3), Tokens(9, 3), *networks, attention=attention, feeding=True)
    ids, lengths = torch.randint(9, (3, 21)), torch.tensor([21, 1, 7])
    assert model.decoder.obstacle() is None
    model(model.read(ids, lengths), ids, lengths).sum().backward()
print("clean")
"""


def runtimes() -> list[str]:
    """The libraries that a sanitized one needs to be there before it; none where they are missing."""
    if shutil.which("gcc") is None:
        return []
    named = (
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        for name in ("libasan.so", "libubsan.so")
    )
    found = [name.strip() for name in named]
    return found if all(Path(name).is_absolute() for name in found) else []


@pytest.mark.skipif(not runtimes(), reason="gcc's AddressSanitizer and UBSan are not installed")
def test_sequences_are_clean(tmp_path):
    found = python(
        SEQUENCES,
        timeout=900,
        CC="gcc",
        ELMAN_CFLAGS=FLAGS,
        ELMAN_CACHE=str(tmp_path / "cache"),
        LD_PRELOAD=" ".join(runtimes()),
        ASAN_OPTIONS="detect_leaks=0",
        OMP_NUM_THREADS="2",
    )
    assert found.strip() == "clean"
