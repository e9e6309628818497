"""Python source, character by character, each with the class of the token that it stands in."""

import io
import keyword
import tokenize
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import ClassVar

from elman.corpora.base import Corpus, Example, Settings, split_of
from elman.corpora.library import library_sources

SIZES = {"train": 4_000, "dev": 500, "test": 500}  # lines at most
LONGEST = 100  # characters in a line
CLASSES = {"NUMBER": "number", "STRING": "string", "OP": "operator", "COMMENT": "comment"}


class PythonTokens(Corpus):
    """Lines of the standard library; their characters are the words, their token classes the tags.

    The tags are keyword, name, number, string, operator, comment and space. Lines that a docstring
    or another token of several lines touches are left out: they cannot be understood alone. The
    lines depend on the release of Python.

    >>> line = next(iter(labelled("if x: return 'a b'  # no")))
    >>> " ".join(f"{character}:{tag[0]}" for character, tag in zip(*line) if tag != "space")
    "i:k f:k x:n ::o r:k e:k t:k u:k r:k n:k ':s a:s  :s b:s ':s #:c  :c n:c o:c"
    """

    task = "tag"
    summary = "characters of the standard library's Python source → class of their token"
    settings: ClassVar[Settings] = {"text.unit": "word"}

    def generate(self, split: str, random: Random) -> Iterator[Example]:
        sources = islice(library_sources(), 25)
        tags_of = {line: tags for source in sources for line, tags in labelled(source)}
        lines = [line for line in tags_of if len(line) <= LONGEST and split_of(line) == split]
        random.shuffle(lines)
        for line in islice(lines, SIZES[split]):
            yield {"word": list(line), "tag": tags_of[line]}


def labelled(source: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of a source that stand alone and are not blank, with the class of each character."""
    lines = source.split("\n")
    tags = [["space" if character.isspace() else "operator" for character in line] for line in lines]
    broken: set[int] = set()
    for first, start, last, end, tag in _tokens(source):
        if first == last:
            tags[first][start:end] = [tag] * (end - start)
        else:
            broken.update(range(first, last + 1))
    for number, line in enumerate(lines):
        if line.strip() and number not in broken:
            yield line, tags[number]


def _tokens(source: str) -> Iterator[tuple[int, int, int, int, str]]:
    """(line, column, line, column, class) of each token; an f-string is one token on every release."""
    opened: list[tuple[int, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind in ("FSTRING_START", "TSTRING_START"):
            opened.append(token.start)
        start, tag = token.start, CLASSES.get(kind)
        if kind in ("FSTRING_END", "TSTRING_END"):
            start, tag = opened.pop(), "string"
        elif token.type == tokenize.NAME:
            tag = "keyword" if keyword.iskeyword(token.string) else "name"
        if tag and not opened:
            yield start[0] - 1, start[1], token.end[0] - 1, token.end[1], tag
