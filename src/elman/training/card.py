"""What a run leaves for those who get the model: ``card.md``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from elman.training.progress import duration, number, printable
from elman.training.summary import Summary, all_figures, network_name, write_whole

NETWORK = ("hidden", "layers", "embedding", "dropout", "attention", "pooling", "crf")
TEXT = ("unit", "lowercase", "min_count", "vocabulary_size", "vectors")
TRAINING = (
    *("optimizer", "learning_rate", "schedule", "epochs", "max_steps", "batch_size", "batch_tokens"),
    *("clip", "averaging", "precision", "device", "seed"),
)


def write_card(run: Path) -> Path:
    """Write ``RUN/card.md``: task, data, network, training, figures, use and limits of the model."""
    return write_whole(run / "card.md", _card(Summary.of(run)))


def _card(summary: Summary) -> str:
    model, text, training = (summary.settings.get(name, {}) for name in ("model", "text", "training"))
    name = summary.run.resolve().name
    commands = "\n".join(summary.commands(shlex.quote(name)))
    size = f", {summary.start['parameters']:,} parameters" if "parameters" in summary.start else ""
    done = f"{summary.last_update:,} updates in {duration(summary.seconds)}, {summary.ending}"
    sections = {
        "Data": _data_part(summary),
        "Network": _list([network_name(model) + size, *_named(model, NETWORK), *_named(text, TEXT)]),
        "Training": _list([done, *_named(training, TRAINING)]),
        "Figures on the validation data": _figures_part(summary),
        "Use": f"```sh\n{commands}\n```\n\n```python\nimport elman\n\n"
        f'elman.load({name!r}).predict(["a line of text"])\n```',
        "Limits": _limits(summary),
    }
    body = "\n\n".join(f"## {heading}\n\n{part}" for heading, part in sections.items())
    return f"# {_cell(summary.title())}\n\nThe run {_cell(name)}, trained with Elman.\n\n{body}\n"


def _data_part(summary: Summary) -> str:
    start = summary.start
    seen = {
        "train": {"examples": start.get("examples"), "tokens": start.get("tokens")},
        "dev": {"examples": start.get("dev_examples")},
    }
    rows = []
    for part, name in (("train", "training"), ("dev", "validation")):
        known = seen[part] | summary.data.get(part, {})
        counts = [f"{known[key]:,}" if known.get(key) is not None else "" for key in ("examples", "tokens")]
        digest = f"`{_cell(str(known['sha256']))}`" if known.get("sha256") else ""
        rows.append(f"| {name} | {_data_name(summary, part)} | {' | '.join(counts)} | {digest} |")
        repairs = known.get("repairs") or {}
        rows += [f"| | repaired: {_cell(repair)}, {count:,} × | | | |" for repair, count in repairs.items()]
    return "\n".join(["| part | file | examples | tokens | SHA-256 |", "|---|---|---:|---:|---|", *rows])


def _figures_part(summary: Summary) -> str:
    best = summary.best
    if best is None:
        return "None: training ended before its first validation."
    shown = all_figures(best)
    rows = [f"| {_cell(name)} | {number(value)} |" for name, value in shown.items()]
    chosen = f"At update {best['update']:,}, chosen by {_cell(summary.metric)}:"
    return "\n".join([chosen, "", "| figure | value |", "|---|---:|", *rows])


def _limits(summary: Summary) -> str:
    trained, judged = _data_name(summary, "train"), _data_name(summary, "dev")
    return (
        f"Trained on {trained}, judged on {judged}. The validation data also chose the update that is kept, "
        "so that these figures are a little better than those on fresh text of the same kind, and they say "
        "nothing about text of another kind. Measure on your own data with `elman evaluate` before relying "
        "on them."
    )


def _data_name(summary: Summary, part: str) -> str:
    """The name of a file, without its folders, which are nobody else's business; and whether it is a part."""
    known = summary.data.get(part, {})
    settings = summary.settings.get("data", {})
    paths = [str(known.get("path") or settings.get(part) or ""), str(known.get("target") or "")]
    names = [path if path.startswith("builtin:") else Path(path).name for path in paths if path]
    if not names:
        return "unnamed data" if part == "train" else f"a part of {_data_name(summary, 'train')}"
    portion = {"held-out": " (the part held out)", "kept": " (all but the part held out)"}
    return _cell(" and ".join(names)) + portion.get(known.get("part") or "", "")


def _named(settings: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """``name: value`` of those settings that say something; of a path, the file's name."""
    told = {name: settings[name] for name in names if settings.get(name) not in (None, "", "none", 0, False)}
    if "vectors" in told:
        told["vectors"] = Path(str(told["vectors"])).name
    return [f"{name.replace('_', ' ')}: {value}" for name, value in told.items()]


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_cell(line)}" for line in lines)


def _cell(text: str) -> str:
    """Text that no Markdown table takes for its own marks."""
    return printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
