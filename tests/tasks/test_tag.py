"""Tagging: a softmax or a CRF over the tags, spans judged as spans (row T1)."""

import pytest
import torch

from elman.errors import ConfigError
from elman.metrics.spans import well_formed
from elman.tasks import tag as module
from elman.tasks.base import chosen_metric
from elman.tasks.examples import encoded
from elman.text.records import Record
from elman.text.vocabulary import UNKNOWN
from tiny_tasks import descend, ready

SPANS = """Anna\tB-PER
Maria\tI-PER
lives\tO
in\tO
Rome\tB-LOC

Rome\tB-LOC
saw\tO
Anna\tB-PER

it\tO
rains\tO
"""
PLAIN = "I\tPRON\nsaw\tVERB\na\tDET\nsaw\tNOUN\n\na\tDET\nbear\tNOUN\n\nI\tPRON\nbear\tVERB\n"
LEARN = {"model.hidden": 12, "model.embedding": 8, "model.characters": 6}


@pytest.mark.parametrize("crf", [True, False])
@pytest.mark.parametrize("data", [PLAIN, SPANS], ids=["plain", "spans"])
def test_a_tiny_task_is_learned_T1(crf, data, tmp_path):
    """Ambiguous words need their neighbours."""
    one = ready("tag", tmp_path, LEARN | {"model.crf": crf}, data=data)
    assert one.task.evaluate(one.model, one.examples)["accuracy"] < 1
    descend(one, 60)
    figures = one.task.evaluate(one.model, one.examples)
    assert figures["accuracy"] == 1.0
    assert figures["loss"] < 0.1
    if data is SPANS:
        assert (figures["precision"], figures["recall"], figures["f1"]) == (1.0, 1.0, 1.0)
        assert one.task.predict(one.model, ["Anna Maria saw Rome"])[0]["prediction"][-1] == "B-LOC"


def test_a_softmax_at_each_position_T1(tmp_path):
    one = ready("tag", tmp_path, {"model.crf": False, "model.shortcut": False})
    words, tags, *_ = one.batch
    p = one.model(words).softmax(-1)
    expected = -sum(p[b, t, tags[b, t]].log() for b in range(len(tags)) for t in range(words.lengths[b]))
    torch.testing.assert_close(one.task.loss(one.model, one.batch).total, expected)
    assert one.task.evaluate(one.model, one.examples)["loss"] == pytest.approx(
        float(expected.detach()) / int(words.lengths.sum()), rel=1e-5
    )


def test_predictions_are_the_argmax_with_their_probabilities_T1(tmp_path):
    one = ready("tag", tmp_path, {"model.crf": False})
    found, empty = one.task.predict(one.model, ["The dog  sees", "  "])
    assert found["words"] == ["The", "dog", "sees"]
    assert found.line == " ".join(found["prediction"])
    K = len(one.task.labels.names)
    assert all(1 / K <= p <= 1 for p in found["probabilities"])
    assert (empty["prediction"], empty.line) == ([], "")


