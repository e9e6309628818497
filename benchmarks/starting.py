"""What a language model of a set's own texts is worth to a classifier that has few labels.

    ELMAN_DATA=…/data python benchmarks/starting.py [--sets atis,snips] [--size 300] [--seeds 5] [--epochs 6]

All training texts, without their labels, teach a forward and a backward language model. A classifier that has
so many labels starts from both, and from scratch, with the same seeds; all else is chosen by itself. A line
of the table is a set: accuracy on the test data, and the difference with its standard error.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from proving.measures import Counts, difference, value
from proving.ours import measure, train
from proving.sets import SETS, Split, drawn, read_set

USUAL = "atis,snips,banking77,sst2,mr,subj,cr,mpqa,sms,names,waimai,langid"


def compare(name: str, size: int, seeds: int, epochs: int, data: Path) -> dict[str, object]:
    one, split = SETS[name], read_set(data, name)
    found: dict[str, list[Counts]] = {"scratch": [], "start": []}
    with tempfile.TemporaryDirectory() as folder:
        file, runs = Path(folder) / "texts.jsonl", [f"{folder}/{way}" for way in ("forward", "backward")]
        rows = (json.dumps({"text": text}, ensure_ascii=False) for text, _ in split.train)
        file.write_text("\n".join(rows) + "\n", encoding="utf-8")
        for run, backward in zip(runs, ("false", "true"), strict=True):
            settings = ["text.context=sentence", f"text.reversed={backward}", f"training.epochs={epochs}"]
            train("lm", ["--train", str(file), "--out", run, "--quiet"], settings)
        for seed in range(seeds):
            own = Split(drawn(split.train, size, seed), split.dev, split.test)
            found["scratch"].append(measure(one, own, seed).counts)
            found["start"].append(measure(one, own, seed, start=runs).counts)
            print(f"· {name}, seed {seed}", file=sys.stderr, flush=True)
    means = {who: sum(value(one.measure, each.sum(0)) for each in own) / seeds for who, own in found.items()}
    gain, error = difference(one.measure, found["start"], found["scratch"])
    return {"set": name, "size": size, "seeds": seeds, **means, "gain": gain, "error": error}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", default=USUAL)
    parser.add_argument("--size", type=int, default=300, help="labelled texts")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=6, help="of the language models")
    parser.add_argument("--line", action="store_true", help="print a line of JSON a set, and no table")
    given = parser.parse_args()
    if not given.line:
        print("| set | labels | seeds | from scratch | from its language models | gain | standard error |")
        print("|---|---|---|---|---|---|---|")
    for name in given.sets.split(","):
        row = compare(name, given.size, given.seeds, given.epochs, Path(os.environ["ELMAN_DATA"]))
        cells = [row["set"], row["size"], row["seeds"]]
        cells += [f"{row[key]:.1f}" for key in ("scratch", "start")] + [f"{row['gain']:+.1f}"]
        told = " | ".join(map(str, [*cells, f"{row['error']:.1f}"]))
        print(json.dumps(row) if given.line else f"| {told} |", flush=True)


if __name__ == "__main__":
    main()
