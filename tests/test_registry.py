"""Names for parts: files are found, users add their own, mistakes are explained."""

import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch

import elman
from elman import RNN, Cell, register
from elman.errors import ArgumentError, UnknownNameError
from elman.registry import (
    CELLS,
    NETWORKS,
    OPTIMIZERS,
    REGISTRIES,
    Registry,
    parameters_of,
    users_place,
)
from user_cells import Decay, UserLSTM


@pytest.fixture
def cells(monkeypatch):
    """The registry of cells, left as it was."""
    monkeypatch.setattr(CELLS, "_added", dict(CELLS._added))
    return CELLS


def test_every_file_of_the_folder_is_a_cell():
    registry = Registry("cell", "elman.cells", "elman.cells.base:Cell")
    assert (registry.kind, registry.base, registry.base_name) == ("cell", Cell, "Cell")
    names = registry.names()
    assert names == sorted(names)
    assert {"elman", "lstm", "gru", "hard_gate", "layer_norm_lstm"} <= set(names)
    for name in names:
        assert issubclass(registry.find(name), Cell)
        assert registry.find(name).__module__ == f"elman.cells.{name}"


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_registry_finds_all_files_of_its_folder(registry):
    """Each is a part of its own, known by the file's name, or named as none."""
    package = importlib.import_module(registry.package)
    folder = Path(package.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    shared = {"base", *getattr(package, "SHARED", ())}
    assert shared - {"base"} <= files  # no file of the list is gone
    spelt = {
        name.replace("-", "_") if getattr(package, "HYPHENS", False) else name: name
        for name in registry.names()
    }
    assert spelt.keys() == files - shared
    assert registry.names() == sorted(registry.names())
    parts = {name: registry.find(name) for name in registry.names()}
    assert len(set(parts.values())) == len(parts)
    for file, name in spelt.items():
        assert issubclass(parts[name], registry.base)
        assert parts[name] is not registry.base
        assert parts[name].__module__ == f"{registry.package}.{file}"
        defined = [
            one
            for one in vars(importlib.import_module(f"{registry.package}.{file}")).values()
            if inspect.isclass(one)
            and issubclass(one, registry.base)
            and one.__module__ == parts[name].__module__
        ]
        assert defined == [parts[name]]  # exactly one class a file
        assert registry.find(f"{registry.package}.{file}:{parts[name].__name__}") is parts[name]
    assert (folder / "base.py").exists() == (registry.kind != "optimizer")  # whose base is torch's


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_registry_explains_what_it_does_not_find(registry):
    first = registry.names()[0]
    with pytest.raises(
        UnknownNameError, match=rf"no {registry.kind} named '{first}q'; did you mean '{first}'"
    ):
        registry.find(f"{first}q")
    with pytest.raises(
        UnknownNameError, match=f"'collections:Counter' is no {registry.kind}; derive it from"
    ):
        registry.find("collections:Counter")
    assert registry.base_name == registry.base.__name__


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_a_class_of_every_kind_can_be_registered(registry, monkeypatch):
    monkeypatch.setattr(registry, "_added", {})
    mine = type("Mine", (registry.find(registry.names()[0]),), {})
    register("mine", mine)
    assert registry.find("mine") is mine
    assert "mine" in registry.names()
    assert not any("mine" in other.names() for other in REGISTRIES if other is not registry)
    plain = next(name for name in registry.names() if name.isidentifier() and name != "mine")
    with pytest.raises(ArgumentError, match=f"'{plain}' is a built-in {registry.kind}; choose another name"):
        register(plain, mine)


def test_the_parts_that_there_are():
    """Whoever adds a file need not come here; whoever renames one changes what users write."""
    known = {registry.kind: set(registry.names()) for registry in REGISTRIES}
    assert known["reader"] >= {"columns", "conllu", "delimited", "jsonl", "lines", "parallel", "separated"}
    assert known["unit"] >= {"bpe", "byte", "character", "word"}
    assert known["network"] >= {"bag", "ngram", "rnn", "window"}
    assert known["pooling"] >= {"attention", "last", "max", "mean"}
    assert known["optimizer"] >= {"adam", "adamw", "asgd", "incremental", "sgd"}
    assert known["schedule"] >= {"constant", "cosine", "one-cycle", "plateau", "warmup"}
    assert known["metric"] >= {"bleu", "chrf", "ter"}
    assert known["strategy"] >= {"beam", "diverse", "greedy", "sample"}
    assert known["attention"] >= {"additive", "bilinear", "dot", "location"}
    assert known["task"] >= {"class2seq", "classify", "lm", "seq2seq", "tag"}
    assert known["corpus"] >= {"dates", "places", "topics", "worked_example"}


def test_options_and_who_reads_them():
    assert OPTIMIZERS.options("sgd") == {"groups": None, "lr": None, "momentum": 0.0, "weight_decay": 0.0}
    assert OPTIMIZERS.readers_of("betas") == ["adam", "adamw"]
    assert OPTIMIZERS.options("torch.optim:RMSprop").keys() >= {"params", "lr", "alpha", "momentum"}
    assert NETWORKS.readers_of("window") == ["window"]
    assert NETWORKS.readers_of("nothing") == []
    assert CELLS.options("lstm").keys() >= {"bias"}
    own = {"input_size": None, "hidden_size": None, "gain": None, "offset": 0.0}
    assert parameters_of(Gained) == {"heads": 1, **own}  # which every cell takes
    assert parameters_of(Handing).keys() >= {"gain", "bias"}  # which go on to the base


def test_a_registered_cell_is_a_name_R9(cells):
    register("my_lstm", UserLSTM)
    assert "my_lstm" in cells.names()
    assert RNN("my_lstm", 3, 5).cell_class is UserLSTM
    register("my_lstm", Decay)
    assert RNN("my_lstm", 3, 5).cell_class is Decay


@pytest.mark.parametrize(
    ("name", "part", "message"),
    [
        ("lstm", UserLSTM, "E101: 'lstm' is a built-in cell; choose another name"),
        ("my lstm", UserLSTM, "E101: name 'my lstm' is not a plain word"),
        ("", UserLSTM, "E101: name '' is not a plain word"),
        (3, UserLSTM, "E101: name 3 is not a plain word"),
        ("mine", "UserLSTM", "E101: cannot register 'UserLSTM' as 'mine'"),
        ("mine", dict, "it is no class derived from Cell"),
    ],
)
def test_what_cannot_be_registered(cells, name, part, message):
    with pytest.raises(ArgumentError) as caught:
        register(name, part)
    assert message in str(caught.value)


@pytest.mark.parametrize("end", ["", ".py", ":A", ".py:A"])
def test_a_name_without_end_is_shortened(end):
    with pytest.raises(UnknownNameError) as caught:
        CELLS.find("x" * 100_000 + end)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("name", ["ltsm", "base", "__init__", "nothing_like_it"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(UnknownNameError) as caught:
        CELLS.find(name)
    assert f"E103: no cell named {name!r}" in str(caught.value)
    assert "gru" in str(caught.value)
    assert ("did you mean 'lstm'?" in str(caught.value)) == (name == "ltsm")


CELL_FILE = """
from torch import tanh
from elman import Cell

class Leaky(Cell):
    state, gates = ("h",), ("a",)
    def R(self, x, h, s):
        return self.State(h=0.9 * s.h + 0.1 * tanh(x.a + h.a))
"""


@pytest.mark.slow
def test_a_cell_is_found_in_a_users_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CELL_FILE, encoding="utf-8")
    assert CELLS.find(f"{path}:Leaky").__name__ == "Leaky"
    assert RNN(f"{path}:Leaky", 2, 3)(torch.zeros(1, 4, 2)).outputs.shape == (1, 4, 3)
    assert CELLS.find("elman.cells.lstm:LSTM") is CELLS.find("lstm")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine.py:Leakie", "has no cell named 'Leakie'; did you mean 'Leaky'"),
        ("mine.py:tanh", "has no cell named 'tanh'"),
        ("none.py:Leaky", "cannot be loaded"),
        ("no_such_module:Leaky", "cannot be loaded"),
        ("broken.py:Leaky", "cannot be loaded"),
        (":Leaky", "cannot be loaded: '' is neither a Python file"),
        ("..:Leaky", "cannot be loaded: '..' is neither a Python file"),
        ("mine.py", "'mine.py' is a file; name the class in it, too, as in mine.py:Mine"),
        ("collections:Counter", "'collections:Counter' is no cell; derive it from Cell"),
        ("collections:Countr", "collections has no cell named 'Countr'; Known: none"),
    ],
)
def test_what_cannot_be_found_in_a_file_says_so(tmp_path, monkeypatch, name, said):
    (tmp_path / "mine.py").write_text(CELL_FILE, encoding="utf-8")
    (tmp_path / "broken.py").write_text("class", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownNameError, match=said):
        CELLS.find(name)


