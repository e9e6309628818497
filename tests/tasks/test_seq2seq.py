"""Sequence to sequence: text in, text out, learned and decoded (rows E1–E8, A4)."""

import json
import random

import pytest
import torch
from sacrebleu.metrics import BLEU
from torch.nn import functional as F

from elman import load
from elman.config import DecodingSettings, changed
from elman.errors import ArgumentError, ColumnError, ConfigError, EmptyError, UnbalancedError
from elman.models.embedding import Hiding
from elman.tasks import seq2seq
from elman.text.readers import Record, Repairs
from elman.text.vocabulary import END, START, UNKNOWN
from elman.training.loop import Trainer
from elman.training.sources import source_of
from tiny_tasks import TEXTS, descend, ready, save, settings_of, train

LETTERS = "abcdefgh"
LEARNING = {
    "text.unit": "character",
    "model.hidden": 32,
    "model.embedding": 16,
    "training.batch_size": 32,
    "training.learning_rate": 0.01,
    "training.averaging": "none",
    "decoding.max_length": 10,
    "evaluation.metrics": [],
}


def strings(count, shortest, longest):
    """Different strings of letters, in a mixed order."""
    draw = random.Random(1)
    found = {}
    while len(found) < count:
        found["".join(draw.choices(LETTERS, k=draw.randint(shortest, longest)))] = None
    return list(found)


def tsv(pairs):
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def records(*pairs):
    return [Record({"source": s, "target": t}, "pairs.tsv", line) for line, (s, t) in enumerate(pairs, 1)]


def outputs(one, texts, **decoding):
    """What each text becomes."""
    return one.task.generate(one.model, texts, DecodingSettings(**{"max_length": 10} | decoding))


@pytest.fixture(scope="module")
def reversing(tmp_path_factory):
    """A trained model that turns strings around, and strings that it has not seen."""
    known = strings(800, 3, 6)
    data = tsv((text, text[::-1]) for text in known[:600])
    one = ready("seq2seq", tmp_path_factory.mktemp("reversing"), {**LEARNING, "training.epochs": 10}, data)
    train(one)
    return one, known[600:]


# A small model learns.


def test_reversing_strings_is_learned_with_attention(reversing):
    one, unseen = reversing
    assert one.task.config.model.attention == "additive"
    figures = one.task.evaluate(one.model, one.task.examples(records(*((s, s[::-1]) for s in unseen))))
    assert figures["exact_match"] > 0.95
    assert figures["error_rate"] < 0.05
    assert (figures["sources"], figures["examples"]) == (200, 200)
    assert [bucket["shortest"] for bucket in figures["by_length"]] == [3, 4, 5, 6]
    assert all("✗" not in line for line in one.task.samples(one.model, one.examples))


def test_a_learned_alignment_runs_backwards_A4(reversing):
    one, _ = reversing
    answers = one.task.generate(one.model, ["abcdef", "hgf"], one.task.config.decoding, trace=0)
    for answer, length in zip(answers, (6, 3), strict=True):
        weights = torch.tensor(answer["attention"])
        assert weights.shape == (length + 1, length)  # the end marker looks somewhere, too
        torch.testing.assert_close(weights.sum(1), torch.ones(length + 1))
        near = (weights.argmax(1)[:length] - torch.arange(length - 1, -1, -1)).abs()
        assert (near <= 1).all()


@pytest.mark.parametrize(("form", "least"), [("single", 0.97), ("naive", 0.8)])
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
    [traced] = one.task.generate(one.model, [text], one.task.config.decoding, trace=1)
    assert (traced["text"], traced["stopped"]) == (text, "end")
    fed = [step["fed"] for step in traced["trace"]]
    assert fed == [START if form == "single" else text[-1], *text]
    assert "attention" not in traced


# Teacher forcing.


