"""The bench's machinery on the CPU: what it computes from timings, and one tiny run through the command.

No test asserts how long anything takes: that is what the command is for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from elman.bench import measure as measuring
from elman.bench.cases import ATTENTIONS, CATALOGUE, ON_REQUEST, OUR_STEPS, Case
from elman.bench.cases import CPU_GROUPS as GROUPS
from elman.bench.cases import cpu_grid as grid
from elman.bench.cells import LOOPS
from elman.bench.contenders import OPTIONS, OURS, build
from elman.bench.devices import Bench
from elman.bench.floors import Rates
from elman.bench.floors import run_floor as floor
from elman.bench.measure import ROUNDS, Result, Setting, measure
from elman.bench.report import as_object, choose, losses, report, table
from elman.bench.runs import Errors, Run, compare, draw
from elman.bench.timing import Rounds, Times, host_clock, take_turns
from elman.cli.main import app
from elman.errors import UnknownNameError
from tiny import elman

RATES = Rates(flops=1e9, bytes=1e9)
BENCH = Bench("cpu")
CASE = Case("lstm", "LSTM", "nn.LSTM", "training", 8, 5, 16, target=0.95)


def times(seconds: float) -> Times:
    return Times(seconds, seconds, seconds, 5)


def result(ours: float, peer: float, **changes: Any) -> Result:
    errors = Errors(1e-7, 2e-7, 3e-7)
    return Result(replace(CASE, **changes), times(ours), times(peer), floor=0.5, errors=errors)


# ---- from timings to results ---------------------------------------------------------------------


def test_ratio_is_peer_over_ours() -> None:
    found = result(ours=2.0, peer=5.0)
    assert found.ratio == 2.5
    assert found.over_floor == 4.0
    assert found.worst_error == 2e-7


def test_medians_are_not_means() -> None:
    found = Times.of([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (found.median, found.runs) == (3.0, 5)
    assert found.p10 == pytest.approx(1.4)
    assert found.p90 == pytest.approx(61.6)
    assert Times.of([7.0]) == Times(7.0, 7.0, 7.0, 1)


@pytest.mark.parametrize(
    ("ours", "peer", "target", "expected"),
    [
        (1.0, 1.2, 0.95, []),
        (1.0, 0.97, 0.95, ["slower than the peer"]),
        (1.0, 0.9, 0.95, ["slower than the peer", "under its target of 0.95×"]),
        (1.0, 2.0, 3.0, ["under its target of 3×"]),
    ],
)
def test_losses_are_told(ours: float, peer: float, target: float, expected: list[str]) -> None:
    found = result(ours, peer, target=target)
    assert found.shortfalls() == expected
    assert [loss["why"] for loss in losses([found])] == ([expected] if expected else [])


def test_first_use_has_a_limit_and_a_cache() -> None:
    case = Case("first", "new cell, compiled", None, "first", limit=3.0)
    assert Result(case, times(2.0)).shortfalls() == []
    assert Result(case, times(4.0)).shortfalls() == ["over its limit of 3 s"]
    assert Result(case, times(2.0), from_cache=False).shortfalls() == [
        "compiled again instead of taken from the cache"
    ]


@pytest.mark.parametrize(
    ("mode", "B", "expected"),
    [
        ("inference", 8, 2 * 40 * 300 / 1e9),
        ("training", 8, 3 * 2 * 40 * 300 / 1e9),
        ("inference", 1, max(2 * 5 * 300, 5 * 100 * 4) / 1e9),
        ("training", 1, max(3 * 2 * 5 * 300, 2 * 5 * 100 * 4) / 1e9),
    ],
)
def test_floor_of_products(mode: str, B: int, expected: float) -> None:
    assert floor(300, 100, replace(CASE, mode=mode, B=B), 5 * B, RATES) == pytest.approx(expected)


def test_floor_of_reading_the_weights() -> None:
    slow_memory = Rates(flops=1e12, bytes=1e6)
    assert floor(300, 100, replace(CASE, B=1), 5, slow_memory) == pytest.approx(2 * 5 * 100 * 4 / 1e6)
    assert floor(300, 100, replace(CASE, B=8), 40, slow_memory) == pytest.approx(3 * 2 * 40 * 300 / 1e12)


def test_both_run_in_turn_and_take_turns_in_beginning() -> None:
    calls: list[str] = []
    contenders = (lambda: calls.append("o"), lambda: calls.append("p"))
    ours, peer = take_turns(contenders, host_clock, ROUNDS["cpu", True])
    assert ours.runs == peer.runs >= 3
    counted = calls[4:]  # after two rounds of warming up
    rounds = ["".join(counted[i : i + 2]) for i in range(0, len(counted), 2)]
    assert rounds[:3] == ["po", "op", "po"]  # a busy machine may get no further


# ---- the grid ------------------------------------------------------------------------------------


def test_every_group_has_cases_and_every_case_a_group() -> None:
    assert list(dict.fromkeys(case.group for case in grid())) == list(GROUPS)
    for case in grid():
        assert case.ours in (*OURS, *CATALOGUE, *ATTENTIONS) or case.mode == "first"
    assert len({(case.group, case.name) for case in grid()}) == len(list(grid()))
    assert all(case.mode == "first" or case.target or not case.rivals for case in grid())


def test_quick_takes_some_of_every_group() -> None:
    quick = choose(BENCH, quick=True, only="")
    assert {case.group for case in quick} == set(GROUPS) - set(ON_REQUEST)
    assert len(quick) < len(choose(BENCH, quick=False, only=""))


def test_only_filters_groups() -> None:
    assert {case.group for case in choose(BENCH, quick=False, only="str")} == {"stream"}
    with pytest.raises(UnknownNameError, match="did you mean 'stream'"):
        choose(BENCH, quick=False, only="strem")


# ---- the contenders compute the same ------------------------------------------------------------------


@pytest.mark.parametrize("ours", sorted({*OURS} - {"sLSTM"}))  # which has other states than its peer
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_peers_and_definition_agree(ours: str, mode: str) -> None:
    torch.manual_seed(0)
    looped = OURS[ours] in LOOPS and ours not in OPTIONS
    known = {"GRU": "nn.GRU", "Elman": "nn.RNN", "minimal GRU": OUR_STEPS, "linear SRU": OUR_STEPS}
    peer = "Python loop" if looped else known.get(ours, "nn.LSTM")
    case = Case("test", ours, peer, mode, 3, 7, 16)
    pair = build(case)
    assert pair.same is (ours != "user's four gates")
    errors = compare(case, pair, draw(case))
    assert (errors.peer is not None) is pair.same
    assert max(error or 0.0 for error in errors) < 1e-5


@pytest.mark.parametrize("ours", ["LSTM", "user's LSTM"])
def test_packed_peer_agrees(ours: str) -> None:
    torch.manual_seed(0)
    case = Case("padded", ours, "packed nn.LSTM", "training", 10, 20, 16, padding=0.4)
    inputs = draw(case)
    assert int(inputs.lengths.sum()) == pytest.approx(0.6 * 10 * 20, rel=0.05)
    pair = build(case)
    assert pair.same
    assert max(error or 0.0 for error in compare(case, pair, inputs)) < 1e-5


def test_a_wrong_weight_shows_in_the_error() -> None:
    torch.manual_seed(0)
    pair = build(CASE)
    with torch.no_grad():
        pair.ours.cell.b[0] += 0.5
    errors = compare(CASE, pair, draw(CASE))
    assert errors.float64 < 1e-5
    assert errors.peer is not None
    assert errors.peer > 1e-4
    assert errors.peer_float64 is not None
    assert errors.peer_float64 > 1e-4


def test_training_reaches_every_leaf() -> None:
    own, other, _ = build(CASE)
    inputs = draw(CASE)
    for contender in (own, other):
        found = Run(contender, inputs, training=True).values()
        assert {"d_x", "d_h", "d_c", *(f"d_cells.0.0.{name}" for name in ("W_x", "W_h", "b"))} <= found.keys()
        assert all(bool(t.any()) for t in found.values())


@pytest.mark.parametrize("peer", ["nn.LSTM", "nn.LSTMCell"])
def test_streams_agree(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "BLOCK", 2)
    case = Case("stream", "LSTM", peer, "stream", H=16, target=5.0)
    found = measure(case, Setting("cpu", True, RATES))
    assert found.alternating is not None
    assert found.worst_error is not None
    assert found.worst_error < 1e-5


# ---- output --------------------------------------------------------------------------------------


def test_table_is_aligned_and_plain() -> None:
    lines = table(BENCH, [result(0.002, 0.005), result(0.5, 0.4, B=128)])
    assert lines[0].split("  ")[0] == "case"
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split()[-6:] == ["2.00", "5.00", "2.50×", "0.95×", "0.00", "2e-07"]
    assert lines[2].split()[-6:-3] == ["500", "400", "0.80×"]


def test_json_tells_everything() -> None:
    bench = Bench("cpu")
    bench.rates = RATES
    found = as_object(bench, [result(1.0, 0.5)], quick=False)
    assert json.loads(json.dumps(found, allow_nan=False)).keys() == {
        *("version", "quick", "machine", "rates", "method", "cases", "losses", "medians")
    }
    (case,) = found["cases"]
    assert (case["ratio"], case["ours_over_floor"], case["peer_over_floor"]) == (0.5, 2.0, 1.0)
    assert found["losses"][0]["case"] == case["name"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small group, measured for no time at all."""
    monkeypatch.setitem(ROUNDS, ("cpu", True), Rounds(2, 3, 0.0))
    cases = [replace(CASE, group="elman", ours="Elman", peer="nn.RNN", target=1e9)]
    monkeypatch.setattr(Bench, "grid", lambda bench: iter(cases))