def test_users_code_is_imported_in_one_place():
    """So that whatever a run may name comes under the same rule."""
    source = Path(elman.__file__).parent
    files = {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in source.rglob("*.py")}
    importing = {
        name for name, text in files.items() if re.search(r"\b(import_module|exec_module|exec)\(", text)
    }
    own = {
        "__init__.py",
        "cli/main.py",
        "config/values.py",
        "export/exporting.py",
        "recurrence/triton/module.py",
    }  # they import what we name
    assert importing == own | {"registry.py", "users_code.py"}
    assert {name for name, text in files.items() if "Code.find(" in text} == {"registry.py"}


class Gained(Decay):
    def __init__(self, input_size, hidden_size, *, gain, offset=0.0):
        super().__init__(input_size, hidden_size)
        self.gain, self.offset = gain, offset


class Handing(Decay):
    def __init__(self, *sizes, gain=1.0, **options):
        super().__init__(*sizes, **options)
        self.gain = gain


class Sizeless(Decay):
    def __init__(self):
        super().__init__(3, 5)


@pytest.mark.parametrize(
    ("part", "options", "said"),
    [
        (Gained, {}, r"E101: Gained needs the option 'gain'; set it in cell_options"),
        (Gained, {"gian": 1}, r"cell_options has 'gian', unknown to Gained; did you mean 'gain'\?"),
        (Handing, {"gian": 1}, r"cell_options has 'gian', unknown to Handing; did you mean 'gain'\?"),
        (Gained, {"gain": 1, "hidden_size": 3}, r"has 'hidden_size', unknown to Gained"),
        (
            Sizeless,
            {},
            r"Sizeless is __init__\(self\), but it gets 2 sizes first; begin it as Cell\.__init__\(",
        ),
    ],
)
def test_options_of_a_constructor_that_are_wrong_or_missing(part, options, said):
    with pytest.raises(ArgumentError, match=said):
        RNN(part, 3, 5, cell_options=options)


def test_a_constructor_that_hands_its_options_on():
    [[cell]] = RNN(Handing, 3, 5, cell_options={"gain": 2.0, "bias": False}).cells
    assert (cell.gain, cell.bias) == (2.0, False)


def test_an_error_of_a_users_file_has_its_place(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(CELL_FILE.replace("0.1 * tanh", "0.1 * tahn"), encoding="utf-8")
    with pytest.raises(NameError) as caught:
        RNN(f"{path}:Leaky", 2, 3)
    assert users_place(caught.value) == f"{path}:8: Leaky.R"
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018
    assert users_place(caught.value) is None


def test_an_error_of_ours_is_not_the_users(tmp_path):
    """Though it was a user's class that called."""
    path = tmp_path / "mine.py"
    path.write_text(
        CELL_FILE + '    def O(self, s):\n        return self.block("W_h", "z")\n', encoding="utf-8"
    )
    with pytest.raises(ValueError, match="z") as caught:
        RNN(f"{path}:Leaky", 2, 3)
    assert users_place(caught.value) is None
