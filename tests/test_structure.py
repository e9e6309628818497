"""The shape of the source: files and classes that fit a head, one way to import, nobody's private things."""

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from test_ranks import SOURCE, imported_modules

LONGEST = 400  # lines of a file
METHODS = 20  # public ones of a class
ANYTHING = 540  # mentions of Any; most are what JSON, TOML and the nodes of ONNX hold

FILES = sorted(SOURCE.rglob("*.py"))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def package(path: Path) -> list[str]:
    return ["elman", *path.relative_to(SOURCE).parent.parts]


def module(path: Path) -> str:
    return ".".join([*package(path), *([] if path.stem == "__init__" else [path.stem])])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_file_fits_a_head(path):
    assert len(path.read_text(encoding="utf-8").split("\n")) <= LONGEST + 1


def test_a_class_fits_a_head():
    large = {}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                names = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                public = [name for name in names if name[0] != "_"]
                if len(public) > METHODS:
                    large[f"{module(path)}.{node.name}"] = len(public)
    assert large == {}


def test_anything_is_rare():
    count = Counter(node.id for path in FILES for node in ast.walk(tree(path)) if isinstance(node, ast.Name))
    assert count["Any"] <= ANYTHING


def private_names(path: Path) -> Iterator[str]:
    """What a file takes of other modules that is their own: ``from a import _b``, ``import a._b``."""
    modules = set()
    for line, name in imported_modules(tree(path), package(path)):
        parts = name.split(".")
        modules.add(parts[-1])
        if parts[0] == "elman" and any(part[0] == "_" and part[:2] != "__" for part in parts):
            yield f"{line}: {name}"
    for node in ast.walk(tree(path)):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in modules - {
                "torch",
                "forward_ad",
            }:
                if attr[0] == "_" and attr[:2] != "__":
                    yield f"{node.lineno}: {name}.{attr}"


@pytest.mark.slow
def test_nobody_takes_what_is_another_modules_own():
    assert {module(path): found for path in FILES if (found := list(private_names(path)))} == {}


def imports(path: Path, known: set[str]) -> set[str]:
    """The modules that a file imports when it runs, at once or late; what only types need does not count."""
    found = tree(path)
    for node in ast.walk(found):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    names = {name for _, name in imported_modules(found, package(path))}
    return {name if name in known else name.rpartition(".")[0] for name in names} & known - {module(path)}


def cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.slow
def test_no_import_goes_round_not_even_late():
    known = {module(path) for path in FILES}
    graph = {module(path): imports(path, known) for path in FILES if module(path) != "elman"}
    assert cycle(graph) == []
    assert cycle(graph | {"elman.errors": {"elman.predictor"}}) != []  # a check that could fail
