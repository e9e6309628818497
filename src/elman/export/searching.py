"""The search of a program that writes: what the settings of decoding become in C."""

from __future__ import annotations

from collections.abc import Sequence

from elman.config import strategy_name
from elman.errors import ExportError
from elman.export.program import TRACED, Program, padded, source
from elman.predictor import Predictor

TOP = 5  # tokens of each step that are shown with their probabilities


def define_search(
    program: Program, predictor: Predictor, step: Sequence[str], *, state: int, longest: int, most: int = 0
) -> None:
    """``step(m, token, state, log_probs)`` of these lines, and ``search``, which writes so many at most."""
    settings = predictor.decoding
    assert settings is not None
    strategy = strategy_name(settings)
    if strategy not in ("greedy", "beam"):
        raise ExportError(
            f"decoding.strategy is {strategy!r}; C and pages write by greedy or beam, as with "
            "--set decoding.strategy=greedy; --to onnx draws, too"
        )
    refused = {"n_best": settings.n_best > 1, "no_repeat": settings.no_repeat, "stop": settings.stop}
    refused |= {"prefix": settings.prefix, "coverage_penalty": getattr(settings, "coverage_penalty", None)}
    for key, value in refused.items():
        if value:
            raise ExportError(f"decoding.{key} is set, which only --to onnx exports; undo it with --set")
    generation = predictor.generation()
    writer, vocabulary = generation.writer, generation.vocabulary
    beam = 1 if strategy == "greedy" else settings.beam or 5
    penalty = 1.0 if settings.length_penalty is None else settings.length_penalty
    never = sorted({*writer.never(settings), *vocabulary.ids(settings.banned)})
    V = len(vocabulary)
    constants = {
        "BEAM": beam,
        "TOKENS": V,
        "STATE": state,
        "END_MARKER": writer.end_marker(settings),
        "MIN_LENGTH": settings.min_length,
        "LENGTH_PENALTY": repr(float(penalty)),
        "NEVER_COUNT": len(never),
    }
    program.tables += [f"#define {name} {value}" for name, value in constants.items()]
    program.array("int32_t", "NEVER", never)
    program.field("log_probs", padded(V))
    fields = {
        "hypotheses": f"float hypotheses[2][{beam}][{max(1, state)}];",
        "histories": f"int32_t histories[2][{beam}][{longest}];",
        "totals": f"double totals[2][{beam}];",
        "last": f"int32_t last[2][{beam}];",
        "values": f"double values[{beam}];",
        "rows": f"int rows[{beam}];",
        "tokens": f"int32_t tokens[{beam}];",
        "written": f"int32_t written[{longest}];",
        "log_probability": "double log_probability;",
        "ended": "int ended;",
    }
    program.fields |= fields
    program.most_written = longest
    program.define("static void step(Memory *m, int32_t token, float *state, float *log_probs)", step)
    program.functions.append(source("search.c"))
    if program.traced:
        _define_tracing(program, max(1, state), looks=most if "weights" in program.fields else 0)


def tracing_begins(program: Program) -> list[str]:
    """Statements that keep the state before the first step, where the program is traced."""
    return ["if (m->tracing) copy(m->begun, m->hypotheses[0][0], STATE);"] if program.traced else []


def tracing_ends(program: Program, first: int, prompt: str) -> list[str]:
    """Statements that go through what was written, after a prompt of so many tokens."""
    program.first_token = first
    if not program.traced:
        return []
    return [f"if (m->tracing) trace_written(m, {first}, {prompt}, written, m->ended);"]


def _define_tracing(program: Program, state: int, looks: int) -> None:
    """``trace_written``: what was written, once more; ``looks``: over so many tokens, if it looks at any."""
    program.flags |= {"TRACED_STEPS", *(["TRACED_LOOKS"] if looks else [])}
    program.fields |= {
        "begun": f"float begun[{state}];",
        "written_count": "int written_count;",
        "prompted": "int prompted;",
        "came": f"int32_t came[{TRACED}];",
        "chances": f"float chances[{TRACED}];",
        "top": f"int32_t top[{TRACED * TOP}];",
        "top_chances": f"float top_chances[{TRACED * TOP}];",
        "attention": f"float attention[{TRACED * max(1, looks)}];",
    }
    program.tables.append(f"#define TOP {TOP}")
    program.functions.append(source("tracing.c"))
