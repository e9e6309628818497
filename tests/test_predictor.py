"""The one door to a trained model."""

import copy
import pickle
import shutil

import numpy as np
import pytest
import torch

import elman
from elman.errors import ArgumentError, ConfigError, EmptyError, RunError, RunExistsError
from tiny_tasks import DATA, TEXTS, descend, ready, save


@pytest.fixture(params=sorted(DATA))
def saved(request, tmp_path):
    one = ready(request.param, tmp_path)
    return one, save(one, tmp_path / "run")


def test_predictions_are_those_of_the_task(saved):
    one, run = saved
    predictor = elman.load(run)
    texts = TEXTS[one.task.config.task]
    details = one.task.predict(one.model, texts)
    assert predictor.predict(texts, details=True) == details
    assert predictor.predict(iter(texts)) == [detail["prediction"] for detail in details]
    assert predictor.predict([]) == []
    assert not predictor.model.training
    assert predictor.config == one.task.config


def test_evaluation_reads_a_file_as_training_did(saved, tmp_path):
    one, run = saved
    figures, repairs = elman.load(str(run)).evaluate(str(one.path))
    assert figures == one.task.evaluate(one.model, one.examples)
    assert elman.load(run).evaluate(one.path)[0] == figures
    assert not repairs
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    with pytest.raises(EmptyError, match=r"empty\.txt"):
        elman.load(run).evaluate(str(empty))


def test_blank_lines_are_nothing_to_evaluate(tmp_path):
    run = save(ready("lm", tmp_path, {"text.context": "sentence"}), tmp_path / "run")
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(EmptyError, match=r"blank\.txt: E406: no examples"):
        elman.load(run).evaluate(str(tmp_path / "blank.txt"))


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ("the cat", " is one string; give a list of them"),
        (b"the cat", " is one string; give a list of them"),
        (None, " is None; give a list of strings"),
        (["a", None], r"\[1\] is None; it must be a string"),
        ([b"a"], r"\[0\] is b'a'; it must be a string"),
        (["\udcff"], r"\[0\] is '\\udcff', which is no text; decode its bytes as UTF-8"),
    ],
)
def test_what_is_no_list_of_texts(texts, said, saved):
    one, run = saved
    predictor = elman.load(run)
    with pytest.raises(ArgumentError, match=f"texts{said}"):
        predictor.predict(texts)
    if one.task.config.task == "lm":
        with pytest.raises(ArgumentError, match=f"texts{said}"):
            predictor.score(texts)
    if one.task.config.task not in ("tag", "classify"):
        with pytest.raises(ArgumentError, match=f"prompts{said}"):
            predictor.generate(texts)
        with pytest.raises(ArgumentError, match=f"texts{said}"):
            predictor.predict(texts, trace=0)


def test_what_a_task_cannot_do(saved):
    one, run = saved
    predictor = elman.load(run)
    if one.task.config.task != "lm":
        with pytest.raises(ArgumentError, match="which cannot score; use predict"):
            predictor.score(["a"])
    else:
        assert predictor.score(["a"]) == one.task.score(one.model, ["a"])
    if one.task.config.task in ("tag", "classify"):
        with pytest.raises(ArgumentError, match="which cannot generate; use predict"):
            predictor.generate([""])
    else:
        prompts = TEXTS[one.task.config.task]
        expected = one.task.predict(one.model, prompts)
        assert predictor.generate(prompts) == expected


def test_a_trace_tells_every_step(saved):
    one, run = saved
    predictor = elman.load(run)
    if one.task.config.task in ("tag", "classify"):
        with pytest.raises(ArgumentError, match="writes nothing; no trace"):
            predictor.predict(["a"], trace=2)
        return
    texts = [text for text in TEXTS[one.task.config.task] if text]
    for found, plain in zip(
        predictor.predict(texts, trace=2), predictor.predict(texts, details=True), strict=True
    ):
        expected = {key: value for key, value in plain.as_json().items() if key != "trace"}
        assert {key: found[key] for key in expected} == expected
        first = found["trace"][0]["t"]  # of a language model, that of its prompt
        assert first == 1 or (first < 1 and one.task.config.task == "lm")
        assert [step["t"] for step in found["trace"]] == [*range(first, first + len(found["trace"]))]
        for step in found["trace"]:
            assert len(step["top"]) == 2
            assert step["probability"] <= step["top"][0]["probability"] + 1e-6
    assert predictor.generate(texts, trace=2)[0]["trace"] == predictor.predict(texts, trace=2)[0]["trace"]


