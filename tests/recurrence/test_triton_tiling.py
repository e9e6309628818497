"""Which form a sequence takes on a GPU, how it is tiled, and what is launched: worked out without one."""

import itertools
import random
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from elman import RNN
from elman.recurrence import unroll
from elman.recurrence.triton import backend, chunks, launch, recording, sequence, steps
from elman.recurrence.triton.chunks import count_chunks, in_one_piece, padded_length
from elman.recurrence.triton.emit.backward import backward
from elman.recurrence.triton.emit.writer import Variant, pieces
from elman.recurrence.triton.launch import DoesNotFit
from elman.recurrence.triton.program import power_of_two
from elman.recurrence.triton.tiling import MOST_GATES, Card, Tiling, Workload, find_obstacles, tilings
from user_cells import Ranked

H200 = Card("NVIDIA H200", 132, 232448)
SMALL = Card("a small card", 20, 101376)
CARDS = (H200, SMALL, Card("another", 108, 166912), Card("tiny", 1, 49152))
KINDS = (("bfloat16", ""), ("float16", ""), ("float32", "tf32"), ("float32", "ieee"))


def workload_of(
    H: int, B: int, gates: int = 4, kind: tuple[str, str] = ("bfloat16", ""), directions: int = 1
) -> Workload:
    return Workload(H, B, gates, *kind, directions)


def random_workloads(count: int) -> Iterator[tuple[Workload, Card]]:
    rng = random.Random(5)
    for _ in range(count):
        H, B = round(3000 ** rng.random()), round(5000 ** rng.random())
        gates, directions = rng.randrange(12), rng.choice((1, 2))
        yield workload_of(H, B, gates, rng.choice(KINDS), directions), rng.choice(CARDS)


# ---- tilings ---------------------------------------------------------------------------------------


def test_every_plan_can_be_run():
    """All units and all rows are somebody's, and what must be on the chip at once is."""
    seen = set()
    for workload, card in random_workloads(3000):
        *found, last = tilings(workload, card)
        assert last.form == "steps", "steps always fit"
        assert all(tiling.cost <= after.cost for tiling, after in itertools.pairwise(found)), "the best first"
        for tiling in found:
            seen.add(tiling.form)
            where = (tiling, workload, card)
            assert tiling.units * tiling.programs >= workload.H > tiling.units * (tiling.programs - 1), where
            assert tiling.rows * tiling.groups * tiling.launches >= workload.B, where
            assert tiling.rows * tiling.groups * (tiling.launches - 1) < workload.B, where
            assert tiling.memory <= card.memory, where
            assert tiling.units == power_of_two(tiling.units) >= 16, where  # what a product of Triton takes
            assert tiling.rows == power_of_two(tiling.rows) >= 16, where
            assert tiling.cost > 0, where
            assert tiling.form in ("whole", "shared"), where
            if tiling.form == "whole":
                assert tiling.launches == 1, where
                assert tiling.programs == 1 or not workload.products, where
            else:
                together = tiling.programs * tiling.groups * workload.directions
                assert 1 < tiling.programs <= together <= card.processors, where
    assert seen == {"whole", "shared"}


def test_time_is_in_no_plan_and_rows_are_in_no_text():
    """Nothing that differs from batch to batch but the tiling itself leads to another kernel."""
    assert {field.name for field in fields(Workload)}.isdisjoint({"T", "lengths"})
    assert {field.name for field in fields(Tiling)}.isdisjoint({"T", "B", "lengths"})
    assert {field.name for field in fields(Variant)}.isdisjoint({"T", "B", "groups", "launches"})


