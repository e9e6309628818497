"""Do exports answer as their models do? Every task, several cells, every format, in float32 and in 8 bits.

    python benchmarks/exports.py [--lines 1000] [--formats c,js,onnx] [--cells lstm,gru]

Models are small and learn for a moment from made sentences; each export is asked lines of the same kind,
drawn with another seed; some may be the same. A line of the table is a format: how many answers are equal,
the largest difference of log-probabilities, and for 8 bits how many points of accuracy are lost at most.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from elman import Predictor, fit
from elman.export.exporting import find_format
from elman.export.options import ExportOptions
from elman.export.parity import Line, Proof, prove

USERS = f"{Path(__file__).resolve().parents[1] / 'tests' / 'user_cells.py'}:UserLSTM"
CELLS = ("lstm", "gru", "elman", "layer_norm_lstm", USERS)
TASKS = ("classify", "tag", "lm", "seq2seq", "class2seq")
NAMES = ["cat", "dog", "bird", "man", "woman", "child", "tree", "house", "river", "Émile", "Σίσυφος"]
VERBS = ["sees", "likes", "eats", "finds,", "doesn't", "know"]
KINDS = {"good": "plus", "fine": "plus", "great": "plus", "bad": "minus", "poor": "minus", "awful": "minus"}
SETTINGS = {"model.hidden": 24, "training.max_steps": 60, "training.threads": 1}


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Made sentences, each with the adjective that is in it."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        kind = draw.choice([*KINDS])
        parts = [draw.choice(NAMES), draw.choice(VERBS), f"a {kind}", draw.choice(NAMES)]
        found.append((f"The {' '.join(parts)}{draw.choice(['.', '!', ', too.', ''])}", kind))
    return found


def examples(task: str, count: int, seed: int) -> list[Line]:
    """What is asked, and what the answer should be."""
    made = sentences(count, seed)
    if task == "classify":
        return [Line(text, KINDS[kind]) for text, kind in made]
    if task == "tag":
        return [Line(text, " ".join(KINDS.get(word, "O") for word in text.split())) for text, _ in made]
    if task == "seq2seq":
        return [Line(text, text.lower().replace("the", "le")) for text, _ in made]
    if task == "class2seq":
        return [Line(kind, f"it is {kind}, {KINDS[kind]}") for _, kind in made]
    return [Line(text) for text, _ in made]


def model(task: str, cell: str) -> Predictor:
    settings = {**SETTINGS, "model.cell": cell}
    if task in ("lm", "seq2seq", "class2seq"):
        settings["decoding.max_length"] = 30
    lines = examples(task, 300, 1)
    texts, golds = [line.text for line in lines], [line.gold for line in lines]
    if task == "lm":
        return fit(task, texts, settings=settings)
    if task == "tag":
        return fit(
            task, [one.split() for one in texts], [str(one).split() for one in golds], settings=settings
        )
    return fit(task, texts, golds, settings=settings)


def proven(predictor: Predictor, to: str, lines: list[Line], *, int8: bool) -> Proof:
    form, options = find_format(to), ExportOptions(int8=int8)
    with tempfile.TemporaryDirectory() as name:
        form.write(predictor, Path(name), options)
        return prove(predictor, form.open_written(Path(name)), lines, options, size=0)


def lost(proof: Proof) -> float:
    if proof.accuracy is None or proof.accuracy_model is None:
        return 0.0
    return 100 * (proof.accuracy_model - proof.accuracy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--formats", default="c,js,onnx")
    parser.add_argument("--cells", default=",".join(CELLS))
    given = parser.parse_args()
    found: dict[tuple[str, bool], list[Proof]] = {}
    for task in TASKS:
        lines = examples(task, given.lines, 2)
        for cell in given.cells.split(","):
            predictor = model(task, cell)
            for to in given.formats.split(","):
                for int8 in (False, True):
                    proof = proven(predictor, to, lines, int8=int8)
                    found.setdefault((to, int8), []).append(proof)
                    said = f"{proof.equal}/{proof.lines} {proof.largest_difference:.1e} {lost(proof):+.2f}"
                    print(
                        f"· {task} {cell.split(':')[-1]} {to}{' int8' * int8}: {said}",
                        file=sys.stderr,
                        flush=True,
                    )
    print("| format | models | answers equal | largest difference | points lost at most |")
    print("|---|---:|---:|---:|---:|")
    for (to, int8), proofs in found.items():
        equal, asked = sum(one.equal for one in proofs), sum(one.lines for one in proofs)
        far = max(one.largest_difference for one in proofs)
        worst = f"{max(map(lost, proofs)):.2f}" if int8 else "–"
        print(f"| `{to}{' --int8' * int8}` | {len(proofs)} | {equal:,} of {asked:,} | {far:.1e} | {worst} |")


if __name__ == "__main__":
    main()
