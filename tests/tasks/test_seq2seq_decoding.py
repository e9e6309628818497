"""Sequence to sequence: what is written, and how it is told (rows E4, A4)."""

import pytest
import torch
from pairs import LETTERS, outputs

import elman
from elman.errors import ArgumentError, ConfigError
from elman.tasks.seq2seq_settings import Seq2SeqDecoding
from elman.text.vocabulary import END, START, UNKNOWN
from tiny_tasks import TEXTS, descend, ready

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
        answers = outputs(one, texts, trace=0, beam=beam, copy_unknown=True, max_length=4)
        for text, answer in zip(texts, answers, strict=True):
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


@pytest.mark.slow
def test_long_outputs_stop_by_themselves():
    """Of 110 and 130 tokens, after a training with nothing to keep them from going on to the limit."""
    sources = ["a", "b"]
    targets = [" ".join(f"{name}{n}" for n in range(size)) for name, size in (("a", 110), ("b", 130))]
    settings = {"model.hidden": 32, "model.embedding": 16, "model.attention": "none", "text.unit": "word"}
    settings |= {f"model.{name}dropout": 0.0 for name in ("", "input_", "rare_")}
    settings |= {"training.epochs": 30, "training.learning_rate": 0.02, "training.label_smoothing": 0.0}
    settings |= {"training.validate_every": 1000, "training.threads": 1, "model.start": "copy"}
    dev = sources, targets
    predictor = elman.fit("seq2seq", sources * 16, targets * 16, dev=dev, settings=settings)
    found = predictor.predict(sources, details=True)
    assert [one["prediction"] for one in found] == targets
    assert [one["stopped"] for one in found] == ["end", "end"]


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
    for answer in outputs(one, texts, trace=0, beam=3, coverage_penalty=0.7, max_length=4):
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
    itself, other = ([(each.task.writer, each.model)] for each in (one, two))
    for answer, expected in zip(outputs(one, texts, partners=itself), alone, strict=True):  # no change
        assert answer["tokens"] == expected["tokens"]
        assert answer["log_probability"] == pytest.approx(expected["log_probability"], abs=1e-5)
    for text, answer in zip(texts, outputs(one, texts, partners=other, max_length=4), strict=True):
        tokens, total = together([one, two], text, 4)
        assert answer["tokens"] == tokens
        assert answer["log_probability"] == pytest.approx(total, abs=1e-5)


def together(members, text, most):
    """The plain loop: greedy search with the mean of all members' probabilities."""
    begun = [member.task.writer.begin(member.model, [text]) for member in members]
    never = sorted(members[0].task.writer.never(Seq2SeqDecoding()))
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
        one.task.generation.check_partners([(other.task.writer, other.model)])
    lm = ready("lm", tmp_path)
    with pytest.raises(ConfigError, match="model 3 of the ensemble is of another task than the first"):
        one.task.generation.check_partners(
            [(one.task.writer, one.model), (lm.task.generation.writer, lm.model)]
        )


@pytest.mark.parametrize("beam", [1, 3])
def test_a_source_without_a_token_becomes_nothing(beam, tmp_path):
    one = ready("seq2seq", tmp_path, {"text.source.remove": "[0-9]"})
    texts = ["", "the cat", "   ", "12 3", "a dog", "\t"]
    found = outputs(one, texts, beam=beam, min_length=1)
    assert [bool(answer["text"]) for answer in found] == [False, True, False, False, True, False]
    assert [answer["source"] for answer in found] == texts
    assert [answer.line for answer in found] == [answer["prediction"] for answer in found]
    assert outputs(one, []) == []
    assert [answer["text"] for answer in outputs(one, ["", " "])] == ["", ""]


def test_a_source_without_a_token_for_a_partner_becomes_nothing(tmp_path):
    one = ready("seq2seq", tmp_path, {"text.source.unit": "character"})
    partner = ready("seq2seq", tmp_path)
    partners = [(partner.task.writer, partner.model)]
    found = outputs(one, ["a dog", "   ", "it"], partners=partners, min_length=1)
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
    texts = ["the cat sees a dog", "it runs"]
    answers = outputs(one, texts, trace=2, beam=3, n_best=2, max_length=4)
    for text, answer in zip(texts, answers, strict=True):
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
