"""Class to sequence: the lectures' network, its descent and its worked example (rows G1–G3)."""

import pytest
import torch

from elman.config import put, validate
from elman.corpora.worked_example import SEQUENCES, VOCABULARY
from elman.errors import ConfigError, EmptyError, LabelError, SyntaxProblem
from elman.tasks.class2seq import agreement
from elman.tasks.examples import encoded
from elman.text.records import Record
from elman.training.preparing import prepare
from elman.training.run import build
from elman.training.settings import make_task, settings_class
from elman.training.sources import corpus_settings
from tiny_tasks import CPU, ready, settings_of, train

FEATURES = "plural animal\tcats\nsingular animal\tcat\nplural thing\tcars\nsingular thing\tcar\n"
NUMBERS = "0 0\ta a\n1 0\ta b\n0 1.5\tb a\n1 1.5\tb b\n"


def worked_example(**more):
    tables = {"task": "class2seq", "data": {"train": "builtin:worked_example"}}
    given = corpus_settings("builtin:worked_example", "class2seq") | more
    for key, value in given.items():
        put(tables, key, value)
    task = make_task(validate(settings_class("class2seq"), tables))
    prepared = prepare(task)
    return task, prepared, build(prepared)


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
@pytest.mark.slow
def test_the_worked_example_is_learned_by_incremental_descent_G3(loss):
    task, _, trainer = worked_example(**{"training.loss": loss})
    assert task.field.vocabulary.tokens == VOCABULARY
    places = {token: number for number, token in enumerate(task.field.vocabulary.tokens, 1)}
    assert [places[t] for t in ("i", "love", "my", "cat", "<end>")] == [11, 15, 16, 6, 22]
    [x] = task.classes.vectors(task.classes.keys(["I"]), CPU)
    assert x.nonzero().tolist() == [[10]]  # the one-hot of word 11 among 22
    assert len(x) == 22
    training = task.config.training
    assert (training.optimizer, training.batch_size, training.reduction) == ("incremental", 1, "sum")
    *_, last = trainer.run()
    assert last.measures["exact_match"] == 1.0
    assert last.measures["accuracy"] == 1.0
    model = trainer.model.eval()
    found = task.predict(model, list(SEQUENCES))
    assert [one["prediction"] for one in found] == list(SEQUENCES.values())
    assert [one["stopped"] for one in found] == ["end"] * 3
    unrolling = [(step["t"], step["fed"], step["output"]) for step in found[0]["trace"]]
    assert unrolling == [(1, "<start>", "love"), (2, "love", "my"), (3, "my", "cat"), (4, "cat", "<end>")]
    assert all(0.3 < step["probability"] <= 1 for step in found[0]["trace"])
    total = sum(torch.tensor(step["probability"]).log() for step in found[0]["trace"])
    assert found[0]["log_probability"] == pytest.approx(float(total), abs=1e-4)


def test_a_first_step_by_hand_G2():
    """W ← W − η ∇ Σ_t l(δ(t)) for the first example of the pass, and nothing else."""
    task, prepared, trainer = worked_example()
    key = task.epoch(prepared.train, 0)[0]
    assert len(key) == 1
    weights = list(trainer.model.parameters())
    before = [weight.detach().clone() for weight in weights]
    total = task.loss(trainer.model, task.collate(prepared.train, key, CPU)).total
    gradients = torch.autograd.grad(total, weights)
    next(trainer.run())
    rate = task.config.training.learning_rate
    for weight, old, gradient in zip(weights, before, gradients, strict=True):
        torch.testing.assert_close(weight.detach(), old - rate * gradient)


