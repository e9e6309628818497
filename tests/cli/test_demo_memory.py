"""``elman demo memory``: it runs, it says what it found, and the networks do learn."""

import pytest
import torch
from typer.testing import CliRunner

from elman.cli import demo_memory as demo
from elman.cli.main import app
from tiny import elman


@pytest.mark.slow
def test_it_prints_and_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "UPDATES", 2)
    result = CliRunner().invoke(app, ["demo", "memory", "--out", str(tmp_path / "pictures")])
    assert result.exit_code == 0, result.output
    for name in ("Elman", "GRU", "LSTM", "yours"):
        assert f"\n  {name} " in result.output
        assert f"    {name}: over 41 steps the gradient" in result.output
    for picture in ("memory.png", "gradients.png"):
        assert (tmp_path / "pictures" / picture).read_bytes().startswith(b"\x89PNG")


def test_a_folder_that_cannot_be_made_is_said_before_any_work(tmp_path):
    (tmp_path / "taken").touch()
    code, out, err = elman("demo", "memory", "--out", tmp_path / "taken")
    assert (code, out) == (5, "")
    assert "taken cannot be written: File exists" in err


@pytest.mark.parametrize("cell", ["lstm", demo.Yours], ids=["lstm", "yours"])
@pytest.mark.slow
def test_a_gated_cell_learns_to_remember(cell):
    torch.manual_seed(1)
    model = demo.Rememberer(cell)
    losses = list(demo.train(model, torch.Generator().manual_seed(1)))
    assert losses[-1] < 0.1 * losses[0]
    assert demo.accuracy(model, torch.Generator().manual_seed(2), 30) > 0.95
