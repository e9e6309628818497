"""What a token is: a word, a character, a byte, or a piece learned by byte-pair encoding."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from elman.errors import ArgumentError, RunError, UnknownNameError, nearest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNITS = ("word", "character", "byte", "bpe")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
VALUES = {token: bytes([byte]) for byte, token in enumerate(BYTES)}


class Unit(ABC):
    """Cuts a text into tokens and puts it together again.

    ``lowercase`` is applied before cutting. ``join`` shows a token that no text gives, such as a marker,
    as it is spelt.
    """

    name: ClassVar[str]

    def __init__(self, *, lowercase: bool = False) -> None:
        self.lowercase = lowercase

    def split(self, text: str) -> list[str]:
        return self._cut(text.lower() if self.lowercase else text)

    @abstractmethod
    def _cut(self, text: str) -> list[str]: ...

    @abstractmethod
    def join(self, tokens: Sequence[str]) -> str: ...

    def alphabet(self) -> list[str]:
        """Tokens that a vocabulary must have whatever their counts, for then nothing is unknown."""
        return []

    def to_json(self) -> dict[str, Any]:
        return {"unit": self.name, "lowercase": self.lowercase}


class Word(Unit):
    """What white space separates; joined by one space."""

    name = "word"

    def _cut(self, text: str) -> list[str]:
        return text.split()

    def join(self, tokens: Sequence[str]) -> str:
        return " ".join(tokens)


class Character(Unit):
    """Code points; a combining mark is a token of its own."""

    name = "character"

    def _cut(self, text: str) -> list[str]:
        return list(text)

    def join(self, tokens: Sequence[str]) -> str:
        return "".join(tokens)


class Byte(Unit):
    """The bytes of UTF-8, written ``<0x41>``; joined bytes that are not UTF-8 become U+FFFD."""

    name = "byte"

    def _cut(self, text: str) -> list[str]:
        return [BYTES[byte] for byte in text.encode()]

    def join(self, tokens: Sequence[str]) -> str:
        joined = b"".join(VALUES.get(token) or token.encode() for token in tokens)
        return joined.decode(errors="replace")

    def alphabet(self) -> list[str]:
        return list(BYTES)


class BytePair(Unit):
    """Byte-pair encoding of bytes (Sennrich et al. 2016; Radford et al. 2019); joined text is exact.

    A token is a piece of a word, a number or a run of signs, with the space before it, in the usual
    spelling of bytes by printable characters (``Ġ`` is a space). All tokens are in the alphabet, the
    256 bytes among them, so no text is ever unknown.
    """

    name = "bpe"

    def __init__(self, tokenizer: Tokenizer, *, lowercase: bool = False) -> None:
        super().__init__(lowercase=lowercase)
        self.tokenizer = tokenizer

    def _cut(self, text: str) -> list[str]:
        return self.tokenizer.encode(text, add_special_tokens=False).tokens

    def join(self, tokens: Sequence[str]) -> str:
        return str(self.tokenizer.decoder.decode(list(tokens)))

    def alphabet(self) -> list[str]:
        numbers = self.tokenizer.get_vocab()
        return sorted(numbers, key=numbers.__getitem__)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "tokenizer": json.loads(self.tokenizer.to_str())}


PLAIN: dict[str, type[Word | Character | Byte]] = {"word": Word, "character": Character, "byte": Byte}


def make_unit(
    unit: str, *, lowercase: bool = False, size: int = 8000, training: Iterable[str] | None = None
) -> Unit:
    """A unit by its name; ``bpe`` learns at most ``size`` tokens from the texts of ``training``.

    >>> make_unit("word", lowercase=True).split("The cat  sat.")
    ['the', 'cat', 'sat.']
    >>> make_unit("byte").split("é")
    ['<0xC3>', '<0xA9>']
    """
    if unit in PLAIN:
        return PLAIN[unit](lowercase=lowercase)
    if unit != "bpe":
        raise UnknownNameError(f"unit {unit!r} is not known; {nearest(unit, UNITS)}")
    if training is None:
        raise ArgumentError("unit 'bpe' is learned from text; give the texts as training")
    if size < len(BYTES):
        raise ArgumentError(f"size is {size}; byte-pair encoding starts with the {len(BYTES)} bytes")
    texts = (text.lower() for text in training) if lowercase else training
    return BytePair(_trained(texts, size), lowercase=lowercase)


def unit_from_json(obj: Any) -> Unit:
    """The unit that :meth:`Unit.to_json` described, checked.

    >>> unit_from_json({"unit": "character", "lowercase": False}).split("né")
    ['n', 'é']
    """
    unit, lowercase = (obj.get("unit"), obj.get("lowercase")) if isinstance(obj, dict) else (None, None)
    if unit not in UNITS or not isinstance(lowercase, bool):
        raise RunError(
            f"a saved unit has 'unit' {unit!r} and 'lowercase' {lowercase!r}; "
            f"they must be one of {', '.join(UNITS)} and true or false"
        )
    if unit in PLAIN:
        return PLAIN[unit](lowercase=lowercase)
    return _restored(obj.get("tokenizer"), lowercase)


def _untrained() -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _trained(texts: Iterable[str], size: int) -> Tokenizer:
    from tokenizers import pre_tokenizers, trainers

    tokenizer = _untrained()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,  # a piece seen once is no pattern
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _restored(saved: Any, lowercase: bool) -> BytePair:
    from tokenizers import Tokenizer, pre_tokenizers

    remedy = "restore the file or train again"
    if not _cuts_as_ours(saved):
        raise RunError(f"a saved tokenizer does not cut as ours do; {remedy}")
    try:
        unit = BytePair(Tokenizer.from_str(json.dumps(saved)), lowercase=lowercase)
    except Exception as error:  # the library raises nothing narrower
        raise RunError(f"a saved tokenizer cannot be read ({error}); {remedy}") from None
    missing = set(pre_tokenizers.ByteLevel.alphabet()).difference(unit.alphabet())
    if missing:
        raise RunError(f"a saved tokenizer lacks {len(missing)} of the 256 bytes; {remedy}")
    return unit


def _cuts_as_ours(saved: Any) -> bool:
    """Whether it cuts and joins as a new one, whatever it has learned.

    One that shortens texts or draws its merges would lose text, and strange ones stop the library dead.
    """
    ours = json.loads(_untrained().to_str())
    model = ours.pop("model")
    if not isinstance(saved, dict) or not isinstance(saved.get("model"), dict):
        return False
    return all(saved.get(name) == value for name, value in ours.items()) and all(
        name in ("vocab", "merges") or saved["model"].get(name, value) == value
        for name, value in model.items()
    )