def losses(one, truth):
    """The plain loop: −log p of every true token, where a step reads the true one before or its own."""
    model, total = one.model, 0.0
    sources, lengths, previous, targets, target_lengths = one.batch
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
    one = ready("seq2seq", tmp_path, {"training.teacher_forcing": p, **parts})
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
    run = Trainer(straight.task, straight.model, straight.examples, straight.examples).run()
    for _ in range(5):
        next(run)
    assert asked == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    asked.clear()
    torch.manual_seed(4)
    trainer = Trainer(first.task, first.model, first.examples, first.examples)
    run = trainer.run()
    for _ in range(2):
        next(run)
    broken_off = trainer.snapshot()
    second = ready("seq2seq", tmp_path, settings)
    continued = Trainer(second.task, second.model, second.examples, second.examples)
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
    monkeypatch.setattr(seq2seq, "TOGETHER", 2)
    found = one.task.evaluate(one.model, one.examples)
    assert sizes == [2, 1, 1, 1]
    for name, value in expected.items():
        if isinstance(value, (int, float)):
            assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


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
    sources, lengths, previous, targets, target_lengths = one.batch
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

    def generate(model, sources, settings):
        asked.extend(sources)
        return [{"text": written[source]} for source in sources]

    monkeypatch.setattr(one.task, "generate", generate)
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
    search = one.task.search
    monkeypatch.setattr(
        one.task, "search", lambda *given, **more: asked.append(given[2]) or search(*given, **more)
    )
    quick, whole = one.task.validate(one.model, one.examples), one.task.evaluate(one.model, one.examples)
    assert [quick[name] for name in ("loss", "accuracy", "tokens")] == [
        whole[name] for name in ("loss", "accuracy", "tokens")
    ]
    assert (asked[0].strategy, asked[0].n_best, asked[0].max_length) == ("greedy", 1, 30)
    assert asked[1] is one.task.config.decoding
    assert {"bleu", "chrf", "ter"} & set(quick) == {"bleu"}
    assert {"bleu", "chrf", "ter"} <= set(whole)
    assert quick["length_ratio"] == pytest.approx(30 * 5 / 19)
    one.task.config = changed(one.task.config, {"decoding.min_length": 0})
    one.task.validate(one.model, one.examples)
    assert asked[2].max_length == one.task.longest + 10 == 18
    one.task.config = changed(one.task.config, {"decoding.max_length": 4})
    one.task.validate(one.model, one.examples)
    assert asked[3].max_length == 4
    long = {"decoding.prefix": "Hund " * 20, "decoding.max_length": 90}
    one.task.config = changed(one.task.config, long)
    one.task.validate(one.model, one.examples)
    assert asked[4].max_length == 20


def test_sacrebleu_is_asked_for_what_the_settings_name(tmp_path):
    one = ready("seq2seq", tmp_path, {"evaluation.metrics": ["chrf"]})
    figures = one.task.evaluate(one.model, one.examples)
    assert {"bleu", "chrf", "ter"} & set(figures) == {"chrf"}
    assert "bleu" not in one.task.metrics()
    with pytest.raises(ConfigError, match=r"training\.metric is 'bleu'"):
        ready("seq2seq", tmp_path, {"evaluation.metrics": [], "training.metric": "bleu"})


@pytest.mark.parametrize("unit", ["character", "word", "bpe", "byte"])
def test_what_an_error_rate_counts(unit, tmp_path, monkeypatch):
    """Characters or words, in the case of the target; pieces and bytes are counted as words."""
    settings = {"text.unit": unit, "text.lowercase": True}
    settings |= {"text.vocabulary_size": 280} if unit == "bpe" else {}
    one = ready("seq2seq", tmp_path, settings, data="x\tThe Old cat\ny\tA dog\n")
    written = ["the old bat", "a dog"]
    monkeypatch.setattr(one.task, "generate", lambda *given: [{"text": text} for text in written])
    figures = one.task.evaluate(one.model, one.examples)
    assert figures["exact_match"] == 0.5
    assert figures["error_rate"] == pytest.approx(1 / 16 if unit == "character" else 1 / 5)


# Text to tokens.


