"""From ``decoding.*`` to sequences: what language models and class-to-sequence models share."""

import json
import math
import re

import pytest
import torch

from elman.config import DecodingSettings, changed
from elman.decoding.beam import Beam
from elman.decoding.diverse import Diverse
from elman.decoding.greedy import Greedy
from elman.decoding.sample import Sample
from elman.errors import ArgumentError, ConfigError
from elman.tasks.generation import Writer, make_strategy
from elman.tasks.seq2seq_settings import Seq2SeqDecoding
from tiny_tasks import ready

PROMPTS = {"lm": ["the cat", "", "a dog sees"], "class2seq": ["it", "I", "cats"]}
SENTENCE = {"lm": {"text.context": "sentence"}, "class2seq": {}}
TASKS = list(PROMPTS)


def generated(one, prompts=None, trace=None, partners=(), **decoding):
    settings = changed(
        one.task.config, {f"decoding.{key}": value for key, value in decoding.items()}
    ).decoding
    return one.task.generation.predict(
        one.model, prompts or PROMPTS[one.task.config.task], settings, partners=partners, trace=trace
    )


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, Greedy),
        ({"beam": 1}, Greedy),
        ({"beam": 4}, Beam),
        ({"temperature": 1.0}, Sample),
        ({"top_k": 3}, Sample),
        ({"top_p": 0.9}, Sample),
        ({"beam": 4, "top_k": 3}, Sample),
        ({"strategy": "greedy", "beam": 4}, Greedy),
        ({"strategy": "sample", "beam": 4}, Sample),
        ({"strategy": "diverse", "temperature": 0.5}, Diverse),
        ({"strategy": "beam"}, Beam),
    ],
    ids=str,
)
def test_settings_name_their_strategy(settings, kind):
    assert type(make_strategy(DecodingSettings(**settings))) is kind


def test_options_of_a_strategy_are_settings():
    beam = make_strategy(Seq2SeqDecoding(strategy="beam", length_penalty=0.3, coverage_penalty=0.2))
    assert (beam.beam, beam.length_penalty, beam.coverage_penalty) == (5, 0.3, 0.2)
    sample = make_strategy(DecodingSettings(temperature=0.3, top_k=4, top_p=0.5))
    assert (sample.temperature, sample.top_k, sample.top_p) == (0.3, 4, 0.5)
    with pytest.raises(ValueError, match="no strategy named 'beem'; did you mean 'beam'"):
        DecodingSettings(strategy="beem")


@pytest.mark.parametrize(
    "decoding", [{}, {"beam": 3}, {"beam": 3, "n_best": 3, "length_penalty": 0.0}], ids=str
)
@pytest.mark.parametrize("task", TASKS)
def test_prompts_together_give_what_each_gives_alone_L4(task, decoding, tmp_path):
    one = ready(task, tmp_path)
    prompts = (PROMPTS[task] * Writer.together)[: Writer.together + 2]  # more than one batch
    together = generated(one, prompts, **decoding)
    alone = {prompt: generated(one, [prompt], **decoding)[0] for prompt in PROMPTS[task]}
    for prompt, found in zip(prompts, together, strict=True):
        expected = alone[prompt]
        assert found["tokens"] == expected["tokens"]
        assert found["log_probability"] == pytest.approx(expected["log_probability"], abs=1e-4)
        for here, there in zip(found.written.n_best, expected.written.n_best, strict=True):
            assert here.text == there.text
    assert one.task.generation.predict(one.model, [], one.task.config.decoding) == []


