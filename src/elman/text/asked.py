"""What users ask of models, checked."""

from collections.abc import Iterable
from typing import Any

from elman.errors import ArgumentError, is_text, shortened


def checked(texts: Iterable[Any], name: str, *, lists: bool = False) -> list[Any]:
    """The texts as a list; one string is none, for its letters would be taken for texts.

    ``lists``: a text may be a list of strings instead.

    >>> checked(["a", None], "texts")
    Traceback (most recent call last):
    elman.errors.ArgumentError: E101: texts[1] is None; it must be a string
    """
    if isinstance(texts, (str, bytes)):
        raise ArgumentError(f"{name} is one string; give a list of them")
    if not isinstance(texts, Iterable):
        raise ArgumentError(f"{name} is {texts!r}; give a list of strings")
    found = list(texts)
    for number, text in enumerate(found):
        if lists and isinstance(text, Iterable) and not isinstance(text, (str, bytes)):
            found[number] = words = checked(text, f"{name}[{number}]")
            if "" in words:
                raise ArgumentError(f"{name}[{number}][{words.index('')}] is an empty word; take it out")
            continue
        if not isinstance(text, str):
            wanted = "a string or a list of strings" if lists else "a string"
            raise ArgumentError(f"{name}[{number}] is {text!r}; it must be {wanted}")
        if not is_text(text):
            shown = shortened(text)
            raise ArgumentError(f"{name}[{number}] is {shown!r}, which is no text; decode its bytes as UTF-8")
    return found
