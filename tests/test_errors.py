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
    assert kind.number in (errors.__doc__ or "") or kind is ElmanError


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
