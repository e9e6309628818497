"""One network, naive concatenation or two, with and without attention (row E6): measured, and drawn again.

``python docs/pictures/forms.py measure`` trains five seeds of each form on strings and their reversals, one
on every core, and writes ``forms.json``; what is in that file already is not trained again. ``python
docs/pictures/forms.py`` prints its table and draws ``forms.png``.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from elman.corpora.reverse import Reverse
from elman.inspection.figures import curve_figure

HERE = Path(__file__).parent
SEEDS = (1, 2, 3, 4, 5)
SETTINGS = {
    **Reverse.settings,
    "model.hidden": 64,
    "model.dropout": 0,
    "training.max_steps": 2000,
    "training.learning_rate": 0.005,
    "training.threads": 1,
}
FORMS = {
    "naive": "model.form=naive",
    "one network": "model.form=single",
    "two networks": "model.attention=none",
    "with attention": "model.attention=additive",
}


class Short(Reverse):
    """Strings that a small network can learn to hold in two thousand updates."""

    longest = 12


def measure() -> None:
    kept = HERE / "forms.json"
    found = json.loads(kept.read_text()) if kept.exists() else []
    known = {(one["form"], one["seed"]) for one in found}
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(os.cpu_count()) as together:
        folder = Path(name)
        for split in ("train", "dev", "test"):
            lines = (f"{one['source']}\t{one['target']}\n" for one in Short().examples(split))
            (folder / f"{split}.tsv").write_text("".join(lines))
        wanted = [(form, seed) for seed, form in product(SEEDS, FORMS) if (form, seed) not in known]
        for one in together.map(lambda pair: trained(folder, *pair), wanted):
            found.append(one)
            kept.write_text(json.dumps(found, indent=1) + "\n")


def trained(folder: Path, form: str, seed: int) -> dict[str, Any]:
    """What a training came to."""
    run = folder / f"{form}-{seed}"
    settings = [f"{key}={json.dumps(value)}" for key, value in SETTINGS.items()]
    settings += [FORMS[form], f"training.seed={seed}"]
    train = ["elman", "train", "seq2seq", "--train", folder / "train.tsv", "--dev", folder / "dev.tsv"]
    pairs = [part for one in settings for part in ("--set", one)]
    subprocess.run([*train, "--out", run, "--quiet", *pairs], check=True)
    evaluate = ["elman", "evaluate", run, folder / "test.tsv", "--json"]
    told = json.loads(subprocess.run(evaluate, check=True, capture_output=True).stdout)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    measures = {name: told[name] for name in ("exact_match", "error_rate", "by_length")}
    return {"form": form, "seed": seed, "seconds": round(last["time"]["seconds"], 1)} | measures


def draw() -> None:
    found = json.loads((HERE / "forms.json").read_text())
    curves = {}
    for form in FORMS:
        own = [one for one in found if one["form"] == form]
        rates = [[max(0.0, 1 - bucket["error_rate"]) for bucket in one["by_length"]] for one in own]
        curves[form] = [mean(values) for values in zip(*rates, strict=True)]
        whole = [[100 * one[name] for one in own] for name in ("exact_match", "error_rate")]
        cells = " | ".join(f"{mean(values):.1f} ± {stdev(values):.1f} %" for values in whole)
        print(f"| {form} | {cells} | {max(one['seconds'] for one in own):.0f} s |")
    buckets = found[0]["by_length"]
    figure = curve_figure(
        [(bucket["shortest"] + bucket["longest"]) / 2 for bucket in buckets],
        curves,
        title="Letters that are right, by the length of the source: mean of five trainings",
        x_label="letters of the source",
        y_label="1 − errors a letter, at least 0",
    )
    figure.savefig(HERE / "forms.png", dpi=150)


if __name__ == "__main__":
    measure() if "measure" in sys.argv[1:] else draw()
