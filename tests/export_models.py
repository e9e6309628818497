"""Tiny models of all tasks, hardly trained: what they say is odd, and must be the same everywhere."""

from pathlib import Path
from typing import Any

from elman import Predictor, fit

CELLS = Path(__file__).parent / "user_cells.py"
EVERYTHING, FREE_FORM = (f"{CELLS}:{name}" for name in ("Everything", "Ranked"))
SOURCES = [
    "3 mai 2021",
    "Le 4 ÉTÉ",
    "12 апреля 1961",
    "ΣΊΣΥΦΟΣ ΑΣ",
    "a bad day",
    "a good film",
    "don't  stop 10%",
] * 4
TARGETS = ["2021-05-03", "été 4", "1961-04-12", "σίσυφος", "yab dab a", "film good", "stop 10"] * 4
LABELS = ["date", "other", "date", "greek", "other", "other", "other"] * 4
TINY: dict[str, Any] = {"model.hidden": 12, "training.max_steps": 4}
ADDED: dict[str, dict[str, Any]] = {
    "seq2seq": {"decoding.max_length": 20},
    "lm": {"decoding.max_length": 20},
    "class2seq": {"decoding.max_length": 20},
}


def tiny(task: str, **settings: Any) -> Predictor:
    """A model of a task; settings have ``__`` for the dot."""
    said = {**TINY, **ADDED.get(task, {}), **{key.replace("__", "."): one for key, one in settings.items()}}
    if task == "tag":
        words = [text.split() for text in SOURCES]
        return fit(task, words, [[f"T{len(word) % 3}" for word in one] for one in words], settings=said)
    if task == "lm":
        return fit(task, SOURCES, settings=said)
    if task == "class2seq":
        return fit(task, LABELS, TARGETS, settings=said)
    return fit(task, SOURCES, LABELS if task == "classify" else TARGETS, settings=said)
