"""Fields: from texts and labels to numbers, to vectors, and back from what was saved."""

import json
from collections import Counter

import numpy as np
import pytest
import torch

from elman.config import TextSettings, VocabularySettings
from elman.errors import ArgumentError, FileError, LabelError, RunError
from elman.models.embedding import Tokens
from elman.registry import UNITS
from elman.tasks import seq2seq
from elman.text import fields
from elman.text.fields import LARGEST, LabelField, TextField, WordField
from elman.text.records import Record
from elman.text.units.base import unit_from_json, unit_to_json
from elman.text.vocabulary import MARKERS, UNKNOWN

TEXTS = ["the cat sat", "the cat saw the rat", "The end"]
VECTORS = "the 1 0 -1\ncat 0.5 2 3\nsat 4 4 4\nnowhere 9 9 9\n"


def field(*, remove=None, **settings):
    return TextField(TextSettings(**settings), vectors=settings.get("vectors"), remove=remove)


def counted(one, texts=TEXTS):
    return Counter(token for text in texts for token in one.split(text))


def learned(notes=None, **settings):
    """A field that has seen the texts."""
    one = field(**settings)
    found = one.build_vocabulary(counted(one), limit=LARGEST, name="source")
    if notes is not None:
        notes += found
    return one


def embedding(one, width, *, rare_dropout=0.0, token_dropout=0.0):
    rates = {"rare_dropout": rare_dropout, "token_dropout": token_dropout}
    return Tokens.of(one, width, tuned=one.settings.tune_vectors, **rates)


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
    one = field(unit=unit, lowercase=lowercase)
    assert one.split("The éa") == tokens


def test_what_the_settings_remove_is_gone_before_a_text_is_split():
    one = field(remove="[0-2]")
    assert one.clean("K AE1 T0 3") == "K AE T 3"
    assert one.split("K AE1 2 T0 3") == ["K", "AE", "T", "3"]
    assert field().clean("K AE1 T") == "K AE1 T"
    assert field(remove="[0-2]", lowercase=True).reference("K AE1") == "k ae"


def test_byte_pairs_are_learned_from_the_texts():
    one = field(unit="bpe", lowercase=True, vocabulary_size=262)
    one.build_unit(["The cat, the cat, THE CAT"] * 3)
    assert type(one.unit) is UNITS.find("bpe")
    assert len(one.unit.alphabet()) == 262
    tokens = one.split("The cat")
    assert one.unit.join(tokens) == "the cat"
    assert len(tokens) < len("the cat")
    one.build_vocabulary(Counter(tokens))
    assert set(entries(one)) == set(one.unit.alphabet())  # all of them, seen or not
    restored = unit_from_json("bpe", json.loads(json.dumps(unit_to_json("bpe", one.unit))))
    assert restored.split("the cat sat") == one.split("the cat sat")


def test_byte_pairs_without_a_size_have_one(monkeypatch):
    monkeypatch.setattr(fields, "PIECES", 258)
    one = field(unit="bpe")
    one.build_unit(TEXTS)
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
    """That is what sequence-to-sequence models ask for."""

    def built(**settings):
        one = field(**settings)
        seq2seq._vocabulary(one, counted(one), "source")
        return entries(one)

    monkeypatch.setattr(seq2seq, "MANY", 6)
    assert built() == ["the", "cat"]  # seven types
    assert len(built(min_count=1)) == 7  # unless asked for
    assert len(built(lowercase=True)) == 6  # six types are not many
    assert len(built(unit="character")) == len(set("".join(TEXTS)))  # nor are letters words


def test_a_vocabulary_without_a_size_has_an_end():
    for size, entry_count in ((None, 1), (9, 5)):
        one = field(vocabulary_size=size)
        one.build_vocabulary(counted(one), limit=5)
        assert len(entries(one)) == entry_count
    assert entries(one)[0] == "the"


def test_it_notes_how_much_it_knows():
    notes = []
    learned(notes=notes, min_count=2)
    assert notes == ["source: 6 entries for 7 types, 50.00% of tokens"]


def test_a_field_may_share_what_the_other_has_learned(vectors):
    one, other = learned(vectors=vectors), field(vectors=vectors, remove="[0-9]")
    other.share(one)
    assert other.vocabulary is one.vocabulary
    assert (other.state(), other.unit) == (one.state(), one.unit)
    assert other.split("the cat3") == ["the", "cat"]  # what is taken out stays its own
    assert one.split("the cat3") == ["the", "cat3"]
    filled = [embedding(each, 2) for each in (one, other)]
    for each, tokens in zip((one, other), filled, strict=True):
        tokens.fill(each)
    assert torch.equal(filled[0].pretrained.weight, filled[1].pretrained.weight)


