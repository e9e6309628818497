"""``--to c``: one C99 file and its header, with weights, reader, network and search inside."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from weakref import finalize

from elman.errors import ExportError
from elman.export.c_classify import emit_classify
from elman.export.c_seq2seq import emit_seq2seq
from elman.export.c_tag import emit_tag
from elman.export.c_write import emit_class2seq, emit_lm
from elman.export.options import Answer, Answering, ExportOptions
from elman.export.program import Program, source
from elman.predictor import Predictor
from elman.storage.files import write_text

Emit = Callable[[Program, Predictor, int], None]
TASKS: dict[str, Emit] = {
    "class2seq": emit_class2seq,
    "classify": emit_classify,
    "lm": emit_lm,
    "seq2seq": emit_seq2seq,
    "tag": emit_tag,
}
OPTIMISED = ('"O3"', '"no-trapping-math"', '"no-math-errno"', '"no-tree-loop-distribute-patterns"')
BYTES = 64  # of a line for each token that it may have
MOST_MEMORY = 2**31 - 1  # bytes: as many as an int counts, and a linker places
ARRAY = re.compile(r"([a-z0-9_]+)(?: NAME_piece \{.*\})? \w+((?:\[\d+\])+);$")
WIDTHS = {"double": 8, "uint64_t": 8, "uint8_t": 1, "uint16_t": 2, "struct": 16}  # others have 4 bytes
ERRORS = {
    "NOT_UTF8": (-1, "not UTF-8"),
    "HAS_NUL": (-2, "a NUL character"),
    "TOO_LONG": (-3, "longer than this model reads"),
    "NO_ROOM": (-4, "no room for the answer"),
    "NO_LABEL": (-5, "a class that training never saw"),
}


def write(predictor: Predictor, folder: Path, options: ExportOptions) -> None:
    header, text = program_text(predictor, options)
    write_text(folder / f"{options.name}.h", header)
    write_text(folder / f"{options.name}.c", text)


def written_program(predictor: Predictor, options: ExportOptions, *, traced: bool = False) -> Program:
    """All that the C of a model consists of; ``traced``: it can tell what led to an answer."""
    emit = TASKS.get(predictor.config.task)
    if emit is None:
        raise ExportError(
            f"a {predictor.config.task} model cannot be exported as C; known: {', '.join(TASKS)}"
        )
    program = Program(int8=options.int8, traced=traced)
    program.field("ids", options.max_length, "int32_t")
    predictor.model.eval()
    emit(program, predictor, options.max_length)
    if traced:
        lines = [f"if (cell == {i}) return m->{one.field};" for i, one in enumerate(program.traces)]
        program.define(
            "static float *trace_of(Memory *m, int cell)", [*lines, "(void)m, (void)cell;", "return 0;"]
        )
    return program


def program_text(
    predictor: Predictor, options: ExportOptions, program: Program | None = None
) -> tuple[str, str]:
    """The header and the C file of a model."""
    program = program or written_program(predictor, options)
    name, upper = options.name, options.name.upper()
    bytes_ = max(4096, BYTES * options.max_length)
    longest = program.longest_text
    answer = program.most_written * (longest + 1) * (3 if program.repairs else 1) + 16
    constants = {"MOST_BYTES": bytes_, "MOST_ANSWER": answer}
    numbers = program.most_numbers
    program.fields["text"] = f"uint8_t text[{2 * bytes_ + 16}];"
    program.fields["numbers"] = f"double numbers[{numbers}];"
    program.fields["number_count"] = "int number_count;"
    program.fields["count"] = "int count;"
    check_memory(program, 4 * bytes_ + answer, options.max_length)
    what = f"{predictor.config.task} model {predictor.task.describe(predictor.model)[0]}"
    header = [
        f"/* {name}: a {what}, as one file of C, made by elman export. */",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {upper}_MOST_ANSWER {answer} /* bytes of the longest answer */",
        *(f"#define {name}_{key} {value}" for key, value in program.constants.items()),
        *(f"#define {upper}_{key} ({value}) /* {said} */" for key, (value, said) in ERRORS.items()),
        "",
        "/* All that one answer needs besides the weights: have one for each thread. */",
        f"typedef struct {name}_memory {{",
        *(f"  {field.replace('NAME', name)}" for field in program.fields.values()),
        f"}} {name}_memory;",
        "",
        "/* Answer a line of UTF-8: the number of bytes of the answer, which does not end in NUL, or an",
        "   error, which is below 0. Log-probabilities are in memory->numbers then: number_count of them. */",
        f"long {name}_answer({name}_memory *memory, const char *text, size_t length,",
        f"{' ' * (len(name) + 13)}char *answer, size_t room);",
        f"const char *{name}_error(int error);",
        *(line.replace("NAME", name) for line in program.header),
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    parts = [
        f"/* {name}: a {what}, as one file of C, made by elman export.",
        f"   cc -O2 {name}.c -lm -o {name}   (with -DNO_MAIN it is a library; see {name}.h) */",
        f'#include "{name}.h"',
        "#include <float.h>",
        "",
        "#if defined(__GNUC__) && !defined(__clang__)",
        f"#pragma GCC optimize({', '.join(OPTIMISED)})",
        "#endif",
        "#if defined(__GNUC__)",
        '#pragma GCC diagnostic ignored "-Wunused-function"',
        "#endif",
        *(["#define FREESTANDING 1"] if options.freestanding else []),
        f"#define PUBLIC(name) {name}_##name",
        *(f"#define {key} ({value})" for key, (value, _) in ERRORS.items()),
        *(f"#define {key} {value}" for key, value in constants.items()),
        "#define INFINITE 3.0e38f",
        *(f"#define {flag} 1" for flag in sorted(program.flags)),
        f"typedef {name}_memory Memory;",
        source("mathematics.c"),
        source("runtime.c"),
        program.weights_text(),
        *program.unicode,
        source("text.c"),
        *([source("wordpunct.c")] if program.flags & {"CUTS_WORDPUNCT", "JOINS_HABITS"} else []),
        *program.tables,
        *program.functions,
        source("answer.c"),
    ]
    if not options.freestanding:
        parts += ["#ifndef NO_MAIN", source("main.c"), "#endif", ""]
    return "\n".join(header), "\n".join(parts)


def check_memory(program: Program, texts: int, most: int) -> None:
    """Refuse a program whose memory, with that of its texts, is more than a compiler places."""
    needed = texts
    for field in program.fields.values():
        if found := ARRAY.match(field):
            sizes = (int(one) for one in re.findall(r"\d+", found[2]))
            needed += math.prod(sizes, start=WIDTHS.get(found[1], 4))
    if needed > MOST_MEMORY:
        raise ExportError(
            f"lines of {most:,} tokens would need {needed / 1e9:.1f} GB of memory; "
            "an export has 2 GB at most: give a smaller --max-length"
        )


def compiler() -> str:
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if found is None:
        raise ExportError("no C compiler is there to prove the export with; install gcc or clang")
    return found


def open_written(folder: Path) -> Answering:
    """The C file, compiled and asked; it is compiled once."""
    [path] = folder.glob("*.c")
    place = Path(mkdtemp(prefix="elman-"))
    binary = place / "program"
    command = [compiler(), "-O2", "-std=c99", str(path), "-lm", "-o", str(binary)]
    if "int main(" not in path.read_text(encoding="utf-8"):
        driver = place / "driver.c"
        write_text(driver, f'#include "{path.resolve()}"\n{source("main.c")}')
        command = [compiler(), "-O2", "-std=c99", f"-I{folder}", str(driver), "-lm", "-o", str(binary)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(place, ignore_errors=True)
        raise ExportError(f"the C file does not compile: {done.stderr[:2000]}")

    def ask(texts: Sequence[str]) -> list[Answer]:
        given = "".join(f"{text}\n" for text in texts)
        answered = subprocess.run([str(binary), "--numbers"], input=given.encode(), capture_output=True)
        if answered.returncode:
            raise ExportError(
                f"the program ended with {answered.returncode}: {answered.stderr.decode()[:500]}"
            )
        return list(_parsed(answered.stdout))

    finalize(ask, shutil.rmtree, place, True)
    return ask


def _parsed(output: bytes) -> Iterator[Answer]:
    """Answers with their numbers and lengths: an answer may have several lines."""
    place = 0
    while place < len(output):
        numbers, length, start = b"", b"", place
        end = output.index(b"\t", start)
        numbers, start = output[start:end], end + 1
        end = output.index(b"\t", start)
        length, start = output[start:end], end + 1
        place = start + int(length) + 1
        yield Answer(output[start : place - 1].decode(), tuple(map(float, numbers.split())))
