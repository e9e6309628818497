"""The documentation is true: its code runs, its commands and links exist, it leaves nothing out."""

import re
import shlex
from pathlib import Path

import pytest
import torch
import typer

from elman.cli.commands.init import reference
from elman.cli.main import app
from elman.config import describe
from elman.errors import ElmanError
from elman.registry import CELLS, CORPORA, TASKS
from elman.text.files import Repairs
from elman.training.settings import settings_class

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/*.md")])
MATHEMATICS = ROOT / "docs" / "mathematics.md"
SOURCES = sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py")])
COMMANDS = typer.main.get_command(app).commands


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
@pytest.mark.slow
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.setattr(CELLS, "_added", dict(CELLS._added))
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    names = {"x": torch.randn(4, 9, 64), "lengths": torch.tensor([9, 1, 4, 7])}
    for block in blocks(page):
        if "sklearn" in block:
            pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install elman[sklearn]")
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


def commands(page: Path) -> list[list[str]]:
    """The words of every ``elman …`` in the page's blocks of commands; what comes out of them is left out."""
    found = []
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        for line in block.split("\n") if kind in ("", "console", "sh") else ():
            if "elman " in line and (kind != "console" or line.startswith("$ ")):
                parts = simple_commands(line.removeprefix("$ "))
                found += [rest for name, *rest in parts if name == "elman" and rest]
    return found


def simple_commands(line: str) -> list[list[str]]:
    """The commands of a line of shell, apart by pipes, redirections and &&."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in words:
        if word and set(word) <= set("|<>&;()"):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    keys = {key for task in TASKS.names() for key, *_ in describe(settings_class(task))}
    for name, *words in commands(page):
        context = COMMANDS[name].make_context(name, words)  # parses, and runs nothing
        for pair in context.params.get("setting", []):
            assert pair.partition("=")[0] in keys, pair
        if name in ("train", "init") and context.params["task"]:
            assert context.params["task"] in TASKS.names() or ".py:" in context.params["task"]


def test_commands_are_found():
    assert ["predict", "runs/places"] in commands(ROOT / "docs" / "quickstart.md")
    assert sum(len(commands(page)) for page in PAGES) > 50


def test_the_settings_are_the_ones_there_are():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == reference(), "elman init --markdown > docs/settings.md"


@pytest.mark.parametrize("task", TASKS.names())
def test_every_task_is_described(task):
    """A page of its own, with its corpora, its commands and its figures; the README leads there."""
    page = (ROOT / "docs" / "tasks" / f"{task}.md").read_text(encoding="utf-8")
    for corpus in (name for name in CORPORA.names() if CORPORA.find(name).task == task):
        assert f"`{corpus}`" in page or f"builtin:{corpus}" in page, corpus
    for command in (
        f"elman train {task} ",
        "elman evaluate",
        "elman predict",
        "elman.load",
        "--baseline ngram",
    ):
        assert command in page, command
    assert f"(docs/tasks/{task}.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_error_has_its_row():
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (E\d+) \| (`.*?\| \d+) \|", page, re.M))
    kinds = every_kind(ElmanError)
    assert list(rows) == sorted(kind.number for kind in kinds)
    for kind in kinds:
        assert rows[kind.number].startswith(f"`{kind.__name__}`")
        assert rows[kind.number].endswith(f"| {kind.exit_code}")


def every_kind(kind: type[ElmanError]) -> list[type[ElmanError]]:
    below = [
        one
        for child in kind.__subclasses__()
        if child.__module__ == kind.__module__
        for one in every_kind(child)
    ]
    return [kind, *below]


def test_every_repair_has_its_row():
    page = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    repairs = re.findall(r"``([^`]* (?:removed|skipped|kept))``", Repairs.__doc__ or "")
    assert len(repairs) >= 9
    for repair in repairs:
        assert f"| {repair} |" in page


def test_contributing_names_every_package():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for path in (ROOT / "src" / "elman").iterdir():
        if path.name[0] not in "_." and path.suffix in ("", ".py"):
            assert f"  {path.name}{'/' if path.is_dir() else ''} " in page or f"  {path.name}/\n" in page, (
                path.name
            )


def mathematics() -> list[str]:
    """The codes of the rows of the mathematics, in the order of the page."""
    return re.findall(r"^\*\*([A-Z]\d+)\*\* ", MATHEMATICS.read_text(encoding="utf-8"), re.M)


def cited(text: str) -> set[str]:
    """The codes after the word row, singly, in a list or as a range, and those in the names of tests."""
    code = r"[A-Z]\d+"
    codes = set(re.findall(rf"\bdef test_\w*_({code})\(", text))
    for together in re.findall(rf"\b[Rr]ows?\s+({code}(?:(?:–|,\s+|,?\s+and\s+){code})*)\b", text):
        for letter, first, last in re.findall(r"([A-Z])(\d+)(?:–[A-Z](\d+))?", together):
            codes |= {f"{letter}{number}" for number in range(int(first), int(last or first) + 1)}
    return codes


def test_citations_are_found():
    one, two, three = mathematics()[:3]
    assert cited(f"Row {one}: as it stands.") == {one}
    assert cited(f"(rows {one} and {two}; {three})") == {one, two}
    assert cited(f"rows {one}–{three}") == cited(f"Rows {one},\n{two} and {three}") == {one, two, three}
    assert cited(f"def test_a_thing_{two}(cell):") == {two}
    assert not cited("the row has T1 and L2 in it; a grow A1")


def test_every_row_that_is_cited_is_one_of_the_mathematics():
    rows = mathematics()
    assert len(rows) == len(set(rows)) >= 36
    for path in (*SOURCES, *PAGES):
        assert cited(path.read_text(encoding="utf-8")) <= set(rows), path


def test_every_row_of_the_mathematics_is_cited():
    found = set().union(*(cited(path.read_text(encoding="utf-8")) for path in SOURCES))
    assert [row for row in mathematics() if row not in found] == []


def test_the_mathematics_name_files_and_settings_that_there_are():
    page = MATHEMATICS.read_text(encoding="utf-8")
    files = re.findall(r"`([a-z0-9_/]+(?:\.py|/))`", page)
    assert len(files) > 50
    for file in files:
        assert (ROOT / file if file.startswith("src/") else ROOT / "src" / "elman" / file).exists(), file
    keys = {key for task in TASKS.names() for key, *_ in describe(settings_class(task))}
    named = re.findall(r"`((?:text|model|training|decoding)\.[a-z_.]+)(?:=[^`]+)?`", page)
    assert len(named) > 30
    assert set(named) <= keys
