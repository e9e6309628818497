"""An inspection of every task: all parts are there, equal what is computed by hand, and change nothing."""

import json
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from elman.attention.additive import Additive
from elman.errors import ArgumentError
from elman.inspection.asking import passage_of
from elman.inspection.influence import MOST_POINTS, POINTS, influence
from elman.inspection.inspection import Question, inspect
from elman.inspection.neighbours import principal_plane
from elman.inspection.observation import Observation
from elman.inspection.passages import MOST
from elman.inspection.saving import PARTS, written
from elman.inspection.states import followed, signals
from elman.inspection.watching import Clamp
from elman.layers.convert import to_torch
from elman.predictor import Predictor, load
from elman.registry import CELLS
from tiny_tasks import TEXTS, descend, ready, save

SETTINGS = {
    "lm": {"model.layers": 2},
    "tag": {"model.layers": 2, "model.crf": True},
    "classify": {"model.shortcut": False},
    "class2seq": {},
    "seq2seq": {"decoding.beam": 3},
}
TASKS = tuple(SETTINGS)


@pytest.fixture(scope="module", params=TASKS)
def one(request, tmp_path_factory):
    made = ready(request.param, tmp_path_factory.mktemp(request.param), SETTINGS[request.param])
    descend(made, 60)
    return made


def test_all_parts_are_there_and_are_json(one):
    name = one.task.config.task
    found = inspect(one.task, one.model, Question(TEXTS[name][0]), run="runs/x")
    told = json.loads(written([found]))
    missing = {part for part in PARTS if told[part] is None}
    assert missing == {"attention"} - ({"attention"} if name == "seq2seq" else set()) | (
        {"beam"} if name in ("tag", "classify") else set()
    )
    assert told["answer"] == one.task.predict(one.model, [TEXTS[name][0]])[0].line
    for network in told["unrolled"]:
        assert all(
            len(layer) == network["directions"] for step in network["steps"] for layer in step["sizes"]
        )
    for strip in told["gates"]:
        assert np.shape(strip["values"]) == (len(strip["tokens"]), len(strip["follows"]))


def test_nothing_changes(one):
    name = one.task.config.task
    text = TEXTS[name][0]
    weights = {key: value.clone() for key, value in one.model.state_dict().items()}
    said, state, training = one.task.predict(one.model, [text]), torch.get_rng_state(), one.model.training
    dtype, grads = torch.get_default_dtype(), [p.requires_grad for p in one.model.parameters()]
    one.model.zero_grad()
    inspect(one.task, one.model, Question(text, clamps=[Clamp("h", 1, 0.0)]))
    inspect(one.task, one.model, Question(text))
    assert torch.equal(state, torch.get_rng_state())
    assert one.task.predict(one.model, [text]) == said
    assert one.model.training == training
    assert [p.requires_grad for p in one.model.parameters()] == grads
    assert all(p.grad is None for p in one.model.parameters())
    assert torch.get_default_dtype() is dtype
    for key, value in one.model.state_dict().items():
        assert torch.equal(value, weights[key])


