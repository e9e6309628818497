"""What pairs of texts say about open settings, and what comes of it."""

import pytest
import torch
from pairs import LEARNING, outputs, strings, tsv

from elman.errors import ConfigError
from elman.tasks.defaults import Choice
from elman.tasks.seq2seq_defaults import epochs, features, fewer
from elman.text.vocabulary import MARKERS
from tiny_tasks import descend, ready

LETTERS = {"text.unit": "character", "model.embedding": None, "model.hidden": None}
CASES = {"ACC": "d", "DAT": "cac", "INS": "bae"}
WORDS = strings(30, 3, 6)


def inflected(mark=";"):
    return [(f"{w} N{mark}{case}{mark}SG", f"{w}{end}") for w in WORDS for case, end in CASES.items()]


@pytest.mark.parametrize("mark", ";|,")
def test_features_after_the_last_space_are_single_tokens(mark, tmp_path):
    task = ready("seq2seq", tmp_path, LETTERS, data=tsv(inflected(mark))).task
    assert task.source.split(f"ab cd N{mark}ACC{mark}SG") == [*"ab cd", " N", f"{mark}ACC", f"{mark}SG"]
    assert task.source.split("ab N") == [*"ab", " N"]
    assert task.target.split("ab cd") == [*"ab cd"]
    assert {" N", f"{mark}DAT"} <= set(task.source.vocabulary.tokens)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["word"],
        ["a;b c"] * 9,  # features that come first
        ["a b;"] * 9,
        ["one more; or less", "and so on; I say", "nothing; here"],
        [f"w a{n};b{n}" for n in range(9)],  # of which none comes again
    ],
    ids=repr,
)
def test_other_texts_have_no_features(texts):
    assert features(texts) is None


def test_features_are_looked_for_where_letters_are_read_and_nobody_said_what_is_whole(tmp_path):
    data = tsv(inflected())
    assert ready("seq2seq", tmp_path, data=data).task.config.text.source.whole is None
    said = ready("seq2seq", tmp_path, LETTERS | {"text.source.whole": "N;"}, data=data).task
    assert said.source.split("a N;ACC;SG") == ["a", " ", "N;", *"ACC;SG"]


def test_a_run_keeps_what_is_whole(tmp_path):
    one = ready("seq2seq", tmp_path, LETTERS, data=tsv(inflected()))
    again = type(one.task)(one.task.config)
    again.restore(one.task.state())
    text, _ = inflected()[0]
    assert again.source.ids(text) == one.task.source.ids(text)
    assert "text.source.whole" in one.statistics.reasons


def test_sides_of_one_script_share_their_vocabulary_and_embedding(tmp_path):
    one = ready("seq2seq", tmp_path, LETTERS, data=tsv(inflected()))
    assert one.task.config.text.shared
    assert one.task.config.model.tied == "all"
    assert one.model.source is one.model.target
    assert "stand in sources, too" in one.statistics.reasons["text.shared"]
    letters = str.maketrans("abcdefgh", "αβγδεζηθ")
    greek = tsv((source, target.translate(letters)) for source, target in inflected())
    assert ready("seq2seq", tmp_path, LETTERS, data=greek).task.config.text.shared is False


def test_pieces_are_shared_where_their_characters_are(tmp_path):
    settings = {"text.unit": "bpe", "text.vocabulary_size": 300}
    pairs = tsv((f"{word} a b", f"{word[::-1]} c") for word in strings(40, 3, 6))
    assert ready("seq2seq", tmp_path, settings, data=pairs).task.config.text.shared
    assert ready("seq2seq", tmp_path, data=pairs).task.config.text.shared is False  # other words
    other = {"text.target.unit": "character"}
    assert ready("seq2seq", tmp_path, other).task.config.text.shared is False


def test_a_few_signs_are_written_as_commands_are(tmp_path):
    signs = tsv((word, " ".join(word.upper() * 200)) for word in strings(200, 2, 4))
    chosen = ready("seq2seq", tmp_path, {"model.hidden": None}, data=signs).task.config
    assert (chosen.model.placement, chosen.training.teacher_forcing) == ("before", 0.5)
    letters = ready("seq2seq", tmp_path, LETTERS, data=tsv(inflected())).task.config
    assert (letters.model.placement, letters.training.teacher_forcing) == ("before", 1.0)


