"""Language models: the chain rule, streams and sentences, generation (rows L1–L4)."""

import math
from collections import Counter

import pytest
import torch

from elman.config import changed, validate
from elman.errors import ConfigError, EmptyError
from elman.tasks import lm
from elman.tasks.examples import encoded
from elman.text.files import Repairs
from elman.text.records import Record
from elman.text.vocabulary import END, START, UNKNOWN
from elman.training.preparing import prepare
from elman.training.run import build
from elman.training.settings import make_task, settings_class
from elman.training.sources import source_of
from tiny_tasks import CPU, DATA, descend, ready, settings_of, train

SENTENCE = {"text.context": "sentence"}
LEARN = {
    "model.hidden": 16,
    "model.embedding": 8,
    "model.tied": False,
    "training.optimizer": "adam",
    "training.learning_rate": 0.02,
    "training.schedule": "constant",
    "training.averaging": "none",
}


def records(*texts):
    return [Record({"text": text}, "some.txt", number) for number, text in enumerate(texts, 1)]


def decoding(one, **more):
    return changed(one.task.config, {f"decoding.{key}": value for key, value in more.items()}).decoding


@pytest.mark.parametrize("context", ["sentence", "stream"])
@pytest.mark.parametrize("network", ["rnn", "window", "ngram"])
def test_the_chain_rule_L3(context, network, tmp_path):
    """A text's score is the sum of its tokens', and the loss of evaluating just this text."""
    one = ready("lm", tmp_path, {"text.context": context, "model.network": network})
    text = "the dog sees it"
    [scored] = one.task.score(one.model, [text])
    assert [token for token, _ in scored] == ["the", "dog", "sees", "it", END]
    figures = one.task.evaluate(one.model, encoded(one.task, records(text)))
    assert figures["tokens"] == 5
    assert sum(value for _, value in scored) == pytest.approx(-5 * figures["loss"], abs=1e-5)


def test_a_token_is_scored_given_those_before_it_L3(tmp_path):
    one = ready("lm", tmp_path, SENTENCE)
    [scored] = one.task.score(one.model, ["the dog runs"])
    state, before = None, START
    for token, value in scored:
        log_probs, state = one.model.step(torch.tensor([one.task.field.vocabulary.id(before)]), state)
        assert float(log_probs[0, one.task.field.vocabulary.id(token)].detach()) == pytest.approx(
            value, abs=1e-5
        )
        before = token


def test_scores_do_not_depend_on_their_neighbours_L3(tmp_path):
    one = ready("lm", tmp_path, SENTENCE)
    texts = ["the dog", "a", "the cat runs and the dog runs", "", "unheard words"]
    together = one.task.score(one.model, texts)
    for text, scored in zip(texts, together, strict=True):
        [alone] = one.task.score(one.model, [text])
        assert [token for token, _ in scored] == [*text.split(), END]
        assert [v for _, v in scored] == pytest.approx([v for _, v in alone], abs=1e-5)
    assert one.task.score(one.model, []) == []


def test_a_minimal_pair_is_told_apart_L3(tmp_path):
    one = ready("lm", tmp_path, SENTENCE | LEARN)
    descend(one, 80)
    good, bad = (sum(v for _, v in s) for s in one.task.score(one.model, ["a dog runs", "a runs dog"]))
    assert good > bad + 1


@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_perplexity_is_the_exponential_of_the_loss_L3(context, tmp_path):
    one = ready("lm", tmp_path, {"text.context": context})
    figures = one.task.evaluate(one.model, one.examples)
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]))
    assert figures["tokens"] == one.statistics.tokens
    assert "bits_per_character" not in figures
    letters = ready("lm", tmp_path, {"text.context": context, "text.unit": "character"})
    figures = letters.task.evaluate(letters.model, letters.examples)
    assert figures["bits_per_character"] == pytest.approx(figures["loss"] / math.log(2))
    pieces = ready("lm", tmp_path, {"text.context": context, "text.unit": "bpe", "text.vocabulary_size": 270})
    found = pieces.task.evaluate(pieces.model, pieces.examples)
    bits = found["loss"] / math.log(2) * found["tokens"] / figures["tokens"]  # of as many characters
    assert found["tokens"] < figures["tokens"]
    assert found["bits_per_character"] == pytest.approx(bits)
    assert "bits_per_character" not in pieces.task.evaluate(pieces.model, pieces.examples, quick=True)


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(tmp_path):
    one = ready("lm", tmp_path, {"model.tied": False})
    with torch.no_grad():
        one.model.weight.zero_()
    figures = one.task.evaluate(one.model, one.examples)
    assert figures["perplexity"] == pytest.approx(len(one.task.field.vocabulary), rel=1e-5)


