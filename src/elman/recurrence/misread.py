"""What is wrong with equations that could not be read, and at which line of them."""

from __future__ import annotations

from inspect import unwrap
from traceback import walk_tb
from typing import Any

from elman.errors import EquationError


def misread(cell: Any, error: AttributeError | TypeError, *, of_the_contract: bool) -> EquationError:
    """The error for an R that raised another one on symbols; it has that one's traceback.

    ``of_the_contract``: the R is not the author's own, so that there is no line to name.
    """
    code = getattr(unwrap(type(cell).R), "__code__", None)
    file = getattr(code, "co_filename", None)
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    if isinstance(error, EquationError):
        reason = str(error.args[0])
    elif isinstance(error, AttributeError):
        names = ", ".join((*cell.state, *cell.vectors, *cell.matrices))
        reason = f"R asks for what is not there: {error}; states, vectors and matrices: {names}"
    elif not lines or "State.__new__()" in str(error):
        fields = ", ".join(f"{name}=…" for name in cell.state)
        reason = f"{error}; R(self, x, h, s) is what is called, and self.State({fields}) what it returns"
    else:
        reason = str(error)
    place = "" if code is None or of_the_contract else f" ({file}:{(code.co_firstlineno, *lines)[-1]})"
    return EquationError(f"{reason}{place}").with_traceback(error.__traceback__)
