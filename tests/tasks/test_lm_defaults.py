"""What is chosen for a language model by its data and its device."""

from collections import Counter

import pytest

from elman.config import validate
from elman.tasks.statistics import Statistics
from elman.training.settings import make_task, settings_class

LARGE = {"model.layer_dropout", "model.weight_drop", "training.precision"}


def chosen(tokens, entries=1000, **sections):
    """The task with its settings filled for a text of so many tokens; and the reasons."""
    device = {"device": "cuda", **sections.pop("training", {})}
    task = make_task(validate(settings_class("lm"), {"task": "lm", "training": device, **sections}))
    counts = Counter({f"w{number}": 3 for number in range(entries)})
    task.field.build_vocabulary(counts, rare=1, limit=10**6)
    statistics = Statistics(examples=tokens // 20, tokens=tokens, losses=tokens, longest=20)
    statistics.sizes[20] = tokens // 20
    task.fill_defaults(statistics)
    return task.config, statistics.reasons


def test_a_gpu_gets_a_large_regularised_network_with_reasons():
    config, reasons = chosen(930_000)
    widths = config.model.hidden
    assert (len(widths), widths[-1], config.model.tied) == (3, config.model.embedding, True)
    assert config.model.layers == 3
    assert config.training.precision == "bfloat16"
    assert config.training.vary_truncate
    assert config.training.activation_regularisation > 0
    assert reasons.keys() >= LARGE
    assert "930,000 tokens" in reasons["model.weight_drop"]


@pytest.mark.parametrize(
    "sections",
    [
        {"training": {"device": "cpu"}},
        {"text": {"context": "sentence"}},
        {"model": {"hidden": 200}},
        {"model": {"network": "bag"}},
    ],
)
def test_elsewhere_the_network_is_small_and_exact(sections):
    config, reasons = chosen(930_000, **sections)
    assert not reasons.keys() & LARGE
    assert config.training.precision == "float32"
    assert not config.training.vary_truncate
    assert isinstance(config.model.hidden, int)


def test_a_small_text_gets_a_small_network_on_a_gpu_too():
    assert chosen(100_000)[0].model.hidden == chosen(100_000, training={"device": "cpu"})[0].model.hidden


def test_a_larger_text_is_regularised_less_and_read_less_often():
    rates = [chosen(tokens)[0].model.weight_drop for tokens in (10**6, 10**7, 10**8)]
    assert rates == sorted(rates, reverse=True)
    epochs = [chosen(tokens)[0].training.epochs for tokens in (10**6, 10**7, 10**8)]
    assert epochs == sorted(epochs, reverse=True)


def test_what_the_user_says_of_the_network_goes_along():
    assert len(chosen(930_000, model={"layers": 2})[0].model.hidden) == 2
    config, _ = chosen(930_000, model={"embedding": 300})
    assert config.model.hidden[-1] == 300
    config, _ = chosen(930_000, model={"hidden": [1150, 1150, 400]})
    assert (config.model.layers, config.training.precision) == (3, "bfloat16")
    config, _ = chosen(930_000, training={"precision": "float32"})
    assert config.training.precision == "float32"


def test_a_large_vocabulary_has_an_adaptive_softmax():
    config, reasons = chosen(10**6, entries=60_000)
    assert config.model.adaptive_softmax
    assert not config.model.tied
    assert "60,004 entries" in reasons["model.adaptive_softmax"]
    config, reasons = chosen(10**6, entries=40_000)
    assert not config.model.adaptive_softmax
    assert config.model.tied
    assert "model.adaptive_softmax" not in reasons
    config, _ = chosen(10**6, entries=60_000, model={"tied": True})
    assert not config.model.adaptive_softmax
    assert not chosen(10**6, entries=60_000, model={"network": "ngram"})[0].model.adaptive_softmax
