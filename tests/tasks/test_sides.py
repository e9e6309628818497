"""One side of a pair: from texts to numbers, to vectors, and back from what was saved."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

from elman.config import TextSettings
from elman.errors import ArgumentError, FileError
from elman.tasks import _sides
from elman.tasks._sides import Side
from elman.text.units import unit_from_json
from elman.text.vocabulary import MARKERS, UNKNOWN

TEXTS = ["the cat sat", "the cat saw the rat", "The end"]
VECTORS = "the 1 0 -1\ncat 0.5 2 3\nsat 4 4 4\nnowhere 9 9 9\n"


def side(*, remove=None, **settings):
    return Side(TextSettings(**settings), remove)


def learned(texts=TEXTS, notes=None, **settings):
    """A side that has seen these texts."""
    one = side(**settings)
    one.unit = one.plain_unit()
    counts = Counter(token for text in texts for token in one.split(text))
    one.learn(counts, [] if notes is None else notes, "source")
    return one


def entries(one):
    """Its vocabulary after the markers."""
    assert one.vocabulary.tokens[: len(MARKERS)] == list(MARKERS)
    return one.vocabulary.tokens[len(MARKERS) :]


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text(VECTORS, encoding="utf-8")
    return str(path)


# Units


@pytest.mark.parametrize(
    ("unit", "lowercase", "tokens"),
    [
        ("word", False, ["The", "éa"]),
        ("word", True, ["the", "éa"]),
        ("character", False, ["T", "h", "e", " ", "é", "a"]),
        ("byte", True, ["<0x74>", "<0x68>", "<0x65>", "<0x20>", "<0xC3>", "<0xA9>", "<0x61>"]),
    ],
)
def test_a_plain_unit_follows_the_settings(unit, lowercase, tokens):
    one = side(unit=unit, lowercase=lowercase)
    one.unit = one.plain_unit()
    assert one.split("The éa") == tokens


def test_what_the_settings_remove_is_gone_before_a_text_is_split():
    one = side(remove="[0-2]")
    assert one.clean("K AE1 T0 3") == "K AE T 3"
    assert one.split("K AE1 2 T0 3") == ["K", "AE", "T", "3"]
    assert side().clean("K AE1 T") == "K AE1 T"


def test_byte_pairs_are_learned_from_the_texts():
    one = side(unit="bpe", lowercase=True, vocabulary_size=262)
    one.learn_unit(["The cat, the cat, THE CAT"] * 3)
    assert one.unit.name == "bpe"
    assert len(one.unit.alphabet()) == 262
    tokens = one.split("The cat")
    assert one.unit.join(tokens) == "the cat"
    assert len(tokens) < len("the cat")
    one.learn(Counter(tokens), [], "source")
    assert set(entries(one)) == set(one.unit.alphabet())  # all of them, seen or not
    restored = unit_from_json(json.loads(json.dumps(one.unit.to_json())))
    assert restored.split("the cat sat") == one.split("the cat sat")


def test_byte_pairs_without_a_size_have_one(monkeypatch):
    monkeypatch.setattr(_sides, "PIECES", 258)
    one = side(unit="bpe")
    one.learn_unit(TEXTS)
    assert len(one.unit.alphabet()) == 258


# The vocabulary


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["the", "cat", "The", "end", "rat", "sat", "saw"]),
        ({"lowercase": True}, ["the", "cat", "end", "rat", "sat", "saw"]),
        ({"min_count": 2}, ["the", "cat"]),
        ({"vocabulary_size": 6}, ["the", "cat"]),
        ({"min_count": 1, "vocabulary_size": 7}, ["the", "cat", "The"]),
        ({"vocabulary": ["dog", "cat"]}, ["dog", "cat"]),
        ({"vocabulary": ["dog", UNKNOWN, "cat"]}, ["dog", "cat"]),  # a marker is there already
    ],
)
def test_the_vocabulary_follows_the_settings(settings, expected):
    one = learned(**settings)
    assert entries(one) == expected
    seen = Counter(token for text in TEXTS for token in one.split(text))
    assert one.counts == [seen[token] for token in one.vocabulary.tokens]
    assert one.counts[: len(MARKERS)] == [0] * len(MARKERS)


def test_bytes_are_all_in_the_vocabulary():
    one = learned(unit="byte")
    assert len(entries(one)) == 256
    assert entries(one)[0] == "<0x20>"  # the most frequent: a space
    with pytest.raises(ArgumentError, match="size is 100"):
        learned(unit="byte", vocabulary_size=100)


def test_words_seen_once_are_unknown_where_there_are_many(monkeypatch):
    monkeypatch.setattr(_sides, "MANY", 6)
    assert entries(learned()) == ["the", "cat"]  # seven types
    assert len(entries(learned(min_count=1))) == 7  # unless asked for
    assert len(entries(learned(lowercase=True))) == 6  # six types are not many
    assert len(entries(learned(unit="character"))) == len(set("".join(TEXTS)))  # nor are letters words


def test_a_vocabulary_without_a_size_has_an_end(monkeypatch):
    monkeypatch.setattr("elman.tasks.base.LARGEST", 5)
    assert entries(learned()) == ["the"]
    assert len(entries(learned(vocabulary_size=9))) == 5


def test_it_notes_how_much_it_knows():
    notes = []
    learned(notes=notes, min_count=2)
    assert notes == ["source: 6 entries for 7 types, 50.00% of tokens"]


def test_a_side_may_share_what_the_other_has_learned(vectors):
    one, other = learned(vectors=vectors), side(vectors=vectors, remove="[0-9]")
    other.share(one)
    assert other.vocabulary is one.vocabulary
    assert (other.tables(), other.unit) == (one.tables(), one.unit)
    assert other.split("the cat3") == ["the", "cat"]  # what is taken out stays its own
    assert one.split("the cat3") == ["the", "cat3"]
    filled = [each.embedding(2, rare_dropout=0.0, token_dropout=0.0) for each in (one, other)]
    for each, tokens in zip((one, other), filled, strict=True):
        each.fill(tokens)
    assert torch.equal(filled[0].pretrained.weight, filled[1].pretrained.weight)


# Vectors


def test_the_module_has_a_vector_for_every_token():
    one = learned()
    tokens = one.embedding(3, rare_dropout=0.0, token_dropout=0.0)
    assert tokens.embedding.weight.shape == (11, 3)
    assert tokens(torch.tensor([[4, 1]])).shape == (1, 2, 3)
    assert (tokens.hiding, tokens.pretrained) == (None, None)
    assert one.embedding(0, rare_dropout=0.0, token_dropout=0.0).output_size == 11  # one-hot


def test_rare_tokens_are_hidden_by_their_counts():
    one = learned()
    tokens = one.embedding(3, rare_dropout=0.5, token_dropout=0.0)
    rates = {name: float(tokens.hiding.rates[one.vocabulary.id(name)]) for name in ("the", "rat", *MARKERS)}
    expected = {"the": 0.5 / 3.5, "rat": 0.5 / 1.5} | dict.fromkeys(MARKERS, 0.0)
    assert rates == pytest.approx(expected)
    assert tokens.hiding.unknown == one.vocabulary.id(UNKNOWN)


def test_a_share_of_positions_is_shown_as_unknown():
    one = learned()
    tokens = one.embedding(0, rare_dropout=0.0, token_dropout=0.25)
    ids = torch.full((100, 40), one.vocabulary.id("the"))
    shown = tokens.train()(ids).argmax(-1)
    assert set(shown.unique().tolist()) == {one.vocabulary.id("the"), one.vocabulary.id(UNKNOWN)}
    assert (shown == one.vocabulary.id(UNKNOWN)).float().mean() == pytest.approx(0.25, abs=0.03)
    assert torch.equal(tokens.eval()(ids).argmax(-1), ids)


@pytest.mark.parametrize("tuned", [True, False])
def test_pretrained_vectors_stand_beside_the_learned_ones(vectors, tuned):
    notes = []
    one = learned(notes=notes, vectors=vectors, tune_vectors=tuned)
    assert notes[1] == (
        "source: vectors for 4 of 7 types (57.1 %) and 7 of 10 tokens (70.0 %); "
        "in lower case only: 1 type, 1 token"
    )
    assert one.vector_width == 3
    tokens = one.embedding(2, rare_dropout=0.0, token_dropout=0.0)
    assert tokens.output_size == 5
    assert (tokens.pretrained.weight == 0).all()
    one.fill(tokens)
    assert ("pretrained.weight" in dict(tokens.named_parameters())) == tuned
    found = {name: tokens(torch.tensor(one.vocabulary.id(name)))[2:] for name in one.vocabulary.tokens}
    scale = found["cat"][1] / 2
    assert scale > 0
    for name, vector in {"the": [1, 0, -1], "The": [1, 0, -1], "cat": [0.5, 2, 3], "sat": [4, 4, 4]}.items():
        assert torch.allclose(found[name], scale * torch.tensor(vector, dtype=torch.float32))
    for name in ("rat", "end", "saw", *MARKERS):
        assert (found[name] == 0).all(), name


def test_vectors_are_let_go_once_they_are_filled_in(vectors):
    one = learned(vectors=vectors)
    first, second = (one.embedding(2, rare_dropout=0.0, token_dropout=0.0) for _ in range(2))
    assert one.matrix is not None
    one.fill(first)
    assert one.matrix is None
    one.fill(second)  # from the file again
    assert torch.equal(first.pretrained.weight, second.pretrained.weight)
    assert (first.pretrained.weight != 0).any()


def test_without_vectors_there_is_nothing_to_fill_in():
    one = learned()
    tokens = one.embedding(2, rare_dropout=0.0, token_dropout=0.0)
    before = tokens.embedding.weight.detach().clone()
    one.fill(tokens)
    assert torch.equal(tokens.embedding.weight, before)


def test_a_file_of_vectors_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileError, match=r"none\.txt"):
        learned(vectors=str(tmp_path / "none.txt"))


# Saved and restored


@pytest.mark.parametrize("own", [{}, {"min_count": 2}, {"unit": "character"}, {"vocabulary": ["dog", "cat"]}])
def test_a_side_is_restored_from_its_tables(own):
    one, again = learned(**own), side(**own)
    again.restore(json.loads(json.dumps(one.tables())))
    again.unit = again.plain_unit()
    assert again.vocabulary.tokens == one.vocabulary.tokens
    assert again.counts == one.counts
    assert again.split("the rat") == one.split("the rat")
    hidden = [each.embedding(2, rare_dropout=0.1, token_dropout=0.0).hiding.rates for each in (one, again)]
    assert torch.equal(*hidden)


def test_a_restored_side_needs_its_file_of_vectors_only_for_fresh_weights(vectors, tmp_path):
    one = learned(vectors=vectors)
    tables = json.loads(json.dumps(one.tables()))
    filled = one.embedding(2, rare_dropout=0.0, token_dropout=0.0)
    one.fill(filled)
    there, gone = side(vectors=vectors), side(vectors=str(tmp_path / "none.txt"))
    for again in (there, gone):
        again.restore(tables)
        tokens = again.embedding(2, rare_dropout=0.0, token_dropout=0.0)
        tokens.load_state_dict(filled.state_dict())  # a checkpoint has them all
        assert torch.equal(tokens.pretrained.weight, filled.pretrained.weight)
    there.fill(fresh := there.embedding(2, rare_dropout=0.0, token_dropout=0.0))
    assert np.allclose(fresh.pretrained.weight.detach(), filled.pretrained.weight.detach())
    with pytest.raises(FileError):
        gone.fill(fresh)
