"""Which worker this process is, as torchrun or our supervisor say it; nothing of torch is imported here."""

import os
from typing import NamedTuple

LOST = 75  # exit code of a worker that has lost the others: whoever started it begins again
SUPERVISOR = "ELMAN_SUPERVISOR"  # its process
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Place(NamedTuple):
    """Worker number ``rank`` of ``size``, the ``local_rank``-th of ``local_size`` on this machine."""

    rank: int
    size: int
    local_rank: int
    local_size: int


def find_place() -> Place | None:
    """The place of this process among workers, or None where nobody said that there are any."""
    if not all(name in os.environ for name in NEEDED):
        return None
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return Place(
        rank, size, int(os.environ.get("LOCAL_RANK", rank)), int(os.environ.get("LOCAL_WORLD_SIZE", size))
    )


def started_again() -> bool:
    """Whether workers before this one were lost, so that their run is to be continued."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