# Vectors


def test_the_module_has_a_vector_for_every_token():
    one = learned()
    tokens = embedding(one, 3)
    assert tokens.embedding.weight.shape == (11, 3)
    assert tokens(torch.tensor([[4, 1]])).shape == (1, 2, 3)
    assert (tokens.rare_dropout, tokens.pretrained) == (None, None)
    assert embedding(one, 0).output_size == 11  # one-hot


def test_rare_tokens_are_hidden_by_their_counts():
    one = learned()
    tokens = embedding(one, 3, rare_dropout=0.5)
    rates = {
        name: float(tokens.rare_dropout.rates[one.vocabulary.id(name)]) for name in ("the", "rat", *MARKERS)
    }
    expected = {"the": 0.5 / 3.5, "rat": 0.5 / 1.5} | dict.fromkeys(MARKERS, 0.0)
    assert rates == pytest.approx(expected)
    assert tokens.rare_dropout.unknown == one.vocabulary.id(UNKNOWN)


def test_a_share_of_positions_is_shown_as_unknown():
    one = learned()
    tokens = embedding(one, 0, token_dropout=0.25)
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
    tokens = embedding(one, 2)
    assert tokens.output_size == 5
    assert (tokens.pretrained.weight == 0).all()
    tokens.fill(one)
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
    first, second = (embedding(one, 2) for _ in range(2))
    assert one._matrix is not None
    first.fill(one)
    assert one._matrix is None
    second.fill(one)  # from the file again
    assert torch.equal(first.pretrained.weight, second.pretrained.weight)
    assert (first.pretrained.weight != 0).any()


def test_without_vectors_there_is_nothing_to_fill_in():
    one = learned()
    tokens = embedding(one, 2)
    before = tokens.embedding.weight.detach().clone()
    tokens.fill(one)
    assert torch.equal(tokens.embedding.weight, before)


def test_a_file_of_vectors_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileError, match=r"none\.txt"):
        learned(vectors=str(tmp_path / "none.txt"))


# Saved and restored


@pytest.mark.parametrize("own", [{}, {"min_count": 2}, {"unit": "character"}, {"vocabulary": ["dog", "cat"]}])
def test_a_field_is_restored_from_its_state(own):
    one, again = learned(**own), field(**own)
    again.restore(json.loads(json.dumps(one.state())))
    assert again.unit_state() is None  # it has learned nothing
    assert again.vocabulary.tokens == one.vocabulary.tokens
    assert again.counts == one.counts
    assert again.split("the rat") == one.split("the rat")
    hidden = [embedding(each, 2, rare_dropout=0.1).rare_dropout.rates for each in (one, again)]
    assert torch.equal(*hidden)


def test_a_restored_field_needs_its_file_of_vectors_only_for_fresh_weights(vectors, tmp_path):
    one = learned(vectors=vectors)
    state = json.loads(json.dumps(one.state()))
    filled = embedding(one, 2)
    filled.fill(one)
    there, gone = field(vectors=vectors), field(vectors=str(tmp_path / "none.txt"))
    for again in (there, gone):
        again.restore(state)
        tokens = embedding(again, 2)
        tokens.load_state_dict(filled.state_dict())  # a checkpoint has them all
        assert torch.equal(tokens.pretrained.weight, filled.pretrained.weight)
    fresh = embedding(there, 2)
    fresh.fill(there)
    assert np.allclose(fresh.pretrained.weight.detach(), filled.pretrained.weight.detach())
    with pytest.raises(FileError):
        fresh.fill(gone)


def test_a_learned_unit_is_restored_from_its_state():
    one, again = (field(unit="bpe", vocabulary_size=262) for _ in range(2))
    one.build_unit(["the cat, the cat"] * 3)
    one.build_vocabulary(counted(one, ["the cat"]))
    again.restore_unit(json.loads(json.dumps(one.unit_state())))
    again.restore(json.loads(json.dumps(one.state())))
    assert (again.state(), again.unit_state()) == (one.state(), one.unit_state())
    assert again.ids("the cat sat ✓") == one.ids("the cat sat ✓")
    with pytest.raises(RunError, match="'unit' 'bpe'"):
        field(unit="byte").restore_unit(one.unit_state())


