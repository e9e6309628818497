"""Sequence to sequence: from files to tokens, and the settings that the data decide (rows E7, E8)."""

import json

import pytest
import torch
from pairs import LEARNING, outputs, tsv
from torch.nn import functional as F

from elman import RNN, load
from elman.errors import ColumnError, EmptyError, UnbalancedError
from elman.models.embedding import RareTokenDropout
from elman.registry import UNITS
from elman.tasks import seq2seq
from elman.tasks.examples import encoded
from elman.tasks.seq2seq_evaluation import references_of
from elman.text.files import Repairs
from elman.text.vocabulary import END, UNKNOWN
from elman.training.learned import save_learned
from elman.training.sources import source_of
from tiny_tasks import TEXTS, descend, ready, save, settings_of

# From files.

PAIRS = [("the cat", "die Katze"), ("a dog, too", "ein Hund")]
LAYOUTS = {  # name: (settings, files)
    "tsv": ({}, {"a.tsv": "the cat\tdie Katze\na dog, too\tein Hund\n"}),
    "csv": ({}, {"a.csv": 'the cat,die Katze\n"a dog, too",ein Hund\n'}),
    "columns": (
        {"data.columns": {"source": 2, "target": 0}},
        {"a.tsv": "die Katze\t1\tthe cat\nein Hund\t2\ta dog, too\n"},
    ),
    "jsonl": (
        {"data.columns": {"source": "en", "target": "de"}},
        {"a.jsonl": '{"en": "the cat", "de": "die Katze"}\n{"de": "ein Hund", "en": "a dog, too"}\n'},
    ),
    "separator": (
        {"data.separator": " OUT: ", "data.prefix": "IN: "},
        {"a.txt": "IN: the cat OUT: die Katze\nIN: a dog, too OUT: ein Hund\n"},
    ),
    "parallel": ({}, {"a.en": "the cat\na dog, too\n", "a.de": "die Katze\nein Hund\n"}),
}


def read(layout, folder, change=lambda text: text):
    """The pairs of a layout, whose last file has been changed."""
    settings, files = LAYOUTS[layout]
    paths = []
    for name, text in files.items():
        paths.append(folder / name)
        paths[-1].write_text(change(text) if name == list(files)[-1] else text, encoding="utf-8")
    task = seq2seq.Seq2Seq(settings_of("seq2seq", settings=settings))
    found = list(task.read(source_of(task.config.data, *map(str, paths)), Repairs()))
    task.build_vocabularies(found)
    return [(record.fields["source"], record.fields["target"]) for record in found]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_pairs_E8(layout, tmp_path):
    assert read(layout, tmp_path) == PAIRS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_empty_target_is_named_with_its_place_E8(layout, tmp_path):
    name = list(LAYOUTS[layout][1])[-1]
    with pytest.raises(EmptyError, match=rf"{name}:2.*: E406: target is empty"):
        read(layout, tmp_path, lambda text: text.replace("ein Hund", ""))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "parallel"])
def test_an_empty_source_is_named_with_its_place_E8(layout, tmp_path):
    name = list(LAYOUTS[layout][1])[-1]
    with pytest.raises(EmptyError, match=rf"{name}:2.*: E406: source is empty"):
        read(layout, tmp_path, lambda text: text.replace("a dog, too", ""))


def test_files_that_do_not_agree_are_named_with_their_place_E8(tmp_path):
    with pytest.raises(UnbalancedError, match=r"a\.de:3: E408: .*a\.en has no line 3: 'ein Haus'"):
        read("parallel", tmp_path, lambda text: text + "ein Haus\n")
    with pytest.raises(UnbalancedError, match=r"a\.en:2: E408: .*a\.de has no line 2"):
        read("parallel", tmp_path, lambda text: text.split("\n")[0] + "\n")
    for layout in ("tsv", "csv", "separator"):
        name = list(LAYOUTS[layout][1])[-1]
        with pytest.raises(ColumnError, match=rf"{name}:3.*: E405: "):
            read(layout, tmp_path, lambda text: text + "IN: the bird\n")


@pytest.mark.parametrize(("side", "column"), [("source", 1), ("target", 5)])
def test_a_side_of_which_nothing_is_left_is_named_with_its_place_E8(side, column, tmp_path):
    settings = {f"text.{side}.remove": "[0-9]"}
    data = "a b\tc\n1 2\t3 4\n"
    with pytest.raises(
        EmptyError, match=rf"seq2seq\.tsv:2:{column}: E406: {side} has no token: '\d \d'; take"
    ):
        ready("seq2seq", tmp_path, settings, data=data)


