"""What a shell may complete a word with: names of tasks, formats and comparators, and runs.

Only what can be told at once: nothing here imports torch. Without an answer, the shell completes files.
"""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from elman.registry import NETWORKS, READERS, TASKS, Registry

DEEPEST, MOST = 3, 500  # of folders that are looked into while somebody waits


def names_of(registry: Registry, *but: str) -> Callable[[str], list[str]]:
    """Completes names of a registry, though not these."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in registry.names() if name.startswith(incomplete) and name not in but]

    return complete


task_names = names_of(TASKS)
format_names = names_of(READERS)
comparator_names = names_of(NETWORKS, "rnn")


def run_folders(incomplete: str) -> list[str]:
    """The runs whose path begins so; a name that a shell would not take as it is stays away."""
    from elman.presentation.runs import find_runs

    folder, _ = os.path.split(incomplete)
    found = find_runs(Path(folder), deepest=DEEPEST, most=MOST)
    paths = [str(run) for run in found]
    return [path for path in paths if path.startswith(incomplete) and shlex.quote(path) == path]
