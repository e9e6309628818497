"""A long sequence in pieces with the state carried on is the same function, forward and backward."""

import pytest
import torch

import elman
from elman.cells.base import Cell
from elman.errors import ArgumentError
from user_cells import UNLIKE

STEPS, PIECE = 20, 6
NOISE = {"zoneout": 0.2, "recurrent_dropout": 0.3, "weight_drop": 0.2, "dropout": 0.0, "input_dropout": 0.2}


def pair(cell, **options):
    """The same network twice: whole sequences, and in pieces."""
    whole, pieces = (elman.RNN(cell, 5, 7, piece=piece, **options).double() for piece in (None, PIECE))
    pieces.load_state_dict(whole.state_dict())
    return whole, pieces


def computed(rnn, x, state=None):
    torch.manual_seed(3)
    x = x.clone().requires_grad_()
    rnn.zero_grad()
    outputs, last, final = rnn(x, [STEPS], state)
    (outputs.sin().sum() + last.cos().sum()).backward()
    return [outputs, last, x.grad, *(weight.grad for weight in rnn.parameters())], final


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "layers": 2}, NOISE], ids=str)
@pytest.mark.parametrize("cell", UNLIKE)
def test_pieces_are_the_same_function(cell, options):
    whole, pieces = pair(cell, **options)
    x = torch.randn(1, STEPS, 5, dtype=torch.double)
    expected, found = computed(whole, x)[0], computed(pieces, x)[0]
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(pieces.eval()(x).outputs, whole.eval()(x).outputs)


def test_a_given_state_begins_and_the_final_one_goes_on():
    whole, pieces = pair("lstm")
    x = torch.randn(1, STEPS, 5, dtype=torch.double)
    with torch.no_grad():
        state = whole(x).state
    _, expected = computed(whole, x, state)
    _, found = computed(pieces, x, state)
    torch.testing.assert_close(tuple(found[0]), tuple(expected[0]))


def test_inside_of_a_piece_is_not_kept_for_gradients(monkeypatch):
    """Only one piece at a time is differentiated: what lies in memory is as long as that."""
    longest = 0
    step = Cell.project

    def seen(cell, x):
        nonlocal longest
        longest = max(longest, x.shape[1])
        return step(cell, x)

    monkeypatch.setattr(Cell, "project", seen)
    rnn = elman.RNN("gru", 5, 7, piece=PIECE, backend="loop")
    rnn(torch.randn(1, STEPS, 5)).outputs.sum().backward()
    assert longest == PIECE
    rnn(torch.randn(2, STEPS, 5))  # several rows are not cut
    assert longest == STEPS


def test_no_piece_is_a_mistake():
    with pytest.raises(ArgumentError, match="piece is 0"):
        elman.RNN("gru", 5, 7, piece=0)
