"""The groups that CPU and CUDA share: norms, products, the catalogue and decoders, at tiny sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.machinery import ModuleSpec

import pytest
import torch

from elman.bench import catalogue, cells
from elman.bench.cases import (
    ATTENTIONS,
    CATALOGUE,
    OUR_LOOP,
    OUR_LSTM,
    PLAIN,
    PRODUCTS,
    SHARED_GROUPS,
    TORCHRECURRENT,
    Case,
    cpu_grid,
    cuda_grid,
)
from elman.bench.contenders import OPTIONS, OURS, build
from elman.bench.decoder import (
    PlainDecoder,
    build_decoders,
    compare_decoders,
    count_products,
    explain_decoder,
)
from elman.bench.devices import Bench
from elman.bench.floors import Rates
from elman.bench.measure import ROUNDS, Result, Setting, measure
from elman.bench.report import choose, medians, report
from elman.bench.runs import compare, draw
from elman.bench.timing import Rounds, Times

TINY = Case("norm", "layer-norm LSTM", "Python loop", "training", 3, 5, 8)
DECODER = Case("decoder", "additive", PLAIN, "decoder", 5, 4, 8)
GRIDS = {"cpu": cpu_grid, "cuda": cuda_grid}


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rounds, whatever a case takes."""
    monkeypatch.setitem(ROUNDS, ("cpu", True), Rounds(1, 2, 0.0))


def result(group: str, ratio: float) -> Result:
    case = replace(TINY, group=group)
    return Result(case, Times.of([1.0]), Times.of([ratio]))


def cases(device: str, group: str) -> Iterator[Case]:
    return (case for case in GRIDS[device]() if case.group == group)


# ---- what is measured ----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", GRIDS)
def test_both_devices_have_all_groups(device: str) -> None:
    assert {case.ours for case in cases(device, "norm")} == {"layer-norm LSTM"}
    assert {case.ours for case in cases(device, "products")} == set(PRODUCTS)
    assert {case.ours for case in cases(device, "decoder")} == set(ATTENTIONS)
    assert [case.ours for case in cases(device, "catalogue")] == CATALOGUE
    assert list(dict.fromkeys(case.group for case in GRIDS[device]() if case.group in SHARED_GROUPS)) == [
        *SHARED_GROUPS
    ]


def test_the_norm_has_three_peers_on_a_gpu() -> None:
    targets = {case.peer: (case.target, case.graph_target) for case in cases("cuda", "norm")}
    assert targets == {OUR_LSTM: (None, None), "Python loop": (None, None), "nn.LSTM": (3.0, 1.0)}


@pytest.mark.parametrize(
    ("ours", "B", "target"),
    [("additive", 64, 2.2), ("dot", 1, 4.0), ("location", 1, 1.5), ("additive with feeding", 64, 1.5)],
)
def test_targets_of_decoders(ours: str, B: int, target: float) -> None:
    found = [case for case in cases("cpu", "decoder") if (case.ours, case.B) == (ours, B)]
    assert {case.target for case in found} == {target}
    assert {case.T for case in found} == {20}


def test_the_catalogue_comes_only_where_it_is_asked_for() -> None:
    bench = Bench("cpu")
    assert "catalogue" not in {case.group for case in choose(bench, quick=False, only="")}
    assert {case.group for case in choose(bench, quick=True, only="cat")} == {"catalogue"}


def test_the_catalogue_is_skipped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(catalogue, "find_spec", nothing)
    report(device="cpu", quick=True, only="catalogue")
    out, progress = capsys.readouterr()
    assert "catalogue: skipped, since torchrecurrent is not installed" in progress
    assert "Losses: 0 of 0 cases" in out


def test_a_group_may_owe_a_median() -> None:
    few = [result("norm", 1.0), *(result("catalogue", ratio) for ratio in (3.0, 5.0, 9.0))]
    assert list(medians(few)) == [("catalogue", 5.0, 4.0)]
    assert list(medians(few[:1])) == []


