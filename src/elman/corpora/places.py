"""Names of countries, languages, months, days and currencies, and the language each name belongs to."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import ClassVar

from elman.corpora.base import Corpus, Example, Settings, split_of
from elman.errors import ArgumentError

LANGUAGES = (
    *("ar", "cs", "de", "el", "en", "es", "fi", "fr", "he", "hi", "hu"),
    *("it", "ja", "ko", "nl", "pl", "pt", "ru", "sv", "tr", "uk", "zh"),
)


class Places(Corpus):
    """About 20,000 names in 22 languages and 10 scripts, from the CLDR data that Babel carries.

    A name that two of the languages share is left out, so that every question has one answer. The
    seed decides the order; the names depend on the release of Babel.
    """

    task = "classify"
    summary = "names of countries, languages, months, days and currencies → one of 22 languages (needs Babel)"
    settings: ClassVar[Settings] = {"text.unit": "character"}

    def generate(self, split: str, random: Random) -> Iterator[Example]:
        pairs = [(text, label) for text, label in _names() if split_of(text) == split]
        random.shuffle(pairs)
        for text, label in pairs:
            yield {"text": text, "label": label}


def _names() -> list[tuple[str, str]]:
    """(name, language), in a fixed order, without the names that several languages share."""
    try:
        from babel import Locale
    except ImportError as error:
        raise ArgumentError("corpus 'places' needs Babel; pip install elman[demo]") from error
    pairs = []
    for locale in map(Locale.parse, LANGUAGES):
        names = {*locale.territories.values(), *locale.languages.values(), *locale.currencies.values()}
        for table in (locale.months, locale.days):
            names.update(table["format"]["wide"].values(), table["stand-alone"]["wide"].values())
        pairs += [(name, str(locale.english_name)) for name in sorted(names) if any(map(str.isalpha, name))]
    count = Counter(name for name, _ in pairs)
    return [(name, label) for name, label in pairs if count[name] == 1]
