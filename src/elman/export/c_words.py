"""Words as vectors in C: learned, pretrained, read letter by letter, and by how they look."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from elman.errors import ExportError
from elman.export.networks import Network
from elman.export.program import Matrix, Program, padded, source
from elman.export.texts import (
    SPELL,
    check_field,
    define_classes,
    define_cuts,
    define_reader,
    define_vocabulary,
)
from elman.models.embedding import Ngrams, Words
from elman.models.indicators import Indicators
from elman.text.fields import WordField
from elman.text.lexicon import LONGEST
from elman.text.vocabulary import UNKNOWN


class WordReader:
    """``read_words(m, text, length)`` numbers the words of a line; ``words_input`` gives their vectors."""

    def __init__(self, program: Program, field: WordField, words: Words, most: int, *, tags: bool) -> None:
        self.program, self.field, self.words, self.most, self.tags = program, field, words, most, tags
        if words.pretrained is not None and not field.vector_words:
            raise ExportError("pretrained vectors without their words cannot be exported")
        self.letters = self.field.lower and (words.spelling is not None or words.affixes is not None or tags)
        self.spans = self.field.lower or words.pretrained is not None or tags
        self.width = words.output_size

    def define(self, *, indicators: bool) -> None:
        """All of it; ``indicators``: something reads how words look."""
        p, text = self.program, self.field.text
        if self.spans:
            self._define_spans(indicators)
        else:
            check_field(text, "text")
            define_reader(p, text, "source", self.most)
            p.define(
                "static int read_words(Memory *m, const uint8_t *text, size_t length)",
                ["return source_tokens(m, text, length, m->ids);"],
            )
        self._define_vectors()

    def _define_spans(self, indicators: bool) -> None:
        p, field = self.program, self.field
        unit = field.text.unit_name
        if unit not in ("word", "wordpunct", "character") and not self.tags:
            raise ExportError(f"the unit {unit!r} with letters or vectors of words cannot be exported")
        check_field(field.text, "text")
        lowercase = bool(field.text.settings.lowercase)
        define_classes(p, lower=lowercase or field.lower or bool(field.vector_words), pieces=False)
        define_vocabulary(p, "SOURCE_VOCABULARY", field.text.vocabulary.tokens)
        unknown = field.text.vocabulary.id(UNKNOWN)
        p.tables.append(f"#define GAPS_ARE_BLANKS {int(self.tags)}")
        p.tables.append(f"#define EACH_CHARACTER {int(unit == 'character' and not self.tags)}")
        p.fields["spans"] = f"uint32_t spans[{2 * self.most}];"
        bytes_ = max(4096, 64 * self.most)
        p.fields["word"] = f"uint8_t word[{2 * bytes_ + 16}];"
        lines = ["int count;"]
        if lowercase:
            lines += ["length = lower_text(text, length, m->text, sizeof m->text);", "text = m->text;"]
        if unit == "wordpunct" and not self.tags:
            lines += define_cuts(p, self.most)
            body = [f"const size_t size = {SPELL};", "const uint8_t *word = m->marked;"]
        else:
            lines += [f"count = note_words(m, text, length, {self.most});"]
            body = [
                "const uint8_t *word = text + m->spans[2 * t];",
                "const size_t size = m->spans[2 * t + 1] - m->spans[2 * t];",
            ]
        if field.lower or field.vector_words:
            body.append("const size_t small = lower_text(word, size, m->word, sizeof m->word);")
        asked = ("m->word", "small") if field.lower else ("word", "size")
        body.append(f"m->ids[t] = find_token(&SOURCE_VOCABULARY, {asked[0]}, {asked[1]}, {unknown});")
        if field.vector_words:
            define_vocabulary(p, "VECTOR_WORDS", field.vector_words)
            p.fields["vector_rows"] = f"int32_t vector_rows[{self.most}];"
            body.append("m->vector_rows[t] = find_token(&VECTOR_WORDS, word, size, -1);")
            body.append("if (m->vector_rows[t] < 0)")
            body.append("  m->vector_rows[t] = find_token(&VECTOR_WORDS, m->word, small, -1);")
        if self.letters:
            p.flags.add("READS_LETTERS")
            p.fields["letters"] = f"int32_t letters[{LONGEST + 1}];"
            p.fields["letter_count"] = "int letter_count;"
            define_vocabulary(p, "LETTERS_VOCABULARY", field.characters.tokens)
            p.tables.append(f"#define LETTER_UNKNOWN {field.characters.id(UNKNOWN)}")
            p.tables.append(f"#define NO_LETTER {field.text.vocabulary.index[UNKNOWN]}")
            p.tables.append(f"#define LONGEST_WORD {LONGEST}")
            body.append("note_letters(m, word, size);")
        if indicators:
            p.flags.add("HAS_INDICATORS")
            p.fields["looks"] = f"uint64_t looks[{12 * self.most}];"
            body.append("note_indicators(m->letters, m->letter_count, m->looks + 12 * t);")
        if self.words.spelling is not None:
            body += self._spelling()
        p.functions.append(source("words.c"))
        if self.words.spelling is not None:
            self._define_spelling()
        lines += ["for (int t = 0; t < count; t++) {", *(f"  {line}" for line in body), "}", "return count;"]
        p.define("static int read_words(Memory *m, const uint8_t *text, size_t length)", lines)

    def define_indicators(self, indicators: Indicators) -> None:
        """Tables of letters, once."""
        for name in ("written", "small", "kinds"):
            self.program.array("uint64_t", f"LETTER_{name.upper()}", getattr(indicators, name).tolist())

    def _spelling(self) -> list[str]:
        assert self.words.spelling is not None
        width = self.words.spelling.output_size
        self.program.fields["spelt"] = f"float spelt[{self.most * width}];"
        return [
            "spelling_read(m, m->letter_count);",
            f"copy(m->spelt + (size_t)t * {width}, m->spelling_last, {width});",
        ]

    def _define_spelling(self) -> None:
        p, weight, spelling = self.program, self.words.letters.weight, self.words.spelling
        assert weight is not None
        assert spelling is not None
        table, network = p.table(weight), Network(p, "spelling", spelling, shown=False)
        p.define(
            "static void spelling_input(Memory *m, int t, float *x)", [p.row("x", table, "m->letters[t]")]
        )
        network.define_read(LONGEST + 1, keeps=False)

    def _define_vectors(self) -> None:
        p, words = self.program, self.words
        lines, at = [], 0
        if not words.alone:
            weight = words.embedding.weight
            if weight is None:
                at = words.embedding.V
                lines += [f"fill(x, 0.0f, {at});", "x[m->ids[t]] = 1.0f;"]
            else:
                at = weight.shape[1]
                lines.append(p.row("x", p.table(weight), "m->ids[t]"))
        if words.pretrained is not None:
            wide = words.pretrained.output_size
            lines.append(p.row(f"x + {at}", p.table(words.pretrained.weight), "(m->vector_rows[t] + 1)"))
            at += wide
        if words.spelling is not None:
            wide = words.spelling.output_size
            lines.append(f"copy(x + {at}, m->spelt + (size_t)t * {wide}, {wide});")
            at += wide
        if words.affixes is not None:
            lines += self._hashed(f"x + {at}", words.affixes.weight)
            at += words.affixes.output_size
        if words.ngrams is not None:
            lines += self._ngrams(words.ngrams)
        p.define("static void encoder_input(Memory *m, int t, float *x)", lines)

    def _hashed(self, to: str, weight: Tensor) -> list[str]:
        """Sum the rows of a table that the indicators of a word are hashed to."""
        table, D = self.program.table(weight), weight.shape[1]
        row = self.program.field("affixes_row", padded(D))
        return [
            f"fill({to}, 0.0f, {D});",
            "for (int i = 0; i < INDICATORS; i++) {",
            "  uint32_t row;",
            f"  const int sign_of = hashed_row(m->looks[INDICATORS * t + i], {len(weight) - 1}u, &row);",
            "  if (!sign_of) continue;",
            f"  {self.program.row(row, table, 'row')}",
            f"  for (int u = 0; u < {D}; u++) ({to})[u] += (float)sign_of * {row}[u];",
            "}",
        ]

    def _ngrams(self, ngrams: Ngrams) -> list[str]:
        p = self.program
        lines = ["uint64_t key = (uint64_t)m->ids[t];"]
        for n, weight in enumerate(ngrams.tables, 1):
            table, D = p.table(weight), weight.shape[1]
            row = p.field(f"gram_{n}", padded(D))
            before = f"(t >= {n} ? (uint64_t)m->ids[t - {n}] : 0u)"
            lines += [f"key = key * 1000003u + {before} + 1u;"]
            lines.append(p.row(row, table, f"(key & {ngrams.BUCKETS - 1}u)"))
            lines.append(f"for (int u = 0; u < {D}; u++) x[u] += {row}[u];")
        return lines


def define_labels(program: Program, names: list[str], *, blank: bool) -> None:
    """``put_label(out, k)``."""
    texts = [name.encode() for name in names]
    program.array("uint8_t", "LABEL_TEXT", list(b"".join(texts)))
    program.array("uint32_t", "LABEL_STARTS", np.cumsum([0, *map(len, texts)]))
    program.tables.append(f"#define LABELS {len(names)}")
    program.longest_text = max(program.longest_text, *map(len, texts))
    program.define(
        "static void put_label(Output *out, int label)",
        ["put_bytes(out, LABEL_TEXT + LABEL_STARTS[label], LABEL_STARTS[label + 1] - LABEL_STARTS[label]);"],
    )


def sparse_table(program: Program, weight: Tensor, name: str) -> Matrix:
    """Rows of which most are zero: NAME_ROWS has the number of each, from 1 on."""
    rows = weight.detach().cpu().numpy()
    used = np.flatnonzero(np.abs(rows).max(1) > 0)
    numbers = np.zeros(len(rows), np.int64)
    numbers[used] = np.arange(1, len(used) + 1)
    program.array("uint32_t", f"{name}_ROWS", numbers)
    return program.table(np.concatenate([np.zeros((1, rows.shape[1]), np.float32), rows[used]]))
