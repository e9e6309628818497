"""What a first pass over the training data saw."""

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

    def add(self, *, tokens: int, losses: int, length: int) -> None:
        """One more example."""
        self.examples += 1
        self.tokens += tokens
        self.losses += losses
        self.longest = max(self.longest, length)

    @property
    def losses_of_example(self) -> float:
        """How many losses are summed for an update of incremental descent, in the mean."""
        return max(1.0, self.losses / max(1, self.examples))