def test_few_examples_get_the_lectures_network_G1(tmp_path):
    one = ready("class2seq", tmp_path, {"model.embedding": None})
    model = one.task.config.model
    assert (model.cell, model.cell_options, model.embedding) == (
        "elman",
        {"activation": "logistic", "bias": False},
        0,
    )
    assert not any("bias" in name or name.endswith(".b") for name, _ in one.model.named_parameters())
    x, previous, tokens, lengths, _ = one.batch
    assert x.tolist() == torch.eye(3).tolist()
    assert (previous[:, 0] == one.task.field.vocabulary.index[one.task.config.text.start]).all()
    assert lengths.tolist() == [4, 5, 6]
    assert all(row[n - 1] == one.task.end for row, n in zip(tokens, lengths, strict=True))


def test_production_feeds_back_what_came_out_G1(tmp_path):
    """Hard: the one-hot of the argmax; soft: the softmax itself."""
    for feedback in ("hard", "soft"):
        one = ready("class2seq", tmp_path, {"model.feedback": feedback, "decoding.min_length": 5})
        [found] = one.task.predict(one.model, ["it"])
        vocabulary = one.task.field.vocabulary
        never = [vocabulary.index[token] for token in ("<unk>", "<s>", "</s>")]
        state = one.model.start(torch.eye(3)[[one.task.classes.names.index("it")]])
        fed = torch.tensor([vocabulary.index[one.task.config.text.start]])
        expected = []
        with torch.no_grad():
            for _ in range(5):
                log_probs, state = one.model.step(fed, state)
                token = int(log_probs.index_fill(1, torch.tensor(never), -torch.inf).argmax())
                expected.append(vocabulary.tokens[token])
                fed = log_probs.exp() if feedback == "soft" else torch.tensor([token])
        assert found["tokens"][:5] == expected


@pytest.mark.parametrize("feedback", ["hard", "soft"])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.slow
def test_other_cells_and_optimisers_learn_it_too(cell, feedback, tmp_path):
    settings = {
        "model.cell": cell,
        "model.hidden": 16,
        "model.feedback": feedback,
        "training.optimizer": "adamw",
        "training.learning_rate": 0.03,
        "training.epochs": 80,
        "training.averaging": "none",
        "decoding.max_length": 20,
    }
    figures = train(ready("class2seq", tmp_path, settings))
    assert figures["exact_match"] == 1.0
    assert figures["classes"] == 3


@pytest.mark.parametrize(("kind", "data"), [("features", FEATURES), ("vector", NUMBERS)])
def test_features_and_vectors_as_classes_G1(kind, data, tmp_path):
    settings = {
        "text.classes": kind,
        "text.unit": "character" if kind == "features" else "word",
        "model.cell": "gru",
        "model.hidden": 16,
        "training.optimizer": "adam",
        "training.learning_rate": 0.03,
        "training.schedule": "constant",
        "training.epochs": 120,
        "training.averaging": "none",
        "decoding.max_length": 20,
    }
    one = ready("class2seq", tmp_path, settings, data=data)
    if kind == "features":
        assert one.task.classes.names == ["animal", "plural", "singular", "thing"]
        assert one.batch[0][0].tolist() == [1.0, 1.0, 0.0, 0.0]
    else:
        assert one.batch[0].tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 1.5], [1.0, 1.5]]
    assert train(one)["exact_match"] == 1.0
    lines = [line.split("\t") for line in data.strip().split("\n")]
    found = one.task.predict(one.model, [name for name, _ in lines])
    assert [one["prediction"] for one in found] == [sequence for _, sequence in lines]


@pytest.mark.parametrize(
    ("found", "gold", "expected"),
    [
        ([1, 2, 9], [1, 2, 9], (3, 3)),
        ([1, 9], [1, 2, 3, 9], (2, 4)),
        ([1, 2, 3, 9], [1, 9], (2, 4)),
        ([1, 2, 3], [1, 9], (1, 3)),
        ([], [9], (1, 1)),
        ([9], [1, 2, 9], (1, 3)),
    ],
)
def test_unequal_lengths_are_compared_with_end_markers_G2(found, gold, expected):
    assert agreement(found, gold, end=9) == expected


