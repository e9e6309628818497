"""Steps in grids, recorded on a GPU, find what a plain search finds."""

import copy
import pickle

import pytest
import torch
from step_functions import END, STOP, Model
from torch import nn

from elman.decoding import grid
from elman.decoding.base import Choice, Strategy, decode
from elman.decoding.beam import Beam
from elman.decoding.diverse import Diverse
from elman.decoding.fixed import FixedStep, signature
from elman.decoding.greedy import Greedy
from elman.decoding.grid import Grid
from elman.decoding.processors import NoRepeat, Prefix
from elman.decoding.recorded import Recordings
from elman.decoding.sample import Sample
from elman.errors import BackendNotice
from elman.tasks.seq2seq_writer import POSITIONS
from elman.tensors.rows import Groups
from elman.training.precision import autocast, products
from tiny_tasks import ready

CPU = torch.device("cpu")
STRATEGIES = {
    "greedy": (Greedy, {}, 1),
    "beam": (Beam, {"beam": 4}, 3),
    "short": (Beam, {"beam": 3, "length_penalty": 0.0}, 1),
    "wide": (Beam, {"beam": 9}, 9),
    "sample": (Sample, {"seed": 2, "top_p": 0.9}, 3),
    "diverse": (Diverse, {"seed": 2}, 3),
}
RULES = [
    {},
    {"stop": {STOP}, "min_length": 2},
    {"banned": [0], "processors": [NoRepeat(2), Prefix([[1, 2], [], [3], [], [1], [], [2]])]},
]
WRITERS = {
    "lm": ("lm", {}),
    "class2seq": ("class2seq", {}),
    "class2seq soft": ("class2seq", {"model.feedback": "soft"}),
    "dot after": (
        "seq2seq",
        {"model.attention": "dot", "model.placement": "after", "model.bidirectional": False},
    ),
    "bilinear before": ("seq2seq", {"model.attention": "bilinear", "model.placement": "before"}),
    "additive fed": ("seq2seq", {"model.attention": "additive", "model.input_feeding": True}),
    "location": ("seq2seq", {"model.attention": "location", "model.cell": "gru"}),
    "static": ("seq2seq", {"model.attention": "none", "model.context": "every-step"}),
    "plain": ("seq2seq", {"model.attention": "none"}),
}
SOURCES = [
    "the cat runs",
    "a dog",
    "it",
    "the dog sees the cat and the dog",
    "runs",
    "a cat sees it runs",
    "dog",
]
PROMPTS = {"lm": ["the", "a dog", "", "it runs and", "the cat"], "class2seq": ["it", "I", "cats"]}


def recorded_step(model, N, *, width, recordings=None):
    """A step function over ``Model`` as ``decode`` gets it, and what goes with it."""
    holder = nn.Module().eval()
    fixed = FixedStep(lambda tokens, state, given: model(tokens, state), holder, model.start(N))
    first = torch.arange(N) % 4
    return (recordings or Recordings(("cpu",))).step([lambda: fixed], [CPU], width), first


def searched(strategy, N=7, *, model=None, in_grid, n_best=1, **options):
    kind, own, n_best = STRATEGIES[strategy] if isinstance(strategy, str) else (*strategy, n_best)
    model, made = model or Model(1, sharpness=1.5), kind(**own)
    options = {"end": END, "max_length": 9, "n_best": n_best, **options}
    if not in_grid:
        return decode(model, torch.arange(N) % 4, model.start(N), made, **options)
    entered, first = recorded_step(model, N, width=made.width(n_best))
    with entered as step:
        return decode(*step.start(first), made, **options)


def plain(found):
    """Results as values that can be compared."""
    return [
        [
            (
                one.tokens,
                one.stopped,
                one.log_probability,
                one.score,
                [str(shown) for shown in one.shown or ()],
            )
            for one in each.hypotheses
        ]
        for each in found
    ]


@pytest.fixture(params=[1, 2, 16])
def least(request, monkeypatch):
    """Grids as small as this, so that rows move on by halves."""
    monkeypatch.setattr(grid, "LEAST", request.param)


