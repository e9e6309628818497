"""Made ``runs.tar.xz``: a small run of every task and what it predicts, by the version that is to be kept.

``python make.py FOLDER`` in a checkout of that version; then ``tar -cJf runs.tar.xz *`` in the folder.
"""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tiny_tasks import DATA, TEXTS

ELMAN = [sys.executable, "-c", "from elman.cli.main import run; run()"]
SHORT = {
    "training.max_steps": 12,
    "training.validate_every": 4,
    "training.log_every": 2,
    "training.save_seconds": 1000.0,
    "training.threads": 1,
    "data.held_out": 0.0,
    "model.hidden": 4,
    "decoding.max_length": 8,
}
PAIRS = {"training.batch_size": 2, "model.embedding": 4}
RUNS = {  # name: task, settings, options
    "lm": ("lm", PAIRS | {"text.unit": "character", "training.truncate": 8}, []),
    "lm-sentences": (
        "lm",
        {
            "text.context": "sentence",
            "text.min_count": 1,
            "model.embedding": 4,
            "model.cell": "gru",
            "training.optimizer": "sgd",
            "training.momentum": 0.9,
            "training.schedule": "plateau",
        },
        [],
    ),
    "lm-ngram": ("lm", {"text.min_count": 1}, ["--baseline", "ngram"]),
    "tag": ("tag", PAIRS | {"model.characters": 3, "training.averaging": "ema"}, []),
    "tag-window": ("tag", PAIRS, ["--baseline", "window"]),
    "classify": (
        "classify",
        PAIRS | {"model.pooling": "attention", "training.class_weights": "balanced"},
        [],
    ),
    "classify-bpe": ("classify", PAIRS | {"text.unit": "bpe", "text.vocabulary_size": 270}, []),
    "class2seq": ("class2seq", {}, []),
    "seq2seq": (
        "seq2seq",
        PAIRS
        | {
            "decoding.beam": 3,
            "training.teacher_forcing": 0.5,
            "training.teacher_forcing_schedule": "linear",
        },
        [],
    ),
    "seq2seq-single": ("seq2seq", PAIRS | {"model.form": "single", "text.unit": "character"}, []),
}


def make(folder: Path) -> None:
    for name, (task, settings, options) in RUNS.items():
        (folder / f"{name}.txt").write_text(DATA[task], encoding="utf-8")
        pairs = [f"{key}={json.dumps(value)}" for key, value in {**SHORT, **settings}.items()]
        sets = [word for pair in pairs for word in ("--set", pair)]
        command = [*ELMAN, "train", task, "--train", f"{name}.txt", "--out", name, "--quiet", *sets, *options]
        subprocess.run(command, cwd=folder, check=True)
        texts = "\n".join(TEXTS[task]) + "\n"
        done = subprocess.run(
            [*ELMAN, "predict", name, "--json"],
            cwd=folder,
            input=texts,
            check=True,
            capture_output=True,
            text=True,
        )
        (folder / f"{name}.predictions.jsonl").write_text(done.stdout, encoding="utf-8")
        for extra in ("report.html", "card.md", ".lock"):
            (folder / name / extra).unlink(missing_ok=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