def test_a_class_may_have_several_sequences(tmp_path):
    """What is generated is compared with the nearest of them."""
    one = ready("class2seq", tmp_path, data="x\ta b\nx\tc\ny\td\n")
    end = one.task.end
    ids = {token: one.task.field.vocabulary.index[token] for token in "abcd"}
    answers = [[ids["a"], ids["b"], end], [ids["d"], ids["d"], end]]
    one.task._sequences = lambda model, keys, partners: answers
    figures = one.task.evaluate(one.model, one.examples)
    assert figures["classes"] == 2
    assert figures["exact_match"] == 0.5
    assert figures["accuracy"] == pytest.approx((3 + 2) / (3 + 3))
    assert figures["tokens"] == 7


def test_features_in_another_order_are_the_same_class(tmp_path):
    settings = {"text.classes": "features"}
    one = ready("class2seq", tmp_path, settings, data="x y\ta b\ny x x\tc\nx\td\n")
    x = one.batch[0]
    assert torch.equal(x[0], x[1])
    assert one.task.evaluate(one.model, one.examples)["classes"] == 2


def test_a_wrong_prompt_is_named_with_its_number(tmp_path):
    one = ready("class2seq", tmp_path)
    with pytest.raises(LabelError, match=r"input:151: .*never saw: 'cat'") as caught:
        one.task.predict(one.model, [*["it"] * 150, "cat"])
    assert caught.value.line == 151


def test_wrong_examples_are_named_with_their_place(tmp_path):
    one = ready("class2seq", tmp_path)
    with pytest.raises(LabelError, match=r"dev\.tsv:2.*never saw: 'cat'; did you mean 'cats'"):
        encoded(one.task, [Record({"class": "cat", "sequence": "and"}, "dev.tsv", 2)])
    with pytest.raises(LabelError, match=r"input:1.*never saw"):
        one.task.predict(one.model, ["dogs"])
    with pytest.raises(EmptyError, match="a sequence without a token"):
        one.task.build_vocabularies([Record({"class": "I", "sequence": " "}, "dev.tsv", 2)])
    numbers = ready("class2seq", tmp_path, {"text.classes": "vector"}, data=NUMBERS)
    for wrong in ("1", "1 two", "1 nan", "1 2 3", "1 1e39"):
        with pytest.raises(SyntaxProblem, match="not 2 finite numbers"):
            numbers.task.predict(numbers.model, [wrong])


def test_a_fixed_vocabulary_is_closed(tmp_path):
    settings = {"text.vocabulary": ["a", "b", "#", "$"], "text.start": "#", "text.end": "$"}
    one = ready("class2seq", tmp_path, settings, data="x\ta b\n")
    assert one.task.field.vocabulary.tokens == ["a", "b", "#", "$"]
    with pytest.raises(LabelError, match="a token outside the vocabulary: 'c'"):
        encoded(one.task, [Record({"class": "x", "sequence": "a c"}, "dev.tsv", 1)])


def test_a_generator_goes_in_one_direction():
    with pytest.raises(ConfigError, match="goes in one direction"):
        settings_of("class2seq", settings={"model.bidirectional": True})
    for network in ("window", "bag"):
        with pytest.raises(ConfigError, match="no comparator without one"):
            settings_of("class2seq", settings={"model.network": network})


def test_a_class_that_is_a_token_has_to_be_one(tmp_path):
    one = ready("class2seq", tmp_path, {"text.classes": "token"}, data="Cats\tcats sleep\ndogs\tdogs bark\n")
    names = one.task.field.vocabulary.tokens
    assert one.task.classes.size == len(names)
    assert one.task.classes.keys(["Cats", "dogs"]) == [[names.index("cats")], [names.index("dogs")]]
    assert one.task.predict(one.model, ["Cats"])[0].asked == "Cats"
    with pytest.raises(LabelError, match="outside the vocabulary"):
        one.task.classes.keys(["horses"])
