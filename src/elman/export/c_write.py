"""Models that write without a source as C: language models, and sequences from classes."""

from __future__ import annotations

from torch import nn

from elman.errors import ExportError
from elman.export.networks import Network, Vectors, linear
from elman.export.program import Program, padded
from elman.export.searching import define_search, tracing_begins, tracing_ends
from elman.export.texts import (
    BY_NUMBER,
    check_field,
    define_classes,
    define_joiner,
    define_reader,
    define_vocabulary,
)
from elman.models.adaptive_softmax import AdaptiveSoftmax
from elman.models.generator import Generator
from elman.models.language_model import LanguageModel
from elman.predictor import Predictor
from elman.tasks.class2seq import Class2Seq
from elman.tasks.class2seq_writer import Class2SeqWriter
from elman.tasks.generation import LONGEST
from elman.tasks.lm import Lm
from elman.text.vocabulary import END, START

STREAM = [
    "",
    "/* A stream: one token after the other. Begin sets the state before the first one; step reads a token",
    "   and gives the log-probabilities of what follows it: NAME_TOKENS of them, in memory->log_probs. */",
    "typedef struct NAME_state { float values[NAME_STATE]; } NAME_state;",
    "void NAME_begin(NAME_state *state);",
    "const float *NAME_step(NAME_memory *memory, NAME_state *state, int32_t token);",
    "/* The number of a token, or of the unknown one; -1 where there is none. */",
    "int32_t NAME_token(const char *text, size_t length);",
]


def emit_lm(program: Program, predictor: Predictor, most: int) -> None:
    """A language model: what goes on from a line, and how probable a line is."""
    task, model = predictor.task, predictor.model
    assert isinstance(task, Lm)
    if not isinstance(model, LanguageModel):
        raise ExportError(
            f"the language model {type(model).__name__} cannot be exported; it is no recurrent network"
        )
    field = task.field
    check_field(field, "text")
    define_reader(program, field, "source", most)
    if field.unit_name in BY_NUMBER:
        define_vocabulary(program, "SOURCE_VOCABULARY", field.vocabulary.tokens)  # for ``NAME_token``
    vectors, network = Vectors(program, model.tokens), Network(program, "network", model.encoder.network)
    if model.encoder.network.bidirectional:
        raise ExportError("a language model of both directions cannot be exported")
    network.define_advance()
    program.field("input", padded(network.input_size))
    program.field("y", padded(network.width))
    lines = [*vectors.write("m->input", "token"), "network_advance(m, m->input, state, m->y);"]
    at = "m->y"
    if model.bridge is not None:
        at = program.field("bridged", padded(model.bridge.out_features))
        lines += program.affine(at, "m->y", *linear(program, model.bridge))
    V = len(field.vocabulary)
    if model.adaptive is not None:
        lines += _adaptive(program, model.adaptive, at)
    else:
        weight, bias = model.tokens.embedding.weight if model.tied else model.weight, model.bias
        assert weight is not None
        assert bias is not None
        lines += program.affine("log_probs", at, program.matrix(weight.t()), program.bias(bias))
        lines.append(f"log_softmax(log_probs, {V});")
    longest = predictor.decoding.max_length or LONGEST  # type: ignore[union-attr]
    define_search(program, predictor, lines, state=network.total_state, longest=longest)
    end = field.vocabulary.id(END)
    define_joiner(program, field, "source", texts={end: "\n"})
    start = end if task.streams else field.vocabulary.id(START)
    _define_stream(program, network.begin("s"), network.total_state, V, "source")
    read = [
        "const int count = source_tokens(m, text, length, m->ids);",
        f"int32_t token = {start};",
        "float *state = m->hypotheses[0][0];",
        "if (count < 0) return count;",
        "begin_state(state);",
    ]
    program.header.append(
        "/* The log-probability of a line with its end, in memory->numbers[0]; an error, or 0. */"
    )
    program.header.append("int NAME_score(NAME_memory *memory, const char *text, size_t length);")
    program.define(
        "static int score_text(Memory *m, const uint8_t *text, size_t length)",
        [
            *read,
            "m->numbers[0] = 0.0;",
            "m->number_count = 1;",
            "for (int t = 0; t <= count; t++) {",
            "  step(m, token, state, m->log_probs);",
            f"  token = t < count ? m->ids[t] : {end};",
            "  m->numbers[0] += (double)m->log_probs[token];",
            "}",
            "return 0;",
        ],
    )
    program.define(
        "int PUBLIC(score)(Memory *memory, const char *text, size_t length)",
        [
            "const int error = length > MOST_BYTES ? TOO_LONG : check_text((const uint8_t *)text, length);",
            "return error ? error : score_text(memory, (const uint8_t *)text, length);",
        ],
    )
    program.define(
        "static int respond(Memory *m, const uint8_t *text, size_t length, Output *out)",
        [
            *read,
            *tracing_begins(program),
            "m->count = count;",
            "for (int t = 0; t < count; t++) {",
            "  step(m, token, state, m->log_probs);",
            "  token = m->ids[t];",
            "}",
            *_written("source", "token", str(longest), tracing_ends(program, start, "count")),
        ],
    )


