"""``elman predict``, ``evaluate``, ``generate`` and ``score``: what is done with a trained run."""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from elman.cli.talk import figures_table, put, put_json, say
from elman.config import changed, parse_settings
from elman.errors import ArgumentError, ColumnError, ConfigError, DataError
from elman.predictor import Predictor, load
from elman.text.files import open_lines

CHUNK = 256  # lines of a file that are answered together; what comes through a pipe is answered line by line


def opened(run: Path, pairs: list[str]) -> Predictor:
    """The run, with the settings of the command line that a trained model can take."""
    settings = dict(dotted(parse_settings(pairs)))
    for key in settings:
        if not key.startswith(("decoding.", "data.")):
            raise ConfigError(f"{key} is fixed by training; a trained run takes decoding.* and data.*")
    return load(run, settings=settings)


def dotted(tables: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, dict) and not prefix:
            yield from dotted(value, f"{key}.")
        else:
            yield f"{prefix}{key}", value


def predict(run: Path, path: str, pairs: list[str], *, as_json: bool) -> None:
    """One line in, one line out, in order; memory does not grow with the file."""
    predictor = opened(run, pairs)
    for lines in chunks(open_lines(path), path):
        try:
            answers = predictor.predict([line.text for line in lines], details=True)
        except DataError as error:  # a task counts the texts that it was given
            error.path, error.line = lines[0].path, lines[(error.line or 1) - 1].number
            raise
        for one in answers:
            if as_json:
                put_json({key: value for key, value in one.items() if key != "line"})
            else:
                put(one["line"].replace("\n", "⏎"))  # one line in, one line out


def evaluate(run: Path, path: str, target: str | None, pairs: list[str], *, as_json: bool) -> None:
    predictor = opened(run, pairs)
    figures, repairs = predictor.evaluate(path, target)
    for sentence in repairs.sentences():
        say(f"repaired: {sentence}")
    report = figures.pop("report", None)
    if as_json:
        put_json(figures)
        return
    put(figures_table(figures))
    if report:
        put(f"\n{report}")


def generate(
    run: Path, prompts: list[str], number: int, pairs: list[str], *, as_json: bool, trace: bool
) -> None:
    """Each prompt as often as asked; drawn sequences differ because the seed goes on."""
    predictor = opened(run, pairs)
    if predictor.task.name == "class2seq" and not prompts:
        prompts = predictor.task.classes.tokens  # type: ignore[attr-defined]
    seed = predictor.config.decoding.seed
    for prompt, copy in itertools.product(prompts or [""], range(number)):
        predictor.task.config = changed(predictor.config, {"decoding.seed": seed + copy})
        [one] = predictor.generate([prompt])
        if as_json:
            put_json({key: value for key, value in one.items() if key not in ("line", "prediction")})
            continue
        put(f"{one.get('prompt', '')}{joint(predictor, one)}{one['text']}")
        if trace:
            put(unrolled(one))


def joint(predictor: Predictor, one: dict[str, Any]) -> str:
    """What stands between a prompt and its continuation."""
    return " " if one.get("prompt") and predictor.task.unit.name == "word" else ""


def unrolled(one: dict[str, Any]) -> str:
    """The network step by step: t, what was fed, what came out."""
    if "trace" not in one:
        raise ArgumentError("only class2seq models show their unrolling; leave out --trace")
    rows = [f"  t 0       class {one['class']}"]
    rows += [
        f"  t {step['t'] - 1} → {step['t']}   {step['fed']} → {step['output']}  ({step['probability']:.3f})"
        for step in one["trace"]
    ]
    return "\n".join(rows)


def score(run: Path, path: str, *, tokens: bool, pairs: bool, as_json: bool) -> None:
    """Natural-log probabilities, one a line: of lines, of their tokens, or of two texts apart by a tab."""
    predictor = load(run)
    right = count = 0
    for lines in chunks(open_lines(path), path):
        texts = [line.text for line in lines]
        if pairs:
            for line, text in zip(lines, texts, strict=True):
                if text.count("\t") != 1:
                    raise ColumnError(
                        f"{text.count(chr(9)) + 1} columns instead of 2",
                        path=line.path,
                        line=line.number,
                        text=text,
                        remedy="a pair is the better text, a tab, the worse text",
                    )
            texts = [side for text in texts for side in text.split("\t")]
        scored = predictor.score(texts)
        totals = [sum(value for _, value in one) for one in scored]
        if pairs:
            for place in range(0, len(texts), 2):
                good, bad = totals[place : place + 2]
                right, count = right + (good > bad), count + 1
                if as_json:
                    put_json({"first": good, "second": bad, "first_is_better": good > bad})
                else:
                    put(f"{good:.6f}\t{bad:.6f}\t{'first' if good > bad else 'second'}")
            continue
        for text, one, total in zip(texts, scored, totals, strict=True):
            if as_json:
                detail = [{"token": token, "log_probability": value} for token, value in one]
                put_json({"text": text, "log_probability": total, "tokens": detail})
            elif tokens:
                put("\t".join(f"{token} {value:.6f}" for token, value in one))
            else:
                put(f"{total:.6f}")
    if pairs:
        say(f"the first is more probable in {right:,} of {count:,} pairs ({right / max(1, count):.1%})")


def chunks(lines: Iterable[Any], path: str) -> Iterator[list[Any]]:
    """Lines that are answered together; whoever waits at the other end of a pipe gets each answer at once."""
    walk = iter(lines)
    size = 1 if path == "-" and not stat.S_ISREG(os.fstat(0).st_mode) else CHUNK
    while part := list(itertools.islice(walk, size)):
        yield part
        sys.stdout.flush()
