"""The user's own code in a run: each file that the settings name is copied, and loaded by its hash."""

from pathlib import Path

from elman.config import Config, part_names
from elman.registry import named_code
from elman.storage.files import explained, write_bytes
from elman.storage.sealed import sealed
from elman.trust import CODE, INDEX


def keep_code(run: Path, config: Config) -> None:
    """Copy the files that settings name classes of; ``index.json`` tells which copy stands for which path."""
    codes = named_code((name for _, name in part_names(config)), None).values()
    files = {file.path: file for code in codes if code.place.endswith(".py") for file in code.files}
    if not files:
        return
    with explained(run / CODE):
        (run / CODE).mkdir(exist_ok=True)
        for file in files.values():
            write_bytes(run / CODE / f"{file.digest}.py", file.content)
        index = {"files": {path: file.digest for path, file in files.items()}}
        write_bytes(run / CODE / INDEX, sealed(index))
