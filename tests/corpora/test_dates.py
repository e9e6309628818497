"""The dates: many languages and scripts, one answer each, and what people make of the forms of CLDR."""

import sys
import unicodedata
from collections import Counter, defaultdict
from datetime import date
from functools import cache
from random import Random

import pytest

from elman.corpora import dates
from elman.corpora.base import SPLITS
from elman.corpora.dates import (
    LANGUAGES,
    SIZES,
    VISITOR,
    Dates,
    in_case,
    is_certain,
    languages,
    on_plain_keys,
)
from elman.errors import ArgumentError

pytest.importorskip("babel")

ASKED_IN = ("en", "en", "fr", "de", "es", "ru", "tr", "pl", "el", "he", "ar", "hi", "ko", "ja", "zh", "")
SCRIPTS = {
    *("ARABIC", "ARMENIAN", "BENGALI", "CJK", "CYRILLIC", "DEVANAGARI", "GEORGIAN"),
    *("GREEK", "HANGUL", "HEBREW", "LATIN", "TAMIL", "THAI"),
}


@cache
def pairs(split, seed=1):
    return [(example["source"], example["target"]) for example in Dates().examples(split, seed)]


def writings(code, day, count=3000):
    """Nearly all writings of one day in one language."""
    (language,) = (one for one in languages() if one.code == code)
    random = Random(1)
    return {dates.writing(day, language, random) for _ in range(count)}


def test_there_are_as_many_as_promised():
    for split in SPLITS:
        assert len(dict(pairs(split))) == len(pairs(split)) == SIZES[split]


def test_a_target_is_a_day():
    for _, target in pairs("test"):
        assert date.fromisoformat(target).isoformat() == target


def test_years_are_mostly_recent_and_never_short():
    years = Counter(int(target[:4]) // 100 for _, target in pairs("train"))
    assert set(years) == set(range(10, 30))
    assert 0.8 < (years[19] + years[20]) / years.total() < 0.95


def test_no_day_is_in_two_splits():
    train, dev, test = ({target for _, target in pairs(split, seed)} for seed, split in enumerate(SPLITS))
    assert train.isdisjoint(dev)
    assert train.isdisjoint(test)
    assert dev.isdisjoint(test)


def test_languages_and_scripts_are_as_many_as_promised():
    assert len({code.partition("_")[0] for code in LANGUAGES}) == 40
    letters = {character for source, _ in pairs("train") for character in source if character.isalpha()}
    scripts = {unicodedata.name(letter).partition(" ")[0] for letter in letters}
    assert scripts - {"MODIFIER", "MASCULINE"} == SCRIPTS
    assert "13 scripts" in Dates.summary
    assert "40 languages" in Dates.summary


def test_no_name_means_two_months():
    """In any language, also in capitals, without accents and without marks."""
    meanings = defaultdict(set)
    for language in languages():
        for field in {"MMM", "MMMM", "LLLL"} & language.names.keys():
            assert len(language.names[field]) == 12
            for month, name in enumerate(language.names[field], 1):
                for case in ("lower", "upper"):
                    form = on_plain_keys(in_case(name, case, language.code))
                    folded = on_plain_keys(form.casefold()).translate(dates.MARKS).replace(" ", "")
                    meanings[folded].add((month, language.code))
    assert len(meanings) > 600
    for name, found in meanings.items():
        assert len({month for month, _ in found}) == 1, (name, found)


def test_a_writing_has_one_answer():
    """Over few years, so that the same numbers meet in many orders."""
    random = Random(5)
    answers = {}
    for _ in range(40_000):
        day = date.fromordinal(random.randint(date(2010, 1, 1).toordinal(), date(2012, 12, 31).toordinal()))
        source = dates.writing(day, random.choice(languages()), random)
        assert answers.setdefault(source, day) == day, source
    assert len(answers) > 20_000
    for split in SPLITS:
        for source, target in pairs(split):
            assert answers.get(source, date.fromisoformat(target)).isoformat() == target


@pytest.mark.parametrize(
    ("form", "certain"),
    [
        ("{y}-{MM}-{dd}", True),
        ("{y}. {M}. {d}.", True),
        ("{y}年{M}月{d}日", True),
        ("{E}, {dd}.{MM}.{y}", True),
        ("{d} {MMM} {y}", True),
        ("{MMM} {o}, {y}", True),
        ("{M}.{d}.{y}", False),
        ("{dd}-{MM}-{y}", False),
        ("{M}/{d}/{y}", False),
        ("{dd}/{MM}/{y}", False),
        ("{y}-{d}-{M}", False),
        ("{d} {MMM} {yy}", False),
        ("{MMMM} {y}", False),
    ],
)
def test_only_certain_forms_are_written(form, certain):
    assert is_certain(form) == certain


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", {"2021-05-03", "2021/5/3", "20210503", "3.5.2021", "03.05.2021"}),
        (
            "en",
            {"May 3rd, 2021", "3rd of May 2021", "the 3rd of May, 2021", "Monday 3 May 2021", "3-may-2021"},
        ),
        ("es", {"3 de mayo de 2021", "lunes, 3 de mayo de 2021", "mayo 3, 2021"}),
        ("de", {"Montag, 3. Mai 2021", "MONTAG, 3. MAI 2021", "03.05.2021", "3 mai 2021"}),
        ("fi", {"maanantai 3. toukokuuta 2021", "3 toukokuu 2021"}),
        ("ru", {"3 мая 2021 г.", "3 мая 2021\u202fг.", "3 май 2021"}),
        ("uk", {"понеділок, 3 травня 2021 р."}),
        ("el", {"3 Μαΐου 2021", "3 ΜΑΪΟΥ 2021", "3 Μαιου 2021", "3 Μάιος 2021"}),
        ("tr", {"3 Mayıs 2021", "3 MAYIS 2021", "3 mayis 2021"}),
        ("ar", {"3 مايو 2021", "٣ مايو ٢٠٢١"}),
        ("hi", {"3 मई 2021", "३ मई २०२१"}),
        ("vi", {"ngày 3 tháng 5 năm 2021"}),
        ("ko", {"2021년 5월 3일", "2021. 5. 3. (월)", "2021년5월3일"}),
        ("ja", {"2021年5月3日(月)", "2021/05/03", "二〇二一年五月三日"}),
    ],
)
def test_the_forms_that_people_write(code, expected):
    assert expected - writings(code, date(2021, 5, 3)) == set()