def test_examples_of_a_cache_are_those_in_memory(tmp_path):
    """Texts of all lengths, in bytes, come back as they were."""
    pairs = [(f"{'é' * n}a", f"{'ü' * (7 - n)}b ✓") for n in range(1, 7)]
    one = ready("seq2seq", tmp_path, {"text.unit": "character"}, data=tsv(pairs))
    expected = one.task.evaluate(one.model, one.examples)
    for _ in range(2):  # written, then found
        cached = encoded(one.task, one.records(), tmp_path / "cache", "key")
        assert one.task.evaluate(one.model, cached) == expected
        assert references_of(one.task, cached) == ([s for s, _ in pairs], [[t] for _, t in pairs])
    assert one.task.samples(one.model, cached) == one.task.samples(one.model, one.examples)


# Text to tokens.


def test_separate_and_shared_vocabularies(tmp_path):
    one = ready("seq2seq", tmp_path)
    source, target = (set(side.vocabulary.tokens[4:]) for side in (one.task.source, one.task.target))
    assert source == {"the", "cat", "sees", "dog", "a", "runs", "and", "it"}
    assert target == {"die", "Katze", "sieht", "den", "Hund", "ein", "der", "läuft", "und", "es"}
    assert [note.split(" entries")[0] for note in one.statistics.notes] == ["source: 12", "target: 14"]
    both = ready("seq2seq", tmp_path, {"text.shared": True, "model.tied": False})
    assert both.task.source.vocabulary is both.task.target.vocabulary
    assert set(both.task.target.vocabulary.tokens[4:]) == source | target
    assert both.model.source is not both.model.target
    assert set(both.task.state()) == {"source", "longest", "longest_source"}
    joint = ready("seq2seq", tmp_path, {"text.shared": True, "model.tied": "all"})
    assert joint.model.source is joint.model.target
    assert joint.model.output_weight is joint.model.source.embedding.weight
    single = ready("seq2seq", tmp_path, {"model.form": "single"})
    assert single.task.target.vocabulary.tokens == both.task.target.vocabulary.tokens


def test_characters_in_words_out(tmp_path):
    settings = {"text.source.unit": "character", "text.target.unit": "word"}
    one = ready("seq2seq", tmp_path, settings, data="né\tN EH1\nno\tN OW1\n")
    fields = one.examples.store.fields
    assert one.task.source.vocabulary.tokens[4:] == ["n", "o", "é"]
    names = one.task.target.vocabulary.tokens
    assert [names[token] for token in fields["target"][0]] == ["N", "EH1", END]
    assert fields["source"].lengths.tolist() == [2, 2]
    [answer] = outputs(one, ["on"], min_length=2, max_length=2)
    assert answer["text"] == " ".join(answer["tokens"])
    assert len(answer["tokens"]) == 2


@pytest.mark.parametrize("unit", ["byte", "bpe"])
def test_no_text_is_unknown_to_bytes_and_pieces(unit, tmp_path):
    settings = {"text.unit": unit, "text.vocabulary_size": 300, "text.shared": unit == "bpe"}
    one = ready("seq2seq", tmp_path, settings)
    side = one.task.source
    ids = side.vocabulary.ids(side.split("Ungesehen ✓"))
    assert side.vocabulary.id(UNKNOWN) not in ids
    assert side.unit.join([side.vocabulary.tokens[token] for token in ids]) == "Ungesehen ✓"
    save_learned(one.task, tmp_path)
    assert (tmp_path / "tokenizer.json").exists() == (unit == "bpe")
    if unit == "bpe":
        assert one.task.target.unit is side.unit
        assert any(token in side.vocabulary for token in ("Ġthe", "Hund"))  # learned from both sides


def test_only_a_learned_unit_is_saved(tmp_path):
    settings = {"text.source.unit": "bpe", "text.source.vocabulary_size": 280}
    one = ready("seq2seq", tmp_path, settings)
    run = save(one, tmp_path / "run")
    assert set(json.loads((run / "tokenizer.json").read_text())) == {"source"}
    assert set(json.loads((run / "vocabulary.json").read_text())) == {
        "format",
        "task",
        "source",
        "target",
        "longest",
        "longest_source",
    }
    again = load(run)
    assert type(again.task.source.unit) is UNITS.find("bpe")
    assert type(again.task.target.unit) is UNITS.find("word")
    assert again.task.writer.longest_pair == one.task.writer.longest_pair
    assert again.task.writer.longest_pair[1] == 8
    assert again.predict(TEXTS["seq2seq"], details=True) == one.task.predict(one.model, TEXTS["seq2seq"])


