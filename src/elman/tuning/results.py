"""What a search found, in a table, as JSON, and as a page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from elman.config import Numbers, Tables, lookup
from elman.presentation.pages import template, write_page
from elman.presentation.scatter import Dot, scatter
from elman.presentation.wording import number
from elman.tuning.searching import Finalist, Plan
from elman.tuning.study import Trial

STYLES = {"complete": "train", "pruned": "dev"}


@dataclass(frozen=True)
class Found:
    """All trials by number, and the best with more seeds, the chosen one first."""

    plan: Plan
    trials: Sequence[Trial]
    finalists: Sequence[Finalist]

    @property
    def best(self) -> Finalist:
        return self.finalists[0]

    @property
    def default(self) -> Finalist:
        return next(one for one in self.finalists if one.trial.number == 0)

    @property
    def sentence(self) -> str:
        """What was chosen, beside the default."""
        metric = self.plan.metric.replace("_", " ")
        if self.best.trial.number == 0:
            return f"best: the default, {metric} {number(self.best.mean)}"
        seeds = len(self.best.figures)
        means = f" (means of {seeds} seeds)" if seeds > 1 else ""
        chosen = f"best: trial {self.best.trial.number}, {metric} {number(self.best.mean)}"
        return f"{chosen}; the default has {number(self.default.mean)}{means}"

    def as_json(self) -> Tables:
        told = [
            {"trial": one.trial.number, "figures": one.figures, "mean": one.mean} for one in self.finalists
        ]
        return {
            "metric": self.plan.metric,
            "higher_is_better": self.plan.higher_is_better,
            "best": {"trial": self.best.trial.number, "values": self.best.trial.values},
            "default": self.plan.values(self.plan.default),
            "space": {key: asdict(one) for key, one in self.plan.space.items()},
            "finalists": told,
            "trials": [asdict(one) for one in self.trials],
        }


def outcome(trial: Trial) -> str:
    """A trial's figure, or what became of it."""
    value = number(trial.value) if trial.value is not None else ""
    count = len(trial.validations)
    return {
        "complete": value,
        "pruned": f"pruned at {value} after {count} validation{'s' * (count != 1)}",
        "failed": "diverged",
        "running": "runs",
    }[trial.state]


def changes(plan: Plan, trial: Trial) -> str:
    """What a trial has otherwise than the default."""
    pairs = [(key, value) for key, value in trial.values.items() if value != lookup(plan.default, key)]
    return ", ".join(f"{key} {value}" for key, value in pairs) or "the default"


def rows(found: Found) -> list[tuple[str, ...]]:
    """The finalists: a head, and a row each."""
    head = ("", found.plan.metric.replace("_", " "), "by seed", "settings")
    return [
        head,
        *(
            (
                f"trial {one.trial.number}",
                number(one.mean),
                " ".join(map(number, one.figures)),
                changes(found.plan, one.trial),
            )
            for one in found.finalists
        ),
    ]


def write_search(found: Found, path: Path) -> Path:
    plan, metric = found.plan, found.plan.metric.replace("_", " ")
    judged = [one for one in found.trials if one.value is not None]
    ended = [one for one in judged if one.state == "complete"]
    better = max if plan.higher_is_better else min
    so_far = [
        (one.number, better(two.value or 0.0 for two in ended if two.number <= one.number)) for one in ended
    ]
    charts = [
        scatter(
            f"{metric} by trial; the line is the best so far",
            [Dot(one.number, one.value or 0.0, _word(plan, one), STYLES[one.state]) for one in judged],
            line=so_far,
        )
    ]
    for key, one in plan.space.items():
        numbers = isinstance(one, Numbers)
        dots = [
            Dot(
                trial.values[key] if numbers else str(trial.values[key]),
                trial.value or 0.0,
                _word(plan, trial),
                "best" if trial.number == found.best.trial.number else STYLES[trial.state],
            )
            for trial in judged
        ]
        charts.append(scatter(f"{metric} by {key}", dots, log=isinstance(one, Numbers) and one.log))
    page = template("search.html", escape).render(
        title=f"{plan.default.task}: {len(found.trials)} trials",
        sentence=found.sentence,
        rows=rows(found),
        charts="".join(charts),
        keys=[*plan.space],
        ranges=[str(one) for one in plan.space.values()],
        trials=[
            (one.number, outcome(one), f"{one.seconds:,.0f}", [str(value) for value in one.values.values()])
            for one in found.trials
        ],
    )
    return write_page(path, page)


def _word(plan: Plan, trial: Trial) -> str:
    return f"trial {trial.number}, {outcome(trial)}: {changes(plan, trial)}"
