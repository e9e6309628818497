"""Indicator features of words: what is alike has the same numbers, whatever stands around it."""

import pytest
import torch

from elman.models.indicators import AFFIX, SHAPE, WORD, Affixes, Indicators, hashed_sums
from elman.text.vocabulary import MARKERS

LETTERS = [*MARKERS, *"abcABC12-.é"]


def spelt(*words):
    """Letters (U, C) and their lengths (U,)."""
    rows = [torch.tensor([LETTERS.index(letter) for letter in word]) for word in words]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([*map(len, words)])


def test_words_share_what_they_have_in_common():
    one, two, three = Indicators(LETTERS)(*spelt("Abba", "abba", "cabba"))
    same = [*range(4)]
    assert [(one[i] == two[i]).item() for i in same] == [False, True, False, False]  # written, small, shapes
    assert torch.equal(one[4:], two[4:])  # affixes are in small letters
    assert torch.equal(two[4 + AFFIX :], three[4 + AFFIX :])  # endings
    assert (two[4 : 4 + AFFIX] != three[4 : 4 + AFFIX]).all()


def test_a_short_shape_counts_letters_of_one_kind_once():
    found = Indicators(LETTERS)(*spelt("Abba-12", "Cc-1", "Cc1-", "é"))
    assert found[0, SHAPE] == found[1, SHAPE] != found[2, SHAPE]
    assert found[0, SHAPE - 1] != found[1, SHAPE - 1]


def test_what_a_word_is_too_short_for_is_not_there():
    found = Indicators(LETTERS)(*spelt("ab", "abc-1"))
    assert (found[0, 4:] != 0).tolist() == [True, True, False, False] * 2
    assert (found[1] != 0).all()
    assert len(set(found.flatten().tolist())) == found.numel() - 3 - 2  # 0 four times; a, ab begin both


@pytest.mark.parametrize("longest", ["", "abcabcabc"])
def test_the_numbers_do_not_depend_on_other_words_or_on_the_numbers_of_letters(longest):
    alone = Indicators(LETTERS)(*spelt("ab-1"))
    beside = Indicators(LETTERS)(*spelt("ab-1", *([longest] if longest else [])))
    assert torch.equal(alone[0], beside[0])
    letters, lengths = spelt("ab-1")
    turned = Indicators(LETTERS[: len(MARKERS)] + LETTERS[len(MARKERS) :][::-1])
    last = len(LETTERS) - 1 + len(MARKERS)
    assert torch.equal(turned(last - letters, lengths)[0], alone[0])
    assert alone[0, WORD] == turned(last - letters, lengths)[0, WORD]


def test_a_sum_has_a_row_for_every_number_and_none_for_zero():
    table = torch.randn(2**8, 3)
    found = torch.tensor([[5, 0, 9], [0, 0, 0]])
    sums = hashed_sums(found, table, dropout=0.0)
    one, two = (hashed_sums(torch.tensor([[number]]), table, dropout=0.0)[0] for number in (5, 9))
    torch.testing.assert_close(sums[0], one + two)
    assert (sums[1] == 0).all()


def test_some_are_left_out_in_training_alone():
    affixes = Affixes(LETTERS, 5, dropout=0.5)
    words = spelt("abc", "Abba")
    expected = affixes.eval()(*words)
    assert torch.equal(affixes(*words), expected)
    assert expected.shape == (2, affixes.output_size)
    torch.manual_seed(1)
    drawn = torch.stack([affixes.train()(*words) for _ in range(2000)])
    torch.testing.assert_close(drawn.mean(0), expected, atol=0.05, rtol=0)
    assert [*affixes.state_dict()] == ["weight"]


def test_sums_are_the_same_whether_gradients_are_wanted_or_not():
    found, table = torch.randint(-(2**62), 2**62, (7, 12)), torch.randn(2**6, 5)
    found[2, 3:] = 0
    wanted = hashed_sums(found, table, dropout=0.0)
    with torch.no_grad():
        torch.testing.assert_close(hashed_sums(found, table, dropout=0.0), wanted)
