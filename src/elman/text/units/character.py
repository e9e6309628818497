"""Characters: code points of Unicode."""

from collections.abc import Sequence

from elman.text.units.base import Unit


class Character(Unit):
    """Code points; a combining mark is a token of its own."""

    grain = "character"

    def cut(self, text: str) -> list[str]:
        return list(text)

    def join(self, tokens: Sequence[str]) -> str:
        return "".join(tokens)
