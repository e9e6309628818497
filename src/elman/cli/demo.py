"""``elman demo``: an encoder–decoder with attention learns to read dates, and shows where it looks."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

from elman.cli.train import collect, networks, see_through
from elman.cli.use import draw
from elman.corpora.dates import VISITOR, languages
from elman.errors import RunExistsError
from elman.predictor import Predictor, load
from elman.training.loop import Trainer, count_parameters
from elman.training.progress import Progress
from elman.training.run import Prepared, begin
from elman.training.session import run_lock

CORPUS = "builtin:dates"
MARK = ".demonstration"  # in the folder of a run: the next demonstration may take its place
PICTURES = ("alignment.png", "alignment.html")
DRAWN = (  # every machine has these scripts
    "the 20th of July, 1969",
    "12 апреля 1961 г.",
    "٢٠ نوفمبر ٢٠٢٢",
    "Donnerstag, 9. November 1989",
)
SHOWN = ("event", "update", "epoch", "exact_match", "improved", "time")  # of a validation


def show(folder: Path, seed: int) -> None:
    """Train, measure, try, draw, and say how to go on."""
    languages()  # without Babel there is no corpus, which is said before anything is removed
    make_room(folder)
    run = folder / "run"
    print("Dates as people write them, in 40 languages and 13 scripts, become YYYY-MM-DD.")
    print("A network learns it now, in about two minutes on two cores.\n", flush=True)
    begin(run, collect("seq2seq", None, {"train": CORPUS}, None, [f"training.seed={seed}"], None))
    (run / MARK).touch()
    see_through(run, [Calm()], announce)
    predictor = load(run, settings={"evaluation.metrics": []})
    figures, _ = predictor.evaluate(f"{CORPUS}/test")
    print(f"\n{figures['exact_match']:.2%} of {figures['sources']:,} dates it has never seen come out right.")
    print("Dates a visitor may try:\n")
    for line in answers(predictor):
        print(line)
    aligned = [predictor.alignment(one) for one in predictor.predict(DRAWN, trace=0)]
    for name in PICTURES:
        draw(folder / name, aligned)
    print(f"\n{advice(folder)}")


def make_room(folder: Path) -> None:
    """Remove the run of an earlier demonstration; anything else in the way stays, and is an error."""
    run = folder / "run"
    if (run / MARK).is_file() and not run.is_symlink():
        with run_lock(run):
            shutil.rmtree(run)
        return
    for path in (run, *(folder / name for name in PICTURES)):
        if path.exists() or path.is_symlink():
            raise RunExistsError(f"{path} is no demonstration's; move it, or name another folder with --out")


class Calm:
    """Progress with one figure a validation: how many dates are right."""

    def __init__(self) -> None:
        self.progress = Progress()

    def __call__(self, event: dict[str, Any]) -> None:
        whole = event["event"] != "validation"
        self.progress(event if whole else {name: event[name] for name in SHOWN})

    def close(self) -> None:
        self.progress.close()


def announce(prepared: Prepared, trainer: Trainer) -> None:
    """What is about to be trained."""
    task = prepared.task
    print(f"{networks(task)}, {task.config.model.attention} attention:", end=" ")
    print(f"{count_parameters(trainer.model):,} parameters, {len(prepared.train):,} dates", flush=True)


def answers(predictor: Predictor) -> list[str]:
    """A line a date; its writing comes last, for it may run from right to left."""
    found = predictor.predict([source for source, _ in VISITOR])
    width = max(map(len, found))
    return [
        f"  {'✓' if answer == target else '✗'} {answer:<{width}}  {source}"
        for answer, (source, target) in zip(found, VISITOR, strict=True)
    ]


def advice(folder: Path) -> str:
    """What to do with the trained run."""
    run = shlex.quote(str(folder / "run"))
    rows = {
        "where it looked": " · ".join(str(folder / name) for name in PICTURES),
        "try your own": f"elman predict {run}   (a line in, a line out, at once; Ctrl-D ends it)",
        "as a filter": f"tail -f dates.txt | elman predict {run}",
        "with a picture": f"echo '3 mai 2021' | elman predict {run} --attention mai.png",
        "your own pairs": "elman train seq2seq --train pairs.tsv --out runs/mine   (a tab between two sides)",
    }
    return "\n".join(f"{name:<16} {text}" for name, text in rows.items())