def test_an_alignment_has_a_row_a_token_A5(tmp_path):
    run = save(ready("seq2seq", tmp_path), tmp_path / "run")
    predictor = elman.load(run)
    text = "the Unknown dog runs"
    [answer] = predictor.predict([text], trace=0)
    found = predictor.alignment(answer)
    assert found.source == text.split()
    assert found.output == answer["output_tokens"]
    assert found.title == text
    assert found.weights.tolist() == np.array(answer["attention"], np.float32).tolist()
    [plain] = predictor.predict([text], details=True)
    with pytest.raises(ArgumentError, match="no attention; ask predict for it with trace=0"):
        predictor.alignment(plain)


@pytest.mark.parametrize("ending", [{"decoding.max_length": 1}, {"decoding.stop": ["läuft", "Hund", "die"]}])
def test_an_alignment_fits_however_the_output_ended(tmp_path, ending):
    one = ready("seq2seq", tmp_path)
    descend(one, 30)
    predictor = elman.load(save(one, tmp_path / "run"), settings=ending)
    answers = predictor.predict(["the dog runs", "it runs", "the cat sees"], trace=0)
    assert {answer["stopped"] for answer in answers} & {"length", "stop"}
    for answer in answers:
        assert predictor.alignment(answer).weights.shape == (
            len(answer["output_tokens"]),
            answer["source"].count(" ") + 1,
        )


@pytest.mark.parametrize("unit", ["character", "byte", "bpe"])
def test_tokens_of_an_alignment_are_read_as_text(unit, tmp_path):
    run = save(ready("seq2seq", tmp_path, {"text.unit": unit}), tmp_path / "run")
    predictor = elman.load(run)
    [answer] = predictor.predict(["the dog über"], trace=0)
    found = predictor.alignment(answer)
    assert len(found.source) == len(answer["source_tokens"])
    if unit == "byte":
        assert found.source == [*"the dog ", "<0xC3>", "<0xBC>", *"ber"]
    else:
        assert "".join(found.source).startswith("the dog ")
        assert not any("Ġ" in token for token in found.source)


def test_only_a_model_with_attention_has_an_alignment(saved, tmp_path):
    one, run = saved
    if one.task.config.task == "seq2seq":
        elman.load(run).check_attention()
        run = save(ready("seq2seq", tmp_path, {"model.attention": "none"}), tmp_path / "without")
    with pytest.raises(ArgumentError, match=rf"is a {one.task.config.task} model without attention"):
        elman.load(run).check_attention()


@pytest.mark.slow
def test_an_ensemble_decides_together(tmp_path):
    """The mean of the probabilities: with one confident model, both write what it writes."""
    one = ready("seq2seq", tmp_path)
    untrained = save(one, tmp_path / "untrained")
    descend(one, 200)
    trained = save(one, tmp_path / "trained")
    texts = ["the cat sees the dog", "it runs", ""]
    expected = ["die Katze sieht den Hund", "es läuft", ""]
    assert elman.load(trained).predict(texts) == expected
    assert elman.load(untrained).predict(texts) != expected
    both = elman.load(untrained, ensemble=[trained])
    assert both.predict(texts) == expected
    [alone], [together] = (
        elman.load(trained, ensemble=others).predict(["it runs"], trace=0) for others in ([], [untrained])
    )
    assert together["trace"][0]["probability"] < alone["trace"][0]["probability"]
    figures, _ = both.evaluate(str(one.path))
    own, _ = elman.load(untrained).evaluate(str(one.path))
    assert figures["exact_match"] > own["exact_match"]
    assert figures["loss"] == own["loss"]


def test_what_makes_no_ensemble(saved, tmp_path):
    one, run = saved
    other = tmp_path / "other"
    other.mkdir()
    name = "lm" if one.task.config.task != "lm" else "seq2seq"
    stranger = save(ready(name, other), other / "run")
    for single in (run, str(run)):
        with pytest.raises(ArgumentError, match=r"ensemble is one run; give a list of them: \['"):
            elman.load(run, ensemble=single)
    if one.task.config.task in ("tag", "classify"):
        with pytest.raises(ArgumentError, match="which writes nothing; an ensemble is of models that do"):
            elman.load(run, ensemble=[run])
        return
    with pytest.raises(ConfigError, match="is of another task than the first; take models of one"):
        elman.load(run, ensemble=[run, stranger])
    larger = tmp_path / "larger"
    larger.mkdir()
    more = DATA[one.task.config.task] + (
        "I\tcaterpillars\n" if one.task.config.task != "lm" else "caterpillars\n"
    )
    with pytest.raises(ConfigError, match="train all on the same data"):
        elman.load(run, ensemble=[save(ready(one.task.config.task, larger, data=more), larger / "run")])