def test_han_numbers_are_counted():
    written = writings("zh", date(2010, 12, 20)) | writings("zh", date(2010, 10, 31))
    assert {"二〇一〇年十二月二十日", "二〇一〇年十月三十一日"} <= written


@pytest.mark.parametrize(
    ("number", "written"), [(1, "1st"), (2, "2nd"), (11, "11th"), (23, "23rd"), (31, "31st")]
)
def test_english_ordinals(number, written):
    assert dates.ordinal(number, "en") == written


@pytest.mark.parametrize(
    ("text", "case", "code", "expected"),
    [
        ("3 KASIM PAZARTESİ", "lower", "tr", "3 kasım pazartesi"),
        ("3 Nisan", "upper", "tr", "3 NİSAN"),
        ("3 Απριλίου", "upper", "el", "3 ΑΠΡΙΛΙΟΥ"),
        ("ΜΆΡΤΙΟΣ", "lower", "el", "μάρτιος"),
        ("3 აპრილი", "upper", "ka", "3 აპრილი"),
        ("lundi 3 août 2020", "capitalised", "fr", "Lundi 3 Août 2020"),
        ("3 de ilı 2020", "capitalised", "tr", "3 de İlı 2020"),
        ("3 de Mayo", "as it is", "es", "3 de Mayo"),
    ],
)
def test_case_follows_the_language(text, case, code, expected):
    assert in_case(text, case, code) == expected


def test_plain_keys_touch_only_latin_and_greek():
    assert on_plain_keys("Çarşamba, września, Thứ Hai, søndag") == "Carsamba, wrzesnia, Thu Hai, sondag"
    assert on_plain_keys("май, फ़रवरी, ม.ค., 월") == "май, फ़रवरी, ม.ค., 월"


def test_numbers_never_run_together():
    """However the text is typed, its numbers can be told apart: a year has four digits, a day at most two."""
    allowed = {1, 2, 4, 8}
    for source, _ in pairs("test"):
        runs = "".join(character if character.isdigit() else " " for character in source).split()
        assert {len(run) for run in runs} <= allowed, source
        assert all(len(run) != 8 or run == source.strip() for run in runs), source


def test_a_visitor_asks_for_unseen_days():
    assert len(VISITOR) >= 12
    asked = {target for _, target in VISITOR}
    assert len(asked) == len(VISITOR)
    for split in SPLITS:
        assert not asked & {target for _, target in pairs(split)}


@pytest.mark.parametrize(("code", "asked"), [*zip(ASKED_IN, VISITOR, strict=True)])
def test_a_visitor_asks_for_what_can_be_learned(code, asked):
    """The day is written so in its language, if perhaps rarely."""
    source, target = asked
    assert source in writings(code, date.fromisoformat(target))


def test_repeated_reading_costs_nothing():
    calls = dates._pairs.cache_info().misses
    pairs.__wrapped__("dev")
    pairs.__wrapped__("dev")
    assert dates._pairs.cache_info().misses <= calls + 1


def test_without_babel_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    monkeypatch.setattr(dates, "languages", languages.__wrapped__)
    with pytest.raises(ArgumentError, match=r"corpus 'dates' needs Babel; pip install elman\[demo\]"):
        next(Dates().examples("dev", 987))
