"""``elman demo``: an encoder–decoder with attention learns to read dates, and shows where it looks."""

import shlex
import shutil
from pathlib import Path

from elman.cli.pictures import draw_alignments
from elman.cli.serving import check_server, serve_page
from elman.cli.training import collect, see_through
from elman.config import lookup
from elman.corpora.dates import VISITOR, languages
from elman.errors import RunExistsError
from elman.predictor import Predictor, load
from elman.presentation.progress import Progress
from elman.training.loop import Trainer, count_parameters
from elman.training.preparing import Prepared
from elman.training.run import begin
from elman.training.session import run_lock

CORPUS = "builtin:dates"
MARK = ".demonstration"  # in the folder of a run: the next demonstration may take its place
PICTURES = ("alignment.png", "alignment.html")
# Every machine has these scripts.
DRAWN = ("the 20th of July, 1969", "12 апреля 1961 г.", "٢٠ نوفمبر ٢٠٢٢", "Donnerstag, 9. November 1989")


def show(folder: Path, seed: int) -> None:
    languages()  # without Babel there is no corpus, which is said before anything is removed
    make_room(folder)
    run = folder / "run"
    print("Dates as people write them, in 40 languages and 13 scripts, become YYYY-MM-DD.")
    print("A network learns it now, in about two minutes on two cores.\n", flush=True)
    begin(run, collect("seq2seq", None, {"train": CORPUS}, None, [f"training.seed={seed}"], None))
    (run / MARK).touch()
    see_through(run, [Progress(only="exact_match")], announce)
    predictor = load(run, settings={"evaluation.metrics": []})
    measures, _ = predictor.evaluate(f"{CORPUS}/test")
    right, count = f"{measures['exact_match']:.2%}", f"{measures['sources']:,}"
    print(f"\n{right} of {count} dates it has never seen come out right.")
    print("Dates a visitor may try:\n", *answers(predictor), sep="\n")
    aligned = [predictor.alignment(one) for one in predictor.details(DRAWN, trace=0)]
    for name in PICTURES:
        draw_alignments(folder / name, aligned)
    print(f"\n{advice(folder)}")


def show_and_serve(folder: Path, seed: int) -> None:
    """The demonstration, and then the page of its run, until somebody ends it."""
    check_server()
    show(folder, seed)
    print(flush=True)
    serve_page("dates", folder / "run", text=DRAWN[0])


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


def announce(prepared: Prepared, trainer: Trainer) -> None:
    network = prepared.task.describe(trainer.model)[0]
    print(f"{network}, {lookup(prepared.task.config, 'model.attention')} attention:", end=" ")
    print(f"{count_parameters(trainer.model):,} parameters, {len(prepared.train):,} dates", flush=True)


def answers(predictor: Predictor) -> list[str]:
    """A line a date; its writing comes last, for it may run from right to left."""
    found = [one.line for one in predictor.details([source for source, _ in VISITOR])]
    width = max(map(len, found))
    return [
        f"  {'✓' if answer == target else '✗'} {answer:<{width}}  {source}"
        for answer, (source, target) in zip(found, VISITOR, strict=True)
    ]


def advice(folder: Path) -> str:
    run = shlex.quote(str(folder / "run"))
    rows = {
        "where it looked": " · ".join(str(folder / name) for name in PICTURES),
        "try your own": f"elman predict {run}   (a line in, a line out, at once; Ctrl-D ends it)",
        "as a filter": f"tail -f dates.txt | elman predict {run}",
        "with a picture": f"echo '3 mai 2021' | elman predict {run} --attention mai.png",
        "your own pairs": "elman train seq2seq --train pairs.tsv --out runs/mine   (a tab between two sides)",
        "see inside": f"elman serve {run}   (a page that shows it as you type; elman demo --serve opens it)",
    }
    return "\n".join(f"{name:<16} {text}" for name, text in rows.items())
