"""Encoder and decoder as C: a source is read, attention looks at it, and a beam writes."""

from __future__ import annotations

import math

from elman.attention.additive import Additive
from elman.attention.base import Attention
from elman.attention.bilinear import Bilinear
from elman.attention.dot import Dot
from elman.attention.location import Location
from elman.errors import ExportError
from elman.export.networks import Network, Vectors, bridge_lines, linear
from elman.export.program import Program, padded
from elman.export.searching import define_search, tracing_begins, tracing_ends
from elman.export.texts import check_field, define_copying, define_joiner, define_reader
from elman.layers.bridge import Bridge
from elman.models.seq2seq import Seq2Seq as Model
from elman.predictor import Predictor
from elman.tasks.seq2seq import Seq2Seq
from elman.tasks.seq2seq_writer import SHORTEST
from elman.text.vocabulary import START


class Attending:
    """How a score looks at the states of a source."""

    def __init__(self, program: Program, attention: Attention, most: int) -> None:
        self.program, self.attention = program, attention
        self.kind = type(attention)
        if self.kind not in (Additive, Dot, Bilinear, Location):
            raise ExportError(f"the attention {self.kind.__name__} cannot be exported")
        E, H = attention.key_size, attention.query_size
        self.E, self.H = E, H
        self.width = (
            len(attention.v) if isinstance(attention, Additive) else H if self.kind is Bilinear else E
        )
        self.keys = program.field("keys", most * self.width) if self.kind is not Dot else "m->encoder_outputs"
        self.row = program.field("key", padded(self.width))
        self.query = program.field("query", padded(self.width))
        program.field("weights", most)
        self._define()

    @property
    def sequential(self) -> bool:
        return bool(self.kind.sequential)

    def _define(self) -> None:
        p, a, A = self.program, self.attention, self.width
        remember = []
        layer = a.matrix if isinstance(a, Bilinear) else a.of_keys if isinstance(a, Additive) else None
        if layer is not None:
            at = f"m->encoder_outputs + (size_t)t * {self.E}"
            body = [
                *p.affine(self.row, at, *linear(p, layer)),
                f"copy({self.keys} + (size_t)t * {A}, {self.row}, {A});",
            ]
            remember = ["for (int t = 0; t < m->count; t++) {", *(f"  {line}" for line in body), "}"]
        p.define("static void remember(Memory *m)", remember or ["(void)m;"])
        lines = []
        query = "q"
        if isinstance(a, Additive):
            lines += p.affine(self.query, "q", *linear(p, a.of_query))
            query = self.query
        elif isinstance(a, Dot) and a.projection is not None:
            lines += p.affine(self.query, "q", *linear(p, a.projection))
            query = self.query
        at = f"{self.keys} + (size_t)t * {A}"
        if isinstance(a, Additive):
            v = p.vector(a.v)
            body = [f"const float *restrict key = {at};", "float sum = 0.0f;"]
            if self.kind is Location:
                body += self._filters()
            inside = f"{query}[u] + key[u]{' + more[u]' if self.kind is Location else ''}"
            room = p.field("scored", A)
            body += [
                f"for (int u = 0; u < {A}; u++) {room}[u] = hyperbolic_tangent({inside});",
                f"sum = dot({room}, {v}, {A});",
                "m->weights[t] = sum;",
            ]
        else:
            body = [f"m->weights[t] = dot({query}, {at}, {A});"]
        lines += ["for (int t = 0; t < m->count; t++) {", *(f"  {line}" for line in body), "}"]
        lines += ["softmax(m->weights, m->count);", f"fill(c, 0.0f, {self.E});"]
        lines += [
            "for (int t = 0; t < m->count; t++) {",
            "  const float a = m->weights[t];",
            f"  const float *restrict from = m->encoder_outputs + (size_t)t * {self.E};",
            f"  for (int u = 0; u < {self.E}; u++) c[u] += a * from[u];",
            "}",
        ]
        if self.sequential:
            lines += ["copy(seen, m->weights, m->count);", "seen[-1] = 1.0f;"]
        p.define(
            "static void look(Memory *m, const float *q, float *restrict c, float *seen)",
            [*lines, "(void)seen;"],
        )

    def _filters(self) -> list[str]:
        """What the last weights around a position add; nothing before the first look."""
        p, a = self.program, self.attention
        assert isinstance(a, Location)
        filters = p.vector(a.filters.weight[:, 0])  # (F, 2r + 1)
        F, wide = a.filters.weight.shape[0], a.filters.weight.shape[2]
        more, seen = p.field("more", padded(self.width)), p.field("filtered", F)
        matrix, _ = linear(p, a.of_filters)
        return [
            f"float *restrict more = {more};",
            f"fill(more, 0.0f, {padded(self.width)});",
            "if (seen[-1] > 0.0f) {",
            f"  for (int f = 0; f < {F}; f++) {{",
            "    float total = 0.0f;",
            f"    for (int j = 0; j < {wide}; j++) {{",
            f"      const int at = t + j - {wide // 2};",
            f"      if (at >= 0 && at < m->count) total += {filters}[f * {wide} + j] * seen[at];",
            "    }",
            f"    {seen}[f] = total;",
            "  }",
            f"  {p.multiply('more', seen, matrix)}",
            "}",
        ]