def test_probabilities_are_those_of_the_predictions(one):
    name = one.task.config.task
    text = TEXTS[name][0]
    if name == "tag":
        one.model.shortcut.share.fill_(0.2)
    found = inspect(one.task, one.model, Question(text, parts=["unrolled"]))
    steps = found.unrolled[-1].steps
    [said] = one.task.predict(one.model, [text], **({} if name in ("tag", "classify") else {"trace": 3}))
    if name == "tag":
        assert [step.probability for step in steps] == pytest.approx(said.probabilities, abs=1e-6)
        assert [step.output for step in steps] == said.value
    elif name == "classify":
        assert steps[-1].probability == pytest.approx(said.probabilities[said.value], abs=1e-6)
        first = one.task.predict(one.model, [text.split()[0]])[0]
        assert dict(steps[0].top) == pytest.approx(first.probabilities, abs=1e-6)
    else:
        own = steps[-len(said.written.steps) :]
        assert [step.probability for step in own] == pytest.approx(
            [s.probability for s in said.written.steps], abs=1e-6
        )
        assert [step.token for step in own] == [s.fed for s in said.written.steps]
        for step, traced in zip(own, said.written.steps, strict=True):
            assert dict(step.top[:3]) == pytest.approx(dict(traced.top), abs=1e-6)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_states_that_are_drawn_are_those_of_torch(cell, tmp_path):
    """Two layers in both directions, beside torch's own network with the same weights."""
    one = ready("tag", tmp_path, {"model.cell": cell, "model.layers": 2, "model.shortcut": False})
    descend(one, 30)
    text = "the cat sees a dog"
    found = inspect(one.task, one.model, Question(text))
    words = passage_of(one.task, one.model, text).vectors(one.model).detach().double()
    network = to_torch(one.model.encoder.network).double()
    with torch.no_grad():
        outputs, last = network(words)
        logits = F.linear(outputs, one.model.output.weight.double(), one.model.output.bias.double())
    drawn = {(strip.layer, strip.direction, strip.name): strip.values for strip in found.gates}
    both = np.concatenate([drawn[2, "→", "h"], drawn[2, "←", "h"]], 1)
    assert both == pytest.approx(outputs[0].numpy(), abs=1e-6)
    ends = [(layer, arrow, end) for layer in (1, 2) for arrow, end in (("→", -1), ("←", 0))]
    for name, states in zip(("h", "c"), last if cell == "lstm" else (last,), strict=False):
        for (layer, arrow, end), state in zip(ends, states[:, 0], strict=True):
            assert drawn[layer, arrow, name][end] == pytest.approx(state.numpy(), abs=1e-6)
    chances = (logits[0] / one.task.temperature).softmax(-1)
    for step, row in zip(found.unrolled[0].steps, chances, strict=True):
        for tag, chance in step.top:
            assert chance == pytest.approx(float(row[list(one.task.labels.names).index(tag)]), abs=1e-6)


def test_a_language_model_shows_the_steps_of_its_prompt(tmp_path):
    one = ready("lm", tmp_path, {"text.context": "sentence", "decoding.max_length": 3})
    found = inspect(one.task, one.model, Question("the cat", parts=["unrolled"]))
    [network] = found.unrolled
    assert [step.origin for step in network.steps][:3] == ["start", "prompt", "prompt"]
    assert {step.origin for step in network.steps[3:]} <= {"own"}
    scored = one.task.score(one.model, ["the cat"])[0]
    for step, (token, value) in zip(network.steps, scored[:2], strict=False):
        assert step.output == token
        assert step.probability == pytest.approx(math.exp(value), abs=1e-6)


def test_teacher_forcing_is_shown(tmp_path):
    one = ready("seq2seq", tmp_path)
    free = inspect(one.task, one.model, Question("the dog runs", parts=["unrolled"]))
    forced = inspect(one.task, one.model, Question("the dog runs", "der Hund läuft", parts=["unrolled"]))
    assert [step.token for step in forced.unrolled[1].steps] == ["<s>", "der", "Hund", "läuft"]
    assert [step.output for step in forced.unrolled[1].steps] == ["der", "Hund", "läuft", "</s>"]
    assert {step.origin for step in forced.unrolled[1].steps} == {"start", "truth"}
    assert {step.origin for step in free.unrolled[1].steps} <= {"start", "own"}
    assert all(step.own == step.top[0][0] for step in forced.unrolled[1].steps)
    assert "hands over" in forced.unrolled[1].start


def test_attention_is_that_of_the_model(tmp_path):
    for placement in ("before", "after"):
        one = ready("seq2seq", tmp_path, {"model.placement": placement, "model.attention": "additive"})
        found = inspect(
            one.task, one.model, Question("the dog runs", "der Hund", parts=["attention"])
        ).attention
        model = one.model
        with torch.no_grad():
            source = model.read(torch.tensor([one.task.source.ids("the dog runs")]), torch.tensor([3]))
            state = model.begin(source)
            for t, token in enumerate(one.task.target.vocabulary.ids(["<s>", "der", "Hund"])):
                _, state, weights = model.step(torch.tensor([token]), state, source)
                assert found.weights[t] == pytest.approx(weights[0].numpy(), abs=1e-6)
                assert torch.tensor(found.scores[t]).softmax(-1).numpy() == pytest.approx(
                    found.weights[t], abs=1e-9
                )
                assert found.entropy[t] == pytest.approx(-(found.weights[t] * np.log(found.weights[t])).sum())
        assert found.worth.shape == (3,)


