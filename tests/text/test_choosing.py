"""What a token is, chosen from small made samples of many scripts and kinds; what a sample is."""

import pytest

from elman.text import choosing
from elman.text.choosing import Look, choose_pieces, choose_unit, looks, sample

RAW = ["A man walks, then he sits.", "Two dogs run; one barks!", "Is this it? Yes, it is."] * 4
TOKENISED = ["a man walks , then he sits .", "two dogs run ; one barks !", "is this it ? yes , it is ."] * 4
BARE = ["book a table for two", "what is the weather like", "play some jazz"] * 4
NAMES = ["Müller", "Smith", "O'Brien", "García", "Иванов", "王"] * 3
FORMS = ["házakban", "fiúnak", "kertek", "városok"] * 3
FEATURES = ["ház N;IN+ESS;PL", "fiú N;DAT;SG", "kert N;NOM;PL", "város N;NOM;PL"] * 3
PHONES = ["HH AH0 L OW1", "K AE1 T", "D AO1 G Z", "HH AE1 T"] * 20
CHINESE = ["今天的天气非常好，我们去公园。", "这家店的东西很好吃，下次还来。"] * 6
JAPANESE = ["今日はとても天気がいいので散歩します。", "私はコーヒーを飲みたいです。"] * 6
THAI = ["วันนี้อากาศดีมากเราไปสวนกันเถอะ", "อาหารร้านนี้อร่อยมาก"] * 6
KHMER = ["ថ្ងៃនេះអាកាសធាតុល្អណាស់យើងទៅសួន"] * 12
LAO = ["ມື້ນີ້ອາກາດດີຫຼາຍພວກເຮົາໄປສວນ"] * 12
BURMESE = ["ဒီနေ့ရာသီဥတုအရမ်းကောင်းတယ်"] * 12
CUT_JAPANESE = ["今日 は とても 天気 が いい 。", "私 は コーヒー を 飲み たい です 。"] * 6
KOREAN = ["오늘은 날씨가 아주 좋습니다, 공원에 갑시다.", "커피를 마시고 싶어요, 그렇죠?"] * 6
ARABIC = ["ذهبَ الرجلُ إلى السوقِ، ثم عاد.", "هل هذا بيتُكَ؟ نعم، هذا بيتي!"] * 6
PREPARED = ["the <unk> of the company rose N %", "shares fell <unk> cents"] * 6
CODE = ["int main(void) {", "  return f(x, 1);", "  /* done, or so. */", "}"] * 6
COUNTRIES = [
    "Iceland",
    "New Zealand",
    "Finland",
    "Peru",
    "Sri Lanka",
    "Kenya",
    "Oman",
    "Qatar",
    "Fiji",
    "Laos",
]
RARE = [f"{name} lies there" for name in COUNTRIES]
ACTIONS = ["I_TURN_LEFT I_JUMP", "I_WALK I_WALK I_TURN_RIGHT"] * 6

LABELLED = {
    "raw": (RAW, "wordpunct"),
    "tokenised": (TOKENISED, "word"),
    "no punctuation": (BARE, "word"),
    "names": (NAMES, "character"),
    "Chinese": (CHINESE, "wordpunct"),
    "Japanese": (JAPANESE, "wordpunct"),
    "Thai": (THAI, "wordpunct"),
    "Khmer": (KHMER, "wordpunct"),
    "Lao": (LAO, "wordpunct"),
    "Burmese": (BURMESE, "wordpunct"),
    "Japanese that was cut": (CUT_JAPANESE, "word"),
    "Korean": (KOREAN, "wordpunct"),
    "Arabic": (ARABIC, "wordpunct"),
    "nothing": ([], "word"),
    "empty": (["", " "], "word"),
    "names between blank lines": ([*NAMES, *[""] * 40], "character"),
}


@pytest.mark.parametrize("kind", LABELLED)
def test_the_unit_of_labelled_texts(kind):
    texts, unit = LABELLED[kind]
    found, reason = choose_unit(Look.at(texts), "label")
    assert found == unit
    assert reason.startswith("since ")


