"""Sequence to sequence: learned, with the truth or its own outputs fed, and judged (rows E1–E6, A4)."""

import pytest
import torch
from pairs import LEARNING, records, strings, tsv
from sacrebleu.metrics import BLEU
from torch.nn import functional as F

from elman.config import changed
from elman.errors import ConfigError
from elman.tasks import seq2seq
from elman.tasks.examples import encoded
from elman.tasks.predictions import Prediction
from elman.text.vocabulary import START
from elman.training.loop import Trainer
from tiny_tasks import CPU, descend, ready, train

# A small model learns.


@pytest.mark.slow
def test_reversing_strings_is_learned_with_attention(reversing):
    one, unseen = reversing
    assert one.task.config.model.attention == "additive"
    figures = one.task.evaluate(one.model, encoded(one.task, records(*((s, s[::-1]) for s in unseen))))
    assert figures["exact_match"] > 0.95
    assert figures["error_rate"] < 0.05
    assert (figures["sources"], figures["examples"]) == (200, 200)
    assert [bucket["shortest"] for bucket in figures["by_length"]] == [3, 4, 5, 6]
    assert all("✗" not in line for line in one.task.samples(one.model, one.examples))


@pytest.mark.slow
def test_a_learned_alignment_runs_backwards_A4(reversing):
    one, _ = reversing
    answers = one.task.predict(one.model, ["abcdef", "hgf"], trace=0)
    for answer, length in zip(answers, (6, 3), strict=True):
        weights = torch.tensor(answer["attention"])
        assert weights.shape == (length + 1, length)  # the end marker looks somewhere, too
        torch.testing.assert_close(weights.sum(1), torch.ones(length + 1))
        near = (weights.argmax(1)[:length] - torch.arange(length - 1, -1, -1)).abs()
        assert (near <= 1).all()


@pytest.mark.parametrize(("form", "least"), [("single", 0.97), ("naive", 0.8)])
@pytest.mark.slow
def test_one_network_copies_short_strings_E6(form, least, tmp_path):
    """Without a separator ``aba`` could be a source, or the source ``ab`` and the first of its copy."""
    known = strings(150, 1, 3)
    settings = {
        **LEARNING,
        "model.form": form,
        "model.hidden": 48,
        "training.epochs": 60,
        "training.schedule": "constant",
    }
    one = ready("seq2seq", tmp_path, settings, data=tsv((text, text) for text in known))
    assert train(one)["exact_match"] >= least
    text = next(text for text in known if len(set(text)) == 3)
    [traced] = one.task.predict(one.model, [text], trace=1)
    assert (traced["text"], traced["stopped"]) == (text, "end")
    fed = [step["fed"] for step in traced["trace"]]
    assert fed == [START if form == "single" else text[-1], *text]
    assert "attention" not in traced


# Teacher forcing.


def losses(one, truth):
    """The plain loop: −log p of every true token, where a step reads the true one before or its own."""
    model, total = one.model, 0.0
    sources, lengths, previous, targets, target_lengths, _ = one.batch
    with torch.no_grad():
        for b in range(len(sources)):
            source = model.read(sources[b : b + 1, : lengths[b]], lengths[b : b + 1])
            now, own = model.begin(source), None
            for t in range(int(target_lengths[b])):
                given = previous[b, t : t + 1] if own is None or truth[b, t] else own
                log_probs, now, _ = model.step(given, now, source)
                total -= float(log_probs[0, targets[b, t]])
                own = log_probs.argmax(-1)
    return total


