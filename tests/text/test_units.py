"""Every unit restores the text it cut, whatever the text, and is learned alike every time."""

import hashlib
import json
import random
import subprocess
import sys
import unicodedata

import pytest

from elman.config import VocabularySettings
from elman.errors import ArgumentError, RunError, UnknownNameError
from elman.registry import UNITS
from elman.text.fields import TextField
from elman.text.units import bpe
from elman.text.units.base import Unit, empty_unit, unit_from_json, unit_to_json
from elman.text.units.bpe import BytePair
from elman.text.units.wordpunct import WordPunct, habit_of, pieces_of
from elman.text.vocabulary import MARKERS, UNKNOWN, Vocabulary

TRAINING = [
    "the cat sat on the mat",
    "the rat sat, the cat ran!",
    "  a cat and 42 rats ",
    "Übergröße größer",
] * 5

TEXTS = [
    "",
    " ",
    "  leading and trailing  ",
    "tabs\tand\r\nline ends\n",
    "the cat sat on 1234 mats.",
    "👩‍👩‍👧 family 🇩🇪 flag 👍🏽",
    "e\u0301 is not \u00e9; Z\u0351\u036b\u0343 go",
    "ภาษาไทยไม่มีช่องว่าง",
    "العربية עברית हिन्दी 日本語 한국어",
    "\x01\x02\x07\x1b[0m\x7f\x85\u2028\u200b\ufeff",
    "\u00a0\u3000 white \u2003 space",
    "<unk> <s> </s> <pad> <0x41> Ġ Ċ ▁",
    "'s don't I'LL \ufffd \U0010ffff",
]


def make_unit(name, *, lowercase=False, size=None, training=(), options=None):
    given = {"unit": name, "lowercase": lowercase, "vocabulary_size": size, "unit_options": options or {}}
    field = TextField(VocabularySettings(**given))
    field.build_unit(training)
    return field.unit


@pytest.fixture(scope="module", params=UNITS.names())
def name(request):
    return request.param


@pytest.fixture(scope="module")
def unit(name):
    return make_unit(name, size=300, training=TRAINING)


def random_text(chance):
    def character():
        while True:
            found = chr(
                chance.choice(
                    [chance.randint(1, 0x7F), chance.randint(1, 0x2FFF), chance.randint(1, 0x10FFFF)]
                )
            )
            if unicodedata.category(found) != "Cs":  # half a surrogate pair is no text
                return found

    return "".join(
        character() if chance.random() < 0.7 else chance.choice("  the") for _ in range(chance.randint(0, 30))
    )


WORDS = ("word", "wordpunct")  # they join by one space


def restorable(name, text):
    return " ".join(text.split()) if name in WORDS else text


def test_join_restores_what_split_cut(name, unit):
    chance = random.Random(6)
    for text in [*TEXTS, *(random_text(chance) for _ in range(500))]:
        tokens = unit.split(text)
        assert all(tokens)
        assert unit.join(tokens) == restorable(name, text)


def test_lowercase_comes_before_the_cut(name, unit):
    small = make_unit(name, lowercase=True, size=300, training=TRAINING)
    assert small.lowercase
    assert not unit.lowercase
    for text in ["The CAT", "ÜBERGRÖSSE", "İstanbul ΣΑΣ"]:
        assert small.join(small.split(text)) == text.lower()
        assert small.split(text) == small.split(text.lower())
        assert unit.join(unit.split(text)) == text


def test_every_text_can_be_told_from_its_ids_where_there_is_an_alphabet(name, unit):
    vocabulary = Vocabulary.build({}, min_count=2, alphabet=unit.alphabet())
    assert len(vocabulary) == len(MARKERS) + len(unit.alphabet())
    chance = random.Random(7)
    for text in [*TEXTS, *(random_text(chance) for _ in range(200))]:
        ids = vocabulary.ids(unit.split(text))
        if name in ("byte", "bpe"):
            assert vocabulary.id(UNKNOWN) not in ids
            assert unit.join([vocabulary.tokens[number] for number in ids]) == text
        else:
            assert unit.alphabet() == []


def test_no_text_gives_a_marker_except_as_a_word():
    spelt = " ".join(MARKERS)
    for name in ("character", "byte", "bpe"):
        unit = make_unit(name, size=2000, training=[spelt] * 20)
        assert not set(unit.split(spelt)) & set(MARKERS)
        assert not set(unit.alphabet()) & set(MARKERS)


