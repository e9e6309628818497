"""The proving ground: what one command gives on data that nobody tuned for, beside what a user would do.

    ELMAN_DATA=…/data python benchmarks/defaults.py [--sets sms,mr] [--sizes 100,300] [--seeds 3] [--jobs 2]

Classification sets of $ELMAN_DATA × training sizes × seeds, with nothing set. Beside them, on the same
examples: TF-IDF and logistic regression on words and on letters, naive Bayes. What was measured is kept in a
file by set, size, seed, contender and the code that decides, so that a run goes on where it was stopped. Sets
are in two halves: defaults were chosen on the first, and nothing was chosen on the second.
"""

import argparse
import csv
import hashlib
import io
import json
import lzma
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

ROOT = Path(__file__).resolve().parents[1]
Example = tuple[str, str]  # text, label
SIZES = (100, 300, 1000, 3000, 0)  # 0: all
MOST_TESTED = 2000
CHOSEN_ON = (
    *("sst2", "sms", "mr", "waimai", "news4", "cr", "names", "atis", "askubuntu", "subj", "langid", "r8"),
    "mpqa",
)
OURS, PEERS = "elman", ("words", "letters", "bayes")


def lines_of(path: Path) -> list[str]:
    packed = path.with_name(f"{path.name}.xz")
    if packed.exists():
        return lzma.decompress(packed.read_bytes()).decode().split("\n")
    return path.read_text(encoding="utf-8").split("\n")


def tab_separated(path: Path) -> list[Example]:
    found = (line.split("\t", 1) for line in lines_of(path) if "\t" in line)
    return [(text, label) for label, text in found if text.strip()]


def table(path: Path, text: str, label: str) -> list[Example]:
    rows = csv.DictReader(io.StringIO("\n".join(lines_of(path))))
    return [(row[text], row[label]) for row in rows if row[text].strip()]


def marked(path: Path) -> list[Example]:
    return [(line[2:], line[0]) for line in lines_of(path) if line.strip()]


def parallel(folder: Path) -> list[Example]:
    both = zip(lines_of(folder / "seq.in"), lines_of(folder / "label"), strict=False)
    return [(text, label) for text, label in both if text.strip()]


def read_set(data: Path, name: str) -> tuple[list[Example], list[Example], list[Example]]:
    """Training, validation (empty: none is given) and test examples."""
    more, parts = data / "more" / "classify", ("train", "dev", "test")
    fields = {"banking77": ("text", "category"), "waimai": ("review", "label")}
    if name in ("sst2", "sst5"):
        kind = "binary" if name == "sst2" else "fine"
        found = [marked(data / "classify" / "sst" / f"stsa.{kind}.{part}") for part in parts]
    elif name in ("sms", "names"):
        folder = data / "classify" / {"sms": "sms_spam", "names": "names"}[name]
        found = [tab_separated(folder / f"{name}.{part}.tsv") for part in parts]
    elif name in ("snips", "atis"):
        folder = data / ("tagging" if name == "snips" else "more/tagging") / name
        found = [parallel(folder / part) for part in ("train", "valid", "test")]
    elif name in fields:
        found = [table(more / name / f"{name}.{part}.csv", *fields[name]) for part in parts]
    elif name in ("chatbot", "askubuntu", "webapps"):
        train, test = (
            tab_separated(more / "tiny_intents" / f"{name}.{part}.tsv") for part in ("train", "test")
        )
        found = [train, [], test]
    else:
        own = {"cr": "custrev", "news4": "newsgroups4"}.get(name, name)
        found = [tab_separated(more / own / f"{own}.{part}.tsv") for part in parts]
    train, dev, test = found
    return train, dev, test[:MOST_TESTED]


SETS = (
    *("sst2", "sst5", "sms", "names", "snips", "atis", "banking77", "waimai", "clinc150", "cr", "mpqa", "mr"),
    *("subj", "langid", "r8", "news4", "chatbot", "askubuntu", "webapps"),
)


def drawn(examples: list[Example], size: int, seed: int) -> list[Example]:
    """So many examples, others for every seed; 0: all."""
    shuffled = sorted(examples)
    random.Random(seed).shuffle(shuffled)
    return shuffled[:size] if size else shuffled


