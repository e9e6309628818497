"""What backends make of equations: made once, by one thread, and kept with the equations."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from elman.errors import BackendError
from elman.recurrence.trace import Arrivals, Equations, presence
from elman.storage.locks import ThreadLock

Made = TypeVar("Made")

_making = ThreadLock()


def make_once(equations: Equations, key: Hashable, make: Callable[[], Made]) -> Made:
    """What ``make`` returns, at its first call for this key; if it cannot be made, its error every time."""
    kept = equations.compiled
    if key not in kept:
        with _making.held():  # making it extends the graph, which threads must not do at once
            if key not in kept:
                try:
                    kept[key] = make()
                except BackendError as error:
                    kept[key] = BackendError(*error.args)  # without the frames in which it happened
    made: Made | BackendError = kept[key]
    if isinstance(made, BackendError):
        raise BackendError(*made.args)
    return made


def for_arrivals(made: Made, equations: Equations, arrivals: Arrivals, make: Callable[[], Made]) -> Made:
    """What was made of the equations, for gradients that arrive there alone; mostly it is the same."""

    def chosen() -> Made:
        return made if presence(equations, arrivals) is None else make()

    return make_once(equations, ("arrivals", arrivals), chosen)
