"""A label or tag that training never saw: wrong, counted, told, and not in the loss."""

from collections import Counter

import pytest

from elman.tasks.examples import encoded, unseen_note
from elman.text.records import Record
from tiny_tasks import ready

SPANS = "Anna\tB-PER\nsaw\tO\nRome\tB-LOC\n\nit\tO\nsaw\tO\nAnna\tB-PER\nSmith\tI-PER\n"


def texts(*labels):
    return [Record({"text": "a dog", "label": label}, "dev.tsv", n) for n, label in enumerate(labels, 1)]


def test_an_unseen_label_counts_as_wrong(tmp_path):
    one = ready("classify", tmp_path)
    known = one.task.evaluate(one.model, encoded(one.task, texts("animal", "thing")))
    found = one.task.evaluate(one.model, encoded(one.task, texts("animal", "thing", "sound", "sound")))
    assert found["accuracy"] == known["accuracy"] / 2 == 0.25
    assert found["loss"] == pytest.approx(known["loss"])
    assert (found["unseen"], found["examples"]) == ({"sound": 2}, 4)
    assert found["notes"] == ["1 label that training never saw counts as wrong: 'sound' (2)"]
    assert found["classes"]["sound"]["support"] == 2
    assert "unseen" not in known


def test_all_labels_may_be_unseen(tmp_path):
    one = ready("classify", tmp_path)
    found = one.task.evaluate(one.model, encoded(one.task, texts("x", "y")))
    assert (found["accuracy"], found["loss"]) == (0.0, None)  # a perfect one would be 0


def sentence(words, *tags):
    return Record({"word": words.split(), "tag": list(tags)}, "dev.txt", 1)


@pytest.mark.parametrize("crf", [False, True])
def test_an_unseen_tag_counts_as_wrong(crf, tmp_path):
    one = ready("tag", tmp_path, {"model.crf": crf}, data=SPANS)
    good = sentence("Anna saw", "B-PER", "O")
    new = sentence("Rome it saw", "B-CITY", "NOUN", "I-CITY")
    known = one.task.evaluate(one.model, encoded(one.task, [good]))
    found = one.task.evaluate(one.model, encoded(one.task, [good, new]))
    assert found["loss"] == pytest.approx(known["loss"])
    assert found["accuracy"] == pytest.approx(known["accuracy"] * 2 / 5)
    assert found["unseen"] == {"B-CITY": 1, "NOUN": 1, "I-CITY": 1}
    assert found["by_type"]["CITY"]["support"] == 2
    assert found["tokens"] == 5


def test_the_words_beside_an_unseen_tag_are_in_the_loss_of_a_softmax(tmp_path):
    one = ready("tag", tmp_path, {"model.crf": False})
    whole = sentence("a dog runs", "DET", "NOUN", "VERB")
    part = sentence("a dog runs", "DET", "DOG", "VERB")
    assert one.task.evaluate(one.model, encoded(one.task, [part]))["loss"] != pytest.approx(
        one.task.evaluate(one.model, encoded(one.task, [whole]))["loss"], rel=1e-6
    )
    assert one.task.evaluate(one.model, encoded(one.task, [part]))["loss"] > 0


def test_what_is_said_of_many_unseen_labels():
    said = unseen_note(Counter({f"x{n}": 1 for n in range(12)}))
    assert said.startswith("12 labels that training never saw count as wrong: 'x0' (1), ")
    assert said.endswith("'x9' (1), 2 more")
