"""What pairs of texts say about the settings that a user left open."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Literal

from elman.config import Options
from elman.tasks.defaults import Choice
from elman.tasks.seq2seq_settings import Seq2SeqSettings
from elman.tasks.seq2seq_writer import may_copy
from elman.tasks.statistics import Statistics
from elman.text.fields import TextField
from elman.text.records import Record

LOOKED_AT = 2_000  # pairs that tell how texts are made
SEPARATORS = ";|,"  # that stand between features
OFTEN = 4  # times that a feature comes, in the mean: words of a language come more seldom
COMMON = 0.9  # share of the target's text that the source's tokens could write, from which on they are one
USUAL = 32  # tokens of a pair; of longer ones fewer are seen, since each says more
LARGE = 1_000  # types from which on tokens are the words of a language, or pieces of them
CLOSED = 500  # times that a word comes, in the mean, where a few signs are all that is ever written

Kind = Literal["words", "letters", "signs"]


def whole_features(
    config: Seq2SeqSettings, source: TextField, target: TextField, records: Iterable[Record]
) -> Choice:
    """A regular expression of features that end every source, where letters are read; or None."""
    if source.unit.grain != "character":
        return Choice(None, "")
    texts = (source.clean(record.fields["source"]) for record in records)
    return Choice(features(texts), "since every source ends with features that come again and again")


def features(texts: Iterable[str]) -> str | None:
    """A regular expression of the features that end every text, if they do: ``kutya N;ACC;PL``.

    >>> features(f"{word} N;{case};SG" for word in ("kutya", "ház", "kert") for case in ("ACC", "DAT"))
    '[ ;][^ ;]+(?=(?:;[^ ;]+)*$)'
    >>> features(["read on , please", "no features ; here", "at all"]) is None
    True
    """
    ends = [text.rpartition(" ") for text in islice(texts, LOOKED_AT)]
    if not ends or not all(before and last for before, _, last in ends):
        return None
    for separator in SEPARATORS:
        lists = [last.split(separator) for _, _, last in ends]
        found = Counter(feature for one in lists for feature in one)
        several = sum(len(one) > 1 for one in lists)
        if 2 * several >= len(lists) and "" not in found and OFTEN * len(found) <= found.total():
            return ending_features(separator)
    return None


def ending_features(separator: str) -> str:
    """A regular expression of features between such signs at the end of a text."""
    mark = re.escape(separator)
    return f"[ {mark}][^ {mark}]+(?=(?:{mark}[^ {mark}]+)*$)"


def shared_script(
    config: Seq2SeqSettings, source: TextField, target: TextField, records: Iterable[Record]
) -> Choice:
    """Whether both sides have one vocabulary: where one could write nearly all of the other."""
    counts = Counter[str](), Counter[str]()
    for record in islice(records, LOOKED_AT) if config.text.alike else ():
        for field, name, own in zip((source, target), ("source", "target"), counts, strict=True):
            text = field.clean(record.fields[name])
            own.update(text if field.unit.learned else field.split(text))
    read, written = counts
    share = sum(count for token, count in written.items() if token in read) / max(1, written.total())
    what = "characters" if source.unit.learned else "tokens"
    return Choice(share >= COMMON, f"since {share:.0%} of the target's {what} stand in sources, too")


def kind_of(source: TextField, target: TextField) -> Kind:
    """What is written: the words of a language, or pieces of them; letters or phonemes; or a few signs."""
    if "character" in (source.unit.grain, target.unit.grain):
        large = target.unit.grain != "character" and len(target.vocabulary) > LARGE
        return "words" if large else "letters"
    return "signs" if sum(target.counts) > CLOSED * len(target.vocabulary) else "words"


def usual_settings(
    config: Seq2SeqSettings, source: TextField, target: TextField, statistics: Statistics
) -> Options:
    """Values for open settings, as pairs of this kind and number want them."""
    N, V, model = max(1, statistics.examples), len(target.vocabulary), config.model
    kind, gpu, two = kind_of(source, target), config.training.device.startswith("cuda"), model.form == "two"
    long = max(1.0, statistics.tokens / N / USUAL) ** 0.5
    usual = {"words": _of_words, "letters": _of_letters, "signs": _of_signs}[kind](N, gpu, long)
    attention = model.attention or (usual["model.attention"] if two else "none")
    copies = attention != "none" and may_copy(source, target)
    letters = copies and bool(config.text.shared) and target.unit.grain == "character"
    searched = config.decoding.strategy is None and not config.decoding.draws
    why = {
        "words": f"since words of a language are written, or {V:,} pieces of them",
        "letters": "since letters are read or written, nearly in their order",
        "signs": f"since {V:,} different tokens are all that is ever written",
    }[kind]
    chosen = {
        "model.token_dropout": 0.0,
        "model.rare_dropout": 0.1,
        "model.start": "transform" if two else "copy",
        "training.learning_rate": 2e-3,
        "training.schedule": "one-cycle",
        "training.averaging": "ema",
        "training.label_smoothing": 0.0 if kind == "signs" or letters else 0.1,
        "training.teacher_forcing": 1.0,
        "model.copy_dropout": 0.005 if letters else 0.0,
        "decoding.copy_unknown": copies,
        "decoding.beam": 5 if searched else None,
        **usual,
        "training.batch_size": None if config.training.batch_tokens else usual["training.batch_size"],
        "model.attention": attention,
        "model.placement": usual["model.placement"] if attention != "none" else None,
        "model.tied": _tied(config, kind),
    }
    size = f"since there are {N:,} pairs{', and a GPU' if gpu else ''}"
    reasons = dict.fromkeys(("model.attention", "model.placement", "training.label_smoothing"), why)
    reasons |= dict.fromkeys(("model.hidden", "training.batch_size", "training.epochs"), size)
    reasons |= {"training.teacher_forcing": why} if kind == "signs" else {}
    reasons |= {"model.copy_dropout": "so that letters never seen are copied"} if letters else {}
    return chosen | {key: Choice(chosen[key], reason) for key, reason in reasons.items()}


def _of_words(N: int, gpu: bool, long: float) -> Options:
    """Translation: wide networks, much dropout, and attention asked after the step."""
    seen, least = (750_000, 8) if gpu else (350_000, 4)
    return {
        "model.hidden": 512 if gpu else 256,
        "model.embedding": 256,
        "model.dropout": 0.4 if gpu else 0.3,
        "model.input_dropout": 0.3 if gpu else 0.2,
        "model.attention": "bilinear",
        "model.placement": "after",
        "training.batch_size": fewer(128 if gpu else 64, N),
        "training.epochs": epochs(N, 64, seen / long, least),
    }


def _of_letters(N: int, gpu: bool, long: float) -> Options:
    """Inflection, pronunciation, spelling: small networks, and attention asked before the step."""
    many = N > 40_000
    width = (512 if gpu else 256) if many else 128
    return {
        "model.hidden": width,
        "model.embedding": 128,
        "model.dropout": 0.3,
        "model.input_dropout": 0.0,
        "model.attention": "additive",
        "model.placement": "before",
        "training.batch_size": fewer((256 if gpu else 128) if many else 32, N),
        "training.epochs": epochs(N, 32, (1_200_000 if many else 200_000) / long, 10),
    }


def _of_signs(N: int, gpu: bool, long: float) -> Options:
    """Commands and the like: few words, and what it wrote itself is fed half of the time."""
    return {
        "model.hidden": 128,
        "model.embedding": 64,
        "model.dropout": 0.1,
        "model.input_dropout": 0.0,
        "model.attention": "additive",
        "model.placement": "before",
        "training.learning_rate": 1e-3,
        "training.teacher_forcing": 0.5,
        "training.batch_size": fewer(32, N),
        "training.epochs": epochs(N, 32, 200_000 / long, 4),
    }


def _tied(config: Seq2SeqSettings, kind: Kind) -> Literal["all"] | bool:
    """Whether output weights are an embedding: one of both sides, or that of a large vocabulary."""
    if config.model.embedding == 0:
        return False
    return "all" if config.text.shared and config.model.form == "two" else kind == "words"


def fewer(size: int, N: int) -> int:
    """Pairs of a batch: small files have small ones, so that there are enough updates."""
    return min(size, max(8, N // 64))


def epochs(N: int, size: int, seen: float, least: int) -> int:
    """So many that about so many pairs are seen, in batches of this size, or as many updates of smaller ones.

    >>> [epochs(N, 32, 200_000, 10) for N in (100, 1_000, 10_000, 100_000)]
    [300, 94, 20, 10]
    """
    return max(least, min(300, round(seen / size * fewer(size, N) / N)))