@pytest.mark.parametrize("rules", RULES, ids=["free", "stops", "rules"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_search_in_grids_finds_the_same(strategy, rules, least):
    expected, found = (searched(strategy, in_grid=way, **rules) for way in (False, True))
    assert plain(found) == plain(expected)


def test_a_trace_is_the_same(least):
    expected, found = (searched("beam", in_grid=way, trace=2) for way in (False, True))
    assert [one.tree for one in found] == [one.tree for one in expected]
    assert [one.best.trace for one in found] == [one.best.trace for one in expected]


def test_rows_leave_by_halves(monkeypatch):
    monkeypatch.setattr(grid, "LEAST", 2)
    model = Model(0, sharpness=1.0)
    found = searched((Greedy, {}), 13, model=model, in_grid=True, max_length=30)
    lengths = sorted(len(one.best.tokens) + (one.best.stopped == "end") for one in found)
    alive = [sum(length > step for length in lengths) for step in range(1, lengths[-1])]
    assert model.sizes == [13, *(grid.grid_size(count) for count in alive)]
    assert len(set(model.sizes)) > 2


def test_places_that_nobody_has_repeat_a_live_row():
    groups = Groups.of(torch.tensor([0, 0, 3, 4, 4, 4]))
    rows, places = Grid.of(groups, torch.tensor([0, 2, 3, 4]), U=8, K=3)
    assert rows.view(8, 3).tolist()[:4] == [[0, 1, 0], [0, 0, 0], [2, 2, 2], [3, 4, 5]]
    assert not rows.view(8, 3)[4:].any()
    assert rows[places].tolist() == list(range(6))


class Wider(Strategy):
    """More rows than it said."""

    def choose(self, log_probs, live, generator):
        times = 4 if not live.length else 1
        top = log_probs.topk(times, 1).indices
        return Choice(top.flatten(), torch.arange(len(log_probs)).repeat_interleave(times))


def test_a_strategy_that_keeps_more_than_it_says():
    expected, found = (searched((Wider, {}), in_grid=way) for way in (False, True))
    assert plain(found) == plain(expected)


def test_a_state_that_changes_its_form():
    def step(tokens, state, given=None):
        (seen,) = state
        seen = torch.cat([seen, tokens[:, None]], 1)  # longer at every step
        logits = torch.sin(seen.double() @ torch.arange(1.0, seen.shape[1] + 1).double())[:, None]
        return (logits * torch.arange(7.0)).log_softmax(-1), (seen,), None

    first = torch.arange(5)
    options = {"end": END, "max_length": 6}
    start = (first[:, None],)
    expected = decode(step, first, start, Beam(beam=3), **options)
    fixed = FixedStep(step, nn.Module().eval(), start)
    with Recordings(("cpu",)).step([lambda: fixed], [CPU], 3) as recorded:
        found = decode(*recorded.start(first), Beam(beam=3), **options)
    assert plain(found) == plain(expected)


# ---- tasks ------------------------------------------------------------------------------------------


def made(name, folder, device="cpu", **settings):
    """A task that writes, with a model whose outputs differ, and its settings of decoding."""
    task, own = WRITERS[name]
    one = ready(task, folder, {**own, "decoding.max_length": 12, **settings})
    with torch.no_grad():
        for weight in one.model.parameters():
            weight.mul_(3)
    one.model.to(device)
    return one


def written(one, devices, *, partners=(), **changes):
    task, generation = one.task, one.task.generation
    generation.recordings = Recordings(devices)
    settings = task.config.decoding.model_copy(update=changes)
    prompts = PROMPTS.get(task.config.task, SOURCES)
    others = [(other.task.generation.writer, other.model) for other in partners]
    twice = [generation.search(one.model, prompts, settings, partners=others) for _ in range(4)]
    assert all(tokens_of(found) == tokens_of(twice[0]) for found in twice)
    return twice[-1]


def tokens_of(found):
    return [[one.tokens for one in each.hypotheses] for each in found]


def assert_alike(found, expected, tolerance=1e-4):
    assert tokens_of(found) == tokens_of(expected)
    for one, other in zip(found, expected, strict=True):
        for mine, theirs in zip(one.hypotheses, other.hypotheses, strict=True):
            assert mine.stopped == theirs.stopped
            assert mine.score == pytest.approx(theirs.score, abs=tolerance)
            assert mine.log_probability == pytest.approx(theirs.log_probability, abs=tolerance)
            for shown, wanted in zip(mine.shown or (), theirs.shown or (), strict=True):
                length = int(wanted["source_length"])
                assert int(shown["source_length"]) == length
                torch.testing.assert_close(
                    shown["attention"][:length], wanted["attention"][:length], atol=1e-4, rtol=1e-3
                )
                assert not shown["attention"][length:].any()


DECODING = {
    "greedy": {"strategy": "greedy", "min_length": 4},
    "beam": {"strategy": "beam", "beam": 4, "n_best": 3, "min_length": 4},
    "rules": {"strategy": "beam", "beam": 3, "no_repeat": 2, "min_length": 3},
    "sample": {"strategy": "sample", "n_best": 2, "seed": 4, "min_length": 4},
}


@pytest.mark.parametrize("decoding", DECODING)
@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_writes_the_same_in_grids(name, decoding, tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "LEAST", 2)
    one, changes = made(name, tmp_path), DECODING[decoding]
    found = written(one, ("cpu",), **changes)
    assert max(each.uses for each in one.task.generation.recordings._grids.values()) > grid.PATIENCE
    assert_alike(found, written(one, (), **changes))


def test_coverage_and_ensembles_are_the_same_in_grids(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "LEAST", 1)
    one, other = (made(name, tmp_path) for name in ("additive fed", "location"))
    changes = {"strategy": "beam", "beam": 3, "coverage_penalty": 0.4}
    assert_alike(written(one, ("cpu",), **changes), written(one, (), **changes))
    expected = written(one, (), partners=[other], **changes)
    assert_alike(written(one, ("cpu",), partners=[other], **changes), expected)
    assert tokens_of(expected) != tokens_of(written(one, (), **changes))


def test_grids_serve_all_batches_of_a_kind(tmp_path):
    one = made("bilinear before", tmp_path)
    written(one, ("cpu",), strategy="beam", beam=3)
    grids = one.task.generation.recordings._grids
    assert len(grids) == 1  # in 4 searches
    (only,) = grids.values()
    assert only.given[0].memory.mask.shape == (grid.LEAST, POSITIONS)
    with torch.no_grad():
        next(one.model.parameters()).add_(1)  # where it lies
    assert_alike(
        one.task.generation.search(one.model, SOURCES, one.task.config.decoding),
        written(one, ()),
    )


def test_a_model_is_known_by_its_weights_and_options(tmp_path):
    one = made("bilinear before", tmp_path)
    model = one.model
    written(one, ("cpu",), strategy="greedy")
    known = signature(model)
    written(one, ("cpu",), strategy="beam")
    assert signature(model) == known
    assert hash(signature(model)) == hash(known)
    assert signature(copy.deepcopy(model)) != known
    model.rnn.backend = "loop"
    assert signature(model) != known
    model.rnn.backend = "auto"
    model.bias.data = model.bias.data.clone()
    assert signature(model) != known
    handle = model.rnn.register_forward_hook(lambda *_: None)
    assert signature(model) is None
    handle.remove()
    assert signature(model) is not None
    assert signature(model.train()) is None


def test_what_is_not_recorded(tmp_path):
    one = made("plain", tmp_path)
    start = one.task.generation.writer.begin(one.model, SOURCES)
    recordings = Recordings()
    with recordings.step([start.fixed], [CPU], 1) as step:  # on the CPU
        assert step is None
    recordings = Recordings(("cpu",))
    for fixed, devices in (
        ([start.fixed, None], [CPU, CPU]),
        ([start.fixed] * 2, [CPU, torch.device("meta")]),
    ):
        with recordings.step(fixed, devices, 1) as step:
            assert step is None
    with recordings.step([start.fixed], [CPU], 1) as step, recordings.step([start.fixed], [CPU], 1) as second:
        assert step is not None
        assert second is None  # in use
    with recordings.step([start.fixed], [CPU], 1) as step:
        assert step is not None
    one.model.train()
    with recordings.step([start.fixed], [CPU], 1) as step:
        assert step is None


def test_recordings_stay_behind_where_a_task_is_copied(tmp_path):
    one = made("plain", tmp_path)
    written(one, ("cpu",))
    for other in (
        pickle.loads(pickle.dumps(one.task.generation.recordings)),
        copy.deepcopy(one.task).generation.recordings,
    ):
        assert not other._grids
        assert other.devices == ("cpu",)


def test_the_oldest_grids_are_forgotten(monkeypatch):
    monkeypatch.setattr("elman.decoding.recorded.MOST", 2)
    recordings, model = Recordings(("cpu",)), Model()
    for width in range(1, 5):
        entered, first = recorded_step(model, 3, width=width, recordings=recordings)
        with entered as step:
            decode(*step.start(first), Greedy(), end=END, max_length=3)
    assert [one.K for one in recordings._grids.values()] == [3, 4]


def test_a_step_that_cannot_be_recorded_goes_on_without(tmp_path, monkeypatch):
    def record(*_):
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr("elman.recurrence.notices._noticed", set())
    monkeypatch.setattr(grid.RecordedGrid, "ready", lambda self: self.uses > 1)
    monkeypatch.setattr(grid.RecordedGrid, "record", record)
    monkeypatch.setattr(Recordings, "means", lambda self, device: (None, None))
    one = made("bilinear before", tmp_path)
    with pytest.warns(BackendNotice, match=r"cannot be recorded \(operation not permitted\)") as said:
        found = written(one, ("cpu",), strategy="beam")
    assert len(said) == 1
    assert_alike(found, written(one, (), strategy="beam"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
class TestOnACard:
    """Recorded, and launched anew at each step."""

    @pytest.mark.parametrize("decoding", DECODING)
    @pytest.mark.parametrize("name", WRITERS)
    def test_every_writer_writes_the_same_recorded(self, name, decoding, tmp_path, monkeypatch):
        monkeypatch.setattr(grid, "LEAST", 2)
        one, changes = made(name, tmp_path, "cuda"), DECODING[decoding]
        found = written(one, ("cuda",), **changes)
        assert self.graphs(one)
        assert_alike(found, written(one, (), **changes), 1e-3)

    @pytest.mark.parametrize("name", ["lm", "class2seq", "bilinear before", "location"])
    def test_a_recording_is_the_same_bit_for_bit(self, name, tmp_path, monkeypatch):
        one, changes = made(name, tmp_path, "cuda"), DECODING["beam"]
        found = written(one, ("cuda",), **changes)
        assert self.graphs(one)
        monkeypatch.setattr(grid, "PATIENCE", 1 << 30)
        expected = written(one, ("cuda",), **changes)
        assert not self.graphs(one)
        assert plain(found) == plain(expected)

    def test_the_cpu_finds_the_same(self, tmp_path):
        one, changes = made("bilinear before", tmp_path), DECODING["beam"]
        expected = written(one, (), **changes)
        one.model.cuda()
        assert_alike(written(one, ("cuda",), **changes), expected, 1e-3)

    def test_coverage_and_ensembles(self, tmp_path):
        one, other = (made(name, tmp_path, "cuda") for name in ("additive fed", "location"))
        changes = {"strategy": "beam", "beam": 3, "coverage_penalty": 0.4}
        found = written(one, ("cuda",), partners=[other], **changes)
        assert self.graphs(one)
        assert_alike(found, written(one, (), partners=[other], **changes), 1e-3)

    def test_weights_may_change_where_they_lie(self, tmp_path):
        one, changes = made("bilinear before", tmp_path, "cuda"), DECODING["beam"]
        before = written(one, ("cuda",), **changes)
        graphs, generation = self.graphs(one), one.task.generation
        with torch.no_grad():
            for weight in one.model.parameters():
                weight.add_(torch.randn_like(weight))
        settings = one.task.config.decoding.model_copy(update=changes)
        after = generation.search(one.model, SOURCES, settings)
        assert self.graphs(one) == graphs
        assert tokens_of(after) != tokens_of(before)
        assert_alike(after, written(one, (), **changes), 1e-3)

    @pytest.mark.parametrize("precision", ["bfloat16", "tf32"])
    def test_other_precisions(self, precision, tmp_path, monkeypatch):
        one, changes = made("bilinear before", tmp_path, "cuda"), DECODING["greedy"]
        with products(precision), autocast(precision, torch.device("cuda")):
            found = written(one, ("cuda",), **changes)
            assert self.graphs(one)
            monkeypatch.setattr(grid, "PATIENCE", 1 << 30)
            assert_alike(found, written(one, ("cuda",), **changes), 1e-3)

    def test_a_step_that_waits_for_the_device_goes_on_without(self, monkeypatch):
        monkeypatch.setattr("elman.recurrence.notices._noticed", set())

        def step(tokens, state, given=None):
            assert int(tokens.sum()) >= 0
            logits = torch.sin(state[0] + tokens)[:, None] * torch.arange(7.0, device="cuda")
            return logits.log_softmax(-1), (state[0] + 1,), None

        first = torch.arange(5, device="cuda")
        state = (first.float(),)
        fixed, recordings = FixedStep(step, nn.Module().eval(), state), Recordings()
        options = {"end": END, "max_length": 12, "min_length": 10}
        with recordings.step([lambda: fixed], [first.device], 3) as recorded, pytest.warns(BackendNotice):
            found = decode(*recorded.start(first), Beam(beam=3), **options)
        assert plain(found) == plain(decode(step, first, state, Beam(beam=3), **options))
        with recordings.step([lambda: fixed], [first.device], 3) as recorded:
            assert recorded is None
        assert torch.rand(3, device="cuda").max() <= 1  # as ever

    @staticmethod
    def graphs(one):
        return sum(each.graph is not None for each in one.task.generation.recordings._grids.values())
