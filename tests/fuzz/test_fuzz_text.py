"""Any text, name or saved part in: tokens that join to the text again, or an error."""

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from fuzzing import Entry, damaged, fuzz, text

from elman.config import VocabularySettings
from elman.registry import READERS, REGISTRIES, UNITS
from elman.text.asked import checked
from elman.text.columns import parse_columns
from elman.text.fields import TextField
from elman.text.files import inner_ending
from elman.text.lexicon import Lexicon
from elman.text.records import Source
from elman.text.units.base import unit_from_json, unit_to_json
from elman.text.vocabulary import MARKERS, Vocabulary

LETTERS = "aAbBßİéx09 \t\n.,'<>/_\u00a0\u2028\u0301\u200d😀猫ش"


@cache
def field(name: str) -> TextField:
    """A field of the unit of this name, which has learned what it can."""
    one = TextField(VocabularySettings(unit=name, vocabulary_size=300))
    one.build_unit(["the cat sat on the mat", "Straße 12, 😀 猫"] * 3)
    return one


def unit_and_text(random: Random) -> tuple[str, Any]:
    given: Any = text(random, LETTERS, 30)
    return random.choice(UNITS.names()), random.choice(
        (given, given, given, given, None, 5, given.encode("utf-8", "replace"))
    )


def check_unit(case: tuple[str, Any], folder: Path) -> None:
    """Words have one space where there were some, all else is exact; what it tells of itself restores it."""
    name, given = case
    [given] = checked([given], "texts")
    one = field(name)
    tokens = one.split(given)
    assert one.join(tokens) == (" ".join(given.split()) if name in ("word", "wordpunct") else given)
    assert all(tokens)
    assert len(one.readable(tokens)) == len(tokens)
    vocabulary = Vocabulary.build(dict.fromkeys(tokens, 1), alphabet=one.unit.alphabet())
    assert [vocabulary.tokens[number] for number in vocabulary.ids(tokens)] == tokens


def saved_unit(random: Random) -> tuple[str, Any]:
    name = random.choice(UNITS.names())
    return name, damaged(random, unit_to_json(name, field(name).unit))


def check_saved_unit(case: tuple[str, Any], folder: Path) -> None:
    name, saved = case
    one = unit_from_json(name, json.loads(json.dumps(saved)))
    assert one.join(one.split("a 1")) == "a 1"


def check_vocabulary(saved: Any, folder: Path) -> None:
    found = Vocabulary.from_json(saved)
    assert found.tokens == saved
    assert [found.id(token) for token in found.tokens] == list(range(len(found)))


def words(random: Random) -> list[str]:
    return [text(random, LETTERS, 70) for _ in range(random.randint(1, 6))]


def check_lexicon(given: list[str], folder: Path) -> None:
    """Every word has the numbers that it has alone."""
    known = Vocabulary.build(dict.fromkeys(given[::2], 1))
    letters = Vocabulary.build(dict.fromkeys("abx", 1))
    lexicon = Lexicon(known, letters, {given[0]: 1})
    tokens, vectors, spelt, lengths = lexicon.rows(np.array(lexicon.ids(given)))
    assert lexicon.words == list(dict.fromkeys(given))
    for place, word in enumerate(given):
        alone = Lexicon(known, letters, {given[0]: 1})
        [token], [vector], [row], [length] = alone.rows(np.array(alone.ids([word])))
        assert (token, vector, length) == (tokens[place], vectors[place], lengths[place])
        assert (row == spelt[place][:length]).all()


def check_name(name: str, folder: Path) -> None:
    for registry in REGISTRIES:
        assert issubclass(registry.find(name), registry.base)


def source(random: Random) -> dict[str, Any]:
    """Where records lie, as no user means it."""
    some = [None, "", "a", "tab", "-", text(random, "a.gzxcsv/\\=01,:"), text(random, LETTERS)]
    options = {name: random.choice(some) for name in ("target", "delimiter", "separator", "prefix")}
    return options | {
        "path": random.choice(some[2:]),
        "format": random.choice((None, None, *READERS.names(), "x")),
        "columns": text(random, "texlab=01,- ", 30) if random.random() < 0.5 else None,
    }


def check_source(options: dict[str, Any], folder: Path) -> None:
    columns = options["columns"]
    found = Source(**(options | {"columns": None if columns is None else parse_columns(columns)}))
    assert found.kind("text") in READERS.names()
    assert inner_ending(found.path) == inner_ending(found.path.lower())


TEXTS = [
    Entry("units", unit_and_text, check_unit),
    Entry("saved units", saved_unit, check_saved_unit, 200),
    Entry("vocabulary", lambda random: damaged(random, [*MARKERS, "a", "b"]), check_vocabulary),
    Entry("lexicon", words, check_lexicon, 200),
    Entry("names", lambda random: text(random, "lstmgru_. \\é"), check_name),
    Entry("sources", source, check_source),
]


@pytest.mark.parametrize("entry", TEXTS, ids=lambda entry: entry.name)
def test_any_text_is_taken_or_refused(entry: Entry, tmp_path: Path) -> None:
    fuzz(entry, tmp_path)
