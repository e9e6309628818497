"""Classifiers as C: words, network, pooling, head, and the linear models beside them."""

from __future__ import annotations

import numpy as np
from torch import nn

from elman.errors import ExportError
from elman.export.c_words import WordReader, define_labels
from elman.export.networks import Network, linear
from elman.export.program import Program, padded, source
from elman.export.texts import define_classes, define_wordlike
from elman.models.classifier import Classifier
from elman.models.poolings.attention import AttentionPooling
from elman.models.poolings.base import Pooling
from elman.models.poolings.last import Last
from elman.models.poolings.max import Max
from elman.models.poolings.mean import Mean
from elman.models.poolings.mean_max import MeanMax
from elman.models.shortcut import LinearShortcut
from elman.predictor import Predictor
from elman.tasks.classify import Classify
from elman.text.ngrams import BLOCK


def emit_classify(program: Program, predictor: Predictor, most: int) -> None:
    task, model = predictor.task, predictor.model
    assert isinstance(task, Classify)
    if not isinstance(model, Classifier):
        raise ExportError(
            f"the classifier {type(model).__name__} cannot be exported; it is no recurrent network"
        )
    names = task.labels.names
    K = len(names)
    reader = WordReader(program, task.words, model.words, most, tags=False)
    reader.define(indicators=False)
    define_labels(program, names, blank=False)
    encoder = Network(program, "encoder", model.encoder.network)
    encoder.define_read(most, keeps=type(model.pooling) is not Last)
    scores = program.field("scores", padded(K))
    lines, at = _pooled(program, model.pooling, encoder.width, most)
    for number, layer in enumerate(model.head):
        if isinstance(layer, nn.Linear):
            last = number == len(model.head) - 1
            to = scores if last else program.field(f"head_{number}", padded(layer.out_features))
            lines += program.affine(to, at, *linear(program, layer))
            if not last:
                lines.append(f"for (int u = 0; u < {layer.out_features}; u++) {to}[u] = rectify({to}[u]);")
            at = to
    shown = []
    if model.shortcut is not None:
        _define_shortcut(program, model.shortcut, most)
        shown = [f"mix_shortcut(m, text, length, {scores});"]
    program.most_numbers = K
    program.define(
        "static int respond(Memory *m, const uint8_t *text, size_t length, Output *out)",
        [
            "const int count = read_words(m, text, length);",
            "int best = 0;",
            "m->count = count;",
            "if (count <= 0) return count;",
            "encoder_read(m, count);",
            *lines,
            *shown,
            f"for (int k = 1; k < {K}; k++) best = {scores}[k] > {scores}[best] ? k : best;",
            f"for (int k = 0; k < {K}; k++) {scores}[k] /= {float(task.temperature)!r}f;",
            f"m->number_count = {K};",
            *(_several(program, task, scores) if task.multilabel else _single(scores, K)),
            "return 0;",
        ],
    )


def _single(scores: str, K: int) -> list[str]:
    """One label, and the log-probabilities of all."""
    kept = f"for (int k = 0; k < {K}; k++) m->numbers[k] = (double){scores}[k];"
    return [f"log_softmax({scores}, {K});", kept, "put_label(out, best);"]


def _several(p: Program, task: Classify, scores: str) -> list[str]:
    """All labels that are probable enough, the most probable first, equal ones by their names."""
    names, K = task.labels.names, len(task.labels.names)
    between = (task.config.data.labels_separator or "|").encode()
    p.array("int32_t", "BY_NAME", sorted(range(K), key=names.__getitem__))
    p.array("uint8_t", "BETWEEN", list(between))
    p.most_written = K
    p.longest_text += len(between)
    return [
        "(void)best;",
        f"for (int k = 0; k < {K}; k++) {{",
        f"  m->numbers[k] = -log_of(1.0 + exp_of(-(double){scores}[k]));",
        f"  {scores}[k] = (float)exp_of(m->numbers[k]);",
        "}",
        "for (int any = 0;; any = 1) {",
        "  int found = -1;",
        f"  for (int i = 0; i < {K}; i++) {{",
        "    const int k = BY_NAME[i];",
        f"    if ((double){scores}[k] < {task.config.evaluation.threshold!r}) continue;",
        f"    if (found < 0 || {scores}[k] > {scores}[found]) found = k;",
        "  }",
        "  if (found < 0) break;",
        f"  if (any) put_bytes(out, BETWEEN, {len(between)});",
        "  put_label(out, found);",
        f"  {scores}[found] = -1.0f;",
        "}",
    ]