def _adaptive(program: Program, adaptive: AdaptiveSoftmax, y: str) -> list[str]:
    """Log-probabilities of frequent tokens, and of the others by their clusters."""
    cutoffs, head = adaptive.cutoffs, adaptive.softmax.head
    to = program.field("head", padded(head.out_features))
    lines = program.affine(to, y, *linear(program, head))
    lines += [f"log_softmax({to}, {head.out_features});", f"copy(log_probs, {to}, {cutoffs[0]});"]
    for number, tail in enumerate(adaptive.softmax.tail):
        narrow, wide = tail.children()
        assert isinstance(narrow, nn.Linear)
        assert isinstance(wide, nn.Linear)
        inner = program.field(f"narrow_{number}", padded(narrow.out_features))
        outer = program.field(f"cluster_{number}", padded(wide.out_features))
        lines += program.affine(inner, y, *linear(program, narrow))
        lines += program.affine(outer, inner, *linear(program, wide))
        lines.append(f"log_softmax({outer}, {wide.out_features});")
        share = f"{to}[{cutoffs[0] + number}]"
        goal = f"log_probs[{cutoffs[number]} + k]"
        lines.append(f"for (int k = 0; k < {wide.out_features}; k++) {goal} = {share} + {outer}[k];")
    return lines


def emit_class2seq(program: Program, predictor: Predictor, most: int) -> None:
    """A sequence from a class, whose vector decides the first state."""
    task, model = predictor.task, predictor.model
    assert isinstance(task, Class2Seq)
    classes, field, writer = task.classes, task.field, task.generation.writer
    assert isinstance(writer, Class2SeqWriter)
    if not isinstance(model, Generator):
        raise ExportError(f"the generator {type(model).__name__} cannot be exported")
    if classes.kind == "vector":
        raise ExportError("text.classes is 'vector'; classes that are numbers cannot be exported")
    names = field.vocabulary.tokens if classes.kind == "token" else classes.names
    define_vocabulary(program, "CLASSES", names)
    define_classes(program, lower=classes.kind == "token", pieces=False)
    network = Network(program, "network", model.rnn)
    network.define_advance()
    weight, V = model.embedding.weight, model.V
    program.field("input", padded(network.input_size))
    program.field("y", padded(network.width))
    lines = [f"fill(m->input, 0.0f, {padded(network.input_size)});"]
    state = network.total_state
    if writer.soft:
        state += V + 1
        fed = f"state + {network.total_state + 1}"
        given = f"copy(m->input, {fed}, {V});"
        if weight is not None:
            given = program.multiply("m->input", fed, program.matrix(weight))
        lines += [f"if (state[{network.total_state}] > 0.0f) {{", f"  {given}", "} else {"]
    token = "m->input[token] = 1.0f;"
    if weight is not None:
        token = program.row("m->input", program.table(weight), "token")
    lines += [f"  {token}", "}"] if writer.soft else [token]
    lines.append("network_advance(m, m->input, state, m->y);")
    lines += [
        *program.affine("log_probs", "m->y", *linear(program, model.output)),
        f"log_softmax(log_probs, {V});",
    ]
    if writer.soft:
        lines += [f"state[{network.total_state}] = 1.0f;"]
        lines.append(f"for (int k = 0; k < {V}; k++) ({fed})[k] = exponential(log_probs[k]);")
    longest = predictor.decoding.max_length or LONGEST  # type: ignore[union-attr]
    define_search(program, predictor, lines, state=state, longest=longest)
    define_joiner(program, field, "target")
    body = [
        f"float sums[{sum(step[0].H for step in network.steps)}] = {{0}};",
        "float *state = m->hypotheses[0][0];",
        "int any = 0;",
        f"fill(state, 0.0f, {state});",
        *network.begin("state"),
    ]
    features = classes.kind == "features"
    if features:
        program.fields["seen"] = f"uint8_t seen[{len(names)}];"
        body += [f"for (int k = 0; k < {len(names)}; k++) m->seen[k] = 0;", "{", "  size_t end = 0;"]
        next_one = "i = next_word(text, length, end, &end)"
        body.append(f"  for (size_t i = next_word(text, length, 0, &end); i < length; {next_one}) {{")
        body += ["    const int32_t own = find_token(&CLASSES, text + i, end - i, -1);"]
    else:
        body += ["{", "  {", "    int32_t own = find_token(&CLASSES, text, length, -1);"]
        if classes.kind == "token":
            body.append("    const size_t small = lower_text(text, length, m->text, sizeof m->text);")
            body.append("    if (own < 0) own = find_token(&CLASSES, m->text, small, -1);")
    body.append("    if (own < 0) return NO_LABEL;")
    if features:
        body += ["    if (m->seen[own]) continue;", "    m->seen[own] = 1;"]
    body.append("    any = 1;")
    at, ends = 0, []
    starts = [one.weight.t() for one in model.starts if isinstance(one, nn.Linear)]
    for start, step, place in zip(starts, network.steps, network.state_places(), strict=True):
        H = step[0].H
        row = program.field(f"start_{at}", padded(H))
        body.append(f"    {program.row(row, program.table(start), 'own')}")
        body.append(f"    for (int u = 0; u < {H}; u++) sums[{at} + u] += {row}[u];")
        ends.append(f"for (int u = 0; u < {H}; u++) state[{place} + u] = sigmoid(sums[{at} + u]);")
        at += H
    body += ["  }", "}", "if (!any) return NO_LABEL;", *ends]
    first = field.vocabulary.index[field.start]
    program.define(
        "static int respond(Memory *m, const uint8_t *text, size_t length, Output *out)",
        [
            *body,
            *tracing_begins(program),
            *_written("target", str(first), str(longest), tracing_ends(program, first, "0")),
        ],
    )


