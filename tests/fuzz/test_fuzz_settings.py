"""Any TOML and any ``key=value`` in: settings that read back equal, or an error that names the setting."""

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fuzzing import Entry, fuzz, mutated, text

from elman.config import Config, changed, describe, merge, parse_settings, read_toml, to_toml, validate
from elman.training.settings import settings_class

VALUES = (
    *("0", "1", "-1", "5", "0.5", "1e400", "nan", "inf", "true", "false", '""', '"lstm"', '"\\u0000"', "[]"),
    *(
        "[1, 2]",
        "[true]",
        '["a", "b"]',
        "{}",
        "{ a = 1 }",
        "{ text = 0, label = 1.5 }",
        "1979-05-27",
        "07:32:00",
    ),
    *(
        "1979-05-27T07:32:00Z",
        "0x" + "f" * 40,
        "0x" + "f" * 4000,
        "9" * 30,
        "9" * 5000,
        "[" * 3000,
        "'''\na'''",
    ),
    *(
        '"$ELMAN_DATA/x"',
        "greedy",
        "a b",
        "",
        "#",
        "1 # one",
        "\ud800",
        "1\n[data]",
        "{a=" * 3000,
        "[[1], [[2]]]",
        "(" * 3000,
        "a{99999999999}",
    ),
)
EXTRA = (
    "",
    "a",
    "model",
    "model.cell_options.a",
    "model.cell_options.a.b",
    "x" * 200,
    "a." * 200 + "b",
    "é",
    '"a b"',
)


@cache
def settings_of(task: str) -> tuple[type[Config], tuple[str, ...]]:
    kind = settings_class(task)
    return kind, tuple(row[0] for row in describe(kind))


def pairs(random: Random) -> tuple[str, list[str]]:
    task = random.choice(("lm", "tag", "classify", "seq2seq", "class2seq"))
    _, keys = settings_of(task)
    drawn = [random.choice(keys if random.random() < 0.9 else EXTRA) for _ in range(random.randint(0, 4))]
    values = [
        random.choice(VALUES) if random.random() < 0.8 else text(random, "01ae.\"'[]{}= ") for _ in drawn
    ]
    return task, [f"{key}={value}" for key, value in zip(drawn, values, strict=True)]


def toml(random: Random) -> tuple[str, bytes]:
    task, drawn = pairs(random)
    return task, mutated(random, ["\n".join(drawn).encode("utf-8", "surrogatepass")])


def check_kept(task: str, tables: dict[str, Any], folder: Path, path: Path | None) -> None:
    """What is valid is written, and reads back as it was."""
    kind, _ = settings_of(task)
    config = validate(kind, merge({"task": task}, tables), path)
    kept = to_toml(config)
    (folder / "kept.toml").write_text(kept, encoding="utf-8")
    assert to_toml(validate(kind, read_toml(folder / "kept.toml"))) == kept
    assert to_toml(changed(config, {"training.seed": config.training.seed})) == kept


def check_toml(case: tuple[str, bytes], folder: Path) -> None:
    path = folder / "a.toml"
    path.write_bytes(case[1])
    check_kept(case[0], read_toml(path), folder, path)


def check_pairs(case: tuple[str, list[str]], folder: Path) -> None:
    check_kept(case[0], parse_settings(case[1]), folder, None)


SETTINGS = [Entry("TOML", toml, check_toml), Entry("key=value", pairs, check_pairs)]


@pytest.mark.parametrize("entry", SETTINGS, ids=lambda entry: entry.name)
def test_any_settings_are_kept_or_refused(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELMAN_DATA", "/corpora")
    fuzz(entry, tmp_path)
