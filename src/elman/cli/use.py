"""``elman predict``, ``evaluate``, ``generate`` and ``score``: what is done with a trained run."""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from elman.cli.output import figures_table, flush, fonts_told, put, put_json, say
from elman.config import changed, parse_settings
from elman.errors import ArgumentError, ColumnError, ConfigError, DataError, FileError
from elman.predictor import Predictor, load
from elman.text.files import open_lines
from elman.training.sources import check_layout

CHUNK = 256  # lines of a file that are answered together; what comes through a pipe is answered line by line
OPEN = ("decoding.", "data.", "evaluation.")  # settings that training does not fix
TOP = 5  # of the most probable tokens of a step, in a trace
TRACED = ("trace", "tree", "source_tokens", "output_tokens", "attention")  # what a trace adds to an answer
COLLECTED = 200  # alignments at most, so that memory does not grow with the file


def opened(run: Path, pairs: list[str], ensemble: Sequence[Path] = (), *, trust_code: bool) -> Predictor:
    """The run, with the settings of the command line that a trained model can take."""
    settings = dict(dotted(parse_settings(pairs)))
    for key in settings:
        if not key.startswith(OPEN):
            allowed = ", ".join(f"{section}*" for section in OPEN)
            raise ConfigError(f"{key} is fixed by training; a trained run takes {allowed}")
    return load(run, settings=settings, ensemble=ensemble, trust_code=trust_code)


def dotted(tables: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, dict) and not prefix:
            yield from dotted(value, f"{key}.")
        else:
            yield f"{prefix}{key}", value


def predict(
    run: Path,
    path: str,
    pairs: list[str],
    *,
    as_json: bool,
    trace: bool,
    attention: Path | None,
    ensemble: Sequence[Path],
    trust_code: bool,
) -> None:
    """One line in, one line out, in order; memory does not grow with the file."""
    if trace and not as_json:
        raise ArgumentError("a trace does not fit into one line of text; add --json to --trace")
    predictor = opened(run, pairs, ensemble, trust_code=trust_code)
    gallery = None if attention is None else Gallery(predictor, attention)
    if predictor.config.decoding.n_best > 1 and not as_json:
        say("the best answer of each line is printed; --json has all of decoding.n_best")
    for lines in chunks(open_lines(path), path):
        texts = [line.text for line in lines]
        depth = TOP if trace else 0 if gallery is not None and gallery.has_room else None
        try:
            answers = predictor.predict(texts, details=True, trace=depth)
        except DataError as error:  # a task counts the texts that it was given
            error.path, error.line = lines[0].path, lines[(error.line or 1) - 1].number
            raise
        for one in answers:
            if gallery is not None:
                gallery.add(one)
            if as_json:
                left_out = {"line", *(TRACED if gallery is not None and not trace else ())}
                put_json({key: value for key, value in one.items() if key not in left_out})
            else:
                put(one["line"].replace("\n", "⏎"))  # one line in, one line out
    if gallery is not None:
        gallery.write()


class Gallery:
    """The alignments of the first lines, for one picture, one page or one file of numbers."""

    def __init__(self, predictor: Predictor, path: Path) -> None:
        from elman.inspection.alignment import ENDINGS

        predictor.check_attention()
        if path.suffix.lower() not in ENDINGS:
            raise ArgumentError(f"--attention is '{path}'; its ending must be one of {', '.join(ENDINGS)}")
        if not path.parent.is_dir():
            raise FileError("there is no such folder", path=path.parent, remedy="create it, or name another")
        self.predictor, self.path = predictor, path
        self.alignments: list[Any] = []
        self.left_out = 0  # lines

    @property
    def has_room(self) -> bool:
        return len(self.alignments) < COLLECTED

    def add(self, answer: dict[str, Any]) -> None:
        """What was traced; a line without a token has nothing to look at."""
        if not self.has_room:
            self.left_out += 1
        elif "attention" in answer:
            self.alignments.append(self.predictor.alignment(answer))

    def write(self) -> None:
        if not self.alignments:
            say(f"no line has a token, so there is no alignment; {self.path} is not written")
            return
        from elman.inspection.alignment_figure import MOST

        draw(self.path, self.alignments)
        most = COLLECTED if self.path.suffix.lower() in (".html", ".json") else MOST
        few = f" (the first {most})" if len(self.alignments) > most or self.left_out else ""
        say(f"alignments: {self.path}{few}")


def draw(path: Path, alignments: Sequence[Any]) -> None:
    from elman.inspection.alignment import write_alignments

    with fonts_told():
        write_alignments(path, alignments)


