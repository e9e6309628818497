"""The bench's machinery for CUDA devices, as far as it needs none; and one quick group where there is one."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from elman.bench import measure as measuring
from elman.bench import timing
from elman.bench.cases import BACKWARD, FIRST, FORWARD, LATER, ON_REQUEST, Case
from elman.bench.cases import CUDA_GROUPS as GROUPS
from elman.bench.cases import SHARED_GROUPS as SHARED
from elman.bench.cases import cuda_grid as grid
from elman.bench.contenders import DTYPES, build
from elman.bench.devices import Bench
from elman.bench.first import FirstUse
from elman.bench.floors import step_floor
from elman.bench.measure import ROUNDS, Result, Setting, measure, numbers
from elman.bench.model import build_updates
from elman.bench.report import as_object, choose, losses, report, table
from elman.bench.runs import Errors, compare, draw
from elman.bench.timing import Rounds, Times, take_turns
from elman.cli.main import app
from elman.errors import BackendError, UnknownNameError
from tiny import elman

BENCH = Bench("cuda")
BENCH.facts = {"card": "a card"}
CASE = Case("lstm-bf16", "LSTM", "nn.LSTM", "training", 16, 256, 256, "bf16", target=3.5, graph_target=1.3)
TINY = Case("lstm-tf32", "LSTM", "nn.LSTM", "training", 6, 5, 8, "tf32")
FLOOR = Case("floor", FORWARD, None, "floor", precision="bf16", limit=4.0)
NEW = Case("first", FIRST, None, "first", precision="bf16", limit=10.0)
AGAIN = Case("first", LATER, None, "first", precision="bf16")
OURS = ("Elman", "GRU", "LSTM", "user's four gates")


def times(milliseconds: float | None) -> Times | None:
    return None if milliseconds is None else Times(*[milliseconds / 1e3] * 3, 30)


def result(
    ours: float = 2.0,
    ours_graph: float | None = 1.0,
    peer: float = 10.0,
    peer_graph: float | None = 3.0,
    *,
    error: float = 0.004,
    **changes: Any,
) -> Result:
    found = [times(each) for each in (ours, peer, ours_graph, peer_graph)]
    return Result(replace(CASE, **changes), *found, step=4e-6, errors=Errors(None, error, 0.005))


# ---- the grid ------------------------------------------------------------------------------------


def asked(**sizes: Any) -> set[tuple[float | None, float | None]]:
    """The targets of all cases that have these sizes."""
    found = [case for case in grid() if all(getattr(case, name) == value for name, value in sizes.items())]
    assert found, sizes
    return {(case.target, case.graph_target) for case in found}


def test_every_group_has_cases_and_every_case_a_group() -> None:
    assert list(dict.fromkeys(case.group for case in grid())) == list(GROUPS)
    assert len({(case.group, case.name) for case in grid()}) == len(list(grid()))


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman", "user"])
@pytest.mark.parametrize("B", [16, 32, 64, 128])
def test_targets_of_the_four_cells(cell: str, B: int) -> None:
    for H in (256, 512, 768, 1024):
        reported = H == 1024 and B >= 64
        assert asked(group=f"{cell}-bf16", B=B, H=H, T=256) == {(None, None) if reported else (3.5, 1.3)}
        assert asked(group=f"{cell}-tf32", B=B, H=H, T=256) == {(3.0, 1.2) if H <= 512 else (None, None)}
        assert asked(group="lstm-fp16", B=B, H=H, T=256) == {(0.9, None)}


@pytest.mark.parametrize(
    ("sizes", "target"),
    [
        (
            {
                "group": "bidirectional",
                "layers": 2,
                "bidirectional": True,
                "padding": 0.375,
                "H": 512,
                "B": 32,
            },
            (4.0, 1.5),
        ),
        ({"group": "awd", "layers": 3, "H": 1152, "B": 40, "T": 70}, (2.5, None)),
        ({"group": "large", "H": 2048, "B": 64, "T": 256}, (0.9, None)),
        ({"group": "model", "layers": 2, "H": 650, "B": 20, "T": 35}, (1.8, None)),
    ],
)
def test_targets_of_the_others(sizes: dict[str, Any], target: tuple[float, float | None]) -> None:
    assert asked(precision="bf16", **sizes) == {target}


def test_limits() -> None:
    limits = {case.name: case.limit for case in grid() if case.limit is not None}
    sizes = "bf16, B 32, T 256, H 512"
    assert limits == {f"{FORWARD}, {sizes}": 4.0, f"{BACKWARD}, {sizes}": 4.0, FIRST: 10.0}


def test_peers_are_those_of_torch() -> None:
    others = {*SHARED, *ON_REQUEST}
    peers = {(c.ours, c.peer) for c in grid() if c.mode == "training" and c.group not in others}
    assert peers == {
        ("LSTM", "nn.LSTM"),
        ("GRU", "nn.GRU"),
        ("Elman", "nn.RNN"),
        ("user's four gates", "nn.LSTM"),
        ("LSTM", "packed nn.LSTM"),
    }


def test_quick_takes_some_of_every_group() -> None:
    quick = choose(BENCH, quick=True, only="")
    assert {case.group for case in quick} == set(GROUPS) - set(ON_REQUEST)
    assert len(quick) < 45


def test_groups_are_fine_enough_to_run_a_part() -> None:
    assert {case.group for case in choose(BENCH, quick=False, only="gru-tf32")} == {"gru-tf32"}
    assert len({case.group for case in choose(BENCH, quick=False, only="bf16")}) == 4
    with pytest.raises(UnknownNameError, match="did you mean 'model'"):
        choose(BENCH, quick=False, only="modle")


# ---- from timings to results ---------------------------------------------------------------------


def test_ratios() -> None:
    found = result(ours=2.0, ours_graph=1.0, peer=10.0, peer_graph=3.0)
    assert found.ratio == pytest.approx(5.0)
    assert found.graph_ratio == pytest.approx(3.0)
    assert result(ours=1.0, ours_graph=2.0).graph_ratio == pytest.approx(3.0)  # ours in its better way
    assert result(ours_graph=None).graph_ratio == pytest.approx(1.5)
    assert result(peer_graph=None).graph_ratio is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (result(), []),
        (result(peer=6.0), ["under its target of 3.5×"]),
        (result(peer=1.0), ["slower than the peer", "under its target of 3.5×"]),
        (result(peer_graph=1.2), ["under its target of 1.3× as a graph"]),
        (result(peer_graph=0.5, graph_target=None), ["slower than the peer as a graph"]),
        (result(peer_graph=None), []),  # the peer cannot be captured
        (result(peer=3.0, target=None), []),  # only reported
        (result(error=0.2), ["error 2e-01 above 0.05"]),
        (Result(CASE, failure="RuntimeError: no"), ["failed: RuntimeError: no"]),
        (Result(FLOOR, step=5e-6, floor=1e-6), ["over its limit of 4 floors"]),
        (Result(FLOOR, step=3e-6, floor=1e-6), []),
        (Result(NEW, times(11e3)), ["over its limit of 10 s"]),
        (Result(AGAIN, times(9e3), from_cache=True), []),
        (Result(AGAIN, times(9e3), from_cache=False), ["compiled again instead of taken from the cache"]),
    ],
)
def test_losses_are_told(found: Result, expected: list[str]) -> None:
    assert found.shortfalls() == expected
    assert [loss["why"] for loss in losses([found])] == ([expected] if expected else [])


def test_any_number_takes_turns() -> None:
    calls: list[str] = []
    found = take_turns(
        [lambda name=name: calls.append(name) for name in "abc"],
        lambda call: (call(), 0.5)[1],
        Rounds(warm_up=2, least=3, budget=0.0),
    )
    assert found == (Times(0.5, 0.5, 0.5, 3),) * 3
    assert "".join(calls) == "abcabc" + "cbaabccba"


def test_floor_grows_with_what_must_be_done() -> None:
    forward, backward = step_floor(512, 32), step_floor(512, 32, backward=True)
    assert 0.75e-6 < forward < backward < 2e-6  # one barrier at least; the probe's exchange took 1.45 µs
    assert step_floor(256, 32) < forward < step_floor(1024, 32)
    assert step_floor(512, 16) < forward < step_floor(512, 128)


# ---- the contenders compute the same ------------------------------------------------------------------


def peer_of(ours: str) -> str:
    return {"GRU": "nn.GRU", "Elman": "nn.RNN"}.get(ours, "nn.LSTM")


@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize("B", [1, 3, 6])
def test_contenders_agree_with_the_definition(ours: str, B: int) -> None:
    case = replace(TINY, ours=ours, peer=peer_of(ours), B=B)
    pair = build(case, "cpu")
    assert pair.same is (ours != "user's four gates")
    errors = compare(case, pair, draw(case, "cpu"))
    assert errors.float64 < 1e-5
    assert (errors.peer_float64 is not None) is pair.same
    assert (errors.peer_float64 or 0.0) < 1e-5


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_and_lengths_agree(padded: bool, bidirectional: bool) -> None:
    case = replace(TINY, layers=2, padding=0.375 * padded, bidirectional=bidirectional, T=9)
    inputs = draw(case, "cpu")
    if padded:
        assert inputs.lengths is not None
        assert inputs.lengths.tolist() == sorted(inputs.lengths.tolist(), reverse=True)
        assert (int(inputs.lengths[0]), int(inputs.lengths[-1])) == (9, 2)
    errors = compare(case, build(case, "cpu"), inputs)
    assert max(error or 0.0 for error in errors) < 1e-5


def test_both_have_the_very_same_weights_in_any_precision() -> None:
    """Then the peer's error is its arithmetic, and nothing else."""
    pair = build(replace(TINY, ours="GRU", peer="nn.GRU", precision="bf16"), "cpu")
    W_x, b = pair.peer.module.weight_ih_l0, pair.peer.module.bias_ih_l0
    assert W_x.dtype == torch.bfloat16
    assert torch.equal(W_x.t(), pair.ours.cell.W_x)
    assert torch.equal(b, pair.ours.cell.b)


