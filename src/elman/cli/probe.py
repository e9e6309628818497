"""``elman score --probe``: what language models remember, side by side (row L5)."""

from pathlib import Path

from elman.cli.opening import open_run
from elman.cli.options import Machine
from elman.cli.output import put, put_json, say
from elman.cli.pictures import check_picture, run_labels, save_picture
from elman.config import changed, lookup
from elman.corpora.base import ProbedCorpus, ProbeItem
from elman.errors import ArgumentError
from elman.inspection.probes import ProbeResult, measure, probe_figure, readable, table
from elman.predictor import Predictor
from elman.registry import CELLS, CORPORA

ITEMS, SEED = 4000, 1  # the same questions for everyone
SHOWN = 5  # unknown words that an error names


def probe(
    runs: list[Path], name: str, *, as_json: bool, out: Path | None, trust_code: bool, machine: Machine
) -> None:
    """Every run answers the same questions: a table or a line of JSON a run, and a picture by distance.

    In table and picture, runs that differ in nothing but their seed are one model, with mean and spread.
    """
    if out is not None:
        check_picture(out)
    corpus = probed(name)
    predictors = [open_run(run, [], trust_code=trust_code, machine=machine) for run in dict.fromkeys(runs)]
    items = corpus.probe(SEED, ITEMS)
    for predictor in predictors:
        items = known_items(predictor, items, name)
    found = [measure(predictor.score, items) for predictor in predictors]
    if as_json:
        for predictor, label, result in zip(predictors, labels_of(predictors), found, strict=True):
            run, skipped = str(predictor.run), ITEMS - len(items)
            put_json({"probe": name, "run": run, "label": label, "skipped": skipped, **result.to_json()})
    groups = by_model(predictors)
    labels = labels_of([predictors[numbers[0]] for numbers in groups])
    together = [ProbeResult.over([found[number] for number in numbers]) for numbers in groups]
    results = dict(zip(labels, together, strict=True))
    if not as_json:
        put(f"{name}: is the right word more probable than the wrong one? Guessing gets 50 %.")
        for label, numbers in zip(labels, groups, strict=True):
            if len(numbers) > 1:
                put(f"{label}: mean ± standard deviation of {len(numbers)} trainings with different seeds")
        put(f"\n{table(results)}")
    if out is not None:
        title = f"{name.capitalize()}: how far back does each network remember?"
        save_picture(out, lambda: probe_figure(results, title=title))


def by_model(predictors: list[Predictor]) -> list[list[int]]:
    """The places of the runs, those together whose settings differ in nothing but the seed."""
    settings = [changed(predictor.config, {"training.seed": 1}) for predictor in predictors]
    firsts = [settings.index(one) for one in settings]
    return [[place for place, one in enumerate(firsts) if one == first] for first in dict.fromkeys(firsts)]


def probed(name: str) -> ProbedCorpus:
    """The corpus of that name, which must be one that asks questions."""
    probes = [one for one in CORPORA.names() if issubclass(CORPORA.find(one), ProbedCorpus)]
    CORPORA.check(name, probes)
    corpus = CORPORA.find(name)()
    if not isinstance(corpus, ProbedCorpus):
        raise ArgumentError(f"the corpus {name!r} has no probe; choose {' or '.join(probes)}")
    return corpus


def known_items(predictor: Predictor, items: list[ProbeItem], name: str) -> list[ProbeItem]:
    """The questions without those that have a word the model does not know; how many is said."""
    if predictor.task.scorer is None:
        kind = f"{predictor.run} is a {predictor.config.task} model"
        raise ArgumentError(f"{kind}; a probe asks language models")
    field = predictor.task.scorer.field
    known, missing = readable(items, field.split, field.vocabulary)
    if not missing:
        return known
    words = ", ".join(sorted(missing)[:SHOWN]) + (" …" if len(missing) > SHOWN else "")
    unknown = f"{predictor.run} does not know {len(missing)} words of the probe ({words})"
    if not known:
        remedy = f"train on builtin:{name} or on text with them"
        raise ArgumentError(f"{unknown}, which leaves no question; {remedy}")
    skipped = f"{len(items) - len(known):,} of {len(items):,} questions"
    say(f"{unknown}; skipped {skipped} with them, for every run")
    return known


def labels_of(predictors: list[Predictor]) -> list[str]:
    runs = [one.run for one in predictors if one.run is not None]  # all of them are loaded
    return run_labels([kind_of(predictor) for predictor in predictors], runs)


def kind_of(predictor: Predictor) -> str:
    """ "Elman", "LSTM"; a comparator is called by its own name."""
    model = predictor.config.model
    network = str(lookup(model, "network"))
    return CELLS.find(model.cell).__name__ if network == "rnn" else network
