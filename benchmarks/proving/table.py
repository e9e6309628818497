"""The table: ours beside what a user would do, with the standard error of the difference, and the sums."""

from collections.abc import Sequence
from statistics import mean
from typing import Any, NamedTuple

from proving.measures import Counts, difference, unpacked, value
from proving.peers import PEERS
from proving.sets import SETS

OURS = "elman"
HALVES = {True: "chosen on", False: "apart"}
TITLES = {
    "classify": "Classification: accuracy",
    "tag": "Tagging: F1 of spans, accuracy of words (ewt, turkish)",
    "seq2seq": "Sequence to sequence: exact match, BLEU (enja, multi30k)",
    "lm": "Language models: bits a token",
}
Record = dict[str, Any]  # of a measurement, as it is kept


class Row(NamedTuple):
    """A cell of the grid: a set with so many training examples."""

    name: str
    size: int
    values: dict[str, float]
    seeds: int
    gain: float
    error: float
    seconds: float


def rows_of(records: Sequence[Record], task: str) -> list[Row]:
    """Of each set and size, the seeds that all contenders have; the last measurement of each counts."""
    kept: dict[tuple[str, int], dict[tuple[str, int], Record]] = {}
    for record in records:
        if SETS[record["set"]].task == task:
            own = kept.setdefault((record["set"], record["size"]), {})
            own[record["contender"], record["seed"]] = record
    order = list(SETS)
    found = []
    for (name, size), own in sorted(
        kept.items(), key=lambda item: (order.index(item[0][0]), item[0][1] or 10**9)
    ):
        everyone = (*PEERS[task], OURS)
        seeds = [n for n in range(9) if all((contender, n) in own for contender in everyone)]
        if seeds:
            found.append(_row(name, size, {one: [own[one, n] for n in seeds] for one in everyone}))
    return found


def _row(name: str, size: int, records: dict[str, list[Record]]) -> Row:
    measure = SETS[name].measure
    counts: dict[str, list[Counts]] = {
        one: [unpacked(record["counts"], record["examples"]) for record in own]
        for one, own in records.items()
    }
    values = {one: mean(value(measure, each.sum(0)) for each in own) for one, own in counts.items()}
    best = max((one for one in values if one != OURS), key=values.__getitem__)
    gain, error = difference(measure, counts[OURS], counts[best])
    seconds = mean(record["seconds"] for record in records[OURS])
    return Row(name, size, values, len(records[OURS]), gain, error, seconds)


def table(records: Sequence[Record], task: str) -> list[str]:
    """Lines of Markdown; none where nothing was measured."""
    rows = rows_of(records, task)
    if not rows:
        return []
    everyone = (*PEERS[task], OURS)
    head = ("set", "half", "size", "seeds", *everyone, "ours − best", "standard error", "seconds")
    lines = [f"## {TITLES[task]}", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [row.name, HALVES[SETS[row.name].chosen_on], str(row.size or "all"), str(row.seeds)]
        places = 2 if task == "lm" else 1
        cells += [f"{abs(row.values[one]):.{places}f}" for one in everyone]
        cells += [
            f"{row.gain:+.{places}f}",
            f"{row.error:.1f}" if row.error > 1e-6 else "–",
            f"{row.seconds:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for chosen_on, half in HALVES.items():
        own = [row for row in rows if SETS[row.name].chosen_on is chosen_on]
        lines += [_summed(half, own), ""] if own else []
    return [*lines, _summed("all", rows), ""]


def _summed(half: str, rows: Sequence[Row]) -> str:
    within = sum(row.gain >= -row.error for row in rows)
    beyond = [f"{row.name}@{row.size or 'all'}" for row in rows if row.gain < -2 * row.error]
    won = sum(row.gain > row.error for row in rows)
    lost = sum(row.gain < -row.error for row in rows)
    return (
        f"{half}: {len(rows)} cells; won {won}, lost {lost} by more than a standard error; at most one below "
        f"the best peer: {within / len(rows):.0%}; beyond two: {', '.join(beyond) or 'none'}; mean gain "
        f"{mean(row.gain for row in rows):+.1f}"
    )


def calibration(records: Sequence[Record]) -> list[str]:
    """How right probabilities of classifiers are, by size, the mean over sets and seeds."""
    lines = ["| size | runs | temperature | ECE before | after |", "|---|---|---|---|---|"]
    keys = ("temperature", "calibration_error_before", "calibration_error")
    for size in sorted({record["size"] for record in records}, key=lambda one: one or 10**9):
        own = [one["more"] for one in records if one["size"] == size and keys[0] in one.get("more", {})]
        if own:
            cells = " | ".join(f"{mean(one[key] for one in own):.3f}" for key in keys)
            lines.append(f"| {size or 'all'} | {len(own)} | {cells} |")
    return lines if len(lines) > 2 else []
