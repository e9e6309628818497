"""The recipes are valid settings, every one has its row in the table of results, and its corpus reads."""

import os
from itertools import islice
from pathlib import Path

import pytest

from elman.config import read_toml, validate
from elman.corpora.agreement import Agreement
from elman.inspection.probes import measure
from elman.training.preparing import prepare
from elman.training.run import build
from elman.training.settings import make_task, settings_class
from elman.training.sources import training_data

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))


def read(recipe):
    tables = read_toml(recipe)
    return validate(settings_class(tables["task"]), tables, recipe)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_valid_and_has_its_row(recipe, monkeypatch):
    monkeypatch.setenv("ELMAN_DATA", "/corpora")
    config = read(recipe)
    assert config.data.train
    table = (recipe.parent / "README.md").read_text(encoding="utf-8")
    assert f"{recipe.name}" in table


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_its_corpus_reads(recipe, monkeypatch):
    if "ELMAN_DATA" not in os.environ and "$ELMAN_DATA" in recipe.read_text(encoding="utf-8"):
        pytest.skip("ELMAN_DATA does not name the folder of the corpora")
    config = read(recipe)
    if config.data.train == "train.txt":
        pytest.skip("the recipe says how its training file is cut")
    task = make_task(config)
    for reading in training_data(task):
        records = list(islice(reading, 20))
        assert records
        assert all(set(record.fields) == set(task.roles) for record in records)


@pytest.mark.slow
def test_the_lstm_keeps_the_number_that_the_elman_network_forgets_L5():
    """What docs/probes.md says, of one seed and fewer questions: far apart beyond any spread over seeds."""
    found = {}
    for cell in ("elman", "lstm"):
        task = make_task(read(RECIPES[0].parent / f"agreement-{cell}.toml"))
        prepared = prepare(task)
        trainer = build(prepared)
        for _ in trainer.run():
            pass
        model = trainer.model.eval()
        with trainer.averaging.applied(model):
            found[cell] = measure(
                lambda texts, task=task, model=model: task.score(model, texts), Agreement().probe(1, 500)
            )
    assert found["elman"].all.accuracy < 0.75
    assert found["lstm"].all.accuracy > 0.95