def emit_seq2seq(program: Program, predictor: Predictor, most: int) -> None:
    """All of a model that reads one text and writes another."""
    task, model = predictor.task, predictor.model
    assert isinstance(task, Seq2Seq)
    assert isinstance(model, Model)
    config = task.config
    if config.model.form != "two":
        raise ExportError(f"model.form is {config.model.form!r}, which only --to onnx exports")
    check_field(task.source, "text.source")
    define_reader(program, task.source, "source", most)
    source, target = Vectors(program, model.source), Vectors(program, model.target)
    encoder, decoder = (
        Network(program, "encoder", model.encoder.network),
        Network(program, "decoder", model.rnn),
    )
    if not isinstance(model.bridge, Bridge):
        raise ExportError("an encoder that is not recurrent cannot be exported")
    program.define("static void encoder_input(Memory *m, int t, float *x)", source.write("x", "m->ids[t]"))
    encoder.define_read(most, keeps=model.attention is not None)
    decoder.define_advance()
    attending = None if model.attention is None else Attending(program, model.attention, most)
    E, H, R = encoder.width, decoder.width, model.output_weight.shape[1]
    fed = decoder.total_state + (R if model.feeding else 0)
    state = fed + (1 + most if attending is not None and attending.sequential else 0)
    program.field("y", padded(H + E))
    program.field("input", padded(decoder.input_size))
    program.field("readout", padded(R))
    lines, at = target.write("m->input", "token"), target.width
    if model.every_step:
        lines.append(f"copy(m->input + {at}, m->encoder_last, {E});")
        at += E
    seen = f"state + {fed + 1}" if attending is not None and attending.sequential else "state"
    context = f"m->y + {H}"
    if attending is not None and model.before_placed:
        top, place = decoder.steps[-1][0], decoder.state_places()[-1]
        lines.append(f"{top.name}_output(state + {place}, m->y);")
        lines.append(f"look(m, m->y, {context}, {seen});")
        lines.append(f"copy(m->input + {at}, {context}, {E});")
        at += E
    if model.feeding:
        lines.append(f"copy(m->input + {at}, state + {decoder.total_state}, {R});")
    lines.append("decoder_advance(m, m->input, state, m->y);")
    if attending is not None and not model.before_placed:
        lines.append(f"look(m, m->y, {context}, {seen});")
    readout = "m->y"
    if model.combine is not None:
        lines += program.affine("m->readout", "m->y", *linear(program, model.combine))
        lines += [f"apply_tanh(m->readout, {R});"] if attending is not None else []
        readout = "m->readout"
    if model.feeding:
        lines.append(f"copy(state + {decoder.total_state}, {readout}, {R});")
    V = len(task.target.vocabulary)
    matrix, bias = program.matrix(model.output_weight.t()), program.bias(model.bias)
    lines += [*program.affine("log_probs", readout, matrix, bias), f"log_softmax(log_probs, {V});"]
    copies = task.writer.copies(config.decoding)
    if copies:
        define_copying(program, task.source, task.target, most, "source")
    sources, targets = task.writer.longest_pair
    given = config.decoding.max_length
    longest = given or max(SHORTEST, math.ceil(2 * targets * max(1.0, most / max(1, sources))))
    define_search(program, predictor, lines, state=state, longest=longest, most=most)
    if copies:
        program.fields["looked"] = f"int32_t looked[{config.decoding.beam or 5}];"
    define_joiner(program, task.target, "target")
    begin = bridge_lines(program, model.bridge, encoder, decoder, "m->hypotheses[0][0]")
    begin += [f"fill(m->hypotheses[0][0] + {decoder.total_state}, 0.0f, {state - decoder.total_state});"]
    length = str(given) if given else f"longest_output(count, {sources}, {targets})"
    if not given:
        program.define(
            "static int longest_output(int count, int sources, int targets)",
            [
                "const double longer = (double)count / (double)(sources > 1 ? sources : 1);",
                "const double most = 2.0 * targets * (longer > 1.0 ? longer : 1.0);",
                "const int whole = (int)most + ((double)(int)most < most);",
                f"return whole > {SHORTEST} ? whole : {SHORTEST};",
            ],
        )
    noted = []
    if copies and task.source.settings.lowercase:
        noted = ["note_spans(m, lower_text(text, length, m->text, sizeof m->text));"]
    elif copies:
        noted = ["for (size_t i = 0; i < length; i++) m->text[i] = text[i];", "note_spans(m, length);"]
    program.define(
        "static int respond(Memory *m, const uint8_t *text, size_t length, Output *out)",
        [
            "const int count = source_tokens(m, text, length, m->ids);",
            "int written;",
            "m->number_count = 0;",
            "m->count = count;",
            "if (count <= 0) return count;",
            *noted,
            "encoder_read(m, count);",
            *(["remember(m);"] if attending is not None else []),
            *begin,
            *tracing_begins(program),
            f"written = search(m, {task.target.vocabulary.id(START)}, {length});",
            *tracing_ends(program, task.target.vocabulary.id(START), "0"),
            "m->numbers[0] = m->log_probability;",
            "m->number_count = 1;",
            "target_join(m, m->written, written, out);",
            "return 0;",
        ],
    )