def test_attention_of_ones_own_kind_is_shown(tmp_path):
    class Even(Additive):
        def forward(self, query, memory, previous=None):
            weights = query.new_full((len(query), query.shape[1], memory.mask.shape[1]), 1.0).softmax(-1)
            return weights @ memory.values, weights

    one = ready("seq2seq", tmp_path, {"model.attention": "additive", "model.placement": "after"})
    one.model.attention.__class__ = Even
    found = inspect(one.task, one.model, Question("the dog runs", "der Hund"))
    assert found.attention.weights == pytest.approx(np.full((3, 3), 1 / 3))
    assert found.attention.scores == pytest.approx(np.full((3, 3), -math.log(3)))
    assert found.gradients[0].matrix.shape == (3, 3)


def test_a_beam_has_all_that_was_kept(tmp_path):
    one = ready("seq2seq", tmp_path, {"decoding.beam": 3})
    descend(one, 40)
    beam = inspect(one.task, one.model, Question("the dog runs", parts=["beam"])).beam
    [result] = one.task.generation.search(one.model, ["the dog runs"], one.task.config.decoding, trace=1)
    names = one.task.target.vocabulary.tokens
    assert [(n.number, n.parent, n.token, n.step) for n in beam.nodes] == [
        (n.number, n.parent, names[n.token], n.step) for n in result.tree
    ]
    chosen = [node.token for node in beam.nodes if node.fate == "chosen"]
    assert chosen[: len(result.best.tokens)] == [names[token] for token in result.best.tokens]
    last = max(node.step for node in beam.nodes if node.fate == "chosen")
    assert [n.score for n in beam.nodes if n.fate == "chosen" and n.step == last] == [
        pytest.approx(result.best.score)
    ]
    parents = {node.parent for node in beam.nodes}
    assert all(node.number not in parents for node in beam.nodes if node.fate == "pruned")
    assert beam.own
    assert beam.found == [one.task.target.join([names[n] for n in h.tokens]) for h in result.hypotheses]


def test_influences_sum_to_what_they_share_out(one):
    name = one.task.config.task
    passage = passage_of(one.task, one.model, TEXTS[name][0])
    found = influence(Observation(passage, one.model))
    assert found.attributions.sum() == pytest.approx(found.difference + found.error, abs=1e-6)
    assert abs(found.error) <= 0.011 * abs(found.difference) + 1e-5
    x = passage.vectors(one.model).detach()
    first = getattr(passage, "prompt", 0)
    with torch.no_grad():
        whole = passage.chosen(passage.log_probs(one.model, x))[0]
        zero = passage.chosen(passage.log_probs(one.model, torch.zeros_like(x)))[0]
        assert found.difference == pytest.approx(float((whole - zero)[first:].sum()), abs=1e-5)
        for s in range(x.shape[1]):
            hidden = x.clone()
            hidden[:, s] = 0
            without = passage.chosen(passage.log_probs(one.model, hidden))[0]
            assert found.occlusion[:, s] == pytest.approx((whole - without).numpy(), abs=1e-5)


def test_integrated_gradients_by_hand(tmp_path):
    one = ready("classify", tmp_path, {"model.shortcut": False})
    descend(one, 30)
    passage = passage_of(one.task, one.model, "the stones lie there")
    found = influence(Observation(passage, one.model))
    x, points, total = passage.vectors(one.model).detach(), 2000, 0
    for i in range(points):
        at = ((i + 0.5) / points * x).requires_grad_()
        value = passage.chosen(passage.log_probs(one.model, at)).sum()
        total = total + torch.autograd.grad(value, at)[0] / points
    assert found.attributions == pytest.approx(
        (total * x)[0].sum(-1).numpy(), abs=2e-2 * abs(found.difference) + 1e-4
    )