EXPECTED = {  # gates, H, B: the forms that are right on a large card
    **{(gates, H, B): {"shared"} for gates in (1, 3, 4) for H in (256, 512, 768) for B in (16, 32, 64)},
    **{(gates, H, B): {"shared"} for gates in (3, 4) for H in (1000, 1024, 1152) for B in (1, 16)},
    **{(gates, H, B): {"whole", "shared"} for gates in (1, 3, 4) for H in (64, 128) for B in (1, 32, 128)},
    **{(gates, H, 128): {"whole"} for gates in (0, 1, 4) for H in (1, 7, 16)},
    **{(0, H, 300): {"whole"} for H in (1, 100, 2048, 10000)},
    **{(4, H, 64): {"steps"} for H in (2048, 5000)},
    **{(MOST_GATES + 1, H, 32): {"steps"} for H in (16, 512)},
}


@pytest.mark.parametrize(("gates", "H", "B"), EXPECTED)
def test_a_large_card_takes_the_form_that_is_fast(gates, H, B):
    for numbers in ("bfloat16", "float16"):
        assert tilings(workload_of(H, B, gates, (numbers, "")), H200)[0].form in EXPECTED[gates, H, B]


def test_float32_stays_on_the_chip_only_where_tf32_is_allowed():
    for H in (256, 512):
        assert tilings(workload_of(H, 32, kind=("float32", "tf32")), H200)[0].form == "shared"
        (only,) = tilings(workload_of(H, 32, kind=("float32", "ieee")), H200)
        assert only.form == "steps"
    assert (
        tilings(workload_of(512, 32, 0, ("float32", "ieee")), H200)[0].form == "whole"
    )  # nothing is multiplied


def test_a_small_card_falls_to_other_forms():
    assert [tilings(workload_of(H, 32), SMALL)[0].form for H in (16, 256, 512, 1024)] == [
        *("whole", "shared", "steps", "steps")
    ]
    both = workload_of(256, 32, directions=2)
    assert [tilings(both, card)[0].form for card in (H200, Card("narrow", 20, 49152))] == ["shared", "steps"]


@pytest.mark.parametrize(
    ("workload", "card", "obstacles"),
    [
        (workload_of(256, 32, 9), H200, ["whole, shared: 9 gates; kernels keep at most 8"]),
        (
            workload_of(256, 32, kind=("float32", "ieee")),
            H200,
            ["no IEEE float32 products; TF32 would serve"],
        ),
        (workload_of(512, 32), H200, ["whole: all weights of a row need .* KB, a program has 227 KB"]),
        (workload_of(512, 32), SMALL, ["whole: ", "shared: 32 programs must run at once, on 20 processors"]),
        (
            workload_of(512, 32, directions=2),
            SMALL,
            ["whole: ", "shared: 64 programs must run at once, on 20"],
        ),
        (
            workload_of(5000, 32),
            Card("long", 1000, 101376),
            ["whole: ", "shared: .* KB, a program has 99 KB"],
        ),
        (workload_of(50, 32, 0), H200, []),
    ],
)
def test_the_obstacle_is_named(workload, card, obstacles):
    found = find_obstacles(workload, card)
    assert len(found) == len(obstacles)
    for text, pattern in zip(found, obstacles, strict=True):
        assert re.search(pattern, text), text


def test_a_plan_speaks_of_its_tiling():
    chosen = str(tilings(workload_of(512, 32), H200)[0])
    assert chosen.startswith("shared: ")
    for word in ("programs share the units of", "units each", "warps", "KB on chip", "µs a step"):
        assert word in chosen
    assert str(tilings(workload_of(16, 32), H200)[0]).startswith(
        "whole: a program holds all units of 16 rows"
    )
    assert str(tilings(workload_of(16, 32), H200)[-1]).startswith("steps: a product and a kernel a step")


@pytest.mark.parametrize("units", [1, 15, 16, 17, 64, 65, 650, 1000, 1152, 2047])
@pytest.mark.parametrize("largest", [64, 256, 1 << 30])
def test_blocks_cover_all_units_once(units, largest):
    found = pieces(units, largest=largest)
    assert [first for first, _ in found] == [sum(size for _, size in found[:i]) for i in range(len(found))]
    assert all(size == power_of_two(size) and 16 <= size <= max(64, largest) for _, size in found)
    assert units <= sum(size for _, size in found) < units + max(64, units)


