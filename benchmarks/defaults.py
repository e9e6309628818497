"""The proving ground: what one command gives on data that nobody tuned for, beside what a user would do.

    ELMAN_DATA=…/data python benchmarks/defaults.py [--task tag] [--sets sms,mr] [--sizes 100,300] [--jobs 16]

Sets of $ELMAN_DATA × training sizes × seeds, with nothing set but what only a user can know (that a
pronunciation is made of phonemes, say). Beside it, on the same examples: TF-IDF and logistic regression on
words and on letters, naive Bayes; the most frequent tag, a CRF with features (python-crfsuite); copying, and
a memory that knows endings; Kneser–Ney n-grams. Every measurement is a line of a file, with the code and the
settings that it is of, so that a run goes on where it was stopped; files of several machines are put together
by cat. Sets are in two halves: on the first, defaults were chosen, and on the second nothing was.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from proving.measures import count, packed
from proving.ours import Result, code_key, measure
from proving.peers import PEERS, answers
from proving.sets import SETS, Split, drawn, read_set
from proving.table import OURS, TITLES, Record, calibration, table

SIZES = (100, 300, 1000, 3000, 0)  # 0: all
LARGE = 3000  # training examples from which on one seed is enough
MARK = "<!-- what benchmarks/defaults.py measured -->"


class Cell(NamedTuple):
    """A measurement: who learns from so many examples of a set, drawn with this seed."""

    set: str
    size: int
    seed: int
    contender: str

    def key(self, code: str, settings: list[str]) -> tuple[object, ...]:
        """What its result depends on; that of a peer on no code of ours."""
        ours = (code, *settings) if self.contender in (OURS, "ngram") else ()
        return *self, *ours


def cells(names: list[str], data: Path, given: argparse.Namespace) -> Iterator[Cell]:
    sizes, seeds, contenders = (getattr(given, key).split(",") for key in ("sizes", "seeds", "contenders"))
    for name in names:
        whole = len(read_set(data, name).train)
        for size in (int(one) for one in sizes):
            if size < whole:
                large = not given.large and ((size or whole) >= LARGE or SETS[name].task == "lm")
                for seed in seeds[:1] if large else seeds:
                    everyone = (*PEERS[SETS[name].task], OURS)
                    yield from (Cell(name, size, int(seed), own) for own in everyone if own in contenders)


def measured(cell: Cell, data: Path, settings: list[str]) -> Result:
    one, split = SETS[cell.set], read_set(data, cell.set)
    split = Split(drawn(split.train, cell.size, cell.seed), split.dev, split.test)
    if cell.contender in (OURS, "ngram"):
        baseline = None if cell.contender == OURS else "ngram"
        return measure(one, split, cell.seed, baseline=baseline, more=[] if baseline else settings)
    begin = time.perf_counter()
    said = answers(cell.contender, split.train, [question for question, _ in split.test])
    seconds = time.perf_counter() - begin
    return Result(count(one.measure, said, [true for _, true in split.test]), seconds, {})


def kept_in(path: Path) -> list[Record]:
    """The measurements of a file, one a line, or lists of them."""
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    found = (json.loads(line) for line in lines if line.strip())
    return [record for one in found for record in (one if isinstance(one, list) else [one])]


def write_page(path: Path, lines: list[str]) -> None:
    """Put the tables behind the mark of a page, whose words are kept."""
    words = path.read_text(encoding="utf-8").partition(MARK)[0]
    path.write_text(f"{words}{MARK}\n\n" + "\n".join(lines).rstrip() + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=list(TITLES), help="the sets of one task")
    parser.add_argument("--sets", help="some of them, by name")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--large", action="store_true", help="all seeds also where there is much data")
    everyone = [OURS, *(peer for peers in PEERS.values() for peer in peers)]
    parser.add_argument("--contenders", default=",".join(everyone))
    parser.add_argument("--set", action="append", default=[], dest="settings", help="a setting of ours")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes-total", type=float, default=float("inf"), help="begin nothing after these")
    parser.add_argument("--kept", type=Path, default=Path("defaults.jsonl"), help="where results are kept")
    parser.add_argument("--report", action="store_true", help="measure nothing, and print what is kept")
    parser.add_argument("--any-code", action="store_true", help="report also what other code measured")
    parser.add_argument("--page", type=Path, help="write the tables into this page")
    parser.add_argument("--line", action="store_true", help="print what was measured as one line of JSON")
    return parser.parse_args()


def main() -> None:
    given, begin, code = arguments(), time.monotonic(), code_key()
    data = Path(os.environ["ELMAN_DATA"])
    names = given.sets.split(",") if given.sets else [n for n in SETS if given.task in (None, SETS[n].task)]
    records = kept_in(given.kept)
    known = {tuple(record["key"]) for record in records}
    wanted = cells(names, data, given)
    open_ = [] if given.report else [one for one in wanted if one.key(code, given.settings) not in known]

    def work(cell: Cell) -> Record | None:
        if time.monotonic() - begin > 60 * given.minutes_total:
            return None
        found = measured(cell, data, given.settings)
        record = {**cell._asdict(), "key": cell.key(code, given.settings), "seconds": round(found.seconds, 1)}
        record |= {"more": found.more, "examples": len(found.counts), "counts": packed(found.counts)}
        with given.kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"· {' '.join(map(str, cell))}: {found.seconds:.0f} s", file=sys.stderr, flush=True)
        return record

    with ThreadPoolExecutor(given.jobs) as pool:
        new = [one for one in pool.map(work, open_) if one is not None]
    if given.line:
        print(json.dumps(new))
        return
    told = [one for one in kept_in(given.kept) if one["set"] in names]
    if not given.any_code:
        told = [one for one in told if tuple(one["key"]) == Cell(*one["key"][:4]).key(code, given.settings)]
    lines = [line for task in TITLES for line in table(told, task)]
    lines += calibration([one for one in told if SETS[one["set"]].task == "classify"])
    if given.page:
        write_page(given.page, lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