def test_saved_and_restored(name, unit):
    restored = unit_from_json(name, json.loads(json.dumps(unit_to_json(name, unit))))
    assert type(restored) is type(unit)
    assert unit_to_json(name, restored) == unit_to_json(name, unit)
    assert [restored.split(text) for text in TEXTS] == [unit.split(text) for text in TEXTS]
    assert restored.alphabet() == unit.alphabet()
    small = make_unit(name, lowercase=True, size=300, training=TRAINING)
    assert unit_from_json(name, unit_to_json(name, small)).split("The Cat") == small.split("The Cat")


def test_what_the_units_cut():
    assert make_unit("word").split(" a  b,\tc\n") == ["a", "b,", "c"]
    assert make_unit("character").split("e\u0301 👍🏽") == ["e", "\u0301", " ", "👍", "🏽"]
    assert make_unit("byte").split("A€") == ["<0x41>", "<0xE2>", "<0x82>", "<0xAC>"]
    assert make_unit("byte").alphabet() == [f"<0x{byte:02X}>" for byte in range(256)]


def test_joined_bytes_that_are_no_text(name, unit):
    tokens = {"byte": ["<0x41>", "<0xE2>", "<0x82>", "<0x42>"], "bpe": ["A", "â", "Ĥ", "B"]}
    if name in tokens:
        assert unit.join(tokens[name]) == "A\ufffdB"


def test_a_marker_is_joined_as_it_is_spelt(name, unit):
    tokens = [*unit.split("a"), UNKNOWN, *unit.split("b")]
    assert unit.join(tokens) == ("a <unk> b" if name in WORDS else "a<unk>b")


def test_bpe_learns_frequent_pieces_up_to_its_size():
    unit = make_unit("bpe", size=300, training=TRAINING)
    assert len(unit.alphabet()) == len(set(unit.alphabet())) <= 300
    assert unit.split("the cat") == ["the", "Ġcat"]
    assert len(make_unit("bpe", size=260, training=TRAINING).alphabet()) == 260
    assert len(make_unit("bpe", size=256, training=TRAINING).alphabet()) == 256
    assert len(make_unit("bpe", size=5000, training=["once"]).alphabet()) == 256
    assert make_unit("bpe", size=300, training=[]).split("ab") == ["a", "b"]


def test_bpe_is_trained_from_a_stream():
    assert (
        make_unit("bpe", size=300, training=iter(TRAINING)).state()
        == make_unit("bpe", size=300, training=TRAINING).state()
    )