@pytest.mark.parametrize("network", ["rnn", "window", "bag", "ngram"])
@pytest.mark.parametrize("context", ["stream", "sentence"])
def test_prompts_of_all_lengths_are_read_at_once_L4(context, network, tmp_path):
    """The first distribution is that of reading the prompt token by token."""
    one = ready("lm", tmp_path, {"text.context": context, "model.network": network})
    prompts = ["", "the cat sees", "a"]
    beginning = one.task.generation.writer.begin(one.model, prompts)
    with torch.no_grad():
        first, state, _ = beginning.step(beginning.first, beginning.state)
        second, _, _ = beginning.step(torch.tensor([7, 8, 9]), state)
        for row, prompt in enumerate(prompts):
            state = None
            for token in [one.task.start, *one.task.field.vocabulary.ids(prompt.split())]:
                log_probs, state = one.model.step(torch.tensor([token]), state)
            torch.testing.assert_close(first[row], log_probs[0], atol=1e-5, rtol=1e-5)
            log_probs, _ = one.model.step(torch.tensor([7 + row]), state)
            torch.testing.assert_close(second[row], log_probs[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("strategy", ["beam", "sample", "diverse"])
@pytest.mark.parametrize("task", TASKS)
def test_several_sequences_with_their_scores(task, strategy, tmp_path):
    one = ready(task, tmp_path, SENTENCE[task])
    for found in generated(one, strategy=strategy, n_best=3):
        assert len(found["n_best"]) == 3
        scores = [each["score"] for each in found["n_best"]]
        assert scores == sorted(scores, reverse=True)
        assert found["n_best"][0]["text"] == found["text"]
        assert found["n_best"][0]["log_probability"] == found["log_probability"]
        if strategy != "sample":
            assert len({each["text"] for each in found["n_best"]}) == 3
    assert all("n_best" not in found for found in generated(one, strategy=strategy))


def test_the_score_of_a_beam_is_the_mean_of_a_token_E7(tmp_path):
    one = ready("lm", tmp_path, SENTENCE["lm"])
    for found in generated(one, beam=4, n_best=4):
        for each in found["n_best"]:
            lengths = len(each["text"].split())
            means = [each["log_probability"] / n for n in (lengths, lengths + 1)]  # with the end marker
            assert any(math.isclose(each["score"], mean) for mean in means)


def test_greedy_has_one_sequence(tmp_path):
    with pytest.raises(
        ArgumentError, match="n_best is 2; greedy finds one sequence: use beam, sample or diver"
    ):
        generated(ready("lm", tmp_path), n_best=2)


@pytest.mark.parametrize("task", TASKS)
def test_rules_hold_for_every_task(task, tmp_path):
    one = ready(task, tmp_path, SENTENCE[task])
    words = {"lm": ["dog", "runs"], "class2seq": ["dogs", "lap"]}[task]
    for found in generated(one, prefix=" ".join(words), max_length=5):
        assert found["text"].split()[:2] == words
    for beam in (1, 3):
        free = generated(one, beam=beam, min_length=6, max_length=6)
        often = free[0]["tokens"][0]
        for found in generated(one, beam=beam, min_length=6, max_length=6, banned=[often]):
            assert often not in found["tokens"]
        for found in generated(one, beam=beam, min_length=6, max_length=6, no_repeat=1):
            assert len(set(found["tokens"])) == 6
    assert any(len(set(found["tokens"])) < 6 for found in free)


@pytest.mark.parametrize("key", ["banned", "prefix", "stop"])
@pytest.mark.parametrize("task", TASKS)
def test_tokens_that_settings_name_must_be_known(task, key, tmp_path):
    value = "nowhere" if key == "prefix" else ["nowhere"]
    with pytest.raises(ConfigError, match=f"decoding.{key} has 'nowhere', which the vocabulary lacks"):
        generated(ready(task, tmp_path), **{key: value})


def test_a_prefix_is_no_longer_than_the_output(tmp_path):
    with pytest.raises(ArgumentError, match="has 2 tokens, more than max_length, which is 1"):
        generated(ready("lm", tmp_path), prefix="the cat", max_length=1)


def test_a_newline_is_the_end_of_a_line_in_every_setting_L4(tmp_path):
    one = ready("lm", tmp_path, {"text.unit": "character", "training.truncate": 8}, data="ab\ncd\n" * 8)
    [found] = generated(one, ["a"], prefix="b\nc", max_length=4)
    assert found["text"].startswith("b\nc")
    for found in generated(one, ["a", ""], banned=["\n"], max_length=30, temperature=2.0):
        assert "\n" not in found["text"]
        assert len(found["text"]) == 30


@pytest.mark.parametrize("task", TASKS)
def test_a_trace_shows_what_else_could_have_come(task, tmp_path):
    one = ready(task, tmp_path, SENTENCE[task])
    for found in generated(one, trace=2):
        steps = found["trace"]
        assert [step["t"] for step in steps] == list(range(1, len(steps) + 1))
        assert [step["output"] for step in steps][: len(found["tokens"])] == found["tokens"]
        assert [step["fed"] for step in steps][1:] == [step["output"] for step in steps][:-1]
        total = sum(math.log(step["probability"]) for step in steps)
        assert total == pytest.approx(found["log_probability"], abs=1e-4)
        for step in steps:
            assert len(step["top"]) == 2
            assert step["top"][0]["probability"] >= step["top"][1]["probability"]
            assert step["probability"] <= step["top"][0]["probability"] + 1e-6
            assert 0 < step["entropy"] < math.log(len(one.task.field.vocabulary))
    last_words = {"lm": ["cat", "<s>", "sees"], "class2seq": ["<s>"] * 3}[task]
    assert [found["trace"][0]["fed"] for found in generated(one, trace=0)] == last_words
    assert "trace" not in generated(one)[0]
    assert ("trace" in one.task.predict(one.model, PROMPTS[task])[0]) == (task == "class2seq")


def partner(one, seed):
    """The same task with other weights."""
    torch.manual_seed(seed)
    return one.task.generation.writer, one.task.build_model().eval()


@pytest.mark.parametrize("feedback", ["hard", "soft"])
@pytest.mark.parametrize("task", TASKS)
def test_models_decide_together(task, feedback, tmp_path):
    soft = {"model.feedback": feedback} if task == "class2seq" else {}
    one = ready(task, tmp_path, SENTENCE[task] | soft)
    alone = generated(one, beam=3)
    itself = [(one.task.generation.writer, one.model)]
    for found, expected in zip(generated(one, beam=3, partners=itself), alone, strict=True):
        assert found["tokens"] == expected["tokens"]
        assert found["log_probability"] == pytest.approx(expected["log_probability"], abs=1e-4)
    other = partner(one, 9)
    if feedback == "hard":
        first, second = (writer.begin(network, PROMPTS[task]) for writer, network in [*itself, other])
        with torch.no_grad():
            p, q = (each.step(each.first, each.state)[0].exp() for each in (first, second))
        for row, found in enumerate(generated(one, partners=[other], max_length=1, min_length=1)):
            token = one.task.field.vocabulary.index[found["tokens"][0]]
            assert math.exp(found["log_probability"]) == pytest.approx(
                float((p + q)[row, token]) / 2, rel=1e-4
            )
    figures = one.task.evaluate(one.model, one.examples, partners=[other])
    assert figures["tokens"] > 0


def test_members_of_an_ensemble_have_one_vocabulary(tmp_path):
    one, other = ready("lm", tmp_path), ready("lm", tmp_path, data="other words\n")
    with pytest.raises(ConfigError, match="model 2 of the ensemble writes with 6 tokens, other than the 1"):
        one.task.generation.check_partners([(other.task.generation.writer, other.model)])
    wrong = ready("class2seq", tmp_path)
    with pytest.raises(ConfigError, match="model 3 of the ensemble is of another task than the first"):
        one.task.generation.check_partners(
            [(one.task.generation.writer, one.model), (wrong.task.generation.writer, wrong.model)]
        )


@pytest.mark.parametrize("task", [*TASKS, "seq2seq"])
@pytest.mark.parametrize(
    ("decoding", "error", "message"),
    [
        ({"strategy": "beem"}, ConfigError, "did you mean 'beam'"),
        ({"stop": ["zzz"]}, ConfigError, "decoding.stop has 'zzz'"),
        ({"banned": ["zzz"]}, ConfigError, "decoding.banned has 'zzz'"),
        ({"min_length": 900, "max_length": 20}, ConfigError, "decoding.min_length is 900"),
        ({"beam": 2, "n_best": 3}, ArgumentError, "n_best is 3"),
        ({"prefix": "zzz"}, ConfigError, "decoding.prefix has 'zzz'"),
    ],
    ids=str,
)
def test_mistakes_are_found_before_training(task, decoding, error, message, tmp_path):
    settings = {f"decoding.{key}": value for key, value in decoding.items()}
    with pytest.raises(error, match=message):
        ready(task, tmp_path, settings)


@pytest.mark.parametrize(("task", "word"), [("lm", "dog"), ("class2seq", "cats"), ("seq2seq", "Hund")])
@pytest.mark.parametrize(
    ("decoding", "message"),
    [
        ({"prefix": "{} {}", "max_length": 1}, "2 tokens, more than decoding.max_length, which is 1"),
        ({"prefix": "{}", "stop": ["{}"]}, "'{}', which ends a sequence; take it out"),
        ({"prefix": "</s>"}, "'</s>', which ends a sequence; take it out"),
        ({"prefix": "{}", "banned": ["{}"]}, "'{}', which may not come; take it out"),
        ({"prefix": "<s>"}, "'<s>', which may not come; take it out"),
    ],
    ids=str,
)
def test_a_prefix_that_cannot_come_is_found_before_training(task, word, decoding, message, tmp_path):
    filled = json.loads(json.dumps(decoding).replace("{}", word))
    with pytest.raises(ConfigError, match=re.escape(f"decoding.prefix has {message}".replace("{}", word))):
        ready(task, tmp_path, {f"decoding.{key}": value for key, value in filled.items()})


def test_a_large_vocabulary_and_a_wide_beam_make_small_batches(tmp_path, monkeypatch):
    one = ready("seq2seq", tmp_path, {})
    V = len(one.task.generation.vocabulary)
    monkeypatch.setattr("elman.tasks.generation.DISTRIBUTIONS", 10 * V)
    assert one.task.generation._most(DecodingSettings()) == 10
    assert one.task.generation._most(DecodingSettings(beam=5)) == 2
    assert one.task.generation._most(DecodingSettings(strategy="sample", n_best=10)) == 1
    prompts = ["the cat"] * 7
    sizes = [len(numbers) for numbers in one.task.generation.writer.batches(prompts, 2)]
    assert max(sizes) == 2
    assert sum(sizes) == 7


def test_batches_draw_differently(tmp_path):
    """Equal prompts in two batches are not the same draws again."""
    one = ready("lm", tmp_path, SENTENCE["lm"])
    found = [answer["text"] for answer in generated(one, [""] * (2 * Writer.together), strategy="sample")]
    assert found[: Writer.together] != found[Writer.together :]


def test_an_option_without_a_default_has_to_be_set(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from elman.decoding.greedy import Greedy\n"
        "class Mine(Greedy):\n"
        "    def __init__(self, *, margin):\n"
        "        self.margin = margin\n",
        encoding="utf-8",
    )
    with pytest.raises(
        ArgumentError, match=r"needs the option 'margin'; set it in decoding\.strategy_options"
    ):
        make_strategy(DecodingSettings(strategy=f"{path}:Mine"))
    mine = make_strategy(DecodingSettings(strategy=f"{path}:Mine", strategy_options={"margin": 3}))
    assert mine.margin == 3
