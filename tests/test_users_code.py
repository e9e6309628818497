"""Code of a user's own is found and hashed before anything of it runs, and runs as it was read."""

import hashlib
import importlib
import inspect
import py_compile
import sys

import pytest

from elman import RNN
from elman.errors import ArgumentError, RunError, UnknownNameError
from elman.registry import CELLS
from elman.users_code import Code
from marked import marked, ran

CELL = """
from elman import Cell

class Leaky(Cell):
    state, gates = ("h",), ("a",)
    def R(self, x, h, s):
        return self.State(h=0.9 * s.h + 0.1 * (x.a + h.a))
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder that modules are imported from; afterwards they are forgotten."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "outer"]:
        del sys.modules[name]


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_is_read_and_then_run_as_it_was_read(tmp_path):
    path = marked(tmp_path / "mine.py", CELL)
    code = Code.find(str(path))
    assert [(file.path, file.digest) for file in code.files] == [(str(path), digest(path))]
    assert ran(tmp_path) == []
    path.write_text("raise RuntimeError('not what was read')", encoding="utf-8")
    assert code.module.Leaky.__name__ == "Leaky"
    assert code.module is code.module
    assert (tmp_path / "mine.ran").read_text() == "x"  # once
    assert "class Leaky" in code.module.__loader__.get_source(code.module.__name__)
    assert code.module.__file__ == code.module.Leaky.R.__code__.co_filename == str(path)
    assert "def R(self, x, h, s):" in inspect.getsource(Code.find(str(marked(path, CELL))).module.Leaky.R)


def test_a_compiled_copy_beside_a_file_is_not_run(tmp_path):
    """It could hold anything, with the time and size of the source in it."""
    path, evil = tmp_path / "mine.py", tmp_path / "evil.py"
    path.write_text("value = 'good'", encoding="utf-8")
    evil.write_text("value = 'evil'", encoding="utf-8")
    cached = importlib.util.cache_from_source(str(path))
    py_compile.compile(
        str(evil), cfile=cached, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    assert Code.find(str(path)).module.value == "good"


def test_packages_on_the_way_are_read_and_not_run(modules):
    files = [
        marked(modules / "outer" / "__init__.py"),
        marked(modules / "outer" / "inner" / "__init__.py"),
        marked(modules / "outer" / "inner" / "cells.py", "value = 1"),
    ]
    code = Code.find("outer.inner.cells")
    assert [(file.path, file.digest) for file in code.files] == [(str(path), digest(path)) for path in files]
    assert (code.sourceless, ran(modules)) == ((), [])
    for path in files:
        path.write_text("raise RuntimeError('not what was read')", encoding="utf-8")
    before = list(sys.meta_path)
    assert code.module.value == 1
    assert code.module is sys.modules["outer.inner.cells"] is sys.modules["outer"].inner.cells
    assert sys.meta_path == before
    assert len(ran(modules)) == 3


def test_folders_without_init_have_no_code(modules):
    path = marked(modules / "outer" / "inner" / "cells.py", "value = 1")
    code = Code.find("outer.inner.cells")
    assert ([file.path for file in code.files], code.sourceless) == ([str(path)], ())
    assert code.module.value == 1


def test_a_module_of_a_package_that_finds_it_only_when_it_runs(modules):
    (modules / "elsewhere").mkdir()
    marked(modules / "outer" / "__init__.py", f"__path__.append({str(modules / 'elsewhere')!r})")
    marked(modules / "elsewhere" / "cells.py", "value = 1")
    code = Code.find("outer.cells")
    assert ([file.module for file in code.files], code.sourceless) == (["outer"], ("outer.cells",))
    assert ran(modules) == []
    assert code.module.value == 1


@pytest.mark.parametrize("place", ["sys", "os.path", "_json", "zipimport"])
def test_what_has_no_source_has_no_hash(place):
    code = Code.find(place)
    assert (code.files, code.sourceless[-1]) == ((), place)
    assert code.module is importlib.import_module(place)


def test_a_compiled_module_has_no_hash(modules):
    py_compile.compile(str(marked(modules / "source.py")), cfile=str(modules / "bare.pyc"))
    assert (Code.find("bare").sourceless, ran(modules)) == (("bare",), [])


def test_elmans_own_modules_are_ours():
    code = Code.find("elman.cells.lstm")
    assert (code.files, code.sourceless) == ((), ())
    assert code.module.LSTM.__name__ == "LSTM"


@pytest.mark.parametrize("place", ["none.py", "a\0b.py", "no_such_module", "a..b", "", "a b", "folder.py"])
def test_what_is_not_there(place, tmp_path, monkeypatch):
    (tmp_path / "folder.py").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ImportError, OSError)):
        Code.find(place)


def test_a_copy_stands_for_the_file_wherever_that_is(tmp_path):
    path = marked(tmp_path / "mine.py", CELL)
    copy = tmp_path / "code" / f"{digest(path)}.py"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    path.unlink()
    code = Code.find(str(path), copy)
    assert (code.place, [file.path for file in code.files]) == (str(path), [str(copy)])
    assert ran(tmp_path) == []
    assert code.module.Leaky.__name__ == "Leaky"
    assert code.module.__name__ == "elman_user_mine"  # as it was called in training


def test_a_copy_that_is_not_the_file_of_its_name_is_damage(tmp_path):
    path = marked(tmp_path / "mine.py", CELL)
    copy = tmp_path / f"{digest(path)}.py"
    copy.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(RunError, match="is damaged: it is not the file of its name; restore it"):
        Code.find(str(path), copy)
    assert ran(tmp_path) == []


MISTAKEN = (
    CELL
    + """
from elman import register

class Bad(Leaky):
    state = "h"

class Worse(Bad):
    pass

class Mended(Worse):
    state = ("h",)

class Taken(Leaky):
    pass

register("lstm", Taken)
"""
)


@pytest.mark.parametrize("place", ["mine.py", "outer.mine"])
def test_a_mistake_in_one_class_keeps_nobody_from_the_others(place, modules, monkeypatch):
    monkeypatch.chdir(modules)
    (modules / "outer").mkdir()
    for path in ("mine.py", "outer/mine.py"):
        (modules / path).write_text(MISTAKEN, encoding="utf-8")
    assert RNN(f"{place}:Leaky", 3, 5).cell_class.__name__ == "Leaky"
    assert CELLS.find(f"{place}:Mended").state == ("h",)
    for name in ("Bad", "Worse"):
        with pytest.raises(ArgumentError, match=rf"{name}\.state is 'h'"):
            CELLS.find(f"{place}:{name}")
        bad = getattr(Code.find(place).module, name)
        with pytest.raises(ArgumentError, match=rf"{name}\.state is 'h'"):
            RNN(bad, 3, 5)
    with pytest.raises(ArgumentError, match="'lstm' is a built-in cell"):
        CELLS.find(f"{place}:Taken")
    with pytest.raises(
        UnknownNameError, match=r"no cell named 'Leakey'; did you mean 'Leaky'\? Known: Leaky, Mended$"
    ):
        CELLS.find(f"{place}:Leakey")


def test_a_mistake_is_raised_at_once_where_no_file_is_loaded(tmp_path):
    with pytest.raises(ArgumentError, match=r"Bad\.state is 'h'"):
        exec(MISTAKEN, {"__name__": "here"})
    path = tmp_path / "mine.py"
    path.write_text(f"{MISTAKEN}\nRNN = 1 / 0\n", encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        CELLS.find(f"{path}:Leaky")
