"""Running English: what the standard library says about Python and about itself."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from random import Random
from typing import ClassVar

from elman.corpora.base import Corpus, Example, Settings, split_of
from elman.corpora.library import library_sources

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
MARKS = re.compile(r"[*`“”\"]|(?<=\s)'|'(?=[\s.,;:])")  # emphasis and quotation
SENTENCE_ENDS = re.compile(r"(?<=[a-z)][.?!]) +(?=[A-Z])")
SENTENCE = re.compile(r"[A-Z][\w ,;:()/'’–-]{15,300}[.?!]")


class Topics(Corpus):
    """Sentences of ``help()``'s topics and of docstrings, one a line, in the order of their document.

    About 5,000 sentences, 65,000 words, 400,000 characters. Headings, lists, grammars and code are
    left out, and so is a sentence that came before. A document (a topic, a docstring) belongs to one
    split as a whole; the seed decides their order. The text depends on the release of Python.
    """

    task = "lm"
    summary = "the standard library's own documentation as running English, one sentence a line"
    settings: ClassVar[Settings] = {"text.unit": "character"}

    def generate(self, split: str, random: Random) -> Iterator[Example]:
        documents = [document for document in _documents() if split_of(document[0]) == split]
        random.shuffle(documents)
        for document in documents:
            for sentence in document:
                yield {"text": sentence}


@cache  # reading the library takes a second or two, and every split needs it
def _documents() -> tuple[tuple[str, ...], ...]:
    """The sentences of each document that has any; a sentence appears once in all of them."""
    from pydoc_data.topics import topics

    seen: set[str] = set()
    documents = []
    for text in chain(topics.values(), *(_docstrings(ast.parse(source)) for source in library_sources())):
        document = tuple(sentence for sentence in dict.fromkeys(_sentences(text)) if sentence not in seen)
        seen.update(document)
        documents.append(document)
    return tuple(filter(None, documents))


def _docstrings(node: Documented) -> Iterator[str]:
    yield ast.get_docstring(node) or ""
    for child in node.body:
        if isinstance(child, Documented):
            yield from _docstrings(child)


def _sentences(text: str) -> Iterator[str]:
    """The sentences of the paragraphs that are prose: not set in, and no heading."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.split("\n")
        if not any(line.startswith((" ", ">>>", "* ", "- ")) for line in lines):
            plain = " ".join(MARKS.sub("", " ".join(lines)).split())
            yield from (part for part in SENTENCE_ENDS.split(plain) if SENTENCE.fullmatch(part))
