"""A trained model that several files look at."""

import pytest
from pairs import LEARNING, strings, tsv

from tiny_tasks import ready, train


@pytest.fixture(scope="session")
def reversing(tmp_path_factory):
    """A trained model that turns strings around, and strings that it has not seen."""
    known = strings(800, 3, 6)
    data = tsv((text, text[::-1]) for text in known[:600])
    one = ready("seq2seq", tmp_path_factory.mktemp("reversing"), {**LEARNING, "training.epochs": 10}, data)
    train(one)
    return one, known[600:]