def test_separate_and_shared_vocabularies(tmp_path):
    one = ready("seq2seq", tmp_path)
    source, target = (set(side.vocabulary.tokens[4:]) for side in (one.task.source, one.task.target))
    assert source == {"the", "cat", "sees", "dog", "a", "runs", "and", "it"}
    assert target == {"die", "Katze", "sieht", "den", "Hund", "ein", "der", "läuft", "und", "es"}
    assert [note.split(" entries")[0] for note in one.task.notes] == ["source: 12", "target: 14"]
    both = ready("seq2seq", tmp_path, {"text.shared": True})
    assert both.task.source.vocabulary is both.task.target.vocabulary
    assert set(both.task.target.vocabulary.tokens[4:]) == source | target
    assert both.model.source is not both.model.target
    assert set(both.task.tables()) == {"source", "longest"}
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
    one.task.save(tmp_path)
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
    }
    again = load(run)
    assert again.task.source.unit.name == "bpe"
    assert again.task.target.unit.name == again.task.unit.name == "word"
    assert again.task.longest == one.task.longest == 8
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
    assert reloaded.task.evaluate(reloaded.model, reloaded.task.examples(one.records())) == figures


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
    [hiding] = [module for module in one.model.modules() if isinstance(module, Hiding)]
    assert one.model.source.hiding is hiding
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
    assert [note for note in one.task.notes if "vectors for" in note] == [
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
    fresh = again.task.build_model()  # as a run that was stopped before its first checkpoint
    again.task.initialise(fresh)
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
    assert (model.attention, model.start, model.tied, model.embedding) == ("additive", "transform", False, 64)
    assert (decoding.copy_unknown, decoding.max_length) == (True, 50)
    assert [network.bidirectional for network in words.networks()] == [True, False]
    many = tsv((f"s{n}", f"t{n} " * (1 if n else 40)) for n in range(1100))
    large = ready("seq2seq", tmp_path, unset, data=many).task
    assert (large.config.model.tied, large.config.model.embedding) == (True, 256)
    assert large.config.decoding.max_length == 2 * large.longest == 82
    single = ready("seq2seq", tmp_path, {**unset, "model.form": "single"}).task
    assert (single.config.model.attention, single.config.model.start) == ("none", "copy")
    assert not single.config.decoding.copy_unknown
    assert [network.bidirectional for network in single.networks()] == [False]
    characters = ready("seq2seq", tmp_path, {**unset, "text.unit": "character"}).task
    assert not characters.config.decoding.copy_unknown


@pytest.mark.parametrize(("placement", "way"), [("before", "step by step"), ("after", "all steps at once")])
def test_a_user_is_told_how_the_networks_hang_together(placement, way, tmp_path):
    one = ready("seq2seq", tmp_path, {"model.placement": placement, "model.attention": "dot"})
    start, attention, training = one.task.describe(one.model)
    assert start.startswith(
        "start of the decoder, layer 0: transform of source layer 0, 2 × (h, c) → 1 × (h, c)"
    )
    assert "dot, a query of 5 over states of 10; the widths differ" in attention
    assert training == f"training of the decoder: {way}"


# Unknown words.


def test_an_unknown_word_is_the_word_that_attention_looks_at(tmp_path):
    one = ready("seq2seq", tmp_path, {"model.attention": "dot", "model.bidirectional": False})
    assert one.task.config.decoding.copy_unknown
    with torch.no_grad():
        one.model.bias[one.task.target.vocabulary.id(UNKNOWN)] = 50.0
        for weight in (*one.model.encoder.parameters(), *one.model.rnn.parameters()):
            weight.mul_(4)  # so that it looks at different words
    texts = ["Alpha Beta Gamma Delta", "Epsilon", "cat runs Zeta"]
    looked = set()
    for beam in (1, 3):
        settings = DecodingSettings(beam=beam, copy_unknown=True, max_length=4)
        for text, answer in zip(texts, one.task.generate(one.model, texts, settings, trace=0), strict=True):
            words = text.split()
            places = [max(range(len(words)), key=row.__getitem__) for row in answer["attention"]]
            assert answer["tokens"] == [words[place] for place in places]
            assert answer["text"] == " ".join(answer["tokens"])
            assert [step["output"] for step in answer["trace"]] == answer["tokens"]
            assert [step["fed"] for step in answer["trace"]] == [START, UNKNOWN, UNKNOWN, UNKNOWN]
            assert all(len(row) == len(words) for row in answer["attention"])
            looked |= {(text, place) for place in places}
    assert len(looked) > len(texts)
    for answer in outputs(one, texts, copy_unknown=False, max_length=4):
        assert UNKNOWN not in answer["text"]
        assert not set(answer["tokens"]) & {"Alpha", "Beta", "Gamma", "Delta", "Epsilon", "Zeta"}


def test_a_copied_word_has_the_case_of_the_target(tmp_path):
    for side, expected in (("source", "Obama"), ("target", "obama")):
        one = ready("seq2seq", tmp_path, {f"text.{side}.lowercase": True})
        with torch.no_grad():
            one.model.bias[one.task.target.vocabulary.id(UNKNOWN)] = 50.0
        [answer] = outputs(one, ["Obama"], copy_unknown=True, max_length=1)
        assert answer["text"] == expected


@pytest.mark.parametrize("settings", [{"model.attention": "none"}, {"text.source.unit": "character"}])
def test_nothing_is_copied_without_attention_between_words(settings, tmp_path):
    one = ready("seq2seq", tmp_path, settings)
    with torch.no_grad():
        one.model.bias[one.task.target.vocabulary.id(UNKNOWN)] = 50.0
    [answer] = outputs(one, ["Obama"], copy_unknown=True, max_length=3)
    assert UNKNOWN not in answer["text"]
    assert "O" not in answer["tokens"]


# Decoding.


def test_a_sequence_stops_at_the_end_a_stop_token_or_the_length_E4(reversing):
    one, _ = reversing
    for decoding, text, stopped in (
        ({}, "fedcba", "end"),
        ({"stop": ["d"]}, "fed", "stop"),
        ({"stop": ["a", "b"]}, "fedcb", "stop"),
        ({"stop": ["g"]}, "fedcba", "end"),
        ({"max_length": 2}, "fe", "length"),
        ({"max_length": 2, "stop": ["e"]}, "fe", "stop"),
        ({"beam": 4, "max_length": 1}, "f", "length"),
    ):
        [answer] = outputs(one, ["abcdef"], **decoding)
        assert (answer["text"], answer["stopped"]) == (text, stopped), decoding
    with pytest.raises(ConfigError, match=r"decoding\.stop has 'D', which the vocabulary lacks"):
        outputs(one, ["abcdef"], stop=["D"])


def test_an_output_begins_as_it_is_told(reversing):
    one, _ = reversing
    for answer in outputs(one, ["abcdef", "abc"], prefix="ha", beam=2):
        assert answer["text"].startswith("ha")


def test_the_best_of_several_come_first(reversing):
    one, _ = reversing
    plain, several = (outputs(one, ["abcdef", "abc"], beam=4, n_best=n) for n in (1, 3))
    for single, answer in zip(plain, several, strict=True):
        assert "n_best" not in single
        best = answer["n_best"]
        assert best[0]["text"] == answer["text"] == single["text"]
        assert len({other["text"] for other in best}) == 3
        scores = [other["score"] for other in best]
        assert scores == sorted(scores, reverse=True)
        assert best[0]["log_probability"] == answer["log_probability"]
    with pytest.raises(ArgumentError, match="n_best is 3, more than beam"):
        outputs(one, ["abc"], beam=2, n_best=3)


def test_source_words_that_attention_left_out_cost_something(tmp_path):
    """log p / length + β Σ_j log min(Σ_i α_ij, 1) over the words of this source, whoever stands beside it."""
    one = ready("seq2seq", tmp_path, {"model.attention": "dot"})
    texts = ["the cat sees a dog and it runs", "it runs"]
    settings = DecodingSettings(beam=3, coverage_penalty=0.7, max_length=4)
    for answer in one.task.generate(one.model, texts, settings, trace=0):
        weights = torch.tensor(answer["attention"], dtype=torch.float64)
        left_out = float(weights.sum(0).clamp_max(1).log().sum())
        expected = answer["log_probability"] / len(weights) + 0.7 * left_out
        assert answer["score"] == pytest.approx(expected, abs=1e-5)
        assert left_out <= 0
    with pytest.raises(ArgumentError, match="the model shows no attention"):
        outputs(ready("seq2seq", tmp_path, {"model.attention": "none"}), texts, beam=3, coverage_penalty=0.7)


@pytest.mark.parametrize("settings", [{"model.attention": "none"}, {"model.form": "single"}], ids=str)
def test_coverage_without_attention_is_found_before_training(settings, tmp_path):
    with pytest.raises(ConfigError, match=r"coverage_penalty is 0\.2, but without attention"):
        ready("seq2seq", tmp_path, settings | {"decoding.beam": 2, "decoding.coverage_penalty": 0.2})


def test_drawn_outputs_follow_the_seed(tmp_path):
    one = ready("seq2seq", tmp_path)
    texts = TEXTS["seq2seq"]
    first, same, other = (outputs(one, texts, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_an_ensemble_decides_by_the_mean_of_probabilities(tmp_path):
    one, two = ready("seq2seq", tmp_path), ready("seq2seq", tmp_path, {"model.hidden": 7})
    for member in (one, two):
        descend(member, 15)
    texts = ["the cat runs", "a dog"]
    alone = outputs(one, texts)
    one.task.join_partners([(one.task, one.model)])  # with itself: no change
    for answer, expected in zip(outputs(one, texts), alone, strict=True):
        assert answer["tokens"] == expected["tokens"]
        assert answer["log_probability"] == pytest.approx(expected["log_probability"], abs=1e-5)
    one.task.join_partners([(two.task, two.model)])
    for text, answer in zip(texts, outputs(one, texts, max_length=4), strict=True):
        tokens, total = together([one, two], text, 4)
        assert answer["tokens"] == tokens
        assert answer["log_probability"] == pytest.approx(total, abs=1e-5)


def together(members, text, most):
    """The plain loop: greedy search with the mean of all members' probabilities."""
    begun = [member.task.begin(member.model, [text]) for member in members]
    never = sorted(members[0].task.never(DecodingSettings()))
    names, token = members[0].task.target.vocabulary.tokens, begun[0].first
    states, found, total = [one.state for one in begun], [], 0.0
    with torch.no_grad():
        for _ in range(most):
            steps = [one.step(token, state) for one, state in zip(begun, states, strict=True)]
            states = [state for _, state, _ in steps]
            p = torch.stack([log_probs.exp() for log_probs, _, _ in steps]).mean(0)
            token = p.index_fill(1, torch.tensor(never), 0.0).argmax(1)
            total += float(p[0, token].log())
            if names[token] == END:
                break
            found.append(names[token])
    return found, total


def test_an_ensemble_needs_one_task_and_one_vocabulary(tmp_path):
    one = ready("seq2seq", tmp_path)
    other = ready("seq2seq", tmp_path, data="a\tb\n")
    with pytest.raises(ConfigError, match="model 2 of the ensemble writes with 5 tokens, other than the 14"):
        one.task.join_partners([(other.task, other.model)])
    lm = ready("lm", tmp_path)
    with pytest.raises(ConfigError, match="model 3 of the ensemble is a Lm, the first a Seq2Seq"):
        one.task.join_partners([(one.task, one.model), (lm.task, lm.model)])


@pytest.mark.parametrize("beam", [1, 3])
def test_a_source_without_a_token_becomes_nothing(beam, tmp_path):
    one = ready("seq2seq", tmp_path, {"text.source.remove": "[0-9]"})
    texts = ["", "the cat", "   ", "12 3", "a dog", "\t"]
    found = outputs(one, texts, beam=beam, min_length=1)
    assert [bool(answer["text"]) for answer in found] == [False, True, False, False, True, False]
    assert [answer["source"] for answer in found] == texts
    assert [answer["line"] for answer in found] == [answer["prediction"] for answer in found]
    assert outputs(one, []) == []
    assert [answer["text"] for answer in outputs(one, ["", " "])] == ["", ""]


def test_a_source_without_a_token_for_a_partner_becomes_nothing(tmp_path):
    one = ready("seq2seq", tmp_path, {"text.source.unit": "character"})
    partner = ready("seq2seq", tmp_path)
    one.task.join_partners([(partner.task, partner.model)])
    found = outputs(one, ["a dog", "   ", "it"], min_length=1)
    assert [bool(answer["text"]) for answer in found] == [True, False, True]


@pytest.mark.parametrize("attention", ["additive", "dot", "location", "none"])
def test_a_source_of_ten_thousand_tokens(attention, tmp_path):
    one = ready("seq2seq", tmp_path, {"model.attention": attention})
    texts = ["the cat", " ".join(["the", "dog", "runs", "unseen"] * 2500), "a dog"]
    long, short = outputs(one, texts, beam=2, max_length=4), outputs(one, texts[::2], beam=2, max_length=4)
    assert [answer["tokens"] for answer in long[::2]] == [answer["tokens"] for answer in short]
    assert -100 < long[1]["log_probability"] < 0


def test_characters_that_training_never_saw(reversing):
    one, _ = reversing
    for answer in outputs(one, ["äß✓", "ABC", "👩‍👩‍👧 e\u0301", "a\u2028b", "<s>"]):
        assert set(answer["text"]) <= set(LETTERS)


def test_answers_do_not_depend_on_their_neighbours(reversing):
    """Texts of all lengths, answered in batches of their own order, come back in theirs."""
    one, unseen = reversing
    texts = [*unseen[:150], "", "h", *unseen[:3]]
    answers = outputs(one, texts, beam=2)
    assert [answer["source"] for answer in answers] == texts
    for number in (0, 75, 149, 151, 152):
        [alone] = outputs(one, [texts[number]], beam=2)
        assert answers[number]["text"] == alone["text"]
        assert answers[number]["log_probability"] == pytest.approx(alone["log_probability"], abs=1e-4)


@pytest.mark.parametrize("score", ["dot", "location"])
@pytest.mark.parametrize("placement", ["before", "after"])
def test_a_trace_shows_every_step_A4(placement, score, tmp_path):
    one = ready("seq2seq", tmp_path, {"model.attention": score, "model.placement": placement})
    settings = DecodingSettings(beam=3, n_best=2, max_length=4)
    texts = ["the cat sees a dog", "it runs"]
    for text, answer in zip(texts, one.task.generate(one.model, texts, settings, trace=2), strict=True):
        tokens = answer["tokens"]
        assert answer["source_tokens"] == text.split()
        assert answer["output_tokens"] == tokens + [END] * (answer["stopped"] == "end")
        weights = torch.tensor(answer["attention"])
        assert weights.shape == (len(answer["output_tokens"]), len(text.split()))
        torch.testing.assert_close(weights.sum(1), torch.ones(len(weights)))
        steps = answer["trace"]
        assert [step["output"] for step in steps] == answer["output_tokens"]
        assert [step["fed"] for step in steps] == [START, *answer["output_tokens"][:-1]]
        total = sum(torch.tensor(step["probability"]).log() for step in steps)
        assert answer["log_probability"] == pytest.approx(float(total), abs=1e-4)
        assert all(len(step["top"]) == 2 for step in steps)
        [last] = [node for node in answer["tree"] if node["log_probability"] == answer["log_probability"]]
        path = [last["token"]]
        while last["parent"] is not None:
            last = answer["tree"][last["parent"]]
            path.insert(0, last["token"])
        assert path == answer["output_tokens"]


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
    task.learn(found)
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
        cached = one.task.examples(one.records(), tmp_path / "cache", "key")
        assert one.task.evaluate(one.model, cached) == expected
        assert one.task._references(cached) == ([s for s, _ in pairs], [[t] for _, t in pairs])
    assert one.task.samples(one.model, cached) == one.task.samples(one.model, one.examples)


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


def test_bleu_compares_in_the_case_of_the_outputs(tmp_path, monkeypatch):
    """Outputs of a lower-cased side have no capitals, so references lose theirs."""
    one = ready(
        "seq2seq", tmp_path, {"text.target.lowercase": True}, tsv([("a b c d", "The Cat Sat Down")] * 3)
    )
    answer = {"text": "the cat sat down"}
    monkeypatch.setattr(one.task, "generate", lambda model, sources, settings: [answer for _ in sources])
    assert one.task.evaluate(one.model, one.examples)["bleu"] == pytest.approx(100)


def test_markers_in_the_targets_are_said(tmp_path):
    """Whoever puts them there gets no output that equals a reference."""
    data = tsv([("<s> a </s>", "<s> b </s>"), ("c", "d")])
    told = [note for note in ready("seq2seq", tmp_path, data=data).task.notes if "the texts hold" in note]
    assert told == [
        "target: the texts hold <s>, </s>, which no output has: Elman sets its markers itself; "
        "text.target.remove takes those out"
    ]
    for settings, pairs in (({"text.target.remove": "</?s>"}, data), ({}, tsv([("<s> a </s>", "b")]))):
        notes = ready("seq2seq", tmp_path, settings | {"text.shared": False}, data=pairs).task.notes
        assert not any("the texts hold" in note for note in notes)


def test_a_decoder_that_hears_nothing_is_said_so(tmp_path):
    deaf = {"model.attention": "none", "model.start": "zero"}
    one = ready("seq2seq", tmp_path, deaf)
    assert any("nothing of the source reaches" in line for line in one.task.describe(one.model))
    one = ready("seq2seq", tmp_path, deaf | {"model.context": "every-step"})
    assert not any("nothing of the source reaches" in line for line in one.task.describe(one.model))
