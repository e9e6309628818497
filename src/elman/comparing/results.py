"""What a comparison found: figures by contender and seed, intervals, and in which words they are told."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, stdev
from typing import Any

from elman.comparing.running import Job
from elman.comparing.statistics import Interval, differences
from elman.presentation.curves import Point
from elman.presentation.summary import Summary
from elman.presentation.wording import number

LATEX = {sign: rf"\{sign}" for sign in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "–": "--",
    "±": r"$\pm$",
}


@dataclass(frozen=True)
class Result:
    """One contender: its figures by seed, how fast it learned, and how long it took."""

    name: str
    parameters: int
    figures: list[float]
    updates: float
    tokens_per_second: float
    seconds: float
    curve: list[Point]  # means over seeds on validation data, and their range

    @property
    def mean(self) -> float:
        return fmean(self.figures)

    @property
    def spread(self) -> float:
        return stdev(self.figures) if len(self.figures) > 1 else 0.0


@dataclass(frozen=True)
class Comparison:
    """All results, the best first, and the intervals of their differences."""

    title: str
    metric: str
    data: str  # what it was measured on
    equal: str
    seeds: int
    higher_is_better: bool
    results: list[Result]

    def __post_init__(self) -> None:
        self.results.sort(key=lambda one: -one.mean if self.higher_is_better else one.mean)

    @property
    def differences(self) -> dict[tuple[str, str], Interval]:
        return differences({one.name: one.figures for one in self.results})

    def better_than(self, name: str) -> list[str]:
        """The names that its interval says it is better than; of a pair, the better one is the first."""
        return [
            other for (one, other), found in self.differences.items() if one == name and found.excludes_zero
        ]

    def as_json(self) -> dict[str, Any]:
        """Of one seed, differences have no bounds: they are null."""
        pairs = [
            {"one": one, "other": other, "mean": found.mean, "low": low, "high": high}
            | {"different": found.excludes_zero}
            for (one, other), found in self.differences.items()
            for low, high in [(found.low, found.high) if self.seeds > 1 else (None, None)]
        ]
        return asdict(self) | {"differences": pairs}


def results_of(title: str, plan: dict[str, Any], todo: Sequence[Job]) -> Comparison:
    """Read all from the runs."""
    said, tested = plan["said"], bool(plan["said"]["test"])
    found, metric = [], ""
    for entry in plan["entries"]:
        mine = [job for job in todo if job.name == entry["name"]]
        runs = [Summary.of(job.run) for job in mine]
        metric = runs[0].metric
        told = [
            json.loads(job.figures.read_text("utf-8")) if tested else run.best
            for job, run in zip(mine, runs, strict=True)
        ]
        speeds = [
            event["time"]["tokens_per_second"] for run in runs for event in run.updates if "time" in event
        ]
        found.append(
            Result(
                entry["name"],
                int(runs[0].start.get("parameters", entry["parameters"])),
                [float((one or {})[metric]) for one in told],
                fmean(run.last_update for run in runs),
                median(speeds) if speeds else 0.0,
                fmean(run.seconds for run in runs),
                mean_curve(runs, metric),
            )
        )
    data = "test data" if tested else "validation data"
    return Comparison(title, metric, data, said["equal"], said["seeds"], plan["higher_is_better"], found)


def mean_curve(runs: Sequence[Summary], metric: str) -> list[Point]:
    """At each validation that all runs have, the mean and the range of their figures."""
    by_update = [
        {event["update"]: float(event[metric]) for event in run.validations if metric in event}
        for run in runs
    ]
    shared = sorted(set.intersection(*map(set, by_update))) if by_update else []
    values = {update: [one[update] for one in by_update] for update in shared}
    return [Point(update, fmean(some), min(some), max(some)) for update, some in values.items()]


def rows(found: Comparison) -> list[tuple[str, ...]]:
    """The table: a head, and a row a contender."""
    head = (
        "",
        found.metric.replace("_", " "),
        "±",
        "parameters",
        "updates",
        "tokens/s",
        "seconds",
        "better than",
    )
    return [
        head,
        *(
            (
                one.name,
                number(one.mean),
                number(one.spread) if found.seeds > 1 else "–",
                f"{one.parameters:,}",
                f"{one.updates:,.0f}",
                f"{one.tokens_per_second:,.0f}",
                f"{one.seconds:,.0f}",
                ", ".join(found.better_than(one.name)) or "–",
            )
            for one in found.results
        ),
    ]


def latex(found: Comparison) -> str:
    """The table for a paper, in LaTeX with booktabs."""
    lines = [
        " & ".join("".join(LATEX.get(sign, sign) for sign in cell) for cell in row) for row in rows(found)
    ]
    head, *body = (rf"{line} \\" for line in lines)
    begin, end = r"\begin{tabular}{lrrrrrrl}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", end, ""])