def test_slower_than_our_own_is_no_loss() -> None:
    slow = result("norm", 0.8)
    assert slow.shortfalls() == ["slower than the peer"]
    assert replace(slow, case=replace(TINY, peer=OUR_LSTM, target=0.7)).shortfalls() == []
    assert replace(slow, case=replace(TINY, peer=OUR_LSTM, target=0.9)).shortfalls() != []


# ---- contenders compute the same -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ours", [name for name, cell in OURS.items() if cell in cells.LOOPS and name not in OPTIONS]
)
@pytest.mark.parametrize("precision", [None, "tf32"])
def test_loops_agree(ours: str, precision: str | None) -> None:
    """With a state to start from, and from zero."""
    case = replace(TINY, ours=ours, precision=precision)
    errors = compare(case, build(case), draw(case))
    assert max(error or 0.0 for error in errors) < 1e-5
    assert errors.peer_float64 is not None


def test_our_lstm_is_another_network() -> None:
    case = replace(TINY, peer=OUR_LSTM)
    pair = build(case)
    assert not pair.same
    assert compare(case, pair, draw(case)).float64 < 1e-5


@pytest.mark.skipif(catalogue.absent() is not None, reason=str(catalogue.absent()))
@pytest.mark.parametrize("ours", CATALOGUE)
def test_the_catalogue_agrees(ours: str) -> None:
    """On the loop: that kernels equal it is a test of the cells."""
    case = replace(TINY, ours=ours, peer=TORCHRECURRENT)
    pair = build(case)
    pair.ours.rnn.backend = "loop"
    errors = compare(case, pair, draw(case))
    assert pair.same is (ours not in catalogue.OTHERWISE)
    assert (errors.peer is not None) is pair.same
    assert max(error or 0.0 for error in errors) < 1e-5


@pytest.mark.parametrize("ours", ATTENTIONS)
@pytest.mark.parametrize("peer", [PLAIN, OUR_LOOP])
def test_decoders_agree(ours: str, peer: str) -> None:
    case = replace(DECODER, ours=ours, peer=peer)
    assert max(error or 0.0 for error in compare_decoders(case, build_decoders(case))) < 1e-5


def test_a_wrong_weight_of_a_decoder_shows() -> None:
    decoders = build_decoders(DECODER)
    plain = decoders.peer.decoder
    assert isinstance(plain, PlainDecoder)
    with torch.no_grad():
        plain.cell.bias_ih[0] += 0.5
    errors = compare_decoders(DECODER, decoders)
    assert errors.float64 < 1e-5
    assert (errors.peer or 0.0) > 1e-4
    assert (errors.peer_float64 or 0.0) > 1e-4


def test_products_of_a_decoder_are_counted() -> None:
    """H² = 64: the cell has 4·(1 + 2 + 1), the readout 3, the query 1, the keys 2; then scores, contexts."""
    decoders = build_decoders(DECODER)
    assert count_products(DECODER, decoders.reference) == (22 * 64 + 4 * (8 + 16), 4 * 64)


def test_explanations_of_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explain_decoder(DECODER, "cpu") == ["taken: one walk over all of time, backend cpu"]
    monkeypatch.setattr("elman.bench.decoder.walk_backend", lambda wanted, x: None)
    assert explain_decoder(DECODER, "cpu") == ["taken: step by step: no backend walks a composed step on cpu"]


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("case", [DECODER, TINY, replace(TINY, ours="highway")], ids=lambda case: case.ours)
def test_a_case_is_measured_with_its_floor(case: Case) -> None:
    found = measure(case, Setting("cpu", True, Rates(flops=1e9, bytes=1e9)))
    assert found.failure is None
    assert found.ratio is not None
    assert found.over_floor is not None
    assert found.worst_error is not None
    assert found.worst_error < 1e-5
