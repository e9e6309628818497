"""Every error has a number of its own and can be caught as what it is."""

import pickle

import pytest

from elman import errors
from elman.errors import BackendNotice, ElmanError, nearest

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ElmanError)]


def test_numbers_are_unique():
    numbers = [kind.number for kind in KINDS]
    assert len(set(numbers)) == len(numbers) >= 6


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_shows_its_number_and_survives_a_process(kind):
    error = pickle.loads(pickle.dumps(kind("what and why")))
    assert type(error) is kind
    assert str(error) == f"{kind.number}: what and why"
    assert kind.__doc__ != ElmanError.__doc__ or kind is ElmanError  # it says itself what goes wrong


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        ("ArgumentError", ValueError),
        ("ShapeError", ValueError),
        ("UnknownNameError", KeyError),
        ("EquationError", TypeError),
        ("BackendError", RuntimeError),
    ],
)
def test_errors_are_also_those_of_python(kind, builtin):
    assert issubclass(getattr(errors, kind), builtin)
    assert issubclass(BackendNotice, UserWarning)


def test_the_nearest_name():
    assert nearest("grue", ["lstm", "gru"]) == "did you mean 'gru'? Known: gru, lstm"
    assert nearest("LSTM", ["lstm", "gru"]) == "did you mean 'lstm'? Known: gru, lstm"
    assert nearest("x", []) == "Known: none"
    many = [f"name {number}" for number in range(3000)]
    assert nearest("NAME 7", many).startswith("did you mean 'name 7'?")
    assert nearest("nam 7", many).startswith("Known: name 0, ")  # looking through so many takes too long
    assert len(nearest("x", ["x" * 9000])) < 100


def test_a_message_steers_no_terminal():
    assert str(ElmanError("a\x1b[31m\r\ud800\n  two é")) == "E100: a\\x1b[31m\\r\\ud800\n  two é"
    error = errors.DataError("no\nway", path="a\nb", line=3, text="x", remedy="y\x07")
    assert str(error) == r"a\nb:3: E401: no\nway: 'x'; y\x07"
