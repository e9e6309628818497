"""The folder of a run: names that several need, and the seal of its settings.

The first line of ``config.toml`` is the SHA-256 of the rest; whoever means to change a setting deletes it.
"""

import hashlib

from elman.errors import RunError

SETTINGS = "config.toml"
LOCK = ".lock"  # held while a process trains there
ORIGIN = "origin.json"  # which runs it starts from, where it starts from any
SEAL = "# sha256 "
REMEDY = " of all that follows; delete this line if you change a setting"


def seal(text: str) -> str:
    """The settings with their SHA-256 before them."""
    return f"{SEAL}{hashlib.sha256(text.encode()).hexdigest()}{REMEDY}\n{text}"


def without_seal(text: str, path: object) -> tuple[str, bool]:
    """The settings, and whether they were sealed; a ``RunError`` where they do not fit their SHA-256."""
    first, _, rest = text.partition("\n")
    sealed = SEAL in first or REMEDY in first  # either is left where the line itself is damaged
    if sealed and text != seal(rest):
        raise RunError(
            f"{path} was changed after Elman wrote it; restore it, or, if the change is meant, delete "
            "its first line"
        )
    return (rest if sealed else text), sealed
