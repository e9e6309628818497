"""Large data are read in parts: what comes out is what one process makes of all, whatever was killed."""

import gzip
import os
import random
import signal
from pathlib import Path

import pytest

from elman.config import has_key, merge, validate
from elman.errors import ElmanError
from elman.storage import processes
from elman.text import counts, stretches
from elman.training import parts as module
from elman.training.learned import learned_files
from elman.training.preparing import prepare
from elman.training.settings import make_task, nested, settings_class
from tiny_tasks import SMALL

LINES = 600
BPE = {"text.unit": "bpe", "text.vocabulary_size": 300}


def words(chance, least=1, most=9):
    return [
        chance.choice(["ab", "Ca", "de,", "fe.", "gi", "ho!", "jü", "ko's", "lo", "あ"])
        * chance.choice([1, 1, 2])
        + str(int(chance.paretovariate(0.7)))
        for _ in range(chance.randint(least, most))
    ]


def lines(chance, row, blank=True):
    """Rows with what is put right: Windows line ends, blank lines, spaces around fields."""
    for _ in range(LINES):
        yield row() + chance.choice(["\n"] * 20 + ["\r\n"] + ["\n\n"] * blank)


def texts(kind, chance):
    join = " ".join
    match kind:
        case "lm" | "pieces":
            return "".join(lines(chance, lambda: join(words(chance, 0))))
        case "classify":
            return "text\tlabel\n" + "".join(
                lines(chance, lambda: f"{join(words(chance))} \t{chance.choice('xyz')}")
            )
        case "semicolons":
            return "label;text\n" + "".join(
                lines(chance, lambda: f"{chance.choice('xyz')};{join(words(chance))}")
            )
        case "json":
            return "".join(
                lines(
                    chance,
                    lambda: f'{{"text": "{join(words(chance))}", "label": ["{chance.choice("xyz")}", "k"]}}',
                )
            )
        case "tag":

            def sentence():
                rows = [f"{word}\t{chance.choice(['O', 'B-X', 'I-X'])}" for word in words(chance)]
                return "\n".join(["# a comment", *rows, ""])

            return "".join(lines(chance, sentence))
        case "seq2seq" | "shared":
            return "".join(lines(chance, lambda: f"{join(words(chance))}\t{join(words(chance))}"))
        case "separated":
            return "".join(lines(chance, lambda: f"IN: {join(words(chance))} OUT: {join(words(chance))}"))
        case "class2seq":
            return "".join(lines(chance, lambda: f"{chance.choice('xyz')}\t{join(words(chance))}"))
    raise AssertionError(kind)


CASES = {
    "lm": ("lm", "a.txt", {}),
    "pieces": ("lm", "a.txt", {**BPE, "text.context": "sentence"}),
    "classify": ("classify", "a.tsv", {}),
    "semicolons": ("classify", "a.csv", {}),
    "json": ("classify", "a.jsonl", {}),
    "tag": ("tag", "a.conll", {}),
    "seq2seq": ("seq2seq", "a.tsv", {"text.unit": "wordpunct"}),
    "shared": ("seq2seq", "a.tsv", {**BPE, "text.shared": True}),
    "separated": ("seq2seq", "a.txt", {"data.separator": " OUT: ", "data.prefix": "IN: "}),
    "class2seq": ("class2seq", "a.tsv", {"text.unit": "word"}),
}


def made(task, files, settings):
    kind = settings_class(task)
    known = {key: value for key, value in SMALL.items() if has_key(kind, key) and key.startswith("model.")}
    table = merge({"task": task}, nested({**known, "data.train": files, **settings}))
    return make_task(validate(kind, table))


def outcome(task, cache):
    """All that preparing leaves."""
    found = prepare(task, cache)
    stores = {
        f"{name}.{field}": (one.values.tolist(), one.offsets.tolist())
        for name, examples in (("train", found.train), ("dev", found.dev))
        for field, one in examples.store.fields.items()
    }
    return {
        "stores": stores,
        "words": (found.train.words, found.dev.words),
        "files": {
            str(path.relative_to(cache)): path.read_bytes()
            for name in ("train", "dev")
            for path in (cache / name).rglob("*")
            if path.name.endswith((".values", ".offsets", "meta.json"))
        },
        "learned": learned_files(task),
        "about": found.about,
        "notes": found.statistics.notes,
        "seen": {key: value for key, value in vars(found.statistics).items() if key != "notes"},
        "config": task.config,
        "legal": getattr(task, "legal", None),
    }


@pytest.fixture
def corpus(tmp_path):
    def write(kind):
        task, name, settings = CASES[kind]
        path = tmp_path / name
        path.write_bytes(texts(kind, random.Random(7)).encode())
        return task, [str(path)], settings

    return write


@pytest.fixture
def small(monkeypatch):
    """Stretches and counters that are so small that they matter."""
    monkeypatch.setattr(stretches, "HEAD", 101)
    monkeypatch.setattr(counts, "MOST", 40)
    monkeypatch.setattr(processes, "may_fork", lambda: True)

    def size(bytes_of_a_stretch, threads=1):
        monkeypatch.setattr(stretches, "SIZE", bytes_of_a_stretch)
        monkeypatch.setattr(module, "at_once", lambda: threads)

    return size


