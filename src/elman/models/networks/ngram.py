"""Counted n-grams in the place of a network: what does learning bring? (row L6)"""

from elman.config import RecurrentSettings
from elman.models.networks.base import Network


class Ngram(Network):
    """The task counts n-grams of up to ``order`` tokens; its counted model takes the place of the network."""

    counted = True
    reads_forward = True

    def __init__(self, input_size: int, hidden: int, *, order: int = 5) -> None:
        raise NotImplementedError("a counted model is made by its task")

    @classmethod
    def summary(cls, name: str, settings: RecurrentSettings) -> str:
        return "ngram, counted"