def test_settings_on_the_way(saved):
    one, run = saved
    if one.task.config.task in ("tag", "classify"):
        with pytest.raises(
            ConfigError, match="decoding is no setting of this task; class2seq and lm and seq2seq"
        ):
            elman.load(run, settings={"decoding.max_length": 1})
        return
    predictor = elman.load(run, settings={"decoding.max_length": 1, "decoding.stop": []})
    assert predictor.config.decoding.max_length == 1
    if one.task.config.task == "lm":
        assert all(len(found["tokens"]) <= 1 for found in predictor.generate(["the", ""]))
    with pytest.raises(ConfigError, match=r"decoding\.max_lenght is unknown; did you mean 'max_length'"):
        elman.load(run, settings={"decoding.max_lenght": 1})


def test_what_is_no_run(saved, tmp_path):
    _, run = saved
    with pytest.raises(RunExistsError, match="is no run"):
        elman.load(tmp_path / "nothing")
    (run / "best").unlink()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(RunExistsError, match="has no checkpoint yet"):
        elman.load(run)


@pytest.mark.parametrize("damage", ["cut", "missing", "other format", "a list", "a table gone"])
def test_a_damaged_vocabulary_is_a_damaged_run(saved, damage):
    import json

    _, run = saved
    path = run / "vocabulary.json"
    tables = json.loads(path.read_text(encoding="utf-8"))
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_text(path.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    elif damage == "other format":
        path.write_text(json.dumps(tables | {"format": 99}))
    elif damage == "a list":
        path.write_text("[]")
    else:
        del tables["source" if "source" in tables else "tokens"]
        path.write_text(json.dumps(tables))
    with pytest.raises(RunError, match=r"vocabulary\.json") as caught:
        elman.load(run)
    assert caught.value.exit_code == 5


def test_a_damaged_config_is_a_damaged_run(saved):
    _, run = saved
    (run / "config.toml").write_text('task = "lm"\nmodell = 3\n')
    with pytest.raises(RunError, match=r"config\.toml is damaged"):
        elman.load(run)


def test_weights_that_do_not_fit(saved):
    _, run = saved
    with pytest.raises(RunError, match="does not fit the settings"):
        elman.load(run, settings={"model.hidden": 3})


def test_nothing_is_drawn(saved):
    """Using a model leaves the random numbers of the program alone."""
    one, run = saved
    predictor = elman.load(run)
    state = torch.get_rng_state()
    predictor.predict(TEXTS[one.task.config.task])
    assert torch.equal(torch.get_rng_state(), state)


def test_answers_do_not_depend_on_threads_and_batches(saved):
    one, run = saved
    task = one.task.config.task
    threads = torch.get_num_threads()
    try:
        modest = elman.load(run, threads=1, batch=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)
    for found, expected in zip(
        modest.predict(TEXTS[task], details=True),
        elman.load(run).predict(TEXTS[task], details=True),
        strict=True,
    ):
        assert found.value == expected.value
        assert (found.confidence or 0) == pytest.approx(expected.confidence or 0, rel=1e-4)
    figures, expected = (loaded.evaluate(one.path)[0] for loaded in (modest, elman.load(run)))
    assert figures["loss"] == pytest.approx(expected["loss"], rel=1e-5)


@pytest.mark.parametrize("name", ["threads", "batch"])
def test_no_threads_and_no_batch_are_a_mistake(name, saved):
    with pytest.raises(ArgumentError, match=f"{name} is 0; it must be a whole number, at least 1"):
        elman.load(saved[1], **{name: 0})


def test_a_device_that_is_not_there_is_a_mistake(saved):
    with pytest.raises(ConfigError, match="device is 'gpu'; set 'cpu'"):
        elman.load(saved[1], device="gpu")
    with pytest.raises(ConfigError, match="device is 'cuda:9', but torch finds"):
        elman.load(saved[1], device="cuda:9")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_answers_as_the_cpu_does(saved):
    one, run = saved
    task = one.task.config.task
    here, there = elman.load(run), elman.load(run, device="cuda")
    for found, expected in zip(
        there.predict(TEXTS[task], details=True), here.predict(TEXTS[task], details=True), strict=True
    ):
        assert found.value == expected.value
        assert (found.confidence or 0) == pytest.approx(expected.confidence or 0, rel=1e-3)
    figures, expected = (loaded.evaluate(one.path)[0] for loaded in (there, here))
    assert figures["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    if task == "lm":
        assert [token for token, _ in there.score(["a dog"])[0]] == [
            token for token, _ in here.score(["a dog"])[0]
        ]


def test_labels_are_those_of_training(saved):
    one, run = saved
    predictor, task = elman.load(run), one.task.config.task
    known = {
        "classify": ["animal", "thing"],
        "tag": ["NOUN", "VERB", "DET", "ADV"],
        "class2seq": ["I", "cats", "it"],
    }
    if task not in known:
        with pytest.raises(AttributeError, match="which has no labels"):
            _ = predictor.labels
        return
    assert sorted(predictor.labels) == sorted(known[task])
    predictor.labels.clear()  # a list of the caller's own
    assert predictor.labels


def test_probabilities_are_in_the_order_of_the_labels(saved):
    one, run = saved
    predictor, task = elman.load(run), one.task.config.task
    texts = TEXTS[task]
    if task not in ("classify", "tag"):
        with pytest.raises(ArgumentError, match="no probabilities of labels"):
            predictor.predict_proba(texts)
        return
    found, K = predictor.predict_proba(texts), len(predictor.labels)
    for rows, detail, answer in zip(found, predictor.details(texts), predictor.predict(texts), strict=True):
        np.testing.assert_allclose(rows.sum(-1), 1.0, atol=1e-12)
        if task == "tag":
            assert rows.shape == (len(answer), K)
            assert [predictor.labels[best] for best in rows.argmax(-1)] == answer
            np.testing.assert_allclose(rows.max(-1, initial=0), detail.probabilities, rtol=1e-5)
        elif answer:
            np.testing.assert_allclose(rows, [detail.probabilities[name] for name in predictor.labels], 1e-5)
        else:  # four texts were animals, two things
            assert dict(zip(predictor.labels, rows, strict=True)) == {"animal": 4 / 6, "thing": 2 / 6}
    if task == "classify":
        assert found.shape == (3, K)
        assert predictor.predict_proba([]).shape == (0, K)


def test_a_crf_tells_the_probabilities_of_all_tags(tmp_path):
    run = save(ready("tag", tmp_path, {"model.crf": True}), tmp_path / "run")
    [found] = elman.load(run).predict_proba(["the cat runs"])
    assert found.shape == (3, 4)
    np.testing.assert_allclose(found.sum(-1), 1.0)


def test_a_tagger_takes_lists_of_words(tmp_path):
    predictor = elman.load(save(ready("tag", tmp_path), tmp_path / "run"))
    lists = [["the", "cat", "runs"], [], ("an", "Unknown", "dog")]
    assert predictor.predict(lists) == predictor.predict(TEXTS["tag"])
    assert predictor.details([["New York"]])[0].asked == ["New York"]
    with pytest.raises(ArgumentError, match=r"texts\[1\]\[0\] is 3; it must be a string"):
        predictor.predict([["a"], [3]])
    with pytest.raises(ArgumentError, match=r"texts\[0\]\[1\] is an empty word"):
        predictor.predict([["a", ""]])


def test_it_shows_what_it_is(saved):
    one, run = saved
    shown = repr(elman.load(run))
    assert shown.startswith(f"<Predictor: {one.task.config.task}, ")
    assert shown.endswith(f" parameters, {run}>" if one.task.label_names is None else f"), {run}>")
    assert repr(elman.Predictor(None, one.task, one.model, best=0.5)).endswith(" 0.5, kept in no run>")


@pytest.mark.parametrize("network", ["rnn", "ngram"])
def test_a_pickle_and_a_copy_say_the_same(saved, network, tmp_path):
    one, run = saved
    task = one.task.config.task
    if network == "ngram" and task == "seq2seq":
        pytest.skip("it has no counted comparator")
    if network == "ngram":
        (tmp_path / "counted").mkdir()
        run = save(ready(task, tmp_path / "counted", {"model.network": "ngram"}), tmp_path / "second")
    predictor = elman.load(run)
    for other in (pickle.loads(pickle.dumps(predictor)), copy.deepcopy(predictor)):
        assert other.details(TEXTS[task]) == predictor.details(TEXTS[task])
        assert (other.run, other.config, repr(other)) == (run, predictor.config, repr(predictor))
        assert not other.model.training


def test_an_ensemble_is_no_pickle(tmp_path):
    run = save(ready("lm", tmp_path), tmp_path / "run")
    with pytest.raises(ArgumentError, match="pickle the names of its runs"):
        pickle.dumps(elman.load(run, ensemble=[run]))


def test_other_settings_make_a_task_of_its_own(saved):
    _, run = saved
    predictor = elman.load(run, batch=3)
    other = predictor.with_settings({})
    for name in ("chooser", "scorer"):
        own = getattr(predictor.task, name)
        assert getattr(other.task, name) is (other.task if own is predictor.task else own)
    if predictor.task.chooser is not None:
        predictor.predict(["a"])
        again = predictor.with_settings({})
        with predictor.task._spare_lexicon() as first, again.task._spare_lexicon() as second:
            assert first is not second
    assert pickle.loads(pickle.dumps(predictor)).task.together == 3
