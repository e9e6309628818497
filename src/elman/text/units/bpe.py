"""Pieces of words, learned by byte-pair encoding."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from elman.errors import ArgumentError, RunError
from elman.text.units.base import Unit

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ALPHABET = 256  # bytes, which byte-pair encoding starts with
REMEMBERED = 200_000  # words whose pieces are kept
LETTERS = 20_000_000  # characters that are learned from; of more text, every so manieth


class BytePair(Unit):
    """Byte-pair encoding of bytes (Sennrich et al. 2016; Radford et al. 2019); joined text is exact.

    A token is a piece of a word, a number or a run of signs, with the space before it, in the usual
    spelling of bytes by printable characters (``Ġ`` is a space). All tokens are in the alphabet, the
    256 bytes among them, so no text is ever unknown.
    """

    grain = "piece"
    counted = False
    learned = True
    tokenizer: Tokenizer

    def __init__(self, *, lowercase: bool = False) -> None:
        super().__init__(lowercase=lowercase)
        self._known: dict[str, list[str]] = {}

    def cut(self, text: str) -> list[str]:
        """No token goes over a space but at its beginning: so words with the space before them are kept."""
        words = text.split(" ")
        if words != text.split():  # with other white space, or with more of it
            return self._cut(text)
        known, tokens = self._known, self._cut(words[0])
        for run in words[1:]:
            own = known.get(run)
            if own is None:
                if len(known) >= REMEMBERED:
                    known.clear()
                own = known[run] = self._cut(f" {run}")
            tokens += own
        return tokens

    def _cut(self, text: str) -> list[str]:
        return self.tokenizer.encode(text, add_special_tokens=False).tokens

    def join(self, tokens: Sequence[str]) -> str:
        return str(self.tokenizer.decoder.decode(list(tokens)))

    def alphabet(self) -> list[str]:
        numbers = self.tokenizer.get_vocab()
        return sorted(numbers, key=numbers.__getitem__)

    def learn(self, texts: Iterable[str], size: int) -> None:
        if size < ALPHABET:
            raise ArgumentError(f"size is {size}; byte-pair encoding starts with the {ALPHABET} bytes")
        self.tokenizer = _trained(thinned(texts), size)
        self._known.clear()

    def state(self) -> dict[str, Any]:
        return {"tokenizer": json.loads(self.tokenizer.to_str())}

    def restore(self, state: Mapping[str, Any]) -> None:
        from tokenizers import Tokenizer, pre_tokenizers

        saved, remedy = state.get("tokenizer"), "restore the file or train again"
        if not _cuts_as_ours(saved):
            raise RunError(f"a saved tokenizer does not cut as ours do; {remedy}")
        try:
            self.tokenizer = Tokenizer.from_str(json.dumps(saved))
            self._known.clear()
        except Exception as error:  # the library raises nothing narrower
            raise RunError(f"a saved tokenizer cannot be read ({error}); {remedy}") from None
        missing = set(pre_tokenizers.ByteLevel.alphabet()).difference(self.alphabet())
        if missing:
            raise RunError(f"a saved tokenizer lacks {len(missing)} of the 256 bytes; {remedy}")


def thinned(texts: Iterable[str]) -> list[str]:
    """All texts, or of many every second, every fourth and so on, so that they are not too long together.

    >>> thinned(["a", "b", "c"])
    ['a', 'b', 'c']
    """
    kept, every, length = list[str](), 1, 0
    for number, text in enumerate(texts):
        if number % every == 0:
            kept.append(text)
            length += len(text)
            while length > LETTERS and len(kept) > 1:
                kept, every = kept[::2], 2 * every
                length = sum(map(len, kept))
    return kept


def _untrained() -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _trained(texts: Iterable[str], size: int) -> Tokenizer:
    from tokenizers import pre_tokenizers, trainers

    tokenizer = _untrained()
    first = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(  # a piece seen once is no pattern
        vocab_size=size, min_frequency=2, initial_alphabet=first, special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


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
