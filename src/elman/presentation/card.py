"""What a run leaves for those who get the model: ``card.md``."""

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from elman.presentation.events import measures
from elman.presentation.pages import template, write_page
from elman.presentation.summary import Summary, Table
from elman.presentation.wording import duration, network_name, number, printable

NETWORK = ("hidden", "layers", "embedding", "dropout", "attention", "pooling", "crf")
TEXT = ("unit", "lowercase", "min_count", "vocabulary_size", "vectors")
TRAINING = (
    *(
        "optimizer",
        "learning_rate",
        "schedule",
        "epochs",
        "max_steps",
        "minutes",
        "batch_size",
        "batch_tokens",
    ),
    *("clip", "averaging", "precision", "device", "seed"),
)


def write_card(run: Path) -> Path:
    """Write ``RUN/card.md``: task, data, network, training, measures, use and limits of the model."""
    summary = Summary.of(run)
    model, text, training = (summary.settings.get(name, {}) for name in ("model", "text", "training"))
    name = run.resolve().name
    size = f", {summary.start['parameters']:,} parameters" if "parameters" in summary.start else ""
    done = f"{summary.last_update:,} updates in {duration(summary.seconds)}, {summary.ending}"
    card = template("card.md", _cell).render(
        title=summary.title(),
        name=name,
        quoted=repr(name),
        parts=list(_data_parts(summary)),
        network=[network_name(model) + size, *_named(model, NETWORK), *_named(text, TEXT)],
        training=[done, *_named(training, TRAINING)],
        best=summary.best,
        metric=summary.metric,
        measures=[(name, number(value)) for name, value in measures(summary.best or {}, counts=True).items()],
        commands="\n".join(summary.commands(shlex.quote(name))),
    )
    return write_page(run / "card.md", card)


def _data_parts(summary: Summary) -> Iterator[dict[str, str | dict[str, int]]]:
    start = summary.start
    seen = {
        "train": {"examples": start.get("examples"), "tokens": start.get("tokens")},
        "dev": {"examples": start.get("dev_examples")},
    }
    for part, name in (("train", "training"), ("dev", "validation")):
        known = seen[part] | summary.data.get(part, {})
        counts = {key: f"{known[key]:,}" for key in ("examples", "tokens") if known.get(key) is not None}
        told = {"file": _data_name(summary, part), "sha256": str(known.get("sha256") or "")}
        yield {
            "name": name,
            "examples": "",
            "tokens": "",
            **counts,
            **told,
            "repairs": known.get("repairs") or {},
        }


def _data_name(summary: Summary, part: str) -> str:
    """The name of a file, without its folders, which are nobody else's business; and whether it is a part."""
    known = summary.data.get(part, {})
    settings = summary.settings.get("data", {})
    paths = [str(known.get("path") or settings.get(part) or ""), str(known.get("target") or "")]
    names = [path if path.startswith("builtin:") else Path(path).name for path in paths if path]
    if not names:
        return "unnamed data" if part == "train" else f"a part of {_data_name(summary, 'train')}"
    portion = {"held-out": " (the part held out)", "kept": " (all but the part held out)"}
    return " and ".join(names) + portion.get(known.get("part") or "", "")


def _named(settings: Table, names: Iterable[str]) -> list[str]:
    """``name: value`` of those settings that say something; of a path, the file's name."""
    told = {name: settings[name] for name in names if settings.get(name) not in (None, "", "none", 0, False)}
    if "vectors" in told:
        told["vectors"] = Path(str(told["vectors"])).name
    return [f"{name.replace('_', ' ')}: {value}" for name, value in told.items()]


def _cell(text: str) -> str:
    """Text that no Markdown table takes for its own marks."""
    return printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")