@pytest.mark.parametrize("kind", CASES)
def test_parts_make_what_one_reading_makes(kind, corpus, small, tmp_path):
    task, files, settings = corpus(kind)
    whole = outcome(made(task, files, settings), tmp_path / "whole")
    assert not (tmp_path / "whole" / "parts").exists()
    total = Path(files[0]).stat().st_size  # of which more than a hundred lines are read first
    for size, threads in ((total // 4, 1), (total // 5, 2)):
        small(size, threads)
        cache = tmp_path / f"cache {size}"
        found = outcome(made(task, files, settings), cache)
        assert len([*(cache / "parts").glob("*/00002")]) >= 2  # counted and encoded
        for name, value in whole.items():
            assert found[name] == value, name


def test_a_kill_at_any_part_loses_no_part_that_was_done(corpus, small, tmp_path, monkeypatch):
    task, files, settings = corpus("classify")
    whole = outcome(made(task, files, settings), tmp_path / "whole")
    small(3500)
    written, stop = list[Path](), 0
    really = module.keep

    def keep(path, key, content):
        if len(written) == stop:
            raise KeyboardInterrupt
        written.append(path)
        really(path, key, content)

    monkeypatch.setattr(module, "keep", keep)
    cache, kills = tmp_path / "cache", 0
    while True:
        stop = len(written) + 3
        try:
            found = outcome(made(task, files, settings), cache)
            break
        except KeyboardInterrupt:
            kills += 1
    assert kills > 5
    assert len(written) == len({*written})  # nothing twice
    assert found == whole


def test_a_damaged_part_is_made_again(corpus, small, tmp_path):
    task, files, settings = corpus("seq2seq")
    whole = outcome(made(task, files, settings), tmp_path / "whole")
    small(Path(files[0]).stat().st_size // 5)
    cache = tmp_path / "cache"
    outcome(made(task, files, settings), cache)
    parts = sorted(path for path in (cache / "parts").rglob("*") if path.is_file() and path.name != "lock")
    chance = random.Random(3)
    for path in parts:
        data = bytearray(path.read_bytes())
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
    for name in ("train", "dev"):
        (cache / name / module.SEEN).unlink()  # so that they are needed
    assert outcome(made(task, files, settings), cache) == whole
    for path in parts:  # and nothing is left of a part but half of it
        path.unlink() if chance.random() < 0.3 else path.write_bytes(
            path.read_bytes()[: chance.randrange(50)]
        )
    (cache / "train" / "source.values").unlink()
    assert outcome(made(task, files, settings), cache) == whole


@pytest.mark.parametrize("kind", ["classify", "tag", "seq2seq"])
def test_an_error_has_its_place(kind, corpus, small, tmp_path):
    task, files, settings = corpus(kind)
    path = Path(files[0])
    text = path.read_text(encoding="utf-8").split("\n")
    for line in (200, 450):  # the first one is told
        text[line] = "\tx\ty"
    path.write_text("\n".join(text), encoding="utf-8")
    told = []
    part = path.stat().st_size // 5
    for size, threads in ((1 << 24, 1), (part, 1), (part, 2)):
        small(size, threads)
        with pytest.raises(ElmanError) as raised:
            prepare(made(task, files, settings), tmp_path / f"cache {size} {threads}")
        told.append(str(raised.value))
    assert len({*told}) == 1
    assert ":201:" in told[0]


def test_what_cannot_be_cut_is_read_in_one_go(corpus, small, tmp_path):
    small(2000)
    task, files, settings = corpus("semicolons")
    path = Path(files[0])
    path.write_bytes(path.read_bytes() + b'x;"two\nlines"\n')
    assert prepare(made(task, files, settings), tmp_path / "quoted").about["train"]["examples"]
    assert not (tmp_path / "quoted" / "parts").exists()
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(texts("lm", random.Random(1)).encode()))
    prepare(made("lm", [str(packed)], {}), tmp_path / "packed")
    assert not (tmp_path / "packed" / "parts").exists()


def test_several_files_are_parts_together(corpus, small, tmp_path):
    names = [str(tmp_path / f"{n}.txt") for n in range(9)]
    for n, name in enumerate(names):
        text = texts("lm", random.Random(n))
        Path(name).write_text(text[: 200 if n % 3 else None], encoding="utf-8")
    whole = outcome(made("lm", names, {}), tmp_path / "whole")
    small(4000, 2)
    assert outcome(made("lm", names, {}), tmp_path / "cache") == whole


def killed_at(looks, monkeypatch, prepared):
    """Prepare in a copy of this process, which kills itself at its n-th look at a part."""
    child = os.fork()
    if not child:
        seen, process, really = list[Path](), os.getpid(), module.kept

        def kept(path, key):
            seen.append(path)
            if len(seen) == looks and os.getpid() == process:  # its own children stay
                os.kill(process, signal.SIGKILL)
            return really(path, key)

        try:
            monkeypatch.setattr(module, "kept", kept)
            prepared()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL


def test_killed_for_real(corpus, small, tmp_path, monkeypatch):
    task, files, settings = corpus("lm")
    whole = outcome(made(task, files, settings), tmp_path / "whole")
    small(Path(files[0]).stat().st_size // 8, 2)
    for looks in (3, 14, 30):
        killed_at(looks, monkeypatch, lambda: prepare(made(task, files, settings), tmp_path / "cache"))
    assert outcome(made(task, files, settings), tmp_path / "cache") == whole
