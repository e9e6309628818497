"""``elman score --probe``: what language models remember, side by side (row L5)."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from elman.cli.output import fonts_told, put, put_json, say
from elman.config import Config, changed
from elman.corpora.base import ProbedCorpus, ProbeItem
from elman.errors import ArgumentError
from elman.inspection.probes import ProbeResult, measure, probe_figure, readable, table
from elman.predictor import Predictor, load
from elman.registry import CELLS, CORPORA
from elman.tasks.lm import Lm
from elman.training.session import explained

ITEMS, SEED = 4000, 1  # the same questions for everyone
SHOWN = 5  # unknown words that an error names
PICTURES = (".png", ".svg", ".pdf")


def probe(runs: list[Path], name: str, *, as_json: bool, out: Path | None, trust_code: bool) -> None:
    """Every run answers the same questions: a table or a line of JSON a run, and a picture by distance.

    In table and picture, runs that differ in nothing but their seed are one model, with mean and spread.
    """
    if out is not None:
        check_picture(out)
    corpus = probed(name)
    predictors = [load(run, trust_code=trust_code) for run in dict.fromkeys(runs)]
    items = corpus.probe(SEED, ITEMS)
    for predictor in predictors:
        items = known_items(predictor, items, name)
    found = [measure(predictor.score, items) for predictor in predictors]
    if as_json:
        for predictor, label, result in zip(predictors, labels_of(predictors), found, strict=True):
            run = str(predictor.run)
            put_json(
                {"probe": name, "run": run, "label": label, "skipped": ITEMS - len(items), **result.to_json()}
            )
    groups = by_model(predictors)
    labels = labels_of([predictors[numbers[0]] for numbers in groups])
    results = {
        label: ProbeResult.over([found[number] for number in numbers])
        for label, numbers in zip(labels, groups, strict=True)
    }
    if not as_json:
        put(f"{name}: is the right word more probable than the wrong one? Guessing gets 50 %.")
        for label, numbers in zip(labels, groups, strict=True):
            if len(numbers) > 1:
                put(f"{label}: mean ± standard deviation of {len(numbers)} trainings with different seeds")
        put(f"\n{table(results)}")
    if out is not None:
        title = f"{name.capitalize()}: how far back does each network remember?"
        with fonts_told():
            figure = probe_figure(results, title=title)
        save(out, figure)


def by_model(predictors: list[Predictor]) -> list[list[int]]:
    """The places of the runs, those together whose settings differ in nothing but the seed."""
    groups: list[tuple[Config, list[int]]] = []
    for place, predictor in enumerate(predictors):
        settings = changed(predictor.config, {"training.seed": 1})
        same = next((places for other, places in groups if other == settings), None)
        if same is None:
            groups.append((settings, [place]))
        else:
            same.append(place)
    return [places for _, places in groups]


def check_picture(out: Path) -> None:
    """Said before any work."""
    if out.suffix.lower() not in PICTURES:
        raise ArgumentError(f"{out}: a picture ends in {', '.join(PICTURES)}")
    if not out.parent.is_dir():
        raise ArgumentError(f"{out}: there is no folder {out.parent}")
    if out.is_dir():
        raise ArgumentError(f"{out} is a folder; name a file in it")


def save(out: Path, figure: Figure) -> None:
    with explained(out):
        figure.savefig(out)
    say(f"picture: {out}")


def probed(name: str) -> ProbedCorpus:
    """The corpus of that name, which must be one that asks questions."""
    corpus = CORPORA.find(name)()
    if not isinstance(corpus, ProbedCorpus):
        others = [other for other in CORPORA.names() if issubclass(CORPORA.find(other), ProbedCorpus)]
        raise ArgumentError(f"the corpus {name!r} has no probe; choose {' or '.join(others)}")
    return corpus


def known_items(predictor: Predictor, items: list[ProbeItem], name: str) -> list[ProbeItem]:
    """The questions without those that have a word the model does not know; how many is said."""
    task = predictor.task
    if not isinstance(task, Lm):
        raise ArgumentError(f"{predictor.run} is a {task.name} model; a probe asks language models")
    known, missing = readable(items, task.unit.split, task.vocabulary)
    if not missing:
        return known
    words = ", ".join(sorted(missing)[:SHOWN]) + (" …" if len(missing) > SHOWN else "")
    unknown = f"{predictor.run} does not know {len(missing)} words of the probe ({words})"
    if not known:
        raise ArgumentError(
            f"{unknown}, which leaves no question; train on builtin:{name} or on text with them"
        )
    say(
        f"{unknown}; skipped {len(items) - len(known):,} of {len(items):,} questions with them, for every run"
    )
    return known


def labels_of(predictors: list[Predictor]) -> list[str]:
    return told_apart([kind_of(predictor) for predictor in predictors], [one.run for one in predictors])


def told_apart(kinds: list[str], runs: list[Path]) -> list[str]:
    """The kinds of network where they differ, otherwise the names of the folders, or the whole paths."""
    folders, paths = [run.name for run in runs], list(map(str, runs))
    return next(labels for labels in (kinds, folders, paths) if len({*labels}) == len(labels))


def kind_of(predictor: Predictor) -> str:
    """ "Elman", "LSTM"; a comparator is called by its own name."""
    model = predictor.config.model
    return CELLS.find(model.cell).__name__ if model.encoder == "rnn" else str(model.encoder)