def test_the_case_of_a_side(tmp_path):
    one = ready("seq2seq", tmp_path, {"text.source.lowercase": True}, data="THE Cat\tDie Katze\n")
    assert one.task.source.vocabulary.tokens[4:] == ["cat", "the"]
    assert one.task.target.vocabulary.tokens[4:] == ["Die", "Katze"]
    low, high = outputs(one, ["the cat", "THE CAT"])
    assert low["tokens"] == high["tokens"]
    other = ready("seq2seq", tmp_path, {"text.target.lowercase": True}, data="THE Cat\tDie Katze\n")
    assert other.task.source.vocabulary.tokens[4:] == ["Cat", "THE"]
    assert other.task.target.vocabulary.tokens[4:] == ["die", "katze"]


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_removed_is_removed_from_its_own_side(shared, tmp_path):
    settings = {"text.source.remove": r"\(\d\)", "text.target.remove": r"\d", "text.shared": shared}
    one = ready("seq2seq", tmp_path, settings, data="TO(1)\tT UW1\nTO(2)\tT AH0\n4(1)\tF AO1 R\n")
    assert set(one.task.source.vocabulary.tokens[4:]) >= {"TO", "4"}
    assert set(one.task.target.vocabulary.tokens[4:]) >= {"T", "UW", "AH", "F", "AO", "R"}
    fields = one.examples.store.fields
    for side, name in ((one.task.source, "source"), (one.task.target, "target")):
        assert side.vocabulary.id(UNKNOWN) not in fields[name].values
    figures = one.task.evaluate(one.model, one.examples)
    assert (figures["sources"], figures["examples"]) == (2, 3)  # what is removed tells no sources apart
    once, again = outputs(one, ["TO(1)", "TO"])
    assert once["tokens"] == again["tokens"]
    reloaded = load(save(one, tmp_path / "run"))
    assert reloaded.task.evaluate(reloaded.model, encoded(reloaded.task, one.records())) == figures


def test_what_is_removed_is_removed_once(tmp_path):
    """A pattern that would match again, such as a name at the beginning, meets every text once."""
    settings = {
        "text.source.remove": r"^\S+ ",
        "text.target.remove": r"^\S+ ",
        **LEARNING,
        "text.unit": "word",
    }
    data = tsv((f"s{n} {a} {b}", f"t{n} {b} {a}") for n, (a, b) in enumerate(["xy", "yx", "yz", "zy", "xz"]))
    one = ready("seq2seq", tmp_path, settings, data=data)
    assert set(one.task.source.vocabulary.tokens[4:]) == set("xyz")
    descend(one, 60)
    figures = one.task.evaluate(one.model, one.examples)
    assert figures["exact_match"] == 1.0
    assert figures["by_length"][0]["shortest"] == 2
    assert figures["length_ratio"] == 1.0
    assert one.task.predict(one.model, ["s9 y x"])[0]["text"] == "x y"


def test_rare_words_are_unknown_and_hidden_on_the_source(tmp_path):
    one = ready("seq2seq", tmp_path, {"text.source.min_count": 2, "model.rare_dropout": 0.5})
    assert set(one.task.source.vocabulary.tokens[4:]) == {"the", "dog", "runs", "cat"}
    assert "ein" in one.task.target.vocabulary
    [hiding] = [module for module in one.model.modules() if isinstance(module, RareTokenDropout)]
    assert one.model.source.rare_dropout is hiding
    for word, count in (("the", 5), ("cat", 2)):
        assert float(hiding.rates[one.task.source.vocabulary.id(word)]) == pytest.approx(0.5 / (0.5 + count))
    known, unknown = outputs(one, ["the blorp runs", "the zorg runs"])
    assert known["log_probability"] == unknown["log_probability"]


def test_pretrained_vectors_of_a_side_E7(tmp_path):
    (tmp_path / "en.txt").write_text("cat 1 2 3\ndog -1 0 1\nzebra 1 1 1\n")
    (tmp_path / "de.txt").write_text("katze 1 -2\nHund 3 4\n")
    settings = {
        "text.source.vectors": str(tmp_path / "en.txt"),
        "text.source.tune_vectors": False,
        "text.target.vectors": str(tmp_path / "de.txt"),
    }
    one = ready("seq2seq", tmp_path, settings)
    source, target = one.model.source.pretrained, one.model.target.pretrained
    assert (source.output_size, target.output_size) == (3, 2)
    directions = {"dog": (source, one.task.source, [-1.0, 0.0, 1.0])}
    directions["Katze"] = (target, one.task.target, [1.0, -2.0])  # found by its lower-case form
    for word, (table, side, numbers) in directions.items():
        found = table.weight[side.vocabulary.id(word)].detach()
        torch.testing.assert_close(F.normalize(found, dim=0), F.normalize(torch.tensor(numbers), dim=0))
    assert (source.weight[one.task.source.vocabulary.id("the")] == 0).all()
    assert [note for note in one.statistics.notes if "vectors for" in note] == [
        "source: vectors for 2 of 8 types (25.0 %) and 6 of 19 tokens (31.6 %)",
        "target: vectors for 2 of 10 types (20.0 %) and 6 of 19 tokens (31.6 %); "
        "in lower case only: 1 type, 2 tokens",
    ]
    before = [table.weight.detach().clone() for table in (source, target)]
    descend(one, 2)
    assert torch.equal(source.weight, before[0])
    assert not torch.equal(target.weight, before[1])
    again = load(save(one, tmp_path / "run"))
    assert again.predict(TEXTS["seq2seq"], details=True) == one.task.predict(one.model, TEXTS["seq2seq"])
    fresh = again.task.build_model(fresh=True)  # as a run that was stopped before its first checkpoint
    assert torch.equal(fresh.source.pretrained.weight, before[0])
    assert torch.equal(fresh.target.pretrained.weight, before[1])