def by_elman(train: list[Example], dev: list[Example], test: list[Example], seed: int) -> tuple[float, float]:
    """The accuracy of one command with nothing set, and its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        files = {"train": train, "dev": dev, "test": test}
        for name, examples in files.items():
            rows = (json.dumps({"text": text, "label": label}) for text, label in examples)
            (Path(folder) / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
        command = [sys.executable, "-c", "from elman.cli.main import run; run()"]
        options = ["--train", f"{folder}/train.jsonl", "--out", f"{folder}/run", "--quiet"]
        options += ["--dev", f"{folder}/dev.jsonl"] if dev else []
        options += ["--set", f"training.seed={seed}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
        begin = time.perf_counter()
        subprocess.run(
            [*command, "train", "classify", *options], check=True, env=environment, capture_output=True
        )
        seconds = time.perf_counter() - begin
        asked = [*command, "evaluate", f"{folder}/run", f"{folder}/test.jsonl", "--json"]
        found = subprocess.run(asked, check=True, env=environment, capture_output=True, text=True)
        return float(json.loads(found.stdout)["accuracy"]), seconds


def by_scikit_learn(kind: str, train: list[Example], test: list[Example]) -> tuple[float, float]:
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    begin = time.perf_counter()
    if kind == "words":
        model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=300))
    elif kind == "letters":
        letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True)
        model = make_pipeline(letters, LogisticRegression(max_iter=300))
    else:
        model = make_pipeline(CountVectorizer(), MultinomialNB())
    try:
        model.fit([text for text, _ in train], [label for _, label in train])
    except ValueError:  # no word, or one label
        return 0.0, 0.0
    said = model.predict([text for text, _ in test])
    right = mean(float(a == label) for a, (_, label) in zip(said, test, strict=True))
    return right, time.perf_counter() - begin


def code_key() -> str:
    """What decides what a classifier is: when it changes, ours is measured again."""
    names = (
        "tasks/classify.py",
        "tasks/words.py",
        "tasks/defaults.py",
        "tasks/beside.py",
        "models/classifier.py",
    )
    names += ("models/shortcut.py", "text/ngrams.py", "text/fields.py", "training/loop.py")
    text = "".join((ROOT / "src" / "elman" / name).read_text(encoding="utf-8") for name in names)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def cells(names: list[str], sizes: list[int], seeds: int, data: Path) -> Iterator[tuple[str, int, int]]:
    for name in names:
        whole = len(read_set(data, name)[0])
        for size in sizes:
            if size < whole:
                large = not size and whole > MOST_TESTED
                yield from ((name, size, seed) for seed in range(1 if large else seeds))


def measure(cell: tuple[str, int, int], contender: str, data: Path) -> tuple[float, float]:
    name, size, seed = cell
    train, dev, test = read_set(data, name)
    train = drawn(train, size, seed)
    if contender == OURS:
        return by_elman(train, dev, test, seed)
    return by_scikit_learn(contender, train, test)


def report(found: dict[str, list[float]], names: list[str], sizes: list[int], data: Path, key: str) -> None:
    """A table by set and size: ours, the best peer, and whether ours is within a standard error of it."""
    print(
        "| set | half | size | " + " | ".join((*PEERS, OURS)) + " | ours − best | standard error | seconds |"
    )
    print("|---|---|---|" + "---|" * (len(PEERS) + 4))
    judged: list[tuple[str, float, float]] = []
    for name in names:
        test = len(read_set(data, name)[2])
        for size in sizes:
            rows = {}
            for contender in (*PEERS, OURS):
                own = key if contender == OURS else ""
                seeds = [found.get(f"{name} {size} {seed} {contender} {own}") for seed in range(9)]
                rows[contender] = [one for one in seeds if one]
            if not all(rows.values()):
                continue
            right = {contender: mean(one[0] for one in own) for contender, own in rows.items()}
            best = max(right[peer] for peer in PEERS)
            error = math.sqrt(best * (1 - best) / test)
            half = "chosen on" if name in CHOSEN_ON else "apart"
            judged.append((half, right[OURS] - best, error))
            figures = " | ".join(f"{100 * right[contender]:.1f}" for contender in (*PEERS, OURS))
            seconds = mean(one[1] for one in rows[OURS])
            print(
                f"| {name} | {half} | {size or 'all'} | {figures} | {100 * (right[OURS] - best):+.1f} "
                f"| {100 * error:.1f} | {seconds:.0f} |"
            )
    for half in ("chosen on", "apart"):
        own = [(gain, error) for of, gain, error in judged if of == half]
        if own:
            within = mean(float(gain >= -error) for gain, error in own)
            beyond = sum(gain < -2 * error for gain, error in own)
            print(
                f"\n{half}: {len(own)} cells; at most a standard error below the best peer: {within:.0%}; "
                f"beyond two: {beyond}; mean gain {100 * mean(gain for gain, _ in own):+.1f} points"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kept", type=Path, default=Path("defaults.json"), help="where results are kept")
    parser.add_argument("--report", action="store_true", help="measure nothing, and print what is kept")
    given = parser.parse_args()
    data, names = Path(os.environ["ELMAN_DATA"]), given.sets.split(",")
    sizes, key = [int(size) for size in given.sizes.split(",")], code_key()
    found: dict[str, list[float]] = json.loads(given.kept.read_text()) if given.kept.exists() else {}
    jobs = []
    for cell in () if given.report else cells(names, sizes, given.seeds, data):
        for contender in (*PEERS, OURS):
            place = f"{' '.join(map(str, cell))} {contender} {key if contender == OURS else ''}"
            if place not in found:
                jobs.append((place, cell, contender))

    def work(job: tuple[str, tuple[str, int, int], str]) -> None:
        place, cell, contender = job
        found[place] = list(measure(cell, contender, data))
        print(f"· {place}: {found[place][0]:.3f} in {found[place][1]:.0f} s", file=sys.stderr, flush=True)
        given.kept.write_text(json.dumps(found))

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(work, jobs))
    report(found, names, sizes, data, key)


if __name__ == "__main__":
    main()