def test_what_is_set_is_not_chosen(tmp_path):
    settings = {
        "text.shared": False,
        "model.tied": False,
        "model.placement": "after",
        "training.label_smoothing": 0.0,
        "training.teacher_forcing": 0.9,
        "decoding.beam": 2,
        "decoding.max_length": 7,
    }
    config = ready("seq2seq", tmp_path, LETTERS | settings, data=tsv(inflected())).task.config
    for key, value in settings.items():
        section, name = key.split(".")
        assert getattr(getattr(config, section), name) == value
    tokens = ready("seq2seq", tmp_path, {"training.batch_tokens": 99, "training.batch_size": None}).task
    assert tokens.config.training.batch_size is None
    drawn = ready("seq2seq", tmp_path, {"decoding.top_k": 3}).task.config.decoding
    assert (drawn.beam, drawn.chosen("strategy")) == (None, "sample")
    greedy = ready("seq2seq", tmp_path, {"decoding.strategy": "greedy"}).task.config.decoding
    assert greedy.beam is None


def test_choices_say_why(tmp_path):
    one = ready("seq2seq", tmp_path, LETTERS, data=tsv(inflected()))
    choices = one.task.choices(one.statistics)
    told = {key: choice.reason for key, choice in choices.items() if isinstance(choice, Choice)}
    assert {"model.attention", "model.placement", "model.hidden", "training.epochs"} <= set(told)
    assert all(reason.startswith(("since ", "so that ")) for reason in told.values())


def test_small_files_have_small_batches_and_many_passes():
    assert [fewer(64, N) for N in (10, 1_000, 100_000)] == [8, 15, 64]
    updates = [epochs(N, 32, 200_000, 4) * N / fewer(32, N) for N in (300, 1_000, 5_000, 40_000)]
    assert all(5_000 < each < 13_000 for each in updates)


# Unknown letters


def test_what_is_hidden_is_hidden_on_both_sides_of_a_pair(tmp_path):
    one = ready("seq2seq", tmp_path, LETTERS, data=tsv(inflected()))
    batch, V = one.batch, len(one.task.target.vocabulary)
    torch.manual_seed(1)
    found = batch.hidden(0.5, V, 1)
    pairs = zip(batch.sources, batch.targets, found.sources, found.targets, found.previous, strict=True)
    hidden = 0
    for source, target, shown, written, previous in pairs:
        gone = set(source[shown != source].tolist())
        hidden += len(gone)
        assert gone <= set(target.tolist())
        assert gone.isdisjoint(range(len(MARKERS)))
        for side, now in ((source, shown), (target, written)):
            assert [1 if token in gone else token for token in side.tolist()] == now.tolist()
        assert previous[1:].tolist() == written[:-1].tolist()
    assert hidden > len(batch.sources)
    bucketed = batch.bucketed()
    kept = bucketed.hidden(0.5, V, 1)
    assert ((kept.targets < 0) == (bucketed.targets < 0)).all()
    assert all((a == b).all() for a, b in zip(batch[:4], batch.hidden(0.0, V, 1)[:4], strict=True))


@pytest.mark.slow
def test_letters_that_training_never_saw_are_copied(tmp_path):
    pairs = [(word, word + "a") for word in strings(300, 3, 6)]
    settings = LEARNING | {"model.hidden": 48, "model.copy_dropout": 0.1, "training.batch_size": 64}
    one = ready("seq2seq", tmp_path, settings, data=tsv(pairs))
    descend(one, 500)
    answers = [answer.line for answer in outputs(one, ["abжcd", "ффeга", "hgf"], copy_unknown=True)]
    assert answers[2] == "hgfa"
    assert "ж" in answers[0]
    assert answers[0].replace("ж", "") == "abcda"


def test_hiding_needs_one_vocabulary(tmp_path):
    with pytest.raises(ConfigError, match="copy_dropout needs one vocabulary"):
        ready("seq2seq", tmp_path, {"text.shared": False, "model.copy_dropout": 0.1})


# How long outputs may be


def test_a_source_longer_than_any_in_training_may_have_a_longer_target(tmp_path):
    pairs = [(word, word * 5) for word in strings(40, 3, 6)]
    writer = ready("seq2seq", tmp_path, LETTERS, data=tsv(pairs)).task.writer
    assert writer.longest_pair == (6, 31)
    assert writer.longest(()) == writer.longest(["abc"]) == writer.longest(["abcabc"]) == 62
    assert writer.longest(["abc", "a" * 60]) == 620
    short = ready("seq2seq", tmp_path, LETTERS, data=tsv(inflected()[:3])).task.writer
    assert short.longest(()) == 50


def test_a_limit_that_is_set_holds_for_every_source(tmp_path):
    one = ready("seq2seq", tmp_path, LETTERS | {"decoding.max_length": None}, data=tsv(inflected()))
    one.model.bias.data[one.task.target.vocabulary.id("</s>")] = -1e9  # it never stops by itself
    lengths = [len(answer.written.tokens) for answer in outputs(one, ["ab", "a" * 100], max_length=9)]
    assert lengths == [9, 9]
    [free] = one.task._write(one.model, ["ab" * 60], one.task.config.decoding)
    assert len(free.written.tokens) == one.task.writer.longest(["ab" * 60]) > 50