def test_influences_hold_where_the_answer_turns_suddenly(tmp_path):
    """With large weights most of the gain lies on a small piece of the way from zeros."""
    one = ready("classify", tmp_path, {"model.shortcut": False, "model.pooling": "last"})
    for seed in range(4):
        torch.manual_seed(seed)
        for parameter in one.model.parameters():
            torch.nn.init.normal_(parameter, std=3)
        found = influence(Observation(passage_of(one.task, one.model, "the stones and a cat"), one.model))
        assert abs(found.error) <= 0.011 * abs(found.difference) + 1e-4
        assert POINTS < found.points <= MOST_POINTS


def test_what_if(tmp_path):
    one = ready("classify", tmp_path, {"model.shortcut": False})
    other = inspect(one.task, one.model, Question("the cat runs", replaced={2: "dog"}, parts=["unrolled"]))
    assert other.text == "the dog runs"
    assert other.changes == ["token 2, 'cat', is replaced by 'dog'"]
    assert (
        inspect(one.task, one.model, Question("the cat runs", replaced={1: None}, parts=[])).text
        == "cat runs"
    )
    with pytest.raises(ArgumentError, match="no token 4"):
        inspect(one.task, one.model, Question("the cat runs", replaced={4: "x"}))
    one = ready("seq2seq", tmp_path)
    forced = inspect(one.task, one.model, Question("the dog", forced={1: "Hund"}, parts=["unrolled"]))
    assert forced.unrolled[1].steps[0].output == "Hund"
    with pytest.raises(ArgumentError, match="written"):
        inspect(one.task, one.model, Question("the dog", forced={90: "Hund"}))


def test_a_clamped_unit_stays_where_it_is_held(one):
    name = one.task.config.task
    state = "h"
    found = inspect(
        one.task, one.model, Question(TEXTS[name][0], clamps=[Clamp(state, 2, 0.75)], parts=["gates"])
    )
    held = [strip for strip in found.gates if strip.name == state]
    assert held
    assert all((strip.values[:, 1] == 0.75).all() for strip in held)
    free = inspect(one.task, one.model, Question(TEXTS[name][0], parts=["gates"]))
    assert not any((strip.values[:, 1] == 0.75).any() for strip in free.gates if strip.name == state)


@pytest.mark.parametrize("task", ["tag", "classify", "seq2seq"])
def test_a_text_without_a_token_is_an_error(task, tmp_path):
    one = ready(task, tmp_path)
    with pytest.raises(ArgumentError, match="no token"):
        inspect(one.task, one.model, Question("  "))


def test_too_long_a_text_is_an_error(one):
    if one.task.config.task != "class2seq":
        with pytest.raises(ArgumentError, match=f"10,000 tokens; a page shows at most {MOST}"):
            inspect(one.task, one.model, Question(" ".join(["dog"] * 10_000)))


def test_unseen_characters_and_an_empty_prompt(tmp_path):
    one = ready("lm", tmp_path, {"decoding.max_length": 2})
    assert inspect(one.task, one.model, Question("")).unrolled[0].steps[0].origin == "start"
    found = inspect(one.task, one.model, Question("☃ 漢字 \u0000 cat"))
    assert any("3 tokens of the text are unknown to the model" in note for note in found.notes)
    one = ready("seq2seq", tmp_path)
    [note] = inspect(one.task, one.model, Question("the ☃ runs", parts=[])).notes
    assert note == "1 token of the text is unknown to the model, which reads <unk>."


def test_words_are_those_that_a_tagger_reads(tmp_path):
    one = ready("tag", tmp_path)
    with pytest.raises(ArgumentError, match="the text has no token"):
        inspect(one.task, one.model, Question(" \t"))
    found = inspect(one.task, one.model, Question("the\tzebra  runs", parts=["unrolled"]))
    assert [step.token for step in found.unrolled[0].steps] == ["the", "zebra", "runs"]
    assert "1 token of the text is unknown to the model." in found.notes


@pytest.mark.parametrize("task", TASKS)
def test_damaged_weights_are_an_error(task, tmp_path):
    one = ready(task, tmp_path)
    next(p for name, p in one.model.named_parameters() if name.endswith("W_h")).data[0] = math.nan
    with pytest.raises(ArgumentError, match="damaged"):
        inspect(one.task, one.model, Question(TEXTS[task][0]))


