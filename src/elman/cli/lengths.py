"""``elman evaluate --against``: how good models are by the length of the source, side by side (row A6)."""

from pathlib import Path

from matplotlib.figure import Figure

from elman.cli.opening import Layout, check_target, open_run
from elman.cli.options import Machine
from elman.cli.output import Bucket, put, put_json, span
from elman.cli.pictures import check_picture, run_labels, save_picture
from elman.config import lookup
from elman.errors import ArgumentError
from elman.inspection.figures import curve_figure
from elman.presentation.wording import network_name


def compare(
    runs: list[Path],
    path: str,
    target: str | None,
    pairs: list[str],
    layout: Layout,
    *,
    as_json: bool,
    out: Path | None,
    trust_code: bool,
    machine: Machine,
) -> None:
    """Every run writes the same outputs: a table or a line of JSON a run, and a picture by length."""
    if out is not None:
        check_picture(out)
    check_target(target, layout)
    found: dict[Path, list[Bucket]] = {}
    kinds = []
    for run in dict.fromkeys(runs):
        predictor = open_run(run, pairs, trust_code=trust_code, machine=machine, files=layout)
        measures, _ = predictor.evaluate(path, target)
        if "by_length" not in measures:
            raise ArgumentError(f"{run} is a {predictor.config.task} model; lengths are compared of seq2seq")
        found[run] = measures["by_length"]
        first, buckets = next(iter(found.items()))
        if [*map(span, buckets)] != [*map(span, found[run])]:  # only where both cut sources in the same way
            raise ArgumentError(
                f"{first} and {run} read sources in different units; compare runs with the same"
            )
        model, generation = predictor.config.model, predictor.generation()
        kinds.append(f"{lookup(model, 'attention') if generation.writer.attends else 'no'} attention")
        if as_json:
            network = network_name(model.model_dump(exclude_none=True))
            put_json({"run": str(run), "network": network, "by_length": found[run]})
    results = dict(zip(run_labels(kinds, list(found)), found.values(), strict=True))
    if not as_json:
        put(table(results))
    if out is not None:
        save_picture(out, lambda: picture(results))


def table(results: dict[str, list[Bucket]]) -> str:
    labels = list(results)
    wide = max(23, *map(len, labels))
    rows = [f"{'source':>9} {'outputs':>8}" + "".join(f"  {label:>{wide}}" for label in labels)]
    rows.append(f"{'':9} {'':8}" + f"  {'exact    errors a token':>{wide}}" * len(labels))
    for buckets in zip(*results.values(), strict=True):
        first = buckets[0]
        cells = (f"{one['exact_match']:>7.1%} {one['error_rate']:>14.1%}" for one in buckets)
        rows.append(f"{span(first):>9} {first['count']:>8,}" + "".join(f"  {cell:>{wide}}" for cell in cells))
    return "\n".join(rows)


def picture(results: dict[str, list[Bucket]]) -> Figure:
    buckets = next(iter(results.values()))
    return curve_figure(
        [(bucket["shortest"] + bucket["longest"]) / 2 for bucket in buckets],
        {label: [bucket["exact_match"] for bucket in found] for label, found in results.items()},
        title="How good are outputs, by the length of the source?",
        x_label="tokens of the source",
        y_label="outputs that are exactly right",
    )