@pytest.mark.parametrize("tied", [False, "all"])
def test_shared_vectors_fill_both_sides(tied, tmp_path):
    (tmp_path / "vectors.txt").write_text("cat 1 2 3\nHund 3 4 5\n")
    settings = {"text.shared": True, "text.vectors": str(tmp_path / "vectors.txt"), "model.tied": tied}
    one = ready("seq2seq", tmp_path, settings)
    for tokens in (one.model.source, one.model.target):
        for word in ("cat", "Hund"):
            assert (tokens.pretrained.weight[one.task.source.vocabulary.id(word)] != 0).all()
    again = load(save(one, tmp_path / "run"))
    assert again.predict(TEXTS["seq2seq"], details=True) == one.task.predict(one.model, TEXTS["seq2seq"])


# Settings that the data decide.


def test_open_settings_are_chosen_from_the_data(tmp_path):
    unset = {"model.embedding": None, "decoding.max_length": None}
    words = ready("seq2seq", tmp_path, unset).task
    model, decoding = words.config.model, words.config.decoding
    assert (model.attention, model.placement, model.start) == ("bilinear", "after", "transform")
    assert (model.tied, model.embedding, words.config.text.shared) == (True, 256, False)
    assert (decoding.copy_unknown, decoding.max_length, decoding.beam) == (True, None, 5)
    assert [words.config.model.network(side).bidirectional for side in ("encoder", "decoder")] == [
        True,
        False,
    ]
    single = ready("seq2seq", tmp_path, {**unset, "model.form": "single"}).task
    assert (single.config.model.attention, single.config.model.start) == ("none", "copy")
    assert single.config.model.placement is None
    assert not single.config.decoding.copy_unknown
    assert not single.config.model.network("encoder").bidirectional
    assert len([part for part in single.build_model().modules() if isinstance(part, RNN)]) == 1


@pytest.mark.parametrize("placement", ["before", "after"])
def test_a_user_is_told_how_the_networks_hang_together(placement, tmp_path):
    one = ready("seq2seq", tmp_path, {"model.placement": placement, "model.attention": "dot"})
    networks, start, attention, training = one.task.describe(one.model)
    assert networks == "lstm 5 × 1, both directions → lstm 5 × 1"
    assert start.startswith(
        "start of the decoder, layer 0: transform of source layer 0, 2 × (h, c) → 1 × (h, c)"
    )
    assert "dot, a query of 5 over states of 10; the widths differ" in attention
    assert training == "training of the decoder: all steps at once"


def test_markers_in_the_targets_are_said(tmp_path):
    """Whoever puts them there gets no output that equals a reference."""
    data = tsv([("<s> a </s>", "<s> b </s>"), ("c", "d")])
    told = [
        note for note in ready("seq2seq", tmp_path, data=data).statistics.notes if "the texts hold" in note
    ]
    assert told == [
        "target: the texts hold <s>, </s>, which no output has: Elman sets its markers itself; "
        "text.target.remove takes those out"
    ]
    for settings, pairs in (({"text.target.remove": "</?s>"}, data), ({}, tsv([("<s> a </s>", "b")]))):
        notes = ready("seq2seq", tmp_path, settings | {"text.shared": False}, data=pairs).statistics.notes
        assert not any("the texts hold" in note for note in notes)


def test_a_decoder_that_hears_nothing_is_said_so(tmp_path):
    deaf = {"model.attention": "none", "model.start": "zero"}
    one = ready("seq2seq", tmp_path, deaf)
    assert any("nothing of the source reaches" in line for line in one.task.describe(one.model))
    one = ready("seq2seq", tmp_path, deaf | {"model.context": "every-step"})
    assert not any("nothing of the source reaches" in line for line in one.task.describe(one.model))