def test_predictions_do_not_depend_on_their_neighbours(tmp_path):
    one = ready("tag", tmp_path)
    texts = ["the cat", "a dog runs home", "", "unheard", "the dog sees a cat"]
    together = one.task.predict(one.model, texts)
    for text, found in zip(texts, together, strict=True):
        [alone] = one.task.predict(one.model, [text])
        assert found["prediction"] == alone["prediction"]
        assert found["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-6)
    assert one.task.predict(one.model, []) == []


def test_the_tags_choose_the_metric(tmp_path):
    plain, spans = ready("tag", tmp_path, data=PLAIN).task, ready("tag", tmp_path, data=SPANS).task
    assert (chosen_metric(plain), chosen_metric(spans)) == (("accuracy", True), ("f1", True))
    assert (plain.config.model.crf, spans.config.model.crf) == (False, True)
    asked = ready("tag", tmp_path, {"training.metric": "loss"}, data=SPANS).task
    assert chosen_metric(asked) == ("loss", False)


def test_spans_are_judged_as_spans(tmp_path, monkeypatch):
    """Half a span right is a span wrong."""
    one = ready("tag", tmp_path, {"model.crf": False}, data=SPANS)
    names = one.task.labels.names
    monkeypatch.setattr(
        module, "decode", lambda model, scores, lengths: [[names.index("O")] * int(n) for n in lengths]
    )
    figures = one.task.evaluate(one.model, one.examples)
    assert figures["accuracy"] == pytest.approx(5 / 10)
    assert (figures["recall"], figures["f1"]) == (0.0, 0.0)
    assert set(figures["by_type"]) == {"PER", "LOC"}
    assert "PER" in figures["report"]


def test_only_legal_tags_are_decoded_where_the_data_obey(tmp_path):
    one = ready("tag", tmp_path, data=SPANS)
    assert one.task.legal
    assert not one.model.crf.allowed.all()
    words = ["Anna Maria lives in Rome", "Rome Rome Anna it", "in"]
    for seed in range(5):
        torch.manual_seed(seed)
        model = one.task.build_model().eval()
        for weight in model.parameters():
            torch.nn.init.normal_(weight)
        for found in one.task.predict(model, words):
            assert well_formed(found["prediction"], "BIO")


def test_ill_formed_training_tags_are_not_constrained(tmp_path):
    one = ready("tag", tmp_path, data="Anna\tI-PER\nin\tO\nRome\tB-LOC\n\nit\tO\nsaw\tO\n")
    assert not one.task.legal
    assert one.model.crf.allowed.all()
    assert any("1 sentence against the rules of BIO" in note for note in one.statistics.notes)
    assert float(one.task.loss(one.model, one.batch).total.detach()) < 100


def test_a_tag_that_keeps_spans_from_being_read_is_told(tmp_path):
    one = ready("tag", tmp_path, data="#\tanother\n" + SPANS * 3)
    assert not one.task.spans
    assert any("nothing is read as a span" in note and "'another'" in note for note in one.statistics.notes)


@pytest.mark.slow
def test_what_breaks_the_rules_is_left_out_of_the_loss_of_a_crf_and_nothing_else(tmp_path):
    """Neither a sentence that is merely long, nor the words of those that count."""
    one = ready("tag", tmp_path, data=SPANS)
    words, tags = ["Rome", "saw", "Anna", "in"] * 1500, ["B-LOC", "O", "B-PER", "O"] * 1500
    legal = [Record({"word": words[:n], "tag": tags[:n]}, "a.txt", n) for n in (6000, 4)]
    broken = Record({"word": ["it", "Rome", "it"], "tag": ["O", "I-PER", "O"]}, "a.txt", 1)
    judged = one.task.evaluate(one.model, encoded(one.task, legal))
    assert 0.5 < judged["loss"] < 3
    all_of_them = one.task.evaluate(one.model, encoded(one.task, [*legal, broken]))
    assert all_of_them["loss"] == pytest.approx(judged["loss"], rel=1e-5)
    assert all_of_them["tokens"] == judged["tokens"] + 3
    assert one.task.evaluate(one.model, encoded(one.task, [broken]))["loss"] is None


CASES = "May\tNOUN\nmay\tVERB\n\nBill\tNOUN\nbill\tVERB\n\nWill\tNOUN\nwill\tVERB\n\nmay\tVERB\nMay\tNOUN\n"


@pytest.mark.slow
def test_letters_tell_case_where_the_vocabulary_is_lower_cased(tmp_path):
    one = ready("tag", tmp_path, LEARN | {"model.bidirectional": False}, data=CASES)
    assert one.task.words.text.vocabulary.tokens[4:] == ["may", "bill", "will"]
    descend(one, 80)
    assert one.task.evaluate(one.model, one.examples)["accuracy"] == 1.0
    blind = ready("tag", tmp_path, LEARN | {"text.lowercase": True}, data=CASES)
    descend(blind, 80)
    assert (
        blind.task.evaluate(blind.model, blind.examples)["loss"]
        > 0.05 + one.task.evaluate(one.model, one.examples)["loss"]
    )


def test_a_given_vocabulary_is_found_where_letters_tell_the_case(tmp_path):
    one = ready("tag", tmp_path, {"text.vocabulary": ["May", "may", "Will"]}, data=CASES)
    assert one.task.words.text.vocabulary.tokens[4:] == ["may", "will"]
    assert one.task.words.text.counts[4:] == [4, 2]


def test_without_letters_the_vocabulary_keeps_case(tmp_path):
    one = ready("tag", tmp_path, {"model.characters": 0}, data=CASES)
    assert {"May", "may"} <= set(one.task.words.text.vocabulary.tokens)
    assert one.model.words.spelling is None
    assert (one.model.words.affixes, one.model.shortcut) == (None, None)


def test_affixes_and_a_shortcut_need_letters_and_no_network_that_reads_them(tmp_path):
    for said in ({"model.shortcut": True}, {"model.affixes": 5}):
        one = ready("tag", tmp_path, {"model.characters": 0, **said}, data=CASES)
        assert {"May", "may"} & set(one.task.words.text.vocabulary.tokens) == {"may"}
        assert one.model.words.spelling is None
        assert one.batch.words.characters.shape[1] > 1


def test_what_is_chosen_has_its_reason(tmp_path):
    reasons = ready("tag", tmp_path, data=SPANS).statistics.reasons
    assert reasons["model.crf"] == "since the tags are spans"
    assert reasons["training.epochs"] == "since there are 3 sentences"
    assert {"model.affixes", "model.shortcut"} <= reasons.keys()
    blind = ready("tag", tmp_path, {"model.network": "bag", "model.characters": 0}, data=PLAIN)
    assert not blind.statistics.reasons.keys() & {"model.affixes", "model.shortcut"}
    assert blind.statistics.reasons["model.crf"] == "since the tags are classes of single words"


def test_affixes_are_left_out_as_inputs_are(tmp_path):
    one = ready("tag", tmp_path, {"model.input_dropout": 0.25})
    assert one.model.words.affixes.dropout == 0.25


def test_settings_of_an_earlier_version_mean_neither_affixes_nor_a_shortcut(tmp_path):
    one = ready("tag", tmp_path)
    assert one.model.shortcut is not None
    earlier = one.task.config.model.model_copy(update={"affixes": None, "shortcut": None})
    task = one.task.reconfigured(one.task.config.model_copy(update={"model": earlier}))
    assert not [name for name in task.build_model().state_dict() if "affixes" in name or "shortcut" in name]


def test_a_cache_gives_the_same_examples(tmp_path):
    one = ready("tag", tmp_path)
    expected = one.task.evaluate(one.model, one.examples)
    for _ in range(2):  # written, then opened again
        cached = encoded(one.task, one.records(), tmp_path / "cache", "key")
        assert cached.words == one.examples.words
        assert one.task.evaluate(one.model, cached) == expected


def test_a_crf_has_its_own_loss(tmp_path):
    """Chosen by hand or because the tags are spans."""
    for data, crf in ((PLAIN, {"model.crf": True}), (SPANS, {})):
        with pytest.raises(ConfigError, match=r"need model\.crf = false"):
            ready("tag", tmp_path, {"training.label_smoothing": 0.1, **crf}, data=data)
    ready("tag", tmp_path, {"training.label_smoothing": 0.1, "model.crf": False}, data=SPANS)


def test_the_first_word_of_a_batch_is_the_unknown_one(tmp_path):
    """It stands nowhere, but dropout of tokens shows it: without a vector, and with unknown letters."""
    one = ready("tag", tmp_path)
    words, *_ = one.batch
    assert words.tokens[0] == one.task.words.text.vocabulary.id(UNKNOWN)
    assert words.character_lengths[0] == 1
    assert words.characters[0, 0] == one.task.words.characters.id(UNKNOWN)
    assert (words.places > 0).all()


def test_pretrained_vectors_may_be_all_that_is_read(tmp_path):
    (tmp_path / "vectors.txt").write_text("the 1 0 2\ncat 0 1 3\nruns 1 1 0\n")
    settings = {
        "text.vectors": str(tmp_path / "vectors.txt"),
        "text.vectors_alone": True,
        "model.characters": None,
    }
    one = ready("tag", tmp_path, settings)
    assert one.model.words.output_size == 3
    assert one.model.words.spelling is None
    assert one.model.words.affixes is None
    assert one.model.shortcut is None
    found = one.task.predict(one.model, ["the cat", "the dog"])
    assert found[0].probabilities[0] != found[0].probabilities[1]
    assert len(found[1].value) == 2
