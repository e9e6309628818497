"""A model as one C file answers as the model does, and stays within its memory."""

import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from elman.errors import ExportError
from elman.export.c import compiler, program_text
from elman.export.exporting import export
from elman.export.options import ExportOptions
from elman.export.parity import Line
from elman.tasks.seq2seq_defaults import ending_features
from export_models import EVERYTHING, LABELS, SOURCES, tiny

ASKED = [*SOURCES[:7], "Ünseen WÖRDS ς İ ǅ", "x", "  z  ", '(a) "bad, day" l\'été...']
ASKED += ["kutya N;ACC;PL", "a;b", " N;;x ß;", ";", "ss " * 40 + "s" * 300]
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror")
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

SMALL: dict[str, Any] = {"model__crf": True, "model__affixes": 2}
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("seq2seq", {}),
    ("seq2seq", {"model__cell": "layer_norm_lstm", "model__attention": "location", "text__unit": "word"}),
    ("seq2seq", {"model__cell": "gru", "model__placement": "before", "model__input_feeding": True}),
    ("seq2seq", {"text__unit": "bpe", "text__vocabulary_size": 300, "decoding__beam": 3}),
    ("seq2seq", {"text__unit": "wordpunct", "text__min_count": 5}),
    ("classify", {"text__unit": "word", "text__lowercase": True, "model__cell": "elman"}),
    ("classify", {"text__unit": "wordpunct", "model__characters": 4}),
    (
        "classify",
        {"model__pooling": "attention", "model__head": 8, "model__cell": "tests/user_cells.py:Everything"},
    ),
    ("classify", {"text__unit": "character", "model__multilabel": True, "evaluation__threshold": 0.3}),
    ("tag", SMALL),
    ("tag", {"model__cell": "layer_norm_lstm", "text__lowercase": True, "model__affixes": 2}),
    (
        "seq2seq",
        {
            "text__unit": "character",
            "text__source__whole": ending_features(";"),
            "decoding__copy_unknown": True,
            "text__min_count": 4,
        },
    ),
    ("lm", {"text__unit": "byte", "model__zoneout": 0.1, "model__initial_state": "learned"}),
    ("lm", {"text__unit": "word", "model__adaptive_softmax": True, "model__tied": False}),
    ("lm", {"text__unit": "wordpunct"}),
    ("class2seq", {"text__classes": "features", "model__cell": "gru"}),
]


def exported(tmp_path: Path, task: str, options: ExportOptions, settings: dict[str, Any]) -> Path:
    lines = LABELS[:4] if task == "class2seq" else ASKED
    proof = export(tiny(task, **settings), "c", tmp_path / "out", options, [Line(text) for text in lines])
    assert options.int8 or proof.equal == proof.lines == len(lines)
    return tmp_path / "out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "settings"), MODELS, ids=[f"{task}-{i}" for i, (task, _) in enumerate(MODELS)]
)
def test_answers_are_the_models(tmp_path: Path, task: str, settings: dict[str, Any]) -> None:
    folder = exported(tmp_path, task, ExportOptions(), settings)
    assert {path.name for path in folder.iterdir()} == {"model.c", "model.h", "proof.json"}


@pytest.mark.slow
def test_it_compiles_without_a_warning_or_a_library(tmp_path: Path) -> None:
    folder = exported(tmp_path, "tag", ExportOptions(freestanding=True, int8=True), SMALL)
    for found in filter(None, map(shutil.which, ("gcc", "clang"))):
        flags = ["-std=c99", "-O1", *WARNINGS, "-ffreestanding", "-c", "model.c", "-o", "model.o"]
        subprocess.run([found, *flags], cwd=folder, check=True)
    undefined = subprocess.run(
        ["nm", "-u", "model.o"], cwd=folder, check=True, capture_output=True, text=True
    )
    assert not {"malloc", "free", "printf", "expf", "exp"} & set(undefined.stdout.split())


ARITHMETIC = [["gcc", "-std=c99", "-mfpmath=387"], ["gcc", "-Ofast"], ["clang", "-Ofast"]]


@pytest.mark.slow
def test_numbers_are_the_same_where_processors_compute_otherwise(tmp_path: Path) -> None:
    """In more digits than single precision has, or as a compiler may that was told to be fast."""
    folder = exported(tmp_path, "classify", ExportOptions(), {"model__cell": EVERYTHING})
    given = "".join(f"{text}\n" for text in ASKED).encode()
    said = []
    for compiled, *flags in [["cc", "-O2"], *ARITHMETIC]:
        if shutil.which(compiled) is None or ("-mfpmath=387" in flags and platform.machine() != "x86_64"):
            continue
        subprocess.run([compiled, *flags, "-w", "model.c", "-lm", "-o", "own"], cwd=folder, check=True)
        command = [folder / "own", "--numbers"]
        found = subprocess.run(command, input=given, capture_output=True, check=True).stdout
        said.append([float(one) for line in found.split(b"\n") for one in line.split(b"\t")[0].split()])
    assert len(said[0]) > len(ASKED)
    assert all(one == pytest.approx(said[0], abs=1e-4) for one in said)


