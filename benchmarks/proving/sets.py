"""Sets of $ELMAN_DATA as questions and answers: what they are for, and how they are read."""

import csv
import gzip
import io
import lzma
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

Example = tuple[Any, Any]  # text and label; words and tags; source and target; a line of text and nothing
Reader = Callable[[Path], list[list[Example]]]
MOST_TESTED = 2000
PARTS = ("train", "dev", "test")


class Split(NamedTuple):
    """Examples for training, validation (empty: none is given) and test."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]


@dataclass(frozen=True)
class Set:
    """Data for a task, the measure that is usual there, and what only a user can know about them."""

    name: str
    task: str
    measure: str
    read: Reader
    settings: tuple[str, ...] = ()
    chosen_on: bool = False  # were defaults chosen by looking at it?


def lines_of(path: Path) -> list[str]:
    """The lines of a file, packed or not."""
    for ending, opened in ((".xz", lzma.decompress), (".gz", gzip.decompress)):
        packed = path.with_name(f"{path.name}{ending}")
        if packed.exists():
            return opened(packed.read_bytes()).decode().removesuffix("\n").split("\n")
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def labelled(data: Path, pattern: str, parts: tuple[str, ...] = PARTS) -> list[list[Example]]:
    """``label⇥text``."""
    files = ([line.split("\t", 1) for line in lines_of(data / pattern.format(part))] for part in parts)
    return [[(row[1], row[0]) for row in rows if len(row) == 2 and row[1].strip()] for rows in files]


def tiny(data: Path, name: str) -> list[list[Example]]:
    train, test = labelled(data, f"more/classify/tiny_intents/{name}.{{}}.tsv", ("train", "test"))
    return [train, [], test]


def table(data: Path, pattern: str, text: str, label: str) -> list[list[Example]]:
    files = (csv.DictReader(io.StringIO("\n".join(lines_of(data / pattern.format(one))))) for one in PARTS)
    return [[(row[text], row[label]) for row in rows if row[text].strip()] for rows in files]


def marked(data: Path, kind: str) -> list[list[Example]]:
    files = (lines_of(data / f"classify/sst/stsa.{kind}.{part}") for part in PARTS)
    return [[(line[2:], line[0]) for line in lines if line.strip()] for lines in files]


def parallel(data: Path, pattern: str, ends: tuple[str, str], parts: tuple[str, ...]) -> list[list[Example]]:
    """Two files, line by line."""
    files = ([lines_of(data / pattern.format(part, end)) for end in ends] for part in parts)
    return [
        [(one.strip(), other.strip()) for one, other in zip(*both, strict=True) if one.strip()]
        for both in files
    ]


def slots(data: Path, folder: str) -> list[list[Example]]:
    found = parallel(data, f"{folder}/{{}}/{{}}", ("seq.in", "seq.out"), ("train", "valid", "test"))
    return [[(words.split(), tags.split()) for words, tags in part] for part in found]


def columns(data: Path, files: tuple[str, ...], word: int, tag: int) -> list[list[Example]]:
    """A word a line, a blank line after a sentence; ranges and empty nodes of CoNLL-U are left out."""
    return [_sentences(lines_of(data / name), word, tag) for name in files]


def _sentences(lines: list[str], word: int, tag: int) -> list[Example]:
    found: list[Example] = []
    words: list[str] = []
    tags: list[str] = []
    for line in [*lines, ""]:
        cells = line.split("\t") if "\t" in line else line.split(" ")
        if not line.strip():
            if words:
                found.append((words, tags))
            words, tags = [], []
        elif len(cells) > max(word, tag) and not (word and (line[0] == "#" or not cells[0].isdigit())):
            words.append(cells[word])
            tags.append(cells[tag].strip())
    return found


def pairs(data: Path, names: tuple[str, ...], source: tuple[int, ...] = (0,)) -> list[list[Example]]:
    """``source⇥target``, where the source may be several columns."""
    files = ([line.split("\t") for line in lines_of(data / name) if "\t" in line] for name in names)
    return [[(" ".join(row[place] for place in source), row[1]) for row in rows] for rows in files]


def inflection(data: Path, language: str) -> list[list[Example]]:
    names = (f"more/seq2seq/inflection_2018/{language}-{part}.tsv" for part in ("train-high", "dev", "test"))
    return pairs(data, tuple(names), (0, 2))


def pronunciation(data: Path) -> list[list[Example]]:
    """10,000 of the training lines without stress; a word of the test has all its pronunciations."""
    train, dev, test = pairs(data, tuple(f"seq2seq/cmudict/g2p.{part}.tsv" for part in PARTS))
    train, dev, test = ([(one, _unstressed(other)) for one, other in part] for part in (train, dev, test))
    several: dict[str, list[str]] = {}
    for word, said in test:
        several.setdefault(word, []).append(said)
    return [drawn(train, 10_000, 0), dev, [(word, "\n".join(said)) for word, said in several.items()]]


def _unstressed(said: str) -> str:
    return "".join(letter for letter in said if not letter.isdigit())


def commands(data: Path, split: str) -> list[list[Example]]:
    files = (lines_of(data / f"seq2seq/scan/tasks_{part}_{split}.txt") for part in ("train", "test"))
    train, test = (
        [tuple(line.removeprefix("IN: ").split(" OUT: ")) for line in lines if " OUT: " in line]
        for lines in files
    )
    return [train, [], test]  # type: ignore[list-item]


def text(data: Path, names: tuple[str, ...]) -> list[list[Example]]:
    return [[(line, "") for line in lines_of(data / name)] for name in names]


def shakespeare(data: Path) -> list[list[Example]]:
    """The first 90 %, the halves of the rest."""
    found = [(line, "") for line in lines_of(data / "lm/tinyshakespeare/input.txt")]
    first, second = len(found) * 90 // 100, len(found) * 95 // 100
    return [found[:first], found[first:second], found[second:]]


def _classify() -> list[Set]:
    more = "more/classify/{0}/{0}.{{}}"
    readers: dict[str, Reader] = {
        "sst2": partial(marked, kind="binary"),
        "sst5": partial(marked, kind="fine"),
        "sms": partial(labelled, pattern="classify/sms_spam/sms.{}.tsv"),
        "names": partial(labelled, pattern="classify/names/names.{}.tsv"),
        "banking77": partial(table, pattern=more.format("banking77") + ".csv", text="text", label="category"),
        "waimai": partial(table, pattern=more.format("waimai") + ".csv", text="review", label="label"),
    }
    for name, folder in (("snips", "tagging/snips"), ("atis", "more/tagging/atis")):
        readers[name] = partial(
            parallel, pattern=folder + "/{}/{}", ends=("seq.in", "label"), parts=("train", "valid", "test")
        )
    folders = {"cr": "custrev", "news4": "newsgroups4"}
    for name in ("clinc150", "cr", "mpqa", "mr", "subj", "langid", "r8", "news4"):
        readers[name] = partial(labelled, pattern=more.format(folders.get(name, name)) + ".tsv")
    for name in ("chatbot", "askubuntu", "webapps"):
        readers[name] = partial(tiny, name=name)
    apart = ("sst5", "snips", "banking77", "clinc150", "chatbot", "webapps")
    return [
        Set(name, "classify", "accuracy", read, chosen_on=name not in apart) for name, read in readers.items()
    ]


def _tag() -> list[Set]:
    def of(pattern: str, word: int, tag: int) -> Reader:
        return partial(columns, files=tuple(pattern.format(part) for part in PARTS), word=word, tag=tag)

    files = ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")
    wnut = partial(columns, files=tuple(f"tagging/wnut17/{name}" for name in files), word=0, tag=1)
    return [
        Set("ewt", "tag", "words", of("tagging/ud_english_ewt/en_ewt-ud-{}.conllu", 1, 3), chosen_on=True),
        Set("wnut17", "tag", "f1", wnut, chosen_on=True),
        Set("snips-slots", "tag", "f1", partial(slots, folder="tagging/snips"), chosen_on=True),
        Set("atis-slots", "tag", "f1", partial(slots, folder="more/tagging/atis")),
        Set("swahili", "tag", "f1", of("more/tagging/masakhaner_swa/{}.txt", 0, 1)),
        Set("croatian", "tag", "f1", of("more/tagging/uner_croatian/hr_set-ud-{}.iob2", 1, 2)),
        Set("turkish", "tag", "words", of("more/tagging/ud_turkish_imst/tr_imst-ud-{}.conllu", 1, 3)),
    ]


def _seq2seq() -> list[Set]:
    phones = ("text.source.unit=character", "text.target.unit=word")  # which only a user knows
    known = ("hungarian", "g2p-dut", "g2p-ita", "cmudict", "scan-simple", "scan-length", "multi30k")
    readers: dict[str, Reader] = {
        name: partial(inflection, language=name) for name in ("hungarian", "arabic", "zulu")
    }

    def of(pattern: str) -> Reader:
        return partial(pairs, names=tuple(f"more/seq2seq/{pattern.format(part)}" for part in PARTS))

    for size, names in (("medium", ("dut", "geo", "kor")), ("low", ("ita", "khm", "gre"))):
        readers |= {f"g2p-{name}": of(f"g2p_2021/{size}/{name}_{{}}.tsv") for name in names}
    readers["katakana"] = of("translit_katakana/katakana.{}.tsv")
    readers["cmudict"] = pronunciation
    spelled = [name for name in readers if name not in ("hungarian", "arabic", "zulu")]
    readers["slovene"] = of("histnorm_slovene/slovene-goo300k-bohoric.{}.txt")
    readers |= {f"scan-{split}": partial(commands, split=split) for split in ("simple", "length")}
    translated: dict[str, Reader] = {
        "enja": partial(parallel, pattern="more/seq2seq/enja/{}.{}", ends=("en", "ja"), parts=PARTS),
        "multi30k": partial(
            parallel,
            pattern="seq2seq/multi30k/raw/{}.{}",
            ends=("en", "de"),
            parts=("train", "val", "test_2016_flickr"),
        ),
    }
    return [
        Set(
            *(name, "seq2seq", "bleu" if name in translated else "accuracy", read),
            settings=phones if name in spelled else (),
            chosen_on=name in known,
        )
        for name, read in (readers | translated).items()
    ]


def _lm() -> list[Set]:
    def of(pattern: str, parts: tuple[str, ...] = ("train", "valid", "test")) -> Reader:
        return partial(text, names=tuple(pattern.format(part) for part in parts))

    letters = ("text.unit=character",)
    return [
        Set("ptb", "lm", "bits", of("lm/ptb/ptb.{}.txt"), chosen_on=True),
        Set("quijote", "lm", "bits", of("more/lm/quijote_words/quijote.{}.txt")),
        Set("lua", "lm", "bits", of("more/lm/lua_source/lua.{}.txt"), letters),
        Set("tang", "lm", "bits", of("more/lm/tang_poems/tang.{}.txt", PARTS), letters),
        Set("shakespeare", "lm", "bits", shakespeare, letters, chosen_on=True),
    ]


SETS = {one.name: one for one in (*_classify(), *_tag(), *_seq2seq(), *_lm())}


@cache
def read_set(data: Path, name: str) -> Split:
    """Its examples; of a large test set, some that are drawn, and of running text all."""
    train, dev, test = SETS[name].read(data)
    running = SETS[name].task == "lm"
    return Split(train, dev, test if running or len(test) <= MOST_TESTED else drawn(test, MOST_TESTED, 0))


def drawn(examples: list[Example], size: int, seed: int) -> list[Example]:
    """So many examples, others for every seed; 0: all. Running text has its first lines."""
    if examples and examples[0][1] == "":
        return examples[:size] if size else examples
    shuffled = sorted(examples)
    random.Random(seed).shuffle(shuffled)
    return shuffled[:size] if size else shuffled
