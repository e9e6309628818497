"""Bytes of UTF-8."""

from collections.abc import Sequence

from elman.text.units.base import Unit

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
VALUES = {token: bytes([byte]) for byte, token in enumerate(BYTES)}


class Byte(Unit):
    """The bytes of UTF-8, written ``<0x41>``; joined bytes that are not UTF-8 become U+FFFD."""

    grain = "character"
    counted = False

    def cut(self, text: str) -> list[str]:
        return [BYTES[byte] for byte in text.encode()]

    def join(self, tokens: Sequence[str]) -> str:
        joined = b"".join(VALUES.get(token) or token.encode() for token in tokens)
        return joined.decode(errors="replace")

    def alphabet(self) -> list[str]:
        return list(BYTES)