ODD = [
    ("classify", {}),
    ("seq2seq", {"text__unit": "bpe", "text__vocabulary_size": 300, "text__lowercase": True}),
    ("tag", SMALL),
    ("lm", {"text__unit": "wordpunct"}),
    ("seq2seq", {"text__unit": "character"}),
    ("lm", {"text__unit": "byte"}),
    ("class2seq", {"text__classes": "features"}),
]
LONG = int(os.environ.get("ELMAN_FUZZ", "0"))  # lines for each of them
PIECES = [
    *map(str.encode, "aZéΣς0٣ ß_<>/'’\"日ไ\u200d🏽\u0301\u2028\u0085\t.,;-"),
    b"www.",
    b"http://",
    b"a@b.c",
    b" \xce\xa3",
]
PIECES += [
    b"\0",
    b"\r",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98",
    b"\xef\xbb\xbf",
    b"\xf4\x90\x80\x80",
]


def odd_line(random: Random) -> bytes:
    """Bytes at random, or what readers trip over; now and then without end."""
    kind = random.random()
    if kind < 0.2:
        return random.randbytes(random.randrange(40)).replace(b"\n", b"")
    if kind < 0.9:
        few = PIECES[:-8] if kind < 0.7 else PIECES
        return b"".join(random.choices(few, k=random.randrange(30)))
    if kind < 0.9995:
        return random.choice(SOURCES).encode() + b"".join(random.choices(PIECES[:20], k=3))
    return b"".join(random.choices(PIECES[:-8], k=3)) * random.choice((700, 9_000, 12_000, 150_000))


@pytest.mark.slow
@pytest.mark.parametrize(("task", "settings"), ODD if LONG else ODD[:2])
def test_odd_lines_are_answered_or_refused(tmp_path: Path, task: str, settings: dict[str, Any]) -> None:
    """Under the sanitizers: bytes at random, NUL, no UTF-8, and lines without end."""
    folder = exported(tmp_path, task, ExportOptions(), settings)
    flags = ["-std=c99", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    subprocess.run([compiler(), *flags, "model.c", "-o", "model"], cwd=folder, check=True)
    most = int(re.search(r"MOST_BYTES (\d+)", (folder / "model.c").read_text(encoding="utf-8"))[1])  # type: ignore[index]
    edges = [b"\0", b"\xff", b"", b"\r", b"a" * 1_000_000]
    edges += [one * (most // len(one)) for one in (b"a", b"a ", b"a.", b"www.", "Σ".encode(), b"ab'", b"-")]
    random, said = Random(1), set[bytes]()
    for first in range(0, max(LONG, 500), 20_000):
        lines = [odd_line(random) for _ in range(min(20_000, max(LONG, 500) - first))] + (
            [] if first else edges
        )
        began = time.perf_counter()
        found = subprocess.run([folder / "model"], input=b"\n".join(lines) + b"\n", capture_output=True)
        assert found.returncode == 3, found.stderr.decode()[-1000:]
        many = found.stdout.count(b"\n")
        assert many == len(lines) or (task == "lm" and many > len(lines))  # which writes several
        said |= {line.partition(b": ")[2] for line in found.stderr.split(b"\n")}
        if LONG:
            print(f"{task} {first + len(lines):,} lines, {time.perf_counter() - began:.1f} s", flush=True)
    assert said >= {b"not UTF-8", b"a NUL character", b"longer than this model reads"}


@pytest.mark.slow
def test_a_stream_of_steps_scores_as_the_model(tmp_path: Path) -> None:
    predictor = tiny("lm", text__unit="character")
    export(predictor, "c", tmp_path / "out", ExportOptions("own"), [Line(text) for text in ASKED])
    main = """#define NO_MAIN
#include "own.c"
#include <stdio.h>
#include <string.h>
int main(void) {
  static own_memory m;
  static own_state s;
  const char *text = "a bad";
  double total = 0.0;
  own_begin(&s);
  const float *logs = own_step(&m, &s, FIRST);
  for (size_t i = 0; i <= strlen(text); i++) {
    const int32_t token = i < strlen(text) ? own_token(text + i, 1) : LAST;
    total += (double)logs[token];
    logs = own_step(&m, &s, token);
  }
  own_score(&m, text, strlen(text));
  printf("%.9g %.9g %d", total, m.numbers[0], own_step(&m, &s, -1) == NULL);
  return 0;
}
"""
    (tmp_path / "out" / "main.c").write_text(main, encoding="utf-8")
    task: Any = predictor.task
    first, last = task.start, task.field.vocabulary.id("</s>")
    command = [compiler(), "-std=c99", "-O1", f"-DFIRST={first}", f"-DLAST={last}", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path / "out", check=True)
    found = subprocess.run([tmp_path / "out" / "main"], check=True, capture_output=True, text=True)
    by_step, at_once, refused = map(float, found.stdout.split())
    [scored] = predictor.score(["a bad"])
    assert by_step == pytest.approx(sum(value for _, value in scored), abs=1e-4)
    assert at_once == pytest.approx(by_step, abs=1e-6)
    assert refused


REFUSED = [
    ("lm", {"decoding__temperature": 0.5}, "decoding.strategy is 'sample'"),
    ("seq2seq", {"decoding__no_repeat": 2}, "decoding.no_repeat"),
    ("seq2seq", {"model__form": "single", "model__attention": "none"}, "model.form is 'single'"),
    ("seq2seq", {"model__cell": "scrn"}, "SCRN"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("task", "settings", "named"), REFUSED)
def test_what_it_cannot_write_is_refused_by_name(task: str, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ExportError, match=named):
        program_text(tiny(task, **settings), ExportOptions())


@pytest.mark.slow
def test_memory_that_no_compiler_places_is_refused() -> None:
    with pytest.raises(ExportError, match=r"lines of 1,000,000 tokens would need \d\.\d GB"):
        program_text(tiny("tag", model__hidden=300), ExportOptions(max_length=1_000_000))
