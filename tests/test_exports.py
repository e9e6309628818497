"""What the package shows is what it has, and the examples in its docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import elman
from elman.registry import CELLS

MODULES = ["elman", *(m.name for m in pkgutil.walk_packages(elman.__path__, "elman."))]


def test_all_is_what_can_be_imported():
    namespace = {}
    exec("from elman import *", namespace)
    assert set(elman.__all__) == set(namespace) - {"__builtins__"}
    assert dir(elman) == sorted(elman.__all__)
    assert {"RNN", "Cell", "register"} <= set(elman.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'elman' has no attribute 'nothing'"):
        _ = elman.nothing


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module, monkeypatch):
    monkeypatch.setattr(CELLS, "_added", dict(CELLS._added))
    if module == "elman.sklearn":
        pytest.importorskip("sklearn", reason="scikit-learn is not installed; pip install elman[sklearn]")
    assert doctest.testmod(importlib.import_module(module), raise_on_error=False).failed == 0


@pytest.mark.parametrize("name", elman.__all__)
def test_public_things_have_an_example(name):
    thing = getattr(elman, name)
    if callable(thing):
        assert ">>>" in thing.__doc__
