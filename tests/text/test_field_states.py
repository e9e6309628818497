"""Fields: what a text or a label is as numbers, and what of it a run keeps."""

import json
from collections import Counter

import numpy as np
import pytest

from elman.config import TextSettings, VocabularySettings
from elman.errors import LabelError, RunError
from elman.registry import UNITS
from elman.text.fields import LabelField, TextField, WordField
from elman.text.records import Record
from elman.text.vocabulary import MARKERS

TEXTS = ["the cat sees the dog", "The dog sees a cat", "it runs (fast)"] * 3


def built(settings=None, texts=TEXTS, **options):
    """A field that has seen texts, and what it tells the user."""
    field = TextField(VocabularySettings(**(settings or {})), **options)
    field.build_unit(map(field.clean, texts))
    notes = field.build_vocabulary(Counter(token for text in texts for token in field.split(text)))
    return field, notes


@pytest.mark.parametrize("unit", UNITS.names())
def test_a_field_is_restored_from_json(unit):
    settings = {"unit": unit, "lowercase": True, "vocabulary_size": 300}
    field, _ = built(settings)
    again = TextField(VocabularySettings(**settings))
    if (saved := field.unit_state()) is not None:
        again.restore_unit(json.loads(json.dumps(saved)))
    again.restore(json.loads(json.dumps(field.state())))
    assert (saved is not None) == UNITS.find(unit).learned
    for text in [*TEXTS, "a new bird"]:
        assert again.ids(text) == field.ids(text)
        assert again.join(again.split(text)) == field.join(field.split(text))
    assert (again.counts, again.vector_width) == (field.counts, 0)


def test_the_unit_of_a_run_is_that_of_its_settings():
    saved = built({"unit": "bpe", "vocabulary_size": 300})[0].unit_state()
    with pytest.raises(RunError, match=r"a saved unit has 'unit' 'bpe' .* they must be 'word'"):
        TextField(VocabularySettings(unit="word")).restore_unit(saved)


def test_an_earlier_version_kept_the_tokens_alone():
    field = TextField(VocabularySettings())
    field.restore({"tokens": [*MARKERS, "a"]})
    assert (field.ids("a b"), field.counts, field.vector_width) == ([4, 1], [], 0)


def test_what_is_removed_is_in_no_text():
    field, _ = built(remove=r" ?\(.*\)")
    assert field.clean("it runs (fast)") == "it runs"
    assert "(fast)" not in field.vocabulary
    lower, _ = built({"lowercase": True}, remove="[aeiou]")
    assert lower.reference("The Cat") == "th ct"
    assert field.reference("The (x) Cat") == "The Cat"


def test_the_vocabulary_is_what_settings_say():
    for settings, size in (({}, 9 + 4), ({"min_count": 4}, 4 + 4), ({"vocabulary_size": 6}, 6)):
        field, [note] = built(settings)
        assert len(field.vocabulary) == size, settings
        assert note.startswith(f"vocabulary: {size} entries for 9 types, ")
    field, _ = built({"vocabulary": ["dog", "<unk>", "cat"]})
    assert field.vocabulary.tokens == [*MARKERS, "dog", "cat"]
    assert field.counts == [0, 0, 0, 0, 6, 6]
    assert built({"unit": "byte"})[0].ids("é") == built({"unit": "byte"})[0].vocabulary.ids(
        ["<0xC3>", "<0xA9>"]
    )


def test_fields_share_what_they_learned_but_not_what_they_remove():
    one, _ = built({"unit": "bpe", "vocabulary_size": 300})
    other = TextField(VocabularySettings(unit="bpe", vocabulary_size=300), remove="the")
    other.share(one)
    assert other.unit is one.unit
    assert other.vocabulary is one.vocabulary
    assert other.split("the cat") == one.split(" cat")


def test_vectors_are_handed_over_once_and_read_anew(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("cat 1 2\ndog 3 4\n", encoding="utf-8")
    field, notes = built(vectors=str(path))
    assert field.vector_width == 2
    assert any("vector" in note for note in notes)
    matrix = field.take_matrix()
    assert matrix.shape == (len(field.vocabulary) - 1, 2)
    assert matrix[field.vocabulary.id("dog") - 1].tolist() == [3, 4]
    assert field._matrix is None
    assert np.array_equal(field.take_matrix(), matrix)


def test_labels_are_all_that_occur_and_another_has_its_place():
    field = LabelField("label")
    field.build(Counter({"b": 1, "a": 3}))
    record = Record({"text": "x", "label": "c"}, "a.tsv", 4, places=((4, 1), (4, 3)))
    assert field.names == ["a", "b"]
    assert field.ids(["b", "a"], record, field="label") == [1, 0]
    with pytest.raises(LabelError, match=r"a\.tsv:4:3: .*a label that training never saw: 'c'"):
        field.ids(["c"], record, field="label")
    again = LabelField("label")
    again.restore(field.names, dict(field.counts))
    assert (again.names, again.counts) == (field.names, field.counts)


def test_words_leave_their_case_to_the_letters():
    words = Counter(["The", "cat", "sees", "the", "Dog", "the", "dog"])
    for letters, lower in ((True, True), (False, False), (None, True)):
        field = WordField(TextSettings(), letters=lambda said=letters: said)
        field.build(words)
        assert (field.lower, field.cased) == (lower, True)
        assert ("The" in field.text.vocabulary) == (not lower)
        again = WordField(TextSettings(), letters=lambda said=letters: said)
        again.restore(json.loads(json.dumps(field.state())))
        assert again.text.vocabulary.tokens == field.text.vocabulary.tokens
        assert again.characters.tokens == field.characters.tokens


def test_a_label_that_is_spelt_as_the_unknown_token_stands_for_itself_alone():
    field = LabelField("label")
    field.build(Counter({"<unk>": 2, "animal": 1}))
    record = Record({"label": "thing"}, "a.tsv", 3)
    assert field.ids(["<unk>"], record, field="label") == [0]
    with pytest.raises(LabelError, match=r"a\.tsv:3: E407: a label that training never saw"):
        field.ids(["thing"], record, field="label")
