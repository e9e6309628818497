"""Dates as people write them, in many languages and scripts, and the same dates in ISO 8601."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import date
from functools import cache, lru_cache
from random import Random
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from elman.corpora.base import Corpus, Example, Settings, split_of
from elman.errors import ArgumentError

if TYPE_CHECKING:
    from babel import Locale

SIZES = {"train": 60_000, "dev": 2_000, "test": 5_000}
RECENT = (date(1900, 1, 1), date(2099, 12, 31))
DISTANT = (date(1000, 1, 1), date(2999, 12, 31))  # a year has four digits
DISTANT_SHARE = 0.15

# Croatian is missing: its listopad is October, and the listopad of Polish and Czech is November.
LANGUAGES = (
    *("en", "en_GB", "es", "fr", "de", "pt", "it", "nl", "sv", "da", "nb", "fi", "pl", "cs", "sk", "hu"),
    *("ro", "tr", "id", "vi", "ca", "lt", "ru", "uk", "bg", "sr", "el", "hy", "ka", "he", "ar"),
    *("fa", "ur", "hi", "mr", "bn", "ta", "th", "ko", "ja", "zh", "zh_Hant"),
)
WEIGHTS = {"en": 4, "": 3}  # how often a language is drawn, where that is not once; "" has only numbers
COUNTED = {"ko", "ja", "zh", "zh_Hant"}  # months are numbers there, and stand in one place

# Only languages with nominatives of their own: for the others Babel answers with those of whichever
# language was asked first (python-babel/babel#1234).
NOMINATIVE_MONTHS = {"ca", "cs", "el", "fa", "fi", "hy", "lt", "pl", "ru", "sk", "uk"}
NOMINATIVE_DAYS = {"fi"}

# Patterns in the letters of CLDR, and o: the day as an ordinal number.
NUMBERS = ("y-MM-dd", "y-M-d", "y/MM/dd", "y/M/d", "y.MM.dd", "yMMdd", "d.M.y", "dd.MM.y", "d. M. y")
NUMBER_FIELDS = {"y", "M", "MM", "d", "dd", "o"}
WORDS = ("d MMMM y", "dd MMMM y", "d MMM y", "EEEE d MMMM y")
TYPED = {
    "en": (
        *("MMMM o, y", "MMM o y", "MMMM 'the' o, y", "EEEE, MMMM o, y", "E MMM d y", "y MMMM d"),
        *("o MMMM y", "o 'of' MMMM y", "'the' o 'of' MMMM, y", "EEEE 'the' o 'of' MMMM y"),
        *("EEEE, d MMMM y", "E d MMM y", "d-MMM-y", "dd-MMM-y"),
    ),
    "ca": ("d MMMM 'de' y",),
    "da": ("'den' d. MMMM y",),
    "de": ("'den' d. MMMM y", "EEEE, 'den' d. MMMM y", "E d. MMM y"),
    "es": ("d 'de' MMMM 'del' y", "EEEE d 'de' MMMM 'de' y", "MMMM d 'de' y", "MMMM d, y"),
    "fr": ("o MMMM y", "'le' o MMMM y", "EEEE o MMMM y"),
    "it": ("o MMMM y",),
    "ko": ("y년M월d일",),
    "pt": ("o 'de' MMMM 'de' y", "EEEE, o 'de' MMMM 'de' y"),
    "sv": ("'den' d MMMM y",),
    "vi": ("'ngày' d MMMM 'năm' y", "EEEE, 'ngày' d MMMM 'năm' y"),
}
ENGLISH_ENDINGS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
FIRST = {"fr": "1er", "it": "1º", "pt": "1º"}
NATIVE_ZEROS = {"ar": "٠", "bn": "০", "fa": "۰", "hi": "०", "mr": "०", "th": "๐", "ur": "۰"}
HAN_DIGITS = "〇一二三四五六七八九"

# How often people write otherwise than CLDR does.
NATIVE_SHARE = 0.4
HAN_SHARE = 0.15
CASE_SHARES = {"as it is": 0.64, "lower": 0.22, "upper": 0.07, "capitalised": 0.07}
PLAIN_SHARE = 0.15
NO_MARKS_SHARE = 0.15
MISSING_SPACE_SHARE = 0.05
DOUBLED_SPACE_SHARE = 0.05
MARKS = str.maketrans("", "", ",.،")
PLAIN = str.maketrans("łŁøØđĐıʼ’׳", "lLoOdDi'''")  # what Unicode does not take apart

VISITOR = (
    ("the 20th of July, 1969", "1969-07-20"),
    ("October 14th 1066", "1066-10-14"),
    ("14 juillet 1789", "1789-07-14"),
    ("Donnerstag, 9. November 1989", "1989-11-09"),
    ("12 de octubre de 1492", "1492-10-12"),
    ("12 апреля 1961 г.", "1961-04-12"),
    ("29 EKİM 1923", "1923-10-29"),
    ("11 listopada 1918", "1918-11-11"),
    ("25 Μαρτίου 1821", "1821-03-25"),
    ("1 בספטמבר 2025", "2025-09-01"),
    ("٢٠ نوفمبر ٢٠٢٢", "2022-11-20"),
    ("१५ अगस्त १९४७", "1947-08-15"),
    ("1988년 9월 17일", "1988-09-17"),
    ("1964年10月10日(土)", "1964-10-10"),
    ("二〇〇八年八月八日", "2008-08-08"),
    ("29.2.2024", "2024-02-29"),
)  # what a visitor may try; these days are in no split


class Language(NamedTuple):
    """The names of months and days by the letters of their field, and the templates of whole dates."""

    code: str
    names: dict[str, tuple[str, ...]]
    templates: tuple[str, ...]


class Dates(Corpus):
    """About 67,000 dates in 40 languages and 13 scripts, from the CLDR data that Babel carries.

    All forms of CLDR that hold a day, a month and a year of four digits, and what people make of
    them: ``the 3rd of May, 2021``, ``lundi 3 aout 2020``, ``3.5.2021``, ``٣ مايو ٢٠٢١``. Every source
    has one answer: a form in numbers begins with the year, or has dots and begins with the day
    (``3/5/2021`` is left out), and no name means two months. Days are those of the Gregorian calendar,
    also before 1582. All writings of one day are in one split; they depend on the release of Babel.
    """

    task = "seq2seq"
    summary = "dates in 40 languages and 13 scripts, as people write them → YYYY-MM-DD (needs Babel)"
    settings: ClassVar[Settings] = {
        "text.unit": "character",
        "text.shared": False,
        "model.hidden": 128,
        "model.embedding": 64,
        "model.attention": "additive",
        "model.placement": "after",
        "model.start": "zero",  # so that it has to look
        "model.dropout": 0.1,
        "training.batch_size": 128,
        "training.learning_rate": 4e-3,
        "training.max_steps": 1700,
        "training.validate_every": 425,
        "decoding.beam": 1,
    }

    def generate(self, split: str, random: Random) -> Iterator[Example]:
        for source, target in _pairs(split, random.getrandbits(64)):
            yield {"source": source, "target": target}


@lru_cache(maxsize=6)
def _pairs(split: str, seed: int) -> list[tuple[str, str]]:
    """(writing, ISO date) of a split; each writing once."""
    random = Random(seed)
    known = languages()
    weights = [WEIGHTS.get(language.code, 1) for language in known]
    kept_back = {target for _, target in VISITOR}
    pairs: dict[str, str] = {}
    while len(pairs) < SIZES[split]:
        first, last = DISTANT if random.random() < DISTANT_SHARE else RECENT
        day = date.fromordinal(random.randint(first.toordinal(), last.toordinal()))
        target = day.isoformat()
        if split_of(target) == split and target not in kept_back:
            (language,) = random.choices(known, weights)
            pairs[writing(day, language, random)] = target
    return list(pairs.items())


@cache
def languages() -> list[Language]:
    """All languages, and one without words, whose dates are numbers."""
    return [Language("", {}, tuple(map(template, NUMBERS))), *map(_language, LANGUAGES)]


def _language(code: str) -> Language:
    try:
        from babel import Locale
    except ImportError as error:
        raise ArgumentError("corpus 'dates' needs Babel; pip install elman[demo]") from error
    locale = Locale.parse(code)
    names = _names(code, locale)
    known = NUMBER_FIELDS | names.keys()
    templates = dict.fromkeys(template(pattern) for pattern in _patterns(code, locale))
    usable = (form for form in templates if fields_of(form) <= known and is_certain(form))
    return Language(code, names, tuple(usable))


def _names(code: str, locale: Locale) -> dict[str, tuple[str, ...]]:
    """By field; months in their order, days from Monday on."""
    months, days = locale.months["format"], locale.days["format"]
    tables = {"MMMM": months["wide"], "MMM": months["abbreviated"]}
    tables |= {"EEEE": days["wide"], "cccc": days["wide"], "E": days["abbreviated"]}
    if code in NOMINATIVE_MONTHS:
        tables["LLLL"] = locale.months["stand-alone"]["wide"]
    if code in NOMINATIVE_DAYS:
        tables["cccc"] = locale.days["stand-alone"]["wide"]
    names = {
        field: tuple(unicodedata.normalize("NFC", table[key]) for key in sorted(table))
        for field, table in tables.items()
    }
    return names | {"EEE": names["E"], "ccc": names["E"], "G": (locale.eras["abbreviated"][1],)}


def _patterns(code: str, locale: Locale) -> Iterator[str]:
    formats = [form.pattern for form in locale.date_formats.values()]
    skeletons = locale.datetime_skeletons.items()
    formats += [form.pattern for key, form in skeletons if "y" in key and "G" not in key]
    for pattern in formats:
        yield pattern
        yield pattern.replace("\u202f", " ")  # no keyboard has the narrow space of CLDR
    if code not in COUNTED:
        yield from WORDS
    if code in NOMINATIVE_MONTHS:
        yield "d LLLL y"
    yield from TYPED.get(code, ())


def template(pattern: str) -> str:
    """A pattern of CLDR for ``str.format``: what is quoted, or no ASCII letter, stands for itself.

    >>> template("d 'de' MMMM 'de' y")
    '{d} de {MMMM} de {y}'
    """
    parts = r"'([^']*)'|([a-zA-Z])\2*"
    return re.sub(parts, lambda found: f"{{{found[0]}}}" if found[2] else found[1], pattern)


def fields_of(form: str) -> set[str]:
    """The fields of a template.

    >>> sorted(fields_of("{d} de {MMMM} de {y}"))
    ['MMMM', 'd', 'y']
    """
    return set(re.findall(r"\{(\w+)\}", form))


def is_certain(form: str) -> bool:
    """Whether a template makes dates that can be read in one way only.

    >>> is_certain("{d}/{M}/{y}"), is_certain("{d}.{M}.{y}"), is_certain("{y}/{M}/{d}")
    (False, True, True)
    """
    fields = fields_of(form)
    if "y" not in fields or not fields & {"d", "dd", "o"}:
        return False
    if has_words(form):
        return True
    year_first = r"\{y\}[^{]*\{MM?\}[^{]*\{dd?\}"
    day_first = r"\{dd?\}\. ?\{MM?\}\. ?\{y\}"
    return re.search(f"{year_first}|{day_first}", form) is not None


def has_words(form: str) -> bool:
    """Whether a template names the month, so that its marks may go."""
    return "{MMM" in form or "{LLL" in form


def writing(day: date, language: Language, random: Random) -> str:
    """One of the ways in which people of this language write the day."""
    form = random.choice(language.templates)
    fields = _fields(day, language)
    if "年" in form and random.random() < HAN_SHARE:
        fields |= _han_fields(day)
    text = form.format_map(fields)
    zero = NATIVE_ZEROS.get(language.code)
    if zero and random.random() < NATIVE_SHARE:
        text = re.sub("[0-9]", lambda digit: chr(ord(zero) + int(digit[0])), text)
    return _as_typed(text, language.code, has_words(form), random)


def _fields(day: date, language: Language) -> dict[str, str]:
    places = {"M": day.month - 1, "L": day.month - 1, "E": day.weekday(), "c": day.weekday(), "G": 0}
    names = {field: table[places[field[0]]] for field, table in language.names.items()}
    year_and_month = {"y": str(day.year), "M": str(day.month), "MM": f"{day.month:02}"}
    days = {"d": str(day.day), "dd": f"{day.day:02}", "o": ordinal(day.day, language.code)}
    return names | year_and_month | days


def ordinal(number: int, code: str) -> str:
    """The day of a month as people count it; outside English only the first is special.

    >>> ordinal(22, "en"), ordinal(1, "fr"), ordinal(2, "fr")
    ('22nd', '1er', '2')
    """
    if code == "en":
        return f"{number}{ENGLISH_ENDINGS.get(number, 'th')}"
    return FIRST.get(code, "1") if number == 1 else str(number)


def _han_fields(day: date) -> dict[str, str]:
    year = "".join(HAN_DIGITS[int(digit)] for digit in str(day.year))
    return {"y": year, "M": _han_number(day.month), "d": _han_number(day.day)}


def _han_number(number: int) -> str:
    tens, ones = divmod(number, 10)
    ten = (HAN_DIGITS[tens] if tens > 1 else "") + "十" if tens else ""
    return ten + (HAN_DIGITS[ones] if ones else "")


def _as_typed(text: str, code: str, words: bool, random: Random) -> str:
    """The text with the liberties that people take; never so that two numbers run together."""
    (case,) = random.choices(list(CASE_SHARES), list(CASE_SHARES.values()))
    text = in_case(text, case, code)
    if random.random() < PLAIN_SHARE:
        text = on_plain_keys(text)
    if words and random.random() < NO_MARKS_SHARE:
        text = text.translate(MARKS)
    chance = random.random()
    missing = chance < MISSING_SPACE_SHARE
    spaces = [found.start() for found in re.finditer(r"(?<!\d) | (?!\d)" if missing else " ", text)]
    if chance >= MISSING_SPACE_SHARE + DOUBLED_SPACE_SHARE or not spaces:
        return text
    place = random.choice(spaces)
    return f"{text[:place]}{'' if missing else '  '}{text[place + 1 :]}"


def in_case(text: str, case: str, code: str) -> str:
    """The text in one of the cases, by the rules of its language.

    >>> in_case("3 nisan", "upper", "tr"), in_case("3 Μαΐου", "upper", "el")
    ('3 NİSAN', '3 ΜΑΪΟΥ')
    """
    if case == "upper":
        return _upper(text, code)
    if case == "lower":
        return (text.replace("İ", "i").replace("I", "ı") if code == "tr" else text).lower()
    if case == "capitalised":  # short words are prepositions or endings
        return re.sub(r"[^\W\d_]{3,}", lambda word: _upper(word[0][0], code) + word[0][1:], text)
    return text


def _upper(text: str, code: str) -> str:
    if code == "ka":  # Unicode has capitals for Georgian, and people do not
        return text
    if code == "el":  # capitals have no accents, but keep their diaeresis
        accented = unicodedata.normalize("NFD", text.upper())
        return unicodedata.normalize("NFC", accented.replace("\u0301", ""))
    return (text.replace("i", "İ") if code == "tr" else text).upper()


def on_plain_keys(text: str) -> str:
    """Latin and Greek letters without accents, and apostrophes straight; all else as it is.

    >>> on_plain_keys("3 août, 1 d’abril, 3 Μαΐου, 3 май")
    "3 aout, 1 d'abril, 3 Μαιου, 3 май"
    """
    decomposed = unicodedata.normalize("NFD", text.translate(PLAIN))
    return unicodedata.normalize("NFC", re.sub(r"([a-zA-ZΑ-Ωα-ω])[\u0300-\u036f]+", r"\1", decomposed))
