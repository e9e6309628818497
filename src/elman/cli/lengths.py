"""``elman evaluate --against``: how good models are by the length of the source, side by side (row A6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elman.cli.output import fonts_told, put, put_json
from elman.cli.probe import check_picture, save, told_apart
from elman.cli.use import check_target, opened
from elman.errors import ArgumentError
from elman.inspection.figures import curve_figure
from elman.training.summary import network_name


def compare(
    runs: list[Path],
    path: str,
    target: str | None,
    pairs: list[str],
    *,
    as_json: bool,
    out: Path | None,
    trust_code: bool,
) -> None:
    """Every run writes the same outputs: a table or a line of JSON a run, and a picture by length."""
    if out is not None:
        check_picture(out)
    check_target(target, pairs)
    found: dict[Path, list[dict[str, Any]]] = {}
    kinds = []
    for run in dict.fromkeys(runs):
        predictor = opened(run, pairs, trust_code=trust_code)
        figures, _ = predictor.evaluate(path, target)
        if "by_length" not in figures:
            raise ArgumentError(f"{run} is a {predictor.task.name} model; lengths are compared of seq2seq")
        found[run] = figures["by_length"]
        check_same_buckets(found)
        model = predictor.config.model
        kinds.append("no attention" if model.attention in (None, "none") else f"{model.attention} attention")
        if as_json:
            network = network_name(model.model_dump(exclude_none=True))
            put_json({"run": str(run), "network": network, "by_length": found[run]})
    results = dict(zip(told_apart(kinds, list(found)), found.values(), strict=True))
    if not as_json:
        put(table(results))
    if out is not None:
        with fonts_told():
            figure = picture(results)
        save(out, figure)


def check_same_buckets(found: dict[Path, list[dict[str, Any]]]) -> None:
    """Sources are as long for one run as for the other only where both cut them in the same way."""
    first, last = next(iter(found)), next(reversed(found))
    if [span(bucket) for bucket in found[first]] != [span(bucket) for bucket in found[last]]:
        raise ArgumentError(f"{first} and {last} read sources in different units; compare runs with the same")


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    """Exact outputs and errors per token, by the length of the source."""
    labels = list(results)
    wide = max(23, *map(len, labels))
    rows = [f"{'source':>9} {'outputs':>8}" + "".join(f"  {label:>{wide}}" for label in labels)]
    rows.append(f"{'':9} {'':8}" + f"  {'exact    errors a token':>{wide}}" * len(labels))
    for buckets in zip(*results.values(), strict=True):
        first = buckets[0]
        rows.append(
            f"{span(first):>9} {first['count']:>8,}"
            + "".join(
                f"  {format_pair(bucket['exact_match'], bucket['error_rate']):>{wide}}" for bucket in buckets
            )
        )
    return "\n".join(rows)


def format_pair(exact: float, errors: float) -> str:
    return f"{exact:>7.1%} {errors:>14.1%}"


def span(bucket: dict[str, Any]) -> str:
    """ "3–7", or "3" where it is one length."""
    first, last = bucket["shortest"], bucket["longest"]
    return f"{first}–{last}" if first != last else str(first)


def picture(results: dict[str, list[dict[str, Any]]]) -> Any:
    """Exact outputs against the length of the source, one line a run."""
    buckets = next(iter(results.values()))
    return curve_figure(
        [(bucket["shortest"] + bucket["longest"]) / 2 for bucket in buckets],
        {label: [bucket["exact_match"] for bucket in found] for label, found in results.items()},
        title="How good are outputs, by the length of the source?",
        x_label="tokens of the source",
        y_label="outputs that are exactly right",
    )