def test_a_network_without_recurrence_has_no_gates(tmp_path):
    one = ready("classify", tmp_path, {"model.network": "bag"})
    found = inspect(one.task, one.model, Question("a dog"))
    assert found.gates is None
    assert found.gradients is None
    assert found.influence is not None
    with pytest.raises(ArgumentError, match="not recurrent"):
        inspect(one.task, one.model, Question("a dog", clamps=[Clamp("h", 1, 0.0)]))
    counted = ready("lm", tmp_path, {"model.network": "ngram"})
    with pytest.raises(ArgumentError, match="counted"):
        inspect(counted.task, counted.model, Question("a dog"))


def test_units_are_sorted_by_what_they_follow():
    known = signals(["(", "a", "[", "b", "]", ")", "c"], None, None)
    depth = known["bracket depth"]
    assert depth.tolist() == [1, 1, 2, 2, 1, 0, 0]
    values = np.stack([3 - 2 * depth, np.arange(7.0), np.ones(7)], 1)
    found = followed(values, known)
    assert found[0] == ("bracket depth", pytest.approx(-1))
    assert found[1] == ("position", pytest.approx(1))
    assert found[2][1] == 0


def test_principal_components_are_those_of_a_singular_value_decomposition():
    rows = torch.randn(20, 5, dtype=torch.float64)
    places, shares = principal_plane(rows)
    U, S, _ = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    torch.testing.assert_close(places.abs(), (U * S)[:, :2].abs())
    assert shares == pytest.approx((S**2 / (S**2).sum())[:2].tolist())


def test_neighbours_are_the_nearest_by_cosine(tmp_path):
    one = ready("lm", tmp_path, {"decoding.max_length": 1})
    found = inspect(
        one.task, one.model, Question("the cat", parts=["neighbours"], around=["a dog runs"])
    ).neighbours
    weight, names = one.model.tokens.embedding.weight.detach(), one.task.field.vocabulary.tokens
    similar = F.cosine_similarity(weight, weight[names.index("cat")][None])
    best = similar.argsort(descending=True)[1:3].tolist()
    assert [token for token, _ in found.nearest["cat"][:2]] == [names[place] for place in best]
    assert found.nearest["cat"][0][1] == pytest.approx(float(similar[best[0]]), abs=1e-6)
    assert sum(not point.here for point in found.states) > 0


def test_a_run_is_inspected_in_three_lines(tmp_path):
    one = ready("classify", tmp_path)
    predictor = load(save(one, tmp_path / "run"))
    found = predictor.inspect("a dog")
    found.save(tmp_path / "page.html")
    found.save(tmp_path / "page.json")
    found.save(tmp_path / "gates.png", "gates")
    assert json.loads((tmp_path / "page.json").read_text())["text"] == "a dog"
    assert (tmp_path / "gates.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ArgumentError, match="one part"):
        found.save(tmp_path / "x.png")
    with pytest.raises(ArgumentError, match="ending"):
        found.save(tmp_path / "x.txt")
    with pytest.raises(ArgumentError, match="must be a string"):
        predictor.inspect(3)
    partner = Predictor(None, one.task, one.model, partners=[(None, one.model)])
    with pytest.raises(ArgumentError, match="one by one"):
        partner.inspect("a dog")


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_a_picture(part, tmp_path):
    one = ready("seq2seq", tmp_path, {"decoding.beam": 2})
    found = inspect(one.task, one.model, Question("the dog runs", "der Hund läuft", parts=[part]))
    for ending in ("svg", "pdf"):
        path = tmp_path / f"part.{ending}"
        found.save(path, part, found)
        assert path.stat().st_size > 1000


@pytest.mark.parametrize("cell", ["elman", "gru", "lstm", *CELLS.names()[::7]])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.slow
def test_every_task_with_cells_of_the_catalogue(task, cell, tmp_path):
    one = ready(task, tmp_path, {"model.cell": cell, "model.cell_options": {}})
    found = inspect(one.task, one.model, Question(TEXTS[task][0]))
    assert {strip.name for strip in found.gates} >= set(CELLS.find(cell).state)
    assert all(np.isfinite(strip.values).all() for strip in found.gates)
    assert json.loads(written([found]))["gradients"][0]["sentence"]