def test_bpe_is_the_same_in_every_process():
    code = (
        "import json, random\nfrom elman.text.units.base import empty_unit\n"
        "chance = random.Random(8)\n"
        "words = [''.join(chance.choice('abcdé') for _ in range(chance.randint(1, 6))) for _ in range(300)]\n"
        "texts = [' '.join(chance.choice(words) for _ in range(12)) for _ in range(500)]\n"
        "unit = empty_unit('bpe', lowercase=False)\nunit.learn(texts, 900)\n"
        "print(json.dumps(unit.state()))"
    )
    outputs = {
        hashlib.sha256(
            subprocess.run(
                [sys.executable, "-c", code],
                env={"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads},
                capture_output=True,
                check=True,
            ).stdout
        ).hexdigest()
        for seed, threads in (("0", "1"), ("1", "2"), ("2", "4"))
    }
    assert len(outputs) == 1


def test_mistakes():
    with pytest.raises(UnknownNameError, match="did you mean 'character'"):
        empty_unit("charcter", lowercase=False)
    with pytest.raises(ArgumentError, match="size is 255; byte-pair encoding starts with the 256 bytes"):
        make_unit("bpe", size=255, training=TRAINING)


def damaged_tokenizers():
    saved = unit_to_json("bpe", make_unit("bpe", size=260, training=TRAINING))
    yield {**saved, "tokenizer": None}
    yield {**saved, "tokenizer": {}}
    yield {**saved, "tokenizer": {**saved["tokenizer"], "decoder": None}}
    yield {**saved, "tokenizer": {**saved["tokenizer"], "pre_tokenizer": None}}
    spaced = {**saved["tokenizer"]["pre_tokenizer"], "add_prefix_space": True}
    yield {**saved, "tokenizer": {**saved["tokenizer"], "pre_tokenizer": spaced}}
    cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    yield {**saved, "tokenizer": {**saved["tokenizer"], "truncation": cut}}
    yield {
        **saved,
        "tokenizer": {**saved["tokenizer"], "model": {**saved["tokenizer"]["model"], "dropout": 0.5}},
    }
    prefixed = {
        **saved["tokenizer"]["model"],
        "continuing_subword_prefix": "x" * 300,
    }  # a panic in the library
    yield {**saved, "tokenizer": {**saved["tokenizer"], "model": prefixed}}
    yield {
        **saved,
        "tokenizer": {**saved["tokenizer"], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
    }
    del saved["tokenizer"]
    yield saved


def test_damaged_files_are_named_as_such():
    for damaged in damaged_tokenizers():
        with pytest.raises(RunError, match="a saved tokenizer"):
            unit_from_json("bpe", damaged)
    for damaged in (
        None,
        [],
        {},
        {"unit": "word"},
        {"unit": ["word"], "lowercase": True},
        {"lowercase": False},
        {"unit": "character", "lowercase": True},
    ):
        with pytest.raises(RunError, match="a saved unit has"):
            unit_from_json("word", damaged)


def test_what_a_unit_says_of_itself():
    said = {
        name: (part.grain, part.counted, part.learned)
        for name in UNITS.names()
        for part in [UNITS.find(name)]
    }
    assert said == {
        "word": ("word", True, False),
        "wordpunct": ("word", True, False),
        "character": ("character", True, False),
        "byte": ("character", False, False),
        "bpe": ("piece", False, True),
    }


class Syllables(Unit):
    """Learns the letters that syllables end at."""

    learned = True

    def __init__(self, *, lowercase=False, shortest=1):
        super().__init__(lowercase=lowercase)
        self.shortest = shortest
        self.ends = ""

    def cut(self, text):
        found, piece = [], ""
        for letter in text:
            piece += letter
            if letter in self.ends and len(piece) >= self.shortest:
                found.append(piece)
                piece = ""
        return [*found, *([piece] if piece else [])]

    def join(self, tokens):
        return "".join(tokens)

    def learn(self, texts, size):
        letters = sorted({letter for text in texts for letter in text if letter in "aeiou"})
        self.ends = "".join(letters[:size])

    def state(self):
        return {"ends": self.ends}

    def restore(self, state):
        self.ends = state["ends"]


def test_a_users_unit_learns_and_is_restored(monkeypatch):
    monkeypatch.setattr(UNITS, "_added", {"syllables": Syllables})
    unit = make_unit("syllables", training=["Bananas", "pile"], lowercase=True)
    assert unit.ends == "aei"
    assert unit.split("BANANE") == ["ba", "na", "ne"]
    assert make_unit("syllables", training=["banane"], size=1).split("banane") == ["ba", "na", "ne"]
    saved = json.loads(json.dumps(unit_to_json("syllables", unit)))
    assert saved == {"unit": "syllables", "lowercase": True, "ends": "aei"}
    again = unit_from_json("syllables", saved, {"shortest": 3})
    assert again.split("BANANE") == ["bana", "ne"]
    with pytest.raises(ArgumentError, match=r"text\.unit_options has 'longest', unknown to Syllables"):
        make_unit("syllables", training=[], options={"longest": 3})


def test_tokenizers_are_imported_for_bpe_only():
    code = (
        "import sys\nfrom elman.text.units.base import empty_unit\n"
        "empty_unit('word', lowercase=False).split('a b')\n"
        "print('tokenizers' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_pieces_that_are_kept_are_those_of_the_whole_text():
    chance = random.Random(5)
    unit = BytePair()
    signs = ["a", "b", "é", "the", "'s", "'", ".", "1", "12", "-", "日本", "\N{GRINNING FACE}", "…", "W"]
    white = [" "] * 12 + ["  ", "\t", "\u00a0", "\u2003", "\u3000", "\x1c", "\x85", "\u200b", "\n", "   "]

    def text():
        return "".join(
            chance.choice(white) if chance.random() < 0.4 else chance.choice(signs) for _ in range(30)
        )

    unit.learn((text() for _ in range(300)), 400)
    for one in [*(text() for _ in range(3000)), "", " ", "a", " a", "a ", "a  b", "a b"]:
        assert unit.cut(one) == unit.tokenizer.encode(one, add_special_tokens=False).tokens, repr(one)


def test_a_unit_learns_from_a_part_of_many_texts(monkeypatch):
    monkeypatch.setattr(bpe, "LETTERS", 100)
    assert bpe.thinned(f"{n:03}" for n in range(33)) == [f"{n:03}" for n in range(33)]
    assert bpe.thinned(f"{n:03}" for n in range(1000)) == [f"{n:03}" for n in range(0, 1000, 32)]


def test_short_ways_cut_as_the_pattern_does():
    unit = WordPunct()
    for run in (
        "a",
        "ab",
        "ab.",
        "a.",
        "ab..",
        "ab,",
        "www.",
        "www",
        "ab'",
        "U.S.",
        "http:",
        "x:",
        "ab!?",
        "é.",
    ):
        assert [piece for piece, _ in unit._pieces(run)] == [*pieces_of(run)]
        assert unit._pieces(run) == [(piece, habit_of(piece)) for piece in pieces_of(run)]
