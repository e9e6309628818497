"""Pictures that commands draw, and the runs side by side in them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from elman.cli.output import fonts_told, say
from elman.errors import ArgumentError
from elman.inspection.alignment import Alignment
from elman.inspection.alignment_file import write_alignments
from elman.storage.files import explained

ENDINGS = (".png", ".svg", ".pdf")


def check_picture(out: Path) -> None:
    """What is wrong with the name of a picture is said before any work."""
    if out.suffix.lower() not in ENDINGS:
        raise ArgumentError(f"{out}: a picture ends in {', '.join(ENDINGS)}")
    if not out.parent.is_dir():
        raise ArgumentError(f"{out}: there is no folder {out.parent}")
    if out.is_dir():
        raise ArgumentError(f"{out} is a folder; name a file in it")


def save_picture(out: Path, draw: Callable[[], Figure]) -> None:
    with fonts_told():
        figure = draw()
    with explained(out):
        figure.savefig(out)
    say(f"picture: {out}")


def draw_alignments(path: Path, alignments: Sequence[Alignment]) -> None:
    with fonts_told():
        write_alignments(path, alignments)


def run_labels(kinds: list[str], runs: list[Path]) -> list[str]:
    """The kinds of network where they differ, otherwise the names of the folders, or the whole paths."""
    folders, paths = [run.name for run in runs], list(map(str, runs))
    return next(labels for labels in (kinds, folders, paths) if len({*labels}) == len(labels))