@pytest.mark.parametrize("steps", [1, 4, 1000])
def test_evaluating_a_stream_is_one_long_walk_L2(steps, tmp_path, monkeypatch):
    one = ready("lm", tmp_path)
    monkeypatch.setattr(lm, "EVALUATION_STEPS", steps)
    figures = one.task.evaluate(one.model, one.examples)
    ids = torch.from_numpy(one.examples.store.fields["token"].values.astype("int64"))
    logits = one.model.logits(one.model(ids[None, :-1])[0])[0]
    expected = torch.nn.functional.cross_entropy(logits, ids[1:])
    assert figures["loss"] == pytest.approx(float(expected.detach()), abs=1e-5)
    assert figures["tokens"] == len(ids) - 1 == one.statistics.tokens


def test_validation_on_a_gpu_reads_parts_side_by_side(tmp_path, monkeypatch):
    one = ready("lm", tmp_path, data=20 * DATA["lm"])
    exact = one.task.evaluate(one.model, one.examples)
    assert one.task.evaluate(one.model, one.examples, quick=True) == exact
    ids, evaluation = exact["tokens"] + 1, one.task._evaluation

    def read(examples, device, rows):
        raise LookupError(list(evaluation(examples, CPU, rows)))

    def batches(*, quick):
        with pytest.raises(LookupError) as caught:
            one.task.evaluate(one.model, one.examples, quick=quick)
        return caught.value.args[0]

    monkeypatch.setattr(one.task, "_evaluation", read)
    monkeypatch.setattr(lm, "device_of", lambda model: torch.device("meta"))  # as little the CPU as a GPU is
    for length, rows in ((2000, 1), (100, ids // 100), (1, 16)):
        monkeypatch.setattr(lm, "VALIDATION_LENGTH", length)
        found = batches(quick=True)
        assert {len(batch.inputs) for batch in found} == {rows}
        assert exact["tokens"] - 16 < sum(batch.targets.numel() for batch in found) <= exact["tokens"]
        assert {len(batch.inputs) for batch in batches(quick=False)} == {1}


def test_lengths_of_sentences_stay_with_the_cpu(tmp_path):
    one = ready("lm", tmp_path, SENTENCE)
    batch = one.task.collate(one.examples, range(len(one.examples)), torch.device("meta"))
    assert [part.device.type for part in batch[:3]] == ["meta", "meta", "cpu"]


def test_the_state_is_carried_from_segment_to_segment_L2(tmp_path):
    one = ready("lm", tmp_path, {"training.batch_size": 2, "training.truncate": 5})
    plan = one.task.epoch(one.examples, 0)
    first, second = (one.task.collate(one.examples, plan[k], CPU) for k in range(2))
    carry = one.task.loss(one.model, first).carry
    carried = one.task.loss(one.model, second, carry=carry)
    inputs, targets, *_ = first
    other = lm.LmBatch(inputs.roll(1, 1), targets, None)
    assert carried.total != one.task.loss(one.model, second).total
    assert (
        carried.total != one.task.loss(one.model, second, carry=one.task.loss(one.model, other).carry).total
    )
    whole = lm.LmBatch(torch.cat([inputs, second[0]], 1), torch.cat([targets, second[1]], 1), None)
    both = one.task.loss(one.model, whole).total
    torch.testing.assert_close(one.task.loss(one.model, first).total + carried.total, both)


def test_backpropagation_stops_at_the_edge_of_a_segment_L2(tmp_path):
    one = ready("lm", tmp_path)
    loss = one.task.loss(one.model, one.batch)
    assert loss.total.requires_grad
    assert not any(part.requires_grad for layer in loss.carry for part in layer)


def test_sentences_begin_anew_L2(tmp_path):
    one = ready("lm", tmp_path, SENTENCE)
    inputs, targets, lengths, _ = one.batch
    start, end = (one.task.field.vocabulary.id(marker) for marker in (START, END))
    assert (inputs[:, 0] == start).all()
    assert all(row[length - 1] == end for row, length in zip(targets, lengths, strict=True))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert one.task.loss(one.model, one.batch).carry is None


@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_a_tiny_text_is_learned_L2(context, tmp_path):
    settings = LEARN | {"text.context": context, "training.epochs": 120}
    settings |= {"training.truncate": 100} if context == "stream" else {}
    one = ready("lm", tmp_path, settings)
    before = one.task.evaluate(one.model, one.examples)["loss"]
    figures = train(one)
    assert before > 2
    assert figures["loss"] < (0.7 if context == "sentence" else 0.2)


def test_a_tiny_text_has_rows_that_are_worth_it(tmp_path):
    """Left open, the rows of a stream are longer than backpropagation reaches, where the text allows."""
    for copies in (1, 30, 400):
        one = ready("lm", tmp_path, data=DATA["lm"] * copies)
        settings = one.task.config.training
        assert (
            settings.batch_size == 1 or one.statistics.tokens > 10 * settings.batch_size * settings.truncate
        )
    assert settings.batch_size > 1


@pytest.mark.slow
def test_generation_stops_where_it_should_L4(tmp_path):
    one = ready("lm", tmp_path, SENTENCE | LEARN, data="a b c d\n")
    descend(one, 100)

    def generated(prompt, **more):
        [found] = one.task.generation.predict(one.model, [prompt], decoding(one, **more))
        return found["text"], found["stopped"]

    assert generated("") == ("a b c d", "end")
    assert generated("a b") == ("c d", "end")
    assert generated("", max_length=2) == ("a b", "length")
    assert generated("", stop=["c"]) == ("a b c", "stop")
    assert generated("a", stop=["d", "b"]) == ("b", "stop")
    text, stopped = generated("", min_length=6, max_length=6)
    assert len(text.split()) == 6
    assert stopped == "length"
    with pytest.raises(ConfigError, match=r"decoding\.stop has 'e', which the vocabulary lacks"):
        generated("", stop=["e"])


def test_the_probability_of_what_is_generated_is_its_score_L4(tmp_path):
    one = ready("lm", tmp_path, SENTENCE | LEARN, data="a b c d\n")
    descend(one, 100)
    [found] = one.task.generation.predict(one.model, [""], one.task.config.decoding)
    [scored] = one.task.score(one.model, [found["text"]])
    assert found["log_probability"] == pytest.approx(sum(v for _, v in scored), abs=1e-4)


@pytest.mark.parametrize("network", ["rnn", "window", "bag", "ngram"])
def test_greedy_is_the_argmax_by_hand_L4(network, tmp_path):
    one = ready("lm", tmp_path, SENTENCE | {"model.network": network})
    vocabulary = one.task.field.vocabulary
    [found] = one.task.generation.predict(one.model, ["the cat"], decoding(one, max_length=8))
    tokens = [START, "the", "cat"]
    with torch.no_grad():
        while len(tokens) < 11:
            outputs, _ = one.model(torch.tensor([vocabulary.ids(tokens)]))
            scores = one.model.logits(outputs)[0, -1]
            scores[[vocabulary.id(t) for t in ("<pad>", UNKNOWN, START)]] = -torch.inf
            tokens.append(vocabulary.tokens[int(scores.argmax())])
            if tokens[-1] == END:
                break
    expected = [token for token in tokens[3:] if token != END]
    assert found["tokens"] == expected
    assert found["stopped"] == ("end" if tokens[-1] == END else "length")


def test_drawing_repeats_with_its_seed_L4(tmp_path):
    one = ready("lm", tmp_path)

    def drawn(seed):
        settings = decoding(one, strategy="sample", seed=seed, max_length=30)
        return [found["text"] for found in one.task.generation.predict(one.model, ["", "the"], settings)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


@pytest.mark.slow
def test_characters_run_through_line_ends_and_stop_at_a_newline_L4(tmp_path):
    settings = LEARN | {"text.unit": "character", "training.truncate": 8, "training.epochs": 80}
    one = ready("lm", tmp_path, settings, data="ab\ncd\n" * 8)
    train(one)

    def generated(prompt, **more):
        [found] = one.task.generation.predict(one.model, [prompt], decoding(one, **more))
        return found["text"], found["stopped"]

    text, stopped = generated("a", max_length=11)
    assert text == "b\ncd\nab\ncd\n"
    assert stopped == "length"
    assert generated("a", stop=["\n"]) == ("b", "end")
    assert generated("c", stop=["\n", "d"]) == ("d", "stop")
    assert generated("ab\nc", stop=["\n"]) == ("d", "end")  # the line end of a prompt is one
    [prediction] = changed_task(one, max_length=5).predict(one.model, ["a"])
    assert prediction["prediction"] == "b\ncd\n"
    assert prediction.line == "b\ncd\n"  # the command line writes it on one


def changed_task(one, **more):
    one.task.config = changed(one.task.config, {f"decoding.{key}": value for key, value in more.items()})
    return one.task


def test_a_language_model_reads_in_one_direction():
    with pytest.raises(ConfigError, match="reads in one direction"):
        settings_of("lm", settings={"model.bidirectional": True})


def test_a_one_hot_input_cannot_be_tied():
    with pytest.raises(ConfigError, match="has no embedding to tie"):
        settings_of("lm", settings={"model.embedding": 0, "model.tied": True})


def test_blank_lines(tmp_path):
    data = "a b\n\n  \nb a\n"
    for context, blank, lines in (("stream", 0, 4), ("sentence", 2, 2)):
        one = ready("lm", tmp_path, {"text.context": context}, data=data)
        repairs = Repairs()
        found = list(one.task.read(source_of(one.task.config.data, str(one.path)), repairs))
        assert (repairs["blank line skipped"], len(found)) == (blank, lines)
    with pytest.raises(EmptyError, match="no text to train on"):
        ready("lm", tmp_path, data="\n \n")


@pytest.mark.parametrize(
    "rule", [{"decoding.min_length": 160}, {"decoding.no_repeat": 1}, {"decoding.prefix": "a" * 160}]
)
def test_no_rule_of_decoding_stops_the_samples_of_a_training(rule, tmp_path):
    settings = {"text.unit": "character", "decoding.max_length": None} | rule
    one = ready("lm", tmp_path, settings, data="ab ba\n")
    assert one.task.samples(one.model, one.examples)


def test_rare_words_are_unknown_where_nothing_else_was_said(tmp_path):
    open_count = {"text.min_count": None}
    words = ready("lm", tmp_path, open_count, data="a a b\n").task.field.vocabulary
    assert words.tokens[4:] == ["a"]
    words = ready("lm", tmp_path, open_count, data="a a b <unk>\n").task.field.vocabulary
    assert words.tokens[4:] == ["a", "b"]
    words = ready("lm", tmp_path, open_count | {"text.unit": "character"}, data="aab\n").task.field.vocabulary
    assert words.tokens[4:] == ["a", "b"]
    fixed = ready(
        "lm", tmp_path, {"text.vocabulary": ["b", "x", "</s>"]}, data="a a b\n"
    ).task.field.vocabulary
    assert fixed.tokens[4:] == ["b", "x"]


def test_columns_of_other_files(tmp_path):
    one = ready(
        "lm", tmp_path, {"data.columns": {"text": 1}, "data.format": "delimited"}, data="1\ta b\n2\tb c\n"
    )
    assert [record.fields["text"] for record in one.records()] == ["a b", "b c"]


def test_nothing_to_evaluate_is_nothing(tmp_path):
    one = ready("lm", tmp_path)
    assert len(encoded(one.task, records())) == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.slow
def test_incremental_descent_learns_a_stream_at_its_own_rate_G2(seed):
    """Its losses are summed over a segment and nothing is clipped: 0.1, for few losses, diverges here."""
    training = {"optimizer": "incremental", "max_steps": 200, "seed": seed, "threads": 1}
    tables = {"task": "lm", "data": {"train": "builtin:agreement"}, "training": training}
    task = make_task(validate(settings_class("lm"), tables))
    prepared = prepare(task)
    trainer = build(prepared)
    assert (task.config.training.truncate, task.config.training.learning_rate) == (35, 0.014)
    *updates, validation = trainer.run()
    assert max(update.loss for update in updates[20:]) < 5  # it never jumps
    counts = Counter(prepared.train.store.fields["token"].values.tolist())
    tokens = prepared.dev.store.fields["token"].values.tolist()[1:]
    unigram = -sum(math.log((counts[token] + 1) / (counts.total() + len(counts))) for token in tokens)
    assert 30 < math.exp(unigram / len(tokens)) < 50
    assert validation.measures["perplexity"] < 20


def test_lines_may_be_read_from_their_ends(tmp_path):
    one = ready("lm", tmp_path, {"text.reversed": True})
    assert one.task.config.text.context == "sentence"
    [scored] = one.task.score(one.model, ["the cat runs"])
    assert [token for token, _ in scored] == ["runs", "cat", "the", END]
    assert one.task.field.join(["runs", "cat", "the"]) == "the cat runs"
    with pytest.raises(ConfigError, match=r"text\.reversed reads every line for itself"):
        settings_of("lm", None, {"text.reversed": True, "text.context": "stream"})


ADAPTIVE = {"model.adaptive_softmax": True, "model.tied": False}


@pytest.mark.parametrize("context", ["sentence", "stream"])
def test_an_adaptive_softmax_learns_scores_and_writes(context, tmp_path):
    one = ready("lm", tmp_path, {**LEARN, **ADAPTIVE, "text.context": context})
    before = one.task.evaluate(one.model, one.examples)
    descend(one, 60)
    after = one.task.evaluate(one.model, one.examples)
    assert after["loss"] < before["loss"] - 0.5
    [scored] = one.task.score(one.model, ["the dog sees it"])
    figures = one.task.evaluate(one.model, encoded(one.task, records("the dog sees it")))
    assert sum(value for _, value in scored) == pytest.approx(-5 * figures["loss"], abs=1e-4)
    for settings in ({}, {"beam": 3}, {"strategy": "sample"}):
        rules = decoding(one, min_length=2, max_length=5, **settings)
        assert one.task.generation.predict(one.model, ["the dog"], rules)[0].line


def test_an_adaptive_softmax_is_not_tied(tmp_path):
    assert not ready("lm", tmp_path, {"model.adaptive_softmax": True}).task.config.model.tied
    with pytest.raises(ConfigError, match="an adaptive softmax has weights of its own"):
        ready("lm", tmp_path, {"model.adaptive_softmax": True, "model.tied": True})


def test_activity_is_minimised_and_not_reported(tmp_path):
    """The objective has it, the loss has not; padding adds nothing to it."""
    regularised = {"training.activation_regularisation": 3.0, "training.temporal_regularisation": 2.0}
    for context in ("stream", "sentence"):
        one = ready("lm", tmp_path, {**SENTENCE, **regularised, "text.context": context})
        plain = ready("lm", tmp_path, {**SENTENCE, "text.context": context})
        plain.model.load_state_dict(one.model.state_dict())
        key = one.task.epoch(one.examples, 0)[0]
        batch = one.task.collate(one.examples, key, CPU)
        loss, expected = one.task.loss(one.model, batch), plain.task.loss(plain.model, batch)
        assert loss.total.item() == pytest.approx(expected.total.item(), rel=1e-5)
        assert expected.regularisation is None
        wide = one.task.loss(one.model, batch.bucketed())
        assert wide.regularisation.item() == pytest.approx(loss.regularisation.item(), rel=1e-4)
        if context == "sentence":
            apart = [one.task.loss(one.model, one.task.collate(one.examples, [k], CPU)) for k in key]
            total = sum(each.regularisation.item() for each in apart)
            assert loss.regularisation.item() == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("context", ["stream", "sentence"])
def test_a_trace_has_the_steps_that_read_the_prompt(context, tmp_path):
    one = ready("lm", tmp_path, {"text.context": context, "decoding.max_length": 2})
    [found] = one.task.predict(one.model, ["the cat"], trace=2)
    start = "</s>" if context == "stream" else "<s>"
    steps = found.written.steps
    assert [(step.t, step.fed, step.output) for step in steps[:2]] == [(-1, start, "the"), (0, "the", "cat")]
    assert (steps[2].t, steps[2].fed) == (1, "cat")
    scored = one.task.score(one.model, ["the cat"])[0]
    assert [math.log(step.probability) for step in steps[:2]] == pytest.approx(
        [v for _, v in scored[:2]], abs=1e-5
    )
    assert all(len(step.top) == 2 for step in steps)
    assert one.task.predict(one.model, [""], trace=0)[0].written.steps[0].t == 1