def evaluate(
    run: Path,
    path: str,
    target: str | None,
    pairs: list[str],
    *,
    as_json: bool,
    ensemble: Sequence[Path],
    trust_code: bool,
) -> None:
    """Figures; of an ensemble, losses are those of the first run and what is written is of all of them."""
    predictor = opened(run, pairs, ensemble, trust_code=trust_code)
    check_target(target, pairs)
    figures, repairs = predictor.evaluate(path, target)
    for sentence in repairs.sentences():
        say(f"repaired: {sentence}")
    if ensemble:
        say(f"losses and accuracy are those of {run} alone; what is written is the ensemble's")
    report = figures.pop("report", None)
    if as_json:
        put_json(figures)
        return
    put(figures_table(figures))
    remarks = [f"  {name:<4}  {signature}" for name, signature in figures.get("signatures", {}).items()]
    remarks += [f"  {note}" for note in figures.get("notes", [])]
    for part in ("\n".join(remarks), report, length_table(figures.get("by_length", []))):
        if part:
            put(f"\n{part}")


def check_target(target: str | None, pairs: list[str]) -> None:
    check_layout(None if target is None else "--target", (key for key, _ in dotted(parse_settings(pairs))))


def length_table(buckets: Sequence[Mapping[str, Any]]) -> str:
    """Scores by the length of the source."""
    if not buckets:
        return ""
    rows = [f"  {'source tokens':>13}  {'count':>7}  {'exact match':>11}  {'error rate':>10}"]
    for one in buckets:
        lengths = str(one["shortest"])
        if one["longest"] > one["shortest"]:
            lengths += f"–{one['longest']}"
        scores = f"{one['exact_match']:>11.4f}  {one['error_rate']:>10.4f}"
        rows.append(f"  {lengths:>13}  {one['count']:>7,}  {scores}")
    return "\n".join(rows)


def generate(
    run: Path,
    prompts: list[str],
    number: int,
    pairs: list[str],
    *,
    as_json: bool,
    trace: bool,
    ensemble: Sequence[Path],
    trust_code: bool,
) -> None:
    """Each prompt as often as asked, with its n best; drawn sequences differ because the seed goes on."""
    predictor = opened(run, pairs, ensemble, trust_code=trust_code)
    if predictor.task.name == "seq2seq" and not prompts:
        raise ArgumentError(f"{run} is a seq2seq model, which writes from a source; give one with --prompt")
    if predictor.task.name == "class2seq" and not prompts:
        prompts = predictor.task.classes.tokens  # type: ignore[attr-defined]
        if not prompts:
            raise ArgumentError(
                f"{run} is a class2seq model of vectors; give one with --prompt, as '0 1.5 2'"
            )
    seed = predictor.config.decoding.seed
    for prompt, copy in itertools.product(prompts or [""], range(number)):
        predictor.task.config = changed(predictor.config, {"decoding.seed": (seed + copy) % 2**64})
        [one] = predictor.generate([prompt], trace=0 if trace else None)
        if as_json:
            put_json({key: value for key, value in one.items() if key not in ("line", "prediction")})
            continue
        for text in [best["text"] for best in one.get("n_best", [one])]:
            put(f"{one.get('prompt', '')}{joint(predictor, one)}{text}")
        if trace:
            put(unrolled(one))


def joint(predictor: Predictor, one: dict[str, Any]) -> str:
    """What stands between a prompt and its continuation."""
    return " " if one.get("prompt") and predictor.task.unit.name == "word" else ""


def unrolled(one: dict[str, Any]) -> str:
    """The network step by step: t, what was fed, what came out."""
    rows = [f"  t 0       class {one['class']}"] if "class" in one else []
    rows += [
        f"  t {step['t'] - 1} → {step['t']}   {step['fed']} → {step['output']}  ({step['probability']:.3f})"
        for step in one.get("trace", [])
    ]
    return "\n".join(rows)


def score(run: Path, path: str, *, tokens: bool, pairs: bool, as_json: bool, trust_code: bool) -> None:
    """Natural-log probabilities, one a line: of lines, of their tokens, or of two texts apart by a tab."""
    predictor = load(run, trust_code=trust_code)
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
                    better = "neither" if good == bad else "first" if good > bad else "second"
                    put(f"{good:.6f}\t{bad:.6f}\t{better}")
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
    if path == "-" and sys.stdin is not None and sys.stdin.isatty():
        say("one text a line; Ctrl-D ends")
    piped = path == "-" and sys.stdin is not None and not stat.S_ISREG(os.fstat(0).st_mode)
    size = 1 if piped else CHUNK
    while part := list(itertools.islice(walk, size)):
        yield part
        flush()