@pytest.mark.parametrize(
    ("texts", "unit"),
    [(PREPARED, "word"), (TOKENISED, "word"), (CHINESE, "character"), (RAW, "bpe"), (CODE, "bpe")],
)
def test_the_unit_of_language_models(texts, unit):
    assert choose_unit(Look.at(texts), "model")[0] == unit


PAIRS = {
    "pronunciation": (NAMES, PHONES, "character", "word"),
    "inflection": (FORMS, FORMS, "character", "character"),
    "inflection by features": (FEATURES, FORMS, "character", "character"),
    "dates": (
        ["the 20th of July, 1969", "4 May 1876"] * 6,
        ["1969-07-20", "1876-05-04"] * 6,
        *["character"] * 2,
    ),
    "transliteration": (["John Smith", "Ann"] * 6, ["ジョン・スミス", "アン"] * 6, "character", "character"),
    "commands": (["turn left and jump", "walk twice"] * 6, ACTIONS, "word", "word"),
    "raw translation": (RAW, RAW, "bpe", "bpe"),
    "names of one word or two": (COUNTRIES, COUNTRIES, "character", "character"),
    "words that are mostly new": (RARE, RARE, "bpe", "bpe"),
    "tokenised translation": (TOKENISED, TOKENISED, "word", "word"),
    "Chinese to English": (CHINESE, RAW, "bpe", "bpe"),
    "English to Japanese that was cut": (TOKENISED, CUT_JAPANESE, "word", "word"),
    "spelt with spaces": (["h e l l o", "c a t s"] * 30, PHONES, "word", "word"),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_the_units_of_pairs(kind):
    sources, targets, *units = PAIRS[kind]
    sides = Look.at(sources), Look.at(targets)
    assert [choose_unit(one, "translate", other)[0] for one, other in (sides, sides[::-1])] == units


def test_reasons_name_what_was_seen():
    assert choose_unit(Look.at(["Hello, you.", "Bye, you."] * 5, ["Hello, me."]), "model") == (
        "bpe",
        "since the text is raw and 50 % of validation words are new",
    )
    assert choose_unit(Look.at(PHONES), "translate")[1].startswith("since its 11 tokens between spaces")
    assert choose_unit(Look.at(RARE), "write")[1].startswith("since 33 % of validation words are new")
    assert "Han, which has no spaces" in choose_unit(Look.at(CHINESE), "label")[1]


def test_more_text_has_more_pieces():
    sizes = [
        choose_pieces([Look.at(["a b c d e f g h i j"] * n)])[0] for n in (1, 100, 10_000, 30_000, 90_000)
    ]
    assert sizes == [500, 500, 2200, 6800, 16_000]  # a tenth stands for validation data
    small = Look.at(CHINESE)
    assert choose_pieces([small])[0] == 500
    assert small.words > 50  # there are no spaces to count


def test_a_sample_is_bounded_and_from_all_of_the_data(monkeypatch):
    for name, value in (("LOOKED", 1000), ("KEPT", 100), ("LETTERS", 2000), ("LONGEST", 50)):
        monkeypatch.setattr(choosing, name, value)
    read = iter([(str(n),) for n in range(1500)])
    kept, more = sample(read)
    assert next(read) == ("1000",)
    assert 50 <= len(kept) <= 100
    assert int(kept[-1][0]) > 980
    assert more == pytest.approx(1000 / len(kept), rel=0.05)
    long, more = sample([("x" * 500,)] * 200)
    assert len(long) * 50 <= 2000
    assert more == pytest.approx(200 * 500 / (50 * len(long)))
    assert sample(iter([(str(n),) for n in range(1500)])) == (
        kept,
        sample([(str(n),) for n in range(1500)])[1],
    )


def test_a_tenth_stands_for_validation_data_that_nobody_gave():
    [look] = looks(1, [(str(n),) for n in range(30)], None)
    assert look.dev == ["9", "19", "29"]
    assert len(look.texts) == 27
    assert look.new == 1.0
    assert Look.at(["a"]).new is None