# ---- the ring ------------------------------------------------------------------------------------

WRITING = re.compile(r"(around|inbox|word|awaited|round|there|m) = |tl\.store\(round")
AWAITING = re.compile(r"(arriving|in_\d+) = ")


def exchanged(text: str, variant: Variant, B: int) -> tuple[Tensor, Tensor]:
    """Places in the ring that one step back writes, and those awaited after it: the text's own arithmetic."""
    head, name, tail = text.rpartition("arriving = ")  # at the end: after the last step
    lines = [line for line in map(str.strip, head.splitlines()) if WRITING.match(line)]
    lines += [line for line in map(str.strip, (name + tail).splitlines()) if AWAITING.match(line)]
    written: list[Tensor] = []
    awaited: list[Tensor] = []
    language = SimpleNamespace(
        arange=torch.arange,
        int64=torch.int64,
        trans=lambda part: part,
        store=lambda address, part, mask: written.append(address[mask]),
        load=lambda address, mask, other, volatile: awaited.append(address[mask]),
    )
    given = {"tl": language, "ring": 0, "first": 0, "step": 0, "T": 1, "B": B, "part": None}
    for tile in range(variant.programs):
        program = {"tile": tile, "group": 0, "d": 0}
        exec("\n".join(lines), {**given, **{name: torch.tensor(place) for name, place in program.items()}})
    return torch.cat(written).sort().values, torch.cat(awaited).unique()


