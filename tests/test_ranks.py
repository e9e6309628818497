"""The package is layered: a file imports only from lower ranks, and from its own package."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "elman"

RANKS = {
    "errors": 0,
    "cores": 0,
    "storage": 0,
    "users_code": 0,
    "trust": 0,
    "registry": 0,
    "config": 0,
    "tensors": 1,
    "distributed": 2,
    "recurrence": 2,
    "cells": 3,
    "attention": 3,
    "text": 3,
    "layers": 4,
    "runtime": 4,
    "models": 5,
    "decoding": 5,
    "metrics": 5,
    "tasks": 6,
    "corpora": 6,
    "training": 7,
    "inspection": 7,
    "examination": 8,
    "presentation": 8,
    "predictor": 9,
    "bench": 9,
    "comparing": 9,
    "tuning": 10,
    "fitting": 10,
    "sklearn": 11,
    "cli": 11,
    "server": 10,
    "export": 10,
    "__main__": 12,
}
FOUNDATION = {name for name, rank in RANKS.items() if rank == 0}  # they make one layer
HEAVY = ("torch", "numpy", "matplotlib")


def parts(source: Path) -> set[str]:
    """The top-level modules and packages of the source folder."""
    packages = {path.relative_to(source).parts[0] for path in source.rglob("*.py")}
    return {name.removesuffix(".py") for name in packages} - {"__init__"}


def imported_modules(tree: ast.AST, package: list[str]) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of all that a file of ``package`` imports, lazily or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def uphill_imports(source: Path) -> list[str]:
    """One ``file:line: what`` for every import that the ranks forbid."""
    found = []
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        if place == Path("__init__.py"):
            continue
        part = place.parts[0].removesuffix(".py")
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        for line, name in imported_modules(tree, ["elman", *place.parent.parts]):
            problem = forbidden(part, name)
            if problem:
                found.append(f"{place.as_posix()}:{line}: {problem}")
    return found


def forbidden(part: str, name: str) -> str | None:
    """Why a file of ``part`` must not import ``name``, or None where it may."""
    package, _, rest = name.partition(".")
    target = rest.partition(".")[0]
    if package != "elman" or target == part or target.startswith("__version"):
        return None
    if target not in RANKS:
        return f"{name} comes from elman/__init__.py or is unranked; import it from where it lives"
    if {part, target} <= FOUNDATION or RANKS[target] < RANKS[part]:
        return None
    return f"{part} ({RANKS[part]}) imports {name} ({RANKS[target]})"


def test_every_part_has_a_rank() -> None:
    assert parts(SOURCE), f"no source in {SOURCE}"
    assert parts(SOURCE) - RANKS.keys() == set()


@pytest.mark.slow
def test_no_import_goes_uphill() -> None:
    assert uphill_imports(SOURCE) == []


@pytest.mark.parametrize(
    ("file", "code", "allowed"),
    [
        ("cells/lstm.py", "from elman.cells.base import Cell", True),
        ("cells/lstm.py", "from .base import Cell", True),
        ("cells/lstm.py", "import torch\nfrom elman.recurrence import unroll", True),
        ("cells/lstm.py", "from ..tensors import masks", True),
        ("registry.py", "from elman.errors import ArgumentError", True),
        ("cli/main.py", "from elman import __version__", True),
        ("recurrence/cpu/build.py", "from ..trace import trace", True),
        ("recurrence/loop.py", "from elman.cells.base import Cell", False),
        ("recurrence/loop.py", "import elman.cells.base", False),
        ("recurrence/loop.py", "from elman import errors, cells", False),
        ("recurrence/cpu/build.py", "from ...cells import base", False),
        ("recurrence/loop.py", "from .. import layers", False),
        ("recurrence/loop.py", "def late():\n    from elman.layers import rnn", False),
        ("cells/lstm.py", "from elman.attention.base import Attention", False),
        ("errors.py", "from elman.tensors import masks", False),
        ("predictor.py", "from elman.cli.main import run", False),
        ("cells/lstm.py", "from elman import RNN", False),
        ("cells/lstm.py", "import elman", False),
    ],
)
def test_the_check_tells_good_imports_from_bad(tmp_path: Path, file: str, code: str, allowed: bool) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code, encoding="utf-8")
    problems = uphill_imports(tmp_path)
    assert (problems == []) is allowed
    assert all(problem.startswith(f"{file}:") for problem in problems)


def test_the_check_sees_an_unranked_part(tmp_path: Path) -> None:
    (tmp_path / "helpers").mkdir()
    for file in ("__init__.py", "errors.py", "misc.py", "helpers/strings.py"):
        (tmp_path / file).touch()
    assert parts(tmp_path) - RANKS.keys() == {"misc", "helpers"}


@pytest.mark.parametrize("module", ["elman", "elman.cli.main"])
def test_importing_is_light(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], f"import {module} loads what only some commands need"
