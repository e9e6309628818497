"""Taggers as C: words, network, the linear tagger beside it, and a softmax or a chain over the tags."""

from __future__ import annotations

import torch

from elman.errors import ExportError
from elman.export.c_words import WordReader, define_labels, sparse_table
from elman.export.networks import Network, linear
from elman.export.program import Program, padded, source
from elman.models.crf import CRF
from elman.models.tagger import LinearTagger, Tagger
from elman.predictor import Predictor
from elman.tasks.tag import Tag


def emit_tag(program: Program, predictor: Predictor, most: int) -> None:
    task, model = predictor.task, predictor.model
    assert isinstance(task, Tag)
    if not isinstance(model, Tagger):
        raise ExportError(f"the tagger {type(model).__name__} is not recurrent; it cannot be exported")
    names = task.labels.names
    K = len(names)
    reader = WordReader(program, task.words, model.words, most, tags=True)
    looks = model.words.affixes is not None or model.shortcut is not None
    if looks and not reader.letters:
        raise ExportError("affixes or a shortcut without letters cannot be exported")
    if looks:
        found = model.words.affixes if model.shortcut is None else model.shortcut
        assert found is not None
        reader.define_indicators(found.indicators)
    reader.define(indicators=looks)
    define_labels(program, names, blank=True)
    encoder = Network(program, "encoder", model.encoder.network)
    encoder.define_read(most, keeps=True)
    program.fields["scores"] = f"float scores[{most * K}];"
    row = program.field("tag_row", padded(K))
    body = program.affine(
        row, f"m->encoder_outputs + (size_t)t * {encoder.width}", *linear(program, model.output)
    )
    if model.shortcut is not None:
        _define_linear(program, model.shortcut)
        share = f"{float(model.shortcut.share)!r}f"
        body += ["linear_scores(m, t, count, m->linear);"]
        body += [f"for (int k = 0; k < {K}; k++) {row}[k] += {share} * (m->linear[k] - {row}[k]);"]
    body.append(f"copy(m->scores + t * {K}, {row}, {K});")
    temperature = float(task.temperature)
    if model.crf is not None:
        end = _chain(program, model.crf, most, temperature)
    else:
        end = [
            "for (int t = 0; t < count; t++) {",
            f"  float *s = m->scores + t * {K};",
            "  int best = 0;",
            f"  for (int k = 1; k < {K}; k++) best = s[k] > s[best] ? k : best;",
            f"  for (int k = 0; k < {K}; k++) s[k] /= {temperature!r}f;",
            f"  m->numbers[t] = (double)s[best] - log_total(s, {K});",
            "  m->tags[t] = best;",
            "}",
        ]
    program.fields["tags"] = f"int32_t tags[{most}];"
    program.most_numbers = program.most_written = most
    program.define(
        "static int respond(Memory *m, const uint8_t *text, size_t length, Output *out)",
        [
            "const int count = read_words(m, text, length);",
            "m->count = count;",
            "if (count <= 0) return count;",
            "encoder_read(m, count);",
            "for (int t = 0; t < count; t++) {",
            *(f"  {line}" for line in body),
            "}",
            *end,
            "m->number_count = count;",
            "for (int t = 0; t < count; t++) {",
            "  if (t) put_byte(out, ' ');",
            "  put_label(out, m->tags[t]);",
            "}",
            "return 0;",
        ],
    )


def _define_linear(p: Program, tagger: LinearTagger) -> None:
    K = len(tagger.bias)
    table = sparse_table(p, tagger.weight, "LINEAR")
    bias = p.vector(tagger.bias)
    p.fields["linear"] = f"float linear[{K}];"
    p.fields["linear_row"] = f"float linear_row[{K}];"
    p.define(
        "static uint64_t look_at(const Memory *m, int t, int count, int which)",
        ["return t < 0 || t >= count ? 7u : m->looks[12 * t + which];"],
    )
    p.define(
        "static void linear_scores(Memory *m, int t, int count, float *to)",
        [
            "static const int shared[3] = {1, 3, 10}, near[4] = {-2, -1, 1, 2};",
            "uint64_t found[26];",
            "int n = 12;",
            "for (int i = 0; i < 12; i++) found[i] = m->looks[12 * t + i];",
            "for (int d = 0; d < 4; d++)",
            "  for (int i = 0; i < 3; i++)",
            "    found[n++] = look_at(m, t + near[d], count, shared[i]) * SPREAD +",
            "                 (uint64_t)(int64_t)near[d] * FACTOR;",
            "for (int d = 0; d < 2; d++) {",
            "  const uint64_t pair = look_at(m, t + d - 1, count, 1) * FACTOR + look_at(m, t + d, count, 1);",
            "  found[n++] = (pair * FACTOR + (uint64_t)d) * SPREAD;",
            "}",
            f"fill(to, 0.0f, {K});",
            "for (int i = 0; i < n; i++) {",
            "  uint32_t row;",
            f"  const int sign_of = hashed_row(found[i], {len(tagger.weight) - 1}u, &row);",
            "  if (!sign_of || !LINEAR_ROWS[row]) continue;",
            f"  {p.row('m->linear_row', table, 'LINEAR_ROWS[row]')}",
            f"  for (int k = 0; k < {K}; k++) to[k] += (float)sign_of * m->linear_row[k];",
            "}",
            f"for (int k = 0; k < {K}; k++) to[k] = {tagger.SCALE!r}f * (to[k] + {bias}[k]);",
        ],
    )


def _chain(p: Program, crf: CRF, most: int, temperature: float) -> list[str]:
    with torch.no_grad():
        parts = [part.float() for part in crf.constrained()]
    K = len(parts[0])
    for name, part in zip(("START", "STEPS", "END"), parts, strict=True):
        p.tables.append(f"#define CHAIN_{name} {p.vector(part)}")
    bias = torch.zeros(K) if crf.bias is None else crf.bias
    p.tables.append(f"#define CHAIN_BIAS {p.vector(bias)}")
    p.fields |= {name: f"double {name}[{most * K}];" for name in ("chain", "forward")}
    p.fields["pointers"] = f"uint16_t pointers[{most * K}];"
    p.functions.append(source("crf.c"))
    lines = ["add_chain(m, count);", "decode_chain(m, count);", "marginalise(m, count);"]
    lines += ["for (int t = 0; t < count; t++) {", f"  const double *row = m->chain + t * {K};"]
    if temperature == 1.0:
        lines.append("  m->numbers[t] = row[m->tags[t]];")
    else:
        lines += [
            f"  float heated[{K}];",
            f"  for (int k = 0; k < {K}; k++) heated[k] = (float)(row[k] / {temperature!r});",
        ]
        lines.append(f"  m->numbers[t] = (double)heated[m->tags[t]] - log_total(heated, {K});")
    return [*lines, "}"]
