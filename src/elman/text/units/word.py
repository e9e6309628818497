"""Words: what white space separates."""

from collections.abc import Sequence

from elman.text.units.base import Unit


class Word(Unit):
    """What white space separates; joined by one space."""

    def cut(self, text: str) -> list[str]:
        return text.split()

    def join(self, tokens: Sequence[str]) -> str:
        return " ".join(tokens)