def _pooled(p: Program, pooling: Pooling, E: int, most: int) -> tuple[list[str], str]:
    """Statements that make one vector of all outputs, and where it is."""
    if type(pooling) is Last:
        return [], "m->encoder_last"
    to = p.field("pooled", padded(2 * E))
    row = f"m->encoder_outputs + (size_t)t * {E}"
    loop = "for (int t = 0; t < count; t++) {"
    mean = [f"fill({to}, 0.0f, {E});", loop, f"  const float *h = {row};"]
    mean += [f"  for (int u = 0; u < {E}; u++) {to}[u] += h[u];", "}"]
    mean += [f"for (int u = 0; u < {E}; u++) {to}[u] /= (float)count;"]

    def largest(first: int) -> list[str]:
        at = f"{to}[{first} + u]"
        lines = [f"fill({to} + {first}, -INFINITE, {E});", loop, f"  const float *h = {row};"]
        return [*lines, f"  for (int u = 0; u < {E}; u++) {at} = h[u] > {at} ? h[u] : {at};", "}"]

    if type(pooling) is Mean:
        return mean, to
    if type(pooling) is Max:
        return largest(0), to
    if type(pooling) is MeanMax:
        return [*mean, *largest(E)], to
    if isinstance(pooling, AttentionPooling):
        p.flags |= {"TRACED_POOLING"} if p.traced else set()
        inner = p.field("energy", padded(E))
        p.fields["attended"] = f"float attended[{most}];"
        v = p.vector(pooling.v.weight[0])
        lines = [loop, *(f"  {line}" for line in p.affine(inner, row, *linear(p, pooling.W)))]
        lines += [f"  apply_tanh({inner}, {E});", f"  m->attended[t] = dot({inner}, {v}, {E});", "}"]
        lines += [
            "softmax(m->attended, count);",
            f"fill({to}, 0.0f, {E});",
            loop,
            f"  const float *h = {row};",
        ]
        lines += [f"  for (int u = 0; u < {E}; u++) {to}[u] += m->attended[t] * h[u];", "}"]
        return lines, to
    raise ExportError(f"the pooling {type(pooling).__name__} cannot be exported")


def _define_shortcut(p: Program, shortcut: LinearShortcut, most: int) -> None:
    define_classes(p, lower=True, pieces=False)
    define_wordlike(p)
    hashes = shortcut.hashes.cpu().numpy()
    words = int(np.searchsorted(hashes, BLOCK))
    K = len(shortcut.bias) // 2
    p.array("uint32_t", "NGRAM_HASHES", hashes % BLOCK)
    p.tables += [f"#define NGRAM_COUNT {len(hashes)}u", f"#define NGRAM_WORDS {words}u"]
    p.tables.append(f"#define NGRAM_RARITY {p.vector(shortcut.rarity)}")
    p.tables.append(f"#define NGRAM_BIAS {p.vector(shortcut.bias)}")
    for name, share in zip(("NETWORK", "REGRESSION", "BAYES"), shortcut.weights.tolist(), strict=True):
        p.tables.append(f"#define SHARE_{name} {float(share)!r}f")
    table = p.table(shortcut.weight)
    p.fields["ngram_often"] = f"uint32_t ngram_often[{max(1, len(hashes))}];"
    p.fields["ngram_places"] = f"uint32_t ngram_places[{max(1, len(hashes))}];"
    bytes_ = max(4096, 64 * most)
    p.fields["ngram_starts"] = f"uint32_t ngram_starts[{2 * bytes_ + 32}];"
    p.fields["small"] = f"uint8_t small[{2 * bytes_ + 16}];"
    p.fields["spelled"] = f"uint8_t spelled[{2 * bytes_ + 32}];"
    p.fields |= {"ngram_found": "uint32_t ngram_found;", "ngram_last": "uint32_t ngram_last;"}
    p.fields["ngram_any"] = "int ngram_any;"
    p.fields["linear"] = f"float linear[{2 * K}];"
    p.fields["ngram_row"] = f"float ngram_row[{2 * K}];"
    p.define("static void ngram_row(Memory *m, uint32_t place)", [p.row("m->ngram_row", table, "place")])
    p.functions.append(source("ngrams.c"))
