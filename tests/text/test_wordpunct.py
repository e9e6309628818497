"""Words and signs apart: what is cut where, which tokens are marked, and that the text comes back."""

import random

import pytest

from elman.text.units.wordpunct import GLUED, SPACED, WordPunct, split_mark

PLAIN = {  # cut without a mark, so that words and signs are as people would look them up
    "Two men, both in hats, sit.": ["Two", "men", ",", "both", "in", "hats", ",", "sit", "."],
    'He said: "Stop!" (twice).': ["He", "said", ":", '"', "Stop", "!", '"', "(", "twice", ")", "."],
    "Don't they've John's I'll": ["Don", "'t", "they", "'ve", "John", "'s", "I", "'ll"],
    "l'homme d’une qu'elle dell'arte": ["l'", "homme", "d’", "une", "qu'", "elle", "dell'", "arte"],
    "İstanbul'da п'ять ім'я": ["İstanbul", "'da", "п'ять", "ім'я"],
    "a well-known and/or e-mail": ["a", "well", "-", "known", "and", "/", "or", "e", "-", "mail"],
    "$3.50 1,000.5 12:30 10% 5th": ["$", "3.50", "1,000.5", "12:30", "10", "%", "5th"],
    "the U.S. of A.": ["the", "U.S.", "of", "A", "."],
    "see https://a.org/x?y=1, or a.b@c.org.": ["see", "https://a.org/x?y=1", ",", "or", "a.b@c.org", "."],
    "@you #this": ["@", "you", "#", "this"],
    "what?! no...": ["what", "?", "!", "no", "..."],
    "今天iPhone很好。": ["今", "天", "iPhone", "很", "好", "。"],
    "हिन्दी में है।": ["हिन्दी", "में", "है", "।"],
    "ภาษา": ["ภ", "า", "ษ", "า"],
    "안녕하세요, 세계!": ["안녕하세요", ",", "세계", "!"],
    "e\u0301te\u0301 👩‍👩‍👧 👍🏽 🇩🇪": ["e\u0301te\u0301", "👩‍👩‍👧", "👍🏽", "🇩🇪"],
    "the <unk> of <unk>": ["the", "<unk>", "of", "<unk>"],
    "« bon »": ["«", "▁bon", "▁»"],  # the French space is one that the rule does not expect
}
MARKED = {
    "end .": ["end", "▁."],
    "wait...what": ["wait", "...", "￭what"],
    "a.b": ["a", ".", "￭b"],
    "5€ each": ["5", "￭€", "each"],
    "( a )": ["(", "▁a", "▁)"],
    "▁ ￭x": ["￭▁", "▁￭", "￭x"],  # the marks themselves
    "😂😂 😂": ["😂", "￭😂", "▁😂"],
}


@pytest.mark.parametrize("text", [*PLAIN, *MARKED])
def test_what_is_cut_and_marked(text):
    unit = WordPunct()
    assert unit.cut(text) == (PLAIN | MARKED)[text]
    assert unit.join(unit.cut(text)) == text


def test_any_tokens_can_be_joined():
    chance = random.Random(1)
    tokens = ["a", ".", '"', "(", "￭", "▁", "￭a", "▁.", "'", "'s", "l'", "$", "-", "日", "<unk>", "--", "…"]
    for _ in range(300):
        drawn = chance.choices(tokens, k=chance.randint(0, 8))
        text = WordPunct().join(drawn)
        assert WordPunct().join(WordPunct().cut(text)) == text


def test_a_cut_does_not_depend_on_what_was_cut_before():
    texts = ['"a" b', 'b "a"', "a. b", "(a) 'b'"]
    unit = WordPunct()
    for _ in range(2):
        assert [unit.cut(text) for text in texts] == [WordPunct().cut(text) for text in texts]


def test_marks_are_told_from_texts():
    assert split_mark(f"{GLUED}x") == (GLUED, "x")
    assert split_mark(f"{SPACED}{GLUED}") == (SPACED, GLUED)
    assert split_mark(SPACED) == ("", SPACED)
