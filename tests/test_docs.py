"""The documentation is true: its code runs, its links lead somewhere, it leaves no cell out."""

import re
from pathlib import Path

import pytest
import torch

from elman.registry import CELLS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.setattr(CELLS, "_added", dict(CELLS._added))
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    names = {"x": torch.randn(4, 9, 64), "lengths": torch.tensor([9, 1, 4, 7])}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (page.parent / link).exists(), link


def test_every_cell_is_described():
    page = (ROOT / "docs" / "cells.md").read_text(encoding="utf-8")
    for name in CELLS.names():
        assert f"| `{name}` |" in page


@pytest.mark.parametrize("name", CELLS.names())
def test_every_cell_shows_its_equations(name):
    """In the letters of the code: each gate and each state stands in the docstring."""
    cell = CELLS.find(name)
    assert all(re.search(rf"\b{state}'", cell.__doc__) for state in cell.state)
    assert all(re.search(rf"\bx W\^x{gate}\b|x W\^x\b", cell.__doc__) for gate in cell.gates)


def test_contributing_names_every_file_of_the_engine():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in (ROOT / "src" / "elman" / "recurrence").glob("[a-z]*.py"):
        assert path.name in page
