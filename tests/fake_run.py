"""A run that never took place: the events, and the folder with what report and card are made from."""

import json
import math
import random

CONFIG = """task = "tag"

[data]
train = "/corpora/en/train.conllu"
dev = "/corpora/en/dev.conllu"

[text]
unit = "word"
vectors = "/corpora/glove.txt.gz"

[model]
cell = "lstm"
hidden = 200
layers = 2
bidirectional = true
embedding = 100
dropout = 0.5

[training]
epochs = 20
optimizer = "adamw"
learning_rate = 0.002
seed = 1
"""
DATA = {
    "train": {
        "path": "/corpora/en/train.conllu",
        "sha256": "ab" * 32,
        "examples": 12544,
        "tokens": 204577,
        "repairs": {"blank line skipped": 3},
    },
    "dev": {"path": "/corpora/en/dev.conllu", "sha256": "cd" * 32, "examples": 2001, "repairs": {}},
}
SAMPLES = [
    "The/DET dog/NOUN barks/VERB✗NOUN",
    '<b>bold</b> & "quoted"',
    "ذهب/VERB الولد/NOUN إلى/ADP",
    "猫/NOUN が/ADP",
]


def fake_events(updates=7840, log_every=40, validate_every=392, *, metric="accuracy", ended=True):
    """The events of a training, as the loop would tell them."""
    noise = random.Random(1)
    best, best_update = -math.inf, 0
    yield {
        "event": "start",
        "update": 0,
        "task": "tag",
        "parameters": 1234567,
        "examples": 12544,
        "tokens": 204577,
        "dev_examples": 2001,
        "updates": updates,
        "metric": metric,
        "notes": ["vocabulary: 8,000 words"],
        "time": {"date": "2026-01-31 12:00:00"},
    }
    for update in range(1, updates + 1):
        share, seconds = update / updates, update * 0.115
        if update % log_every == 0:
            yield {
                "event": "update",
                "update": update,
                "epoch": update / validate_every,
                "loss": 2.6 * math.exp(-5 * share) + 0.12 + noise.gauss(0, 0.02),
                "rate": 0.002 * min(1.0, 20 * share) * (0.505 + 0.495 * math.cos(math.pi * share)),
                "gradient_norm": math.exp(noise.gauss(-0.5 - share, 0.4)),
                "tokens": 81234,
                "time": {
                    "seconds": seconds,
                    "tokens_per_second": 6600.0 + noise.gauss(0, 50),
                    "data_share": 0.02,
                },
            }
        if update % validate_every == 0:
            accuracy = 0.95 - 0.3 * math.exp(-6 * share) - noise.random() * 0.003
            improved = accuracy > best
            best, best_update = (accuracy, update) if improved else (best, best_update)
            yield {
                "event": "validation",
                "update": update,
                "epoch": update / validate_every,
                "loss": 1.9 * math.exp(-6 * share) + 0.2 + 0.06 * share,
                "accuracy": accuracy,
                "tokens": 25148,
                "improved": improved,
                "samples": SAMPLES,
                "time": {"seconds": seconds + 0.1, "validation_seconds": 1.2},
            }
    if ended:
        yield {
            "event": "end",
            "update": updates,
            "reason": "epochs",
            "best_update": best_update,
            "best": best if best_update else None,
            "metric": metric,
            "time": {"seconds": updates * 0.115 + 0.2},
        }


def fake_run(folder, events=None, *, config=CONFIG, data=DATA, tail=""):
    """A run folder; ``tail`` is what a crash left at the end of the log."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(event, ensure_ascii=False) + "\n"
        for event in (fake_events() if events is None else events)
    ]
    (folder / "metrics.jsonl").write_text("".join(lines) + tail, encoding="utf-8")
    (folder / "config.toml").write_text(config, encoding="utf-8")
    if data is not None:
        (folder / "data.json").write_text(json.dumps(data), encoding="utf-8")
    return folder