def test_from_a_text_to_numbers_and_back():
    one = learned()
    tokens = one.split("the rat sat")
    assert one.ids("the rat sat") == one.vocabulary.ids(tokens)
    assert one.join([one.vocabulary.tokens[number] for number in one.ids("the rat sat")]) == "the rat sat"
    assert one.ids("the mouse")[1] == one.vocabulary.id(UNKNOWN)


def test_a_field_without_vectors_needs_none_of_their_settings():
    one = TextField(VocabularySettings(lowercase=True))
    one.build_vocabulary(counted(one))
    assert entries(one)[:2] == ["the", "cat"]
    assert one.state()["vector_width"] == 0


def test_markers_of_ones_own_are_put_to_the_tokens():
    one = field()
    one.build_vocabulary(counted(one), arrange=lambda tokens: [*tokens, "<end>"])
    assert one.vocabulary.tokens == ["the", "cat", "The", "end", "rat", "sat", "saw", "<end>"]
    assert one.counts == [3, 2, 1, 1, 1, 1, 1, 0]


def test_the_fields_of_earlier_versions_kept_the_tokens_alone():
    one, again = learned(), field()
    again.restore({"tokens": one.vocabulary.tokens})
    assert (again.vocabulary.tokens, again.counts, again.vector_width) == (one.vocabulary.tokens, [], 0)


# Words that are kept as they are written

WORDS = Counter({"The": 2, "the": 3, "Cat": 1, "rare": 1})


def words(letters, **settings):
    one = WordField(TextSettings(**settings), letters=lambda: letters)
    one.notes = one.build(WORDS)
    return one


@pytest.mark.parametrize("letters", [True, False, None])
def test_a_field_of_words_is_restored_from_its_state(letters, vectors):
    one = words(letters, vectors=vectors)
    again = WordField(TextSettings(vectors=vectors), letters=lambda: letters)
    again.restore(json.loads(json.dumps(one.state())))
    assert again.state() == one.state()
    assert (again.vector_words, again.vector_width) == (["the", "cat", "sat", "nowhere"], 3)
    assert np.array_equal(again.take_matrix(), one.take_matrix())  # the one from the file
    if letters is not None:
        texts = ["the", "Cat", "unseen"]
        mine, its = (each.lexicon(texts) for each in (one, again))
        for found, expected in zip(its.rows(its.ids(texts)), mine.rows(mine.ids(texts)), strict=True):
            assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        (True, ["the", "cat", "rare"]),
        (False, ["the", "The", "Cat", "rare"]),
        (None, ["the", "cat", "rare"]),  # three of seven have a capital
    ],
)
def test_letters_leave_upper_case_to_themselves(letters, expected):
    one = words(letters)
    assert entries(one.text) == expected
    assert one.lower is (letters is not False)
    assert one.notes == [
        f"vocabulary: {len(expected) + 4} entries for {len(expected)} types, 100.00% of tokens"
    ]


def test_a_text_without_capitals_needs_no_letters():
    one = WordField(TextSettings(), letters=lambda: None)
    one.build(Counter({"the": 200, "Cat": 2}))
    assert not one.lower
    one.build(Counter({"the": 200, "Cat": 3}))
    assert one.lower


def test_the_words_of_a_lexicon_keep_their_numbers():
    one = words(True)
    lexicon = one.lexicon(["the", "Cat"])
    assert lexicon.words[-2:] == ["the", "Cat"]
    assert lexicon.ids(["Cat", "the"]) == lexicon.ids(["the", "Cat"])[::-1]


# Labels


def labels(**counts):
    one = LabelField("tag")
    one.build(Counter(counts))
    return one


def test_labels_stand_by_falling_frequency_and_are_restored():
    one, again = labels(VERB=1, NOUN=3, ADV=1), LabelField("tag")
    assert one.names == ["NOUN", "ADV", "VERB"]
    again.restore(json.loads(json.dumps(one.names)), json.loads(json.dumps(dict(one.counts))))
    assert (again.names, again.counts) == (one.names, one.counts)
    again.restore(one.names)
    assert (again.names, again.counts) == (one.names, Counter())


def test_another_label_is_told_apart_or_an_error_with_its_place():
    one = labels(NOUN=3, VERB=1)
    assert one.known(["VERB", "NUON", "NOUN", "<unk>"]) == ([1, -1, 0, -1], ["NUON", "<unk>"])
    assert one.known(["VERB"]) == ([1], [])
    with pytest.raises(LabelError, match=r"dev\.tsv:3.*a tag that training never saw: 'X'"):
        one.ids(["X"], Record({"tag": "X"}, "dev.tsv", 3), field="tag")
