"""Generated text as kernels that Triton can compile: nothing is written to disk but Triton's own cache."""

import functools
import hashlib
import linecache
from collections.abc import Callable
from typing import Any

from elman.recurrence.compiled import make_once
from elman.recurrence.triton.emit.writer import Variant
from elman.recurrence.triton.program import StepProgram


@functools.cache
def kernels(source: str) -> dict[str, Any]:
    """The functions of a generated source, by name.

    Triton reads the text of a function back through ``inspect``, which finds it in ``linecache``.
    """
    import triton
    import triton.language as tl

    from elman.recurrence.triton import mathematics

    name = f"<elman {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, [f"{line}\n" for line in source.split("\n")], name)
    functions = {key: value for key, value in vars(mathematics).items() if not key.startswith("_")}
    namespace: dict[str, Any] = {**functions, "triton": triton, "tl": tl, "__name__": "elman.generated"}
    exec(compile(source, name, "exec"), namespace)
    return namespace


def source_of(step: StepProgram, write: Callable[[StepProgram, Variant], str], variant: Variant) -> str:
    """The text of a kernel, written once for every variant."""
    return make_once(step.equations, (write, variant), lambda: write(step, variant))