def _written(name: str, first: str, longest: str, traced: list[str]) -> list[str]:
    return [
        "{",
        f"  const int written = search(m, {first}, {longest});",
        *(f"  {line}" for line in traced),
        "  m->numbers[0] = m->log_probability;",
        "  m->number_count = 1;",
        f"  {name}_join(m, m->written, written, out);",
        "}",
        "return 0;",
    ]


def _define_stream(program: Program, begin: list[str], size: int, V: int, name: str) -> None:
    program.constants |= {"STATE": size, "TOKENS": V}
    program.header += STREAM
    program.define("static void begin_state(float *s)", begin)
    program.define("void PUBLIC(begin)(PUBLIC(state) *state)", ["begin_state(state->values);"])
    program.define(
        "const float *PUBLIC(step)(Memory *memory, PUBLIC(state) *state, int32_t token)",
        [
            "if (token < 0 || token >= TOKENS) return NULL;",
            "step(memory, token, state->values, memory->log_probs);",
            "return memory->log_probs;",
        ],
    )
    program.define(
        "int32_t PUBLIC(token)(const char *text, size_t length)",
        [
            f"return find_token(&{name.upper()}_VOCABULARY, (const uint8_t *)text, length,",
            f"                  {name.upper()}_UNKNOWN);",
        ],
    )