PARTS = {
    "additive before": {},
    "dot after": {"model.attention": "dot", "model.placement": "after"},
    "without attention": {"model.attention": "none", "model.context": "every-step"},
    "fed back": {"model.attention": "location", "model.input_feeding": True},
    "single": {"model.form": "single"},
    "naive": {"model.form": "naive"},
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("p", [1.0, 0.5, 0.0])
def test_a_step_reads_the_truth_with_probability_p_E3(p, parts, tmp_path):
    one = ready(
        "seq2seq", tmp_path, {"training.teacher_forcing": p, "training.label_smoothing": 0.0, **parts}
    )
    descend(one, 20)  # so that its own output is not always the same
    torch.manual_seed(3)
    with torch.no_grad():
        found = one.task.loss(one.model, one.batch)
    torch.manual_seed(3)
    truth = torch.rand(one.batch[2].shape) < p
    assert float(found.total) == pytest.approx(losses(one, truth), rel=1e-5)
    assert found.count == int(one.batch[4].sum())
    if p == 0.5:
        assert float(found.total) != pytest.approx(losses(one, truth | True), rel=1e-4)


def test_the_schedule_follows_training_and_survives_a_break_E3(tmp_path, monkeypatch):
    settings = {
        "training.teacher_forcing": 0.2,
        "training.teacher_forcing_schedule": "linear",
        "training.max_steps": 5,
        "model.dropout": 0.2,
    }
    asked = []
    monkeypatch.setattr(seq2seq, "forcing", lambda *given: asked.append(plain(*given)) or asked[-1])
    straight, first = (ready("seq2seq", tmp_path, settings) for _ in range(2))
    torch.manual_seed(4)
    run = Trainer(straight.task, straight.model, straight.examples, straight.examples, CPU).run()
    for _ in range(5):
        next(run)
    assert asked == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    asked.clear()
    torch.manual_seed(4)
    trainer = Trainer(first.task, first.model, first.examples, first.examples, CPU)
    run = trainer.run()
    for _ in range(2):
        next(run)
    broken_off = trainer.snapshot()
    second = ready("seq2seq", tmp_path, settings)
    continued = Trainer(second.task, second.model, second.examples, second.examples, CPU)
    continued.restore(**broken_off)
    run = continued.run()
    for _ in range(3):
        next(run)
    assert asked == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    for found, expected in zip(second.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(found, expected)


plain = seq2seq.forcing


def test_the_exposure_gap_is_what_its_own_outputs_cost(tmp_path):
    one = ready("seq2seq", tmp_path)
    descend(one, 25)
    figures = one.task.evaluate(one.model, one.examples)
    everything = torch.ones_like(one.batch[2], dtype=torch.bool)
    forced, own = losses(one, everything), losses(one, ~everything)
    assert own > forced
    assert figures["tokens"] == int(one.batch[4].sum())
    assert figures["loss"] == pytest.approx(forced / figures["tokens"], rel=1e-5)
    assert figures["exposure_gap"] == pytest.approx((own - forced) / figures["tokens"], rel=1e-4)


def test_figures_do_not_depend_on_the_batches_of_evaluation(tmp_path, monkeypatch):
    one = ready("seq2seq", tmp_path)
    expected = one.task.evaluate(one.model, one.examples)
    sizes = []
    collate = one.task.collate
    monkeypatch.setattr(one.task, "collate", lambda *given: sizes.append(len(given[1])) or collate(*given))
    monkeypatch.setattr(seq2seq, "LOGITS", 10 * len(one.task.target.vocabulary))  # ten positions
    monkeypatch.setattr(one.task.writer, "together", 2)
    found = one.task.evaluate(one.model, one.examples)
    assert sizes == [2, 1, 1, 1]
    for name, value in expected.items():
        if isinstance(value, (int, float)):
            assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


@pytest.mark.slow
def test_there_is_no_exposure_gap_where_its_own_outputs_are_the_truth(tmp_path):
    one = ready("seq2seq", tmp_path, {"model.hidden": 24, "decoding.max_length": 10})
    descend(one, 80)
    figures = one.task.evaluate(one.model, one.examples)
    assert (figures["accuracy"], figures["exact_match"], figures["error_rate"]) == (1.0, 1.0, 0.0)
    assert figures["loss"] > 1e-3
    assert figures["exposure_gap"] == pytest.approx(0.0, abs=1e-6)


# Losses and figures.


def test_label_smoothing_spreads_a_share_over_all_outcomes(tmp_path):
    one = ready("seq2seq", tmp_path, {"training.label_smoothing": 0.2})
    sources, lengths, previous, targets, target_lengths, _ = one.batch
    with torch.no_grad():
        logits = one.model.logits(one.model(one.model.read(sources, lengths), previous, target_lengths))
    gold = torch.cat([row[:n] for row, n in zip(targets, target_lengths, strict=True)])
    log_probs = logits.log_softmax(-1)
    expected = -(0.8 * log_probs[range(len(gold)), gold] + 0.2 * log_probs.mean(-1)).sum()
    torch.testing.assert_close(one.task.loss(one.model, one.batch).total.detach(), expected)
    figures = one.task.evaluate(one.model, one.examples)  # figures are of the true tokens alone
    assert figures["loss"] == pytest.approx(float(F.cross_entropy(logits, gold)), rel=1e-5)
    assert figures["accuracy"] == pytest.approx(float((logits.argmax(-1) == gold).float().mean()))


def test_a_repeated_source_has_several_references(tmp_path, monkeypatch):
    pairs = [("a b", "the old cat sat down"), ("c", "a dog is here now"), ("a b", "the cat sat down here")]
    one = ready("seq2seq", tmp_path, data=tsv(pairs))
    written = {"a b": "the cat sat down here", "c": "a dog is not here"}
    asked = []

    def write(model, sources, settings, partners):
        asked.extend(sources)
        return [Prediction(written[source], source, "source") for source in sources]

    monkeypatch.setattr(one.task, "_write", write)
    figures = one.task.evaluate(one.model, one.examples)
    assert asked == ["a b", "c"]  # each is written once
    assert (figures["sources"], figures["examples"], figures["tokens"]) == (2, 3, 18)
    assert figures["exact_match"] == 0.5
    assert figures["error_rate"] == pytest.approx(2 / 10)
    columns = [["the old cat sat down", "a dog is here now"], ["the cat sat down here", None]]
    expected = BLEU().corpus_score(list(written.values()), columns)
    assert figures["bleu"] == pytest.approx(expected.score)
    assert "nrefs:var" in figures["signatures"]["bleu"]


def test_validation_is_greedy_and_quick_evaluation_as_the_settings_say(tmp_path, monkeypatch):
    settings = {
        "decoding.beam": 3,
        "decoding.n_best": 2,
        "decoding.max_length": 90,
        "decoding.min_length": 30,
    }
    one = ready("seq2seq", tmp_path, settings)
    asked = []
    search = one.task.generation.search
    monkeypatch.setattr(
        one.task.generation, "search", lambda *given, **more: asked.append(given[2]) or search(*given, **more)
    )
    quick, whole = (one.task.evaluate(one.model, one.examples, quick=quick) for quick in (True, False))
    assert [quick[name] for name in ("loss", "accuracy", "tokens")] == [
        whole[name] for name in ("loss", "accuracy", "tokens")
    ]
    assert (asked[0].strategy, asked[0].n_best, asked[0].max_length) == ("greedy", 1, 30)
    assert asked[1] is one.task.config.decoding
    assert {"bleu", "chrf", "ter"} & set(quick) == {"bleu"}
    assert {"bleu", "chrf", "ter"} <= set(whole)
    assert quick["length_ratio"] == pytest.approx(30 * 5 / 19)
    one.task.config = changed(one.task.config, {"decoding.min_length": 0})
    one.task.evaluate(one.model, one.examples, quick=True)
    assert asked[2].max_length == one.task.writer.longest_pair[1] + 10 == 18
    one.task.config = changed(one.task.config, {"decoding.max_length": 4})
    one.task.evaluate(one.model, one.examples, quick=True)
    assert asked[3].max_length == 4
    long = {"decoding.prefix": "Hund " * 20, "decoding.max_length": 90}
    one.task.config = changed(one.task.config, long)
    one.task.evaluate(one.model, one.examples, quick=True)
    assert asked[4].max_length == 20


def test_sacrebleu_is_asked_for_what_the_settings_name(tmp_path):
    one = ready("seq2seq", tmp_path, {"evaluation.metrics": ["chrf"]})
    figures = one.task.evaluate(one.model, one.examples)
    assert {"bleu", "chrf", "ter"} & set(figures) == {"chrf"}
    assert "bleu" not in one.task.metrics()
    one = ready("seq2seq", tmp_path, {"evaluation.metrics": [], "training.metric": "bleu"})
    assert {"bleu", "chrf", "ter"} & set(one.task.evaluate(one.model, one.examples)) == {"bleu"}
    with pytest.raises(ConfigError, match=r"training\.metric is 'blue'; did you mean"):
        ready("seq2seq", tmp_path, {"training.metric": "blue"})


@pytest.mark.parametrize("unit", ["character", "word", "bpe", "byte"])
def test_what_an_error_rate_counts(unit, tmp_path, monkeypatch):
    """Characters or words, in the case of the target; pieces and bytes are counted as words."""
    settings = {"text.unit": unit, "text.lowercase": True}
    settings |= {"text.vocabulary_size": 280} if unit == "bpe" else {}
    one = ready("seq2seq", tmp_path, settings, data="x\tThe Old cat\ny\tA dog\n")
    written = ["the old bat", "a dog"]
    answers = [Prediction(text, "", "source") for text in written]
    monkeypatch.setattr(one.task, "_write", lambda *given, **more: answers)
    figures = one.task.evaluate(one.model, one.examples)
    assert figures["exact_match"] == 0.5
    assert figures["error_rate"] == pytest.approx(1 / 16 if unit == "character" else 1 / 5)


def test_ter_is_left_out_where_it_would_take_long_unless_asked_for(tmp_path):
    """Long texts of few words: its search for shifts has no end."""
    pairs = tsv([("a b", "run jump " * 10)] * 4)
    usual = ready("seq2seq", tmp_path, {}, pairs)
    figures = usual.task.evaluate(usual.model, usual.examples)
    assert "ter" not in figures
    assert {"bleu", "chrf"} <= set(figures)
    assert any("ter is left out" in note for note in figures["notes"])
    asked = ready("seq2seq", tmp_path, {"evaluation.metrics": ["ter"]}, pairs)
    assert "ter" in asked.task.evaluate(asked.model, asked.examples)


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, False),
        ({"evaluation.metrics": ["bleu"]}, True),
        ({"training.metric": "bleu"}, True),
        ({"evaluation.tokenize": "char"}, True),  # then an answer has several tokens
    ],
)
def test_bleu_is_left_out_where_answers_are_one_token_unless_asked_for(settings, shown, tmp_path):
    one = ready("seq2seq", tmp_path, settings, tsv([("1 + 2", "3"), ("20 + 22", "42"), ("1 + 2", "three")]))
    for quick in (True, False):
        figures = one.task.evaluate(one.model, one.examples, quick=quick)
        assert ("bleu" in figures) is shown
        assert {"exact_match", "error_rate"} <= set(figures)
    if not shown:
        assert {"chrf", "ter"} <= set(figures)
        assert any("bleu is left out: every reference is one token" in note for note in figures["notes"])


def test_bleu_compares_in_the_case_of_the_outputs(tmp_path, monkeypatch):
    """Outputs of a lower-cased side have no capitals, so references lose theirs."""
    one = ready(
        "seq2seq", tmp_path, {"text.target.lowercase": True}, tsv([("a b c d", "The Cat Sat Down")] * 3)
    )
    answer = Prediction("the cat sat down", "a b c d", "source")
    monkeypatch.setattr(one.task, "_write", lambda model, sources, *given, **more: [answer for _ in sources])
    assert one.task.evaluate(one.model, one.examples)["bleu"] == pytest.approx(100)
