"""The lexicon: each distinct word once, with its number, its vector and its letters."""

import numpy as np

from elman.text.lexicon import Lexicon
from elman.text.vocabulary import UNKNOWN, Vocabulary

WORDS = Vocabulary.build({"the": 3, "cat": 2})
LETTERS = Vocabulary.build(dict.fromkeys("theca", 1))


def test_a_word_is_taken_in_once():
    lexicon = Lexicon(WORDS)
    assert lexicon.ids(["the", "dog", "the", "cat", "dog"]) == [0, 1, 0, 2, 1]
    assert lexicon.ids(["cat", "new"]) == [2, 3]
    assert lexicon.words == ["the", "dog", "cat", "new"]


def test_unknown_words_share_a_token_but_not_their_letters():
    lexicon = Lexicon(WORDS, LETTERS)
    tokens, vectors, letters, lengths = lexicon.rows(np.array(lexicon.ids(["hat", "tea", "cat"])))
    assert tokens.tolist() == [WORDS.id(UNKNOWN), WORDS.id(UNKNOWN), WORDS.id("cat")]
    assert vectors.tolist() == [0, 0, 0]
    assert lengths.tolist() == [3, 3, 3]
    assert [[LETTERS.tokens[c] for c in row] for row in letters] == [list("hat"), list("tea"), list("cat")]


def test_only_the_vocabulary_is_looked_up_in_lower_case():
    lexicon = Lexicon(WORDS, Vocabulary.build(dict.fromkeys("THEthe", 1)), {"The": 5}, lower=True)
    tokens, vectors, letters, _ = lexicon.rows(np.array(lexicon.ids(["the", "The", "THE"])))
    assert tokens.tolist() == [WORDS.id("the")] * 3
    assert vectors.tolist() == [0, 5, 0]
    assert len({tuple(row) for row in letters.tolist()}) == 3


def test_a_vector_by_its_own_form_or_the_lower_case_one():
    lexicon = Lexicon(WORDS, vectors={"cat": 1, "Cat": 2, "the": 3})
    _, vectors, _, _ = lexicon.rows(np.array(lexicon.ids(["cat", "Cat", "CAT", "The", "dog"])))
    assert vectors.tolist() == [1, 2, 1, 3, 0]


def test_letters_are_cut_and_never_none(monkeypatch):
    monkeypatch.setattr("elman.text.lexicon.LONGEST", 4)
    lexicon = Lexicon(WORDS, LETTERS)
    _, _, letters, lengths = lexicon.rows(np.array(lexicon.ids(["the" * 50, "", "t"])))
    assert lengths.tolist() == [4, 1, 1]
    assert letters.shape == (3, 4)
    _, _, _, lengths = (without := Lexicon(WORDS)).rows(np.array(without.ids(["the", "x"])))
    assert lengths.tolist() == [1, 1]