def test_compared_rows_do_not_depend_on_the_batch() -> None:
    few, many = (draw(replace(TINY, B=B), "cpu").x for B in (4, 9))
    assert torch.equal(many[[0, 1, 7, 8]], few)


@pytest.mark.parametrize("row", [0, 5])
def test_an_error_in_any_compared_row_shows(row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, inputs = build(TINY, "cpu"), draw(TINY, "cpu")
    unroll = pair.ours.unroll

    def wrong(x: Any, state: Any, lengths: Any) -> Any:
        (outputs,) = unroll(x, state, lengths)
        noise = torch.zeros_like(outputs)
        noise[row] = 0.5
        return (outputs + noise,)

    monkeypatch.setattr(pair.ours, "unroll", wrong)
    errors = compare(TINY, pair, inputs)
    assert errors.float64 > 0.1
    assert (errors.peer_float64 or 0.0) < 1e-5


def test_what_is_not_finite_is_a_failure() -> None:
    pair = build(TINY, "cpu")
    with torch.no_grad():
        pair.ours.cell.b[0] = float("nan")
    with pytest.raises(ArithmeticError, match="not finite"):
        compare(TINY, pair, draw(TINY, "cpu"))


def test_tf32_is_allowed_inside_only() -> None:
    switches = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [switch.allow_tf32 for switch in switches]
    with numbers(TINY):
        assert all(switch.allow_tf32 for switch in switches)
    with numbers(CASE):
        assert not any(switch.allow_tf32 for switch in switches)
    assert [switch.allow_tf32 for switch in switches] == before


def test_models_learn_alike() -> None:
    """The same losses, update by update, with the state carried, and the same weights in the end."""
    case = replace(TINY, mode="model", layers=2)
    ours, peer = build_updates(case, "cpu", vocabulary=20, dropout=0.0)
    for name, parameter in peer.model.rnn.named_parameters():
        parameter.requires_grad_("bias_hh" not in name)  # torch has two biases, which would both learn
    found = [(float(ours()), float(peer())) for _ in range(4)]
    assert all(mine == pytest.approx(other, rel=1e-5) for mine, other in found)
    assert found[-1][0] < found[0][0]
    assert torch.allclose(ours.model.embedding.weight, peer.model.embedding.weight, atol=1e-6)
    h, _ = peer.state
    assert torch.allclose(ours.state[1][0], h[1], atol=1e-6)
    assert h.any()
    assert ours.model.output.weight is ours.model.embedding.weight


# ---- a whole run, as far as a CPU goes -----------------------------------------------------------


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's events, graphs and processes replaced; a few tiny cases."""

    def capture(call: Any) -> Any:
        if getattr(call, "lengths", None) is not None:
            try:
                raise RuntimeError("CUDA error: not permitted\nwhen stream is capturing")
            finally:
                raise RuntimeError("capture ended early")
        return call

    monkeypatch.setattr(BENCH, "device", "cpu")
    monkeypatch.setattr(timing, "capture", capture)
    monkeypatch.setitem(ROUNDS, ("cuda", False), Rounds(10, 30, 0.0))
    monkeypatch.setattr(measuring, "first_uses", lambda device, count: (FirstUse(4.0, 0.1, True),))
    monkeypatch.setattr(
        measuring, "build_updates", lambda case, device: build_updates(case, device, vocabulary=20)
    )
    monkeypatch.setattr("elman.bench.report.find_bench", lambda device, explain: BENCH)
    cases = [
        replace(TINY, group="lstm-tf32", target=1e9),
        replace(TINY, group="bidirectional", layers=2, bidirectional=True, padding=0.375),
        replace(TINY, group="large", ours="nothing"),
        replace(TINY, group="floor", mode="floor", ours=FORWARD, peer=None, limit=1e9),
        replace(TINY, group="floor", mode="floor", ours=BACKWARD, peer=None, limit=1e9),
        replace(TINY, group="model", mode="model", layers=2),
        NEW,
        AGAIN,
    ]
    monkeypatch.setattr(BENCH, "grid", lambda: iter(cases))


@pytest.mark.usefixtures("on_cpu")
def test_run_gives_tables(capsys: pytest.CaptureFixture[str]) -> None:
    report(device="cuda")
    out, progress = capsys.readouterr()
    for part in (
        "ours ms  ours graph  peer ms  peer graph",
        "no graph of the peer: RuntimeError: CUDA error: not permitted when stream is capturing",
        "failed: KeyError: 'nothing'",
        "under its target of 1e+09×",
        "tokens/s",
        "ours/floor",
        "4.00  ≤ 10 s",
        "0.10  cached",
        "Losses:",
        "of 8 cases",
        "card: a card",
    ):
        assert part in out
    assert "· bidirectional: LSTM vs nn.LSTM, tf32, B 6, T 5, H 8, 2 layers, bidirectional" in progress


@pytest.mark.usefixtures("on_cpu")
def test_run_gives_json() -> None:
    done = CliRunner().invoke(app, ["bench", "--json", "--device", "cuda"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["machine"] == {"card": "a card"}
    assert found["floor"]["barrier_microseconds"]["16"] == 0.75
    cases = {case["group"]: case for case in found["cases"]}
    plain = cases["lstm-tf32"]
    assert plain["eager_ratio"] == plain["peer_seconds"]["median"] / plain["ours_seconds"]["median"]
    assert plain["graph_ratio"] > 0
    assert plain["errors"]["float64"] < 1e-5
    assert cases["bidirectional"]["graph_ratio"] is None
    assert cases["bidirectional"]["no_graph"].keys() == {"ours", "peer"}
    assert cases["bidirectional"]["errors"]["peer_float64"] < 1e-5
    assert cases["large"]["failure"] == "KeyError: 'nothing'"
    assert cases["floor"]["floor_seconds"] > 0
    assert cases["model"]["tokens_per_second"] == pytest.approx(30 / cases["model"]["ours_seconds"]["median"])
    assert cases["first"]["from_cache"] is True
    why = {(loss["group"], tuple(loss["why"])) for loss in found["losses"]}
    assert ("large", ("failed: KeyError: 'nothing'",)) in why


def test_explanations_are_asked_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(cell: Any, B: int, dtype: torch.dtype, directions: int, T: int) -> list[str]:
        if B == 128:
            raise BackendError("too many rows")
        tf32 = torch.backends.cuda.matmul.allow_tf32
        return [f"{type(cell).__name__} {cell.hidden_size} {B} {dtype} {cell.W_h.dtype} {directions} {tf32}"]

    backend = ModuleType("elman.recurrence.triton.backend")
    backend.explain = explain  # type: ignore[attr-defined]
    for name in ("elman.recurrence.triton", "elman.recurrence.triton.backend"):
        monkeypatch.setitem(sys.modules, name, backend)
    monkeypatch.setattr(BENCH, "device", "cpu")
    monkeypatch.setattr("elman.bench.report.find_bench", lambda device, explain: BENCH)
    cases = [TINY, replace(CASE, ours="GRU", H=8, bidirectional=True), replace(CASE, B=128, H=8), NEW]
    monkeypatch.setattr(BENCH, "grid", lambda: iter(cases))
    done = CliRunner().invoke(app, ["bench", "--explain"])
    assert done.exit_code == 0, done.output
    assert done.stdout.split("\n")[1::2] == [
        "  LSTM 8 6 torch.float32 torch.float32 1 True",
        "  GRU 8 16 torch.bfloat16 torch.bfloat16 2 False",
        "  BackendError: E301: too many rows",
    ]
    found = json.loads(CliRunner().invoke(app, ["bench", "--explain", "--json"]).stdout)
    assert found["cases"][0]["lines"] == ["LSTM 8 6 torch.float32 torch.float32 1 True"]


def test_table_is_aligned() -> None:
    lines = table(BENCH, [result(), result(B=128, peer_graph=None, target=None, graph_target=None)])
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split()[-11:] == [
        *("2.00", "1.00", "10.0", "3.00", "5.00×", "3.00×", "3.5×,", "1.3×", "4.00", "4e-03", "5e-03")
    ]
    assert lines[2].split()[-7:] == ["–", "5.00×", "–", "–", "4.00", "4e-03", "5e-03"]


def test_json_has_no_infinities() -> None:
    json.dumps(as_object(BENCH, [result(), Result(CASE, failure="gone")], quick=True), allow_nan=False)


# ---- the command ---------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "torch sees no CUDA device; check that nvidia-smi lists one"),
        (["--explain"], "--explain says how cells are laid out on a CUDA device; torch sees none here"),
    ],
)
def test_without_cuda_it_is_a_mistake_of_the_user(options: list[str], message: str) -> None:
    code, out, err = elman("bench", *options)
    assert (code, out) == (2, "")
    assert message in err


def test_precisions_are_known() -> None:
    assert {case.precision for case in grid()} == set(DTYPES) - {None}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_cuda_device() -> None:
    case = replace(CASE, H=64, T=20)
    found = measure(case, Setting("cuda", quick=True))
    assert found.failure is None
    assert found.ratio is not None
    assert found.graph_ratio is not None
    assert found.errors is not None
    assert found.errors.float64 < 0.05
