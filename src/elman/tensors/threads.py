"""How many threads compute where nothing is said."""

import torch

from elman.cores import cores


def all_threads() -> int:
    """Torch's, but no more than there are cores for: torch does not ask a container for its share of them."""
    return min(torch.get_num_threads(), cores())