@pytest.mark.usefixtures("tiny")
def test_command_gives_json() -> None:
    done = CliRunner().invoke(app, ["bench", "--device", "cpu", "--json", "--quick", "--only", "elman"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (case,) = found["cases"]
    assert (case["group"], case["B"], case["T"], case["D"], case["H"]) == ("elman", 8, 5, 16, 16)
    for times in (case["ours_seconds"], case["peer_seconds"]):
        assert 0 < times["p10"] <= times["median"] <= times["p90"]
        assert times["runs"] == 3
    assert case["ratio"] == case["peer_seconds"]["median"] / case["ours_seconds"]["median"]
    assert case["errors"].keys() == {"peer", "float64", "peer_float64"}
    assert max(case["errors"].values()) < 1e-5
    assert found["losses"][0]["why"][-1] == "under its target of 1e+09×"
    assert found["machine"].keys() >= {"cpu", "cores", "threads", "torch", "compiler", "date"}
    assert all(rate > 0 for rate in found["rates"].values())
    assert "elman: Elman vs nn.RNN, training" in done.stderr


@pytest.mark.usefixtures("tiny")
def test_command_gives_a_plain_table(capsys: pytest.CaptureFixture[str]) -> None:
    report(device="cpu", quick=True, only="elman")
    found = capsys.readouterr()
    assert "\x1b" not in found.out
    for part in ("ours ms", "Losses: 1 of 1 cases", "GFLOP/s", "compiler:", "a look, not a result"):
        assert part in found.out
    assert "·" not in found.out.split("\n")[0]
    assert "· measuring" in found.err


def test_an_unknown_group_is_a_mistake_of_the_user() -> None:
    code, out, err = elman("bench", "--device", "cpu", "--only", "grru")
    assert (code, out) == (2, "")
    assert "did you mean 'gru'?" in err


def test_help_answers_without_torch() -> None:
    code = (
        "import sys; from elman.cli.main import app\n"
        "try: app(['bench', '--help'])\n"
        "except SystemExit as end: print(end.code, *(m for m in ('torch', 'numpy') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().split("\n")[-1] == "0"
    for word in ("the engine beside torch.nn", "--json", "--quick", "--only", "--device", "--explain"):
        assert word in done.stdout
