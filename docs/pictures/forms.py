"""One network, naive concatenation or two, with and without attention (row E6): measured, and drawn again.

``python docs/pictures/forms.py measure`` trains five seeds of each form on strings and their reversals and
writes ``forms.json``; ``python docs/pictures/forms.py`` prints its table and draws ``forms.png``.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

from elman.inspection.figures import curve_figure

HERE = Path(__file__).parent
SEEDS = (1, 2, 3, 4, 5)
SETTINGS = ("model.hidden=64", "training.max_steps=1000", "training.threads=1")
FORMS = {
    "naive": ("model.form=naive",),
    "one network": ("model.form=single",),
    "two networks": ("model.attention=none",),
    "with attention": ("model.attention=additive",),
}


def measure() -> None:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            for form, own in FORMS.items():
                run = f"{folder}/{form}-{seed}"
                settings = (*SETTINGS, *own, f"training.seed={seed}")
                pairs = [part for one in settings for part in ("--set", one)]
                train = ["elman", "train", "seq2seq", "--train", "builtin:reverse", "--out", run, "--quiet"]
                subprocess.run([*train, *pairs], check=True)
                evaluate = ["elman", "evaluate", run, "builtin:reverse/test", "--json"]
                told = json.loads(subprocess.run(evaluate, check=True, capture_output=True).stdout)
                last = json.loads(Path(run, "metrics.jsonl").read_text().splitlines()[-1])
                kept = ("exact_match", "error_rate", "by_length")
                found.append({"form": form, "seed": seed, "seconds": round(last["time"]["seconds"], 1)})
                found[-1] |= {name: told[name] for name in kept}
                (HERE / "forms.json").write_text(json.dumps(found, indent=1) + "\n")


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
