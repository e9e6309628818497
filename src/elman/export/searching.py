"""The search of a program that writes: what the settings of decoding become in C."""

from __future__ import annotations

from collections.abc import Sequence

from elman.config import strategy_name
from elman.errors import ExportError
from elman.export.program import Program, padded, source
from elman.predictor import Predictor


def define_search(
    program: Program, predictor: Predictor, step: Sequence[str], *, state: int, longest: int, most: int = 0
) -> None:
    """``step(m, token, state, log_probs)`` of these lines, and ``search``, which writes so many at most."""
    settings = predictor.decoding
    assert settings is not None
    strategy = strategy_name(settings)
    if strategy not in ("greedy", "beam"):
        raise ExportError(
            f"decoding.strategy is {strategy!r}; an export writes by greedy or beam, as with "
            "--set decoding.strategy=greedy"
        )
    refused = {"n_best": settings.n_best > 1, "no_repeat": settings.no_repeat, "stop": settings.stop}
    refused |= {"prefix": settings.prefix, "coverage_penalty": getattr(settings, "coverage_penalty", None)}
    for key, value in refused.items():
        if value:
            raise ExportError(f"decoding.{key} is set, which cannot be exported")
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
    }
    program.fields |= fields
    if program.traced and beam == 1 and "weights" in program.fields:
        program.flags.add("TRACED")
        program.fields["attention"] = f"float attention[{longest * most}];"
        program.fields["look_count"] = "int look_count;"
    program.most_written = longest
    program.define("static void step(Memory *m, int32_t token, float *state, float *log_probs)", step)
    program.functions.append(source("search.c"))
