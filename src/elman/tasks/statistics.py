"""What a first pass over the training data saw."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Statistics:
    """Counts over the training data, and notes: what a user should know about them, coverage and sizes."""

    examples: int = 0
    tokens: int = 0
    types: int = 0
    longest: int = 0
    losses: int = 0  # of all examples: one a label, or one a token that is predicted
    notes: list[str] = field(default_factory=list)
    sizes: Counter[int] = field(default_factory=Counter)  # examples by their tokens
    reasons: dict[str, str] = field(default_factory=dict)  # why open settings were chosen as they are, by key

    def add(self, *, tokens: int, losses: int, length: int) -> None:
        """One more example."""
        self.examples += 1
        self.tokens += tokens
        self.sizes[tokens] += 1
        self.losses += losses
        self.longest = max(self.longest, length)

    @property
    def typical(self) -> int:
        """Tokens of an example that half of the others do not exceed."""
        reached = 0
        for size, count in sorted(self.sizes.items()):
            reached += count
            if 2 * reached >= self.examples:
                return size
        return 0

    @property
    def losses_of_example(self) -> float:
        """How many losses are summed for an update of incremental descent, in the mean."""
        return max(1.0, self.losses / max(1, self.examples))