@pytest.mark.parametrize(("rows", "numbers"), [(16, "bfloat16"), (32, "float16"), (64, "float32")])
@pytest.mark.parametrize("units", [16, 32, 64, 128])
def test_what_is_awaited_of_the_ring_is_what_is_written(units, rows, numbers):
    """A word that nobody writes would be awaited forever."""
    step = backend.step_of(RNN("mgu", 4, 4).cells[0][0])
    for H in (40, 65, 129, 192, 200, 320, 333, 385):
        v = Variant(H, rows, units, numbers)
        if v.programs == 1:  # nothing is exchanged
            continue
        text = backward(step, v)
        for B in (1, rows - 3, rows):
            written, awaited = exchanged(text, v, B)
            assert torch.equal(written, awaited), (v, B)
            found = (awaited // (v.programs * v.words) * v.units + awaited % v.units).unique()
            assert found.tolist() == list(range(min(v.depth, v.programs * v.units))), (v, B)
            assert len(awaited) == v.programs * -(-B // v.packing) * len(found), (v, B)


# ---- launches ------------------------------------------------------------------------------------


class Launched(NamedTuple):
    """A launch that did not take place."""

    source: str
    name: str
    grid: tuple[int, int, int]
    numbers: dict[str, int]
    warps: int
    cooperative: bool


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Launched]:
    """What would be launched on an H200 for tensors on the CPU; the results hold anything."""
    found: list[Launched] = []

    def launch(source, name, grid, tensors, numbers, *, warps, cooperative=False, overlap=False):
        found.append(Launched(source, name, grid, dict(numbers), warps, cooperative))

    pytest.importorskip("triton")
    monkeypatch.setattr(unroll, "choose", lambda *given: backend.TritonBackend())
    monkeypatch.setattr(backend, "card_of", lambda device: H200)
    monkeypatch.setattr(backend, "_refused", set())
    monkeypatch.setattr(sequence, "launch", launch)
    monkeypatch.setattr(chunks, "launch", launch)
    monkeypatch.setattr(recording, "launch", launch)
    return found


def unroll_back(
    cell: str,
    H: int,
    B: int,
    T: int,
    lengths: Any = None,
    dtype: torch.dtype = torch.bfloat16,
    **options: Any,
) -> None:
    network = RNN(cell, 4, H, **options).to(dtype)
    network(torch.randn(B, T, 4).to(dtype), lengths).outputs.sum().backward()


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("H", "B"), [(16, 100), (64, 1), (256, 5), (256, 40)])
def test_launches_cover_all_rows(launches, monkeypatch, H, B, both, crowded):
    tiling = tilings(workload_of(H, B, directions=1 + both), H200)[0]
    if crowded:  # one group at a time
        tiling = replace(tiling, groups=1, launches=-(-B // tiling.rows))
    monkeypatch.setattr(backend, "tilings", lambda workload, card: [tiling])
    unroll_back("lstm", H, B, 3, bidirectional=both)
    assert [one.name for one in launches] == ["forward"] * tiling.launches + ["backward"] * tiling.launches
    for half in (launches[: tiling.launches], launches[tiling.launches :]):
        assert [one.numbers["first"] for one in half] == [
            i * tiling.rows * tiling.groups for i in range(tiling.launches)
        ]
        assert sum(one.grid[1] for one in half) == -(-B // tiling.rows)
    for one in launches:
        programs, groups, directions = one.grid
        assert (programs, directions, one.warps) == (tiling.programs, 1 + both, tiling.warps)
        assert groups <= tiling.groups
        assert one.cooperative == (tiling.form == "shared")


@pytest.mark.parametrize(
    ("cell", "H", "dtype"),
    [
        ("lstm", 16, torch.bfloat16),
        ("gru", 256, torch.bfloat16),
        ("elman", 300, torch.float16),
        ("peephole_lstm", 40, torch.float32),
        ("sru", 100, torch.bfloat16),
    ],
)
def test_rows_steps_and_lengths_lead_to_no_other_text(launches, cell, H, dtype):
    """Only the numbers differ, which Triton is told to treat as such."""
    texts = set()
    for B, T in ((1, 1), (1, 7), (2, 16), (16, 1), (16, 33)):
        for length in (1, T):
            launches.clear()
            unroll_back(cell, H, B, T, [length] * B, dtype)
            texts.add(frozenset((one.source, one.name) for one in launches))
            assert {one.numbers["T"] for one in launches if "T" in one.numbers} == {T}
            assert {one.numbers["B"] for one in launches if "B" in one.numbers} == {B}
    assert len(texts) == 1
    for source, name in next(iter(texts)):
        decorator, signature = re.search(rf"(@triton.jit.*)\ndef {name}\((.*)\):", source).groups()
        for number in {"T", "B", "first", "reverse", "offset"} & set(signature.split(", ")):
            assert f'"{number}"' in decorator, f"{number} would be compiled in"


def test_reverse_and_the_first_row_are_numbers_too(launches):
    cell = RNN("gru", 4, 64).bfloat16().cells[0][0]
    texts = []
    for reverse in (False, True):
        launches.clear()
        cell(torch.randn(3, 5, 4).bfloat16(), reverse=reverse)
        texts.append({one.source for one in launches})
        assert {one.numbers["reverse"] for one in launches} == {int(reverse)}
    assert texts[0] == texts[1]


def test_a_plan_that_the_card_refuses_is_not_tried_again(launches, monkeypatch):
    tried: list[str] = []

    def refuse(source, name, grid, tensors, numbers, *, warps, cooperative):
        tried.append(name)
        raise DoesNotFit("too large a grid")

    count = sum(tiling.form != "steps" for tiling in tilings(workload_of(512, 40), H200))
    assert count > 1
    monkeypatch.setattr(sequence, "launch", refuse)
    unroll_back("lstm", 512, 40, 3)
    assert tried == ["forward"] * count
    assert {one.name for one in launches} == {"prepare", "forward", "backward"}, "the steps took its place"
    unroll_back("lstm", 512, 40, 5)
    assert len(tried) == count, "what was refused is known"
    unroll_back("lstm", 512, 41, 5)
    assert len(tried) > count, "another number of rows is another question"


def test_an_error_that_is_no_refusal_is_raised(launches, monkeypatch):
    def fail(*given, **named):
        raise RuntimeError("the card is on fire")

    monkeypatch.setattr(sequence, "launch", fail)
    with pytest.raises(RuntimeError, match="on fire"):
        unroll_back("lstm", 256, 4, 3)


def test_other_numbers_are_another_kernel(monkeypatch):
    """What was compiled is told addresses only: it would read them as the numbers of the first launch."""
    ran: list[tuple[str, tuple[torch.dtype, ...]]] = []

    class Kernel:
        arg_names = ("x", "y", "T")

        def __getitem__(self, grid):
            return self.compile

        def compile(self, *given, **options):
            dtypes = tuple(tensor.dtype for tensor in given[:2])
            ran.append(("compiled", dtypes))
            return {(1, 1, 1): lambda *addresses: ran.append(("again", dtypes))}

    pytest.importorskip("triton")
    monkeypatch.setattr(launch, "kernels", lambda source: {"forward": Kernel()})
    monkeypatch.setattr(launch, "_compiled", {})
    types = list(itertools.product((torch.float32, torch.bfloat16), repeat=2))
    for x, y in types * 2:
        tensors = {"x": torch.zeros(4, dtype=x), "y": torch.zeros(4, dtype=y)}
        launch.launch("text", "forward", (1, 1, 1), tensors, {"T": 3}, warps=4, cooperative=False)
    assert ran == [*(("compiled", pair) for pair in types), *(("again", pair) for pair in types)]


@pytest.mark.parametrize("fails", ["beginning", "launch", "end"])
def test_what_cannot_be_recorded_is_launched_on_the_stream_of_the_sequence(fails, monkeypatch):
    """``torch.cuda.graph`` leaves its stream set where a recording fails."""
    streams = [SimpleNamespace(cuda_stream=0)]  # the last is the current one
    launched: list[tuple[int, int]] = []

    class Stream:
        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            self.before = streams[:]
            streams.append(self.stream)

        def __exit__(self, *problem):
            streams[:] = self.before

    class Graph(Stream):
        def __init__(self, graph, *, stream, capture_error_mode):
            super().__init__(stream)

        def __enter__(self):
            super().__enter__()
            if fails == "beginning":
                raise RuntimeError("another recording is under way")

        def __exit__(self, *problem):
            raise RuntimeError("the recording is not valid")

    def launch_some(count):
        launched.append((streams[-1].cuda_stream, count))
        if fails == "launch" and streams[-1].cuda_stream:
            raise RuntimeError("not permitted in a recording")

    for name, stand_in in {"CUDAGraph": object, "stream": Stream, "graph": Graph}.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams[-1])
    monkeypatch.setattr(recording, "_stream_beside", lambda device, stream: SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr(recording, "launch", lambda *given, **named: None)
    some = object.__new__(steps.PointwiseRunner)
    some.source, some.graphs, some.buffers = "", {}, {"table": torch.zeros(1)}
    some.overlap = False
    some._launch = launch_some
    some.take(75, {})
    assert launched[-1] == (0, 75)
    assert [stream for stream, _ in launched[:-1]] == [7] * (fails != "beginning")
    assert some.graphs is None
    assert [stream.cuda_stream for stream in streams] == [0]


def test_a_run_that_was_interrupted_is_no_reason_to_record_the_next(monkeypatch):
    """Its kernels may not have been compiled; a recording could not do that."""
    known: OrderedDict[Any, Any] = OrderedDict()
    monkeypatch.setattr(recording, "_recordings", known)
    monkeypatch.setattr(steps, "PointwiseRunner", lambda *given: SimpleNamespace(given=given))
    monkeypatch.setattr(steps, "source_of", lambda *given: "text")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))
    like = SimpleNamespace(is_cuda=True, device="cuda:0")
    what = SimpleNamespace(pointwise=None, B=3, reverse=False)
    with pytest.raises(KeyboardInterrupt), steps._steps("forward", what, None, {"initial": like}):
        raise KeyboardInterrupt
    assert not known
    assert not recording._using.locked()
    with steps._steps("forward", what, None, {"initial": like}):
        pass
    assert list(known.values()) == [None]


def test_explanations_name_the_form_and_the_obstacles(launches, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(backend, "unavailable", lambda device: None)
    cell = RNN("lstm", 4, 512).cells[0][0]
    lines = backend.explain(cell, 32, torch.bfloat16)
    assert lines[0] == "NVIDIA H200: 132 processors, 227 KB on chip for a program"
    assert lines[1].startswith("taken: shared: ")
    assert any(line.startswith("not whole: ") for line in lines)
    assert any("TF32 would serve" in line for line in backend.explain(cell, 32, torch.float32))


def test_explanations_count_chunks_and_heads(launches, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(backend, "unavailable", lambda device: None)
    linear = RNN("min_gru", 4, 256).cells[0][0]
    assert backend.explain(linear, 1, torch.bfloat16, T=65536)[1].startswith(
        "taken: time in 512 chunks at once"
    )
    assert backend.explain(linear, 1, torch.bfloat16, T=40)[1].startswith("taken: whole")
    parted = RNN("lstm", 4, 768, cell_options={"heads": 12}).cells[0][0]
    assert (
        "a program holds all units of 16 rows (64 units each"
        in backend.explain(parted, 16, torch.bfloat16)[1]
    )


@pytest.mark.parametrize(("T", "chunks"), [(127, 1), (128, 4), (130, 4), (4096, 128), (65536, 512)])
def test_chunks_are_even_where_they_can_be(T, chunks):
    step = backend.step_of(RNN("min_gru", 4, 256).cells[0][0])
    workload = workload_of(256, 1, gates=0)
    found = count_chunks(step, workload, T, H200)
    assert found == chunks
    assert padded_length(T, found) - T < found
    with in_one_piece():
        assert count_chunks(step, workload, T, H200) == 1
    assert count_chunks(step, workload_of(256, 4096, gates=0), T, H200) == 1  # rows fill the card


def test_explanations_count_the_phases(launches, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(backend, "unavailable", lambda device: None)
    lines = backend.explain(RNN("gru_original", 4, 64).cells[0][0], 32, torch.bfloat16)
    assert lines[1:] == [
        "taken: steps of 2 phases: 2 products and 2 kernels forward, 2 products and 2 kernels back"
    ]


@pytest.mark.parametrize(
    ("cell", "dtype", "found", "reason"),
    [
        (Ranked, torch.bfloat16, None, "Ranked is a free-form cell"),
        (
            "lstm",
            torch.float64,
            None,
            "kernels on the GPU compute in float32, bfloat16 and float16, not torch.float64",
        ),
        ("lstm", torch.bfloat16, "a card is too old", "a card is too old"),
    ],
)
def test_explanations_say_why_there_is_no_kernel(cell, dtype, found, reason, launches, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(backend, "unavailable", lambda device: found)
    lines = backend.explain(RNN(cell, 4, 64).cells[0][0], 32, dtype)
    assert lines == [f"taken: the plain loop: {reason}"]


def test_wide_networks_of_many_rows_go_by_phases_where_kernels_overlap():
    hopper = replace(H200, overlaps=True)

    def form(H, B, card=hopper, **more):
        return tilings(Workload(H, B, 4, **{"numbers": "bfloat16", "precision": "", **more}), card)[0].form

    assert {form(*sizes) for sizes in ((1152, 20), (1152, 40), (1024, 64), (768, 128), (2048, 64))} == {
        "phases"
    }
    assert {form(*sizes) for sizes in ((1024, 16), (1024, 32), (768, 64), (650, 20), (256, 128))} == {
        "shared"
    }
    assert form(1152, 40, H200) != "phases"
    assert form(1152, 40, numbers="float32", precision="tf32") == "steps"
    assert form(1152, 40, heads=2) != "phases"
    assert tilings(Workload(1152, 40, 4, "bfloat16", ""), hopper)[-1].form == "steps"
