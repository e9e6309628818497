"""Encoder and decoder: training, mixing and writing step by step are one computation (rows E1–E6)."""

import itertools
import random

import pytest
import torch
from pydantic import ValidationError

from comparison import assert_close, disturb, tensors_of
from elman.attention.base import Attention, Memory
from elman.config import NetworkSettings
from elman.decoding.rows import select
from elman.errors import ArgumentError, ShapeError, UnknownNameError
from elman.models.embedding import Pretrained, Tokens
from elman.models.seq2seq import ActiveSources, DecoderState, Seq2Seq, Source, look_together
from elman.registry import ATTENTIONS
from elman.tensors.rows import real_rows
from user_cells import Readout

V_SOURCE, V_TARGET = 11, 13
CHOICES = {
    "encoder": [
        {"cell": "gru", "hidden": 6},
        {"cell": "gru", "hidden": 4, "bidirectional": True},
        {"cell": "lstm", "hidden": [4, 5], "bidirectional": True},
    ],
    "decoder": [
        {"cell": "lstm", "hidden": 7},
        {"cell": "gru", "hidden": [5, 8]},
        {"cell": "layer_norm_lstm", "hidden": 8},
        {"cell": "user_cells:Readout", "hidden": 4},  # puts out twice its width
    ],
    "start": ["copy", "transform", "zero"],
    "context": ["start", "every-step"],
    "attention": ["none", *ATTENTIONS.names()],
    "placement": ["before", "after"],
    "feeding": [False, True],
    "tied": [False, True],
}


def pairs(places):
    """Which choices meet in a model, two by two."""
    return set(itertools.combinations(enumerate(places), 2))


def sampled():
    """A few of all models, in which every choice meets every other."""
    product = list(itertools.product(*(range(len(values)) for values in CHOICES.values())))
    random.Random(1).shuffle(product)
    left = set().union(*map(pairs, product))
    while left:
        best = max(product, key=lambda places: len(pairs(places) & left))
        left -= pairs(best)
        yield {name: CHOICES[name][place] for name, place in zip(CHOICES, best, strict=True)}


def shown(choices):
    flags = [name for name in ("feeding", "tied") if choices[name]]
    sides = ["{cell} {hidden}".format(**choices[side]) for side in ("encoder", "decoder")]
    return ", ".join([*sides, *(choices[n] for n in ("start", "context", "attention", "placement")), *flags])


every_model = pytest.mark.parametrize("choices", [pytest.param(c, id=shown(c)) for c in sampled()])
every_attention = pytest.mark.parametrize(
    ("attention", "placement"),
    [("none", "after"), *itertools.product(ATTENTIONS.names(), ["before", "after"])],
)


def made(encoder=None, decoder=None, *, training=False, **options):
    encoder, decoder = encoder or CHOICES["encoder"][1], decoder or CHOICES["decoder"][0]
    model = Seq2Seq(
        Tokens(V_SOURCE, 5),
        Tokens(V_TARGET, 6),
        NetworkSettings(**encoder),
        NetworkSettings(**decoder),
        **options,
    )
    disturb(model)
    return model.double().train(training)


class Batch:
    """Sources and previous tokens of three pairs, none as long as another."""

    def __init__(self):
        self.ids, self.source_lengths = torch.randint(V_SOURCE, (3, 6)), torch.tensor([4, 6, 1])
        self.previous, self.lengths = torch.randint(V_TARGET, (3, 5)), torch.tensor([5, 2, 3])

    def read(self, model):
        return model.read(self.ids, self.source_lengths)

    def row(self, i):
        """One pair alone, without padding."""
        one = Batch()
        S, T = self.source_lengths[i], self.lengths[i]
        one.ids, one.source_lengths = self.ids[i : i + 1, :S], S[None]
        one.previous, one.lengths = self.previous[i : i + 1, :T], T[None]
        return one


def logits_of(model, batch):
    return model.logits(model(batch.read(model), batch.previous, batch.lengths))


def mixed_of(model, batch, truth=True):
    truth = torch.full_like(batch.previous, truth, dtype=torch.bool) if isinstance(truth, bool) else truth
    return model.mixed(batch.read(model), batch.previous, batch.lengths, truth)


@torch.no_grad()
def stepped(model, batch):
    """Log-probabilities (B, T, V) and what attention looked at (B, T, S), step by step."""
    source, found, seen = batch.read(model), [], []
    now = model.begin(source)
    for tokens in batch.previous.unbind(1):
        log_probs, now, weights = model.step(tokens, now, source)
        found.append(log_probs)
        seen.append(weights)
    return torch.stack(found, 1), None if seen[0] is None else torch.stack(seen, 1)


def gradients_of(model, result):
    """By name, under a fixed random upstream gradient; zero where none arrives."""
    upstream = torch.randn(result.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    named = dict(model.named_parameters())
    found = torch.autograd.grad((result * upstream).sum(), list(named.values()), allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(named.items(), found, strict=True)
    }


# One computation in three forms


@every_model
def test_all_at_once_mixed_and_step_by_step_are_equal(choices):
    model, batch = made(**choices), Batch()
    logits = logits_of(model, batch)
    assert logits.shape == (int(batch.lengths.sum()), V_TARGET)
    mixed = mixed_of(model, batch)
    log_probs, weights = stepped(model, batch)
    real = real_rows(batch.lengths, 5, batch.lengths.device)
    assert_close(
        {"mixed": mixed, "stepped": log_probs.flatten(0, 1)[real]},
        {"mixed": logits, "stepped": logits.log_softmax(-1)},
        1e-10,
    )
    assert_close(gradients_of(model, mixed), gradients_of(model, logits), 1e-9)
    assert (weights is None) == (choices["attention"] == "none")
    if weights is not None:
        assert_close({"sum": weights.sum(-1)}, {"sum": torch.ones(3, 5, dtype=torch.float64)}, 1e-12)
        assert (weights[0, :, 4:] == 0).all()
        assert (weights[2, :, 1:] == 0).all()


@every_model
def test_a_row_alone_equals_the_row_in_its_batch(choices):
    """So neither padding nor neighbours matter, in either way of training."""
    model, batch = made(**choices), Batch()
    for form in (logits_of, lambda *given: mixed_of(*given, truth=False)):
        alone = torch.cat([form(model, batch.row(i)) for i in range(3)])
        assert_close({"logits": form(model, batch)}, {"logits": alone}, 1e-10)


@every_model
def test_rows_of_one_example_equal_separate_rows(choices):
    """As a beam has them: several rows side by side go on from one example, others are gone."""
    model, batch, index = made(**choices).eval(), Batch(), torch.tensor([0, 0, 2, 2, 2])
    tokens, more = torch.randint(V_TARGET, (2, 5))
    with torch.no_grad():
        source = batch.read(model)
        _, now, _ = model.step(batch.previous[:, 0], model.begin(source), source)
        now = select(now, index)
        assert isinstance(now, DecoderState)
        assert all(len(part) == 5 for part in tensors_of(now.state))
        assert now.examples.tolist() == index.tolist()
        first, now, weights = model.step(tokens, now, source)
        second, now, _ = model.step(more, select(now, torch.tensor([1, 0, 4, 3, 2])), source)
        for row, example in enumerate(index.tolist()):
            own = batch.row(example)
            alone = own.read(model)
            _, state, _ = model.step(own.previous[:, 0], model.begin(alone), alone)
            expected, _, where = model.step(tokens[row : row + 1], state, alone)
            assert_close({"p": first[row]}, {"p": expected[0]}, 1e-10)
            if weights is not None:
                S = own.source_lengths[0]
                assert_close({"w": weights[row, :S]}, {"w": where[0]}, 1e-10)
            origin = [1, 0, 4, 3, 2][row]
            _, state, _ = model.step(tokens[origin : origin + 1], state, alone)
            expected, _, _ = model.step(more[row : row + 1], state, alone)
            assert_close({"p": second[row]}, {"p": expected[0]}, 1e-10)


@every_model
def test_two_networks_are_trained_as_one_system_E1(choices):
    """Gradients of the outputs reach every weight, unless the decoder is told nothing of the source."""
    model, batch = made(**choices), Batch()
    deaf = (choices["start"], choices["context"], choices["attention"]) == ("zero", "start", "none")
    for name, gradient in gradients_of(model, logits_of(model, batch)).items():
        reads = name.startswith(("source.", "encoder."))
        assert (gradient != 0).any() == (not (deaf and reads)), name


def test_the_two_networks_have_separate_parameters_E1():
    same = {"cell": "gru", "hidden": 6}
    model = made(same, same, start="copy")
    names = {id(p): name for name, p in model.named_parameters()}
    assert len(names) == len(dict(model.named_parameters(remove_duplicate=False)))
    for ours, others in zip(model.encoder.network.cells[0], model.rnn.cells[0], strict=True):
        assert ours is not others
    assert not torch.equal(model.encoder.network.cells[0][0].W_h, model.rnn.cells[0][0].W_h)


def test_padding_may_hold_anything():
    model, batch = made(attention="additive"), Batch()
    expected = logits_of(model, batch)
    for i in range(3):
        batch.ids[i, batch.source_lengths[i] :] = torch.randint(V_SOURCE, (1,))
        batch.previous[i, batch.lengths[i] :] = torch.randint(V_TARGET, (1,))
    batch.ids = torch.cat([batch.ids, torch.randint(V_SOURCE, (3, 4))], 1)
    batch.previous = torch.cat([batch.previous, torch.randint(V_TARGET, (3, 4))], 1)
    assert_close({"logits": logits_of(model, batch)}, {"logits": expected}, 1e-12)


def test_a_source_without_tokens_is_refused():
    model, batch = made(attention="dot"), Batch()
    with pytest.raises(ShapeError, match=r"lengths\[2\] is 0; a length is at least 1"):
        model.read(batch.ids, torch.tensor([4, 6, 0]))


# Training


NOISE = {
    "recurrent": {"recurrent_dropout": 0.4},
    "weights": {"weight_drop": 0.4},
    "zoneout": {"zoneout": 0.4},
    "input": {"input_dropout": 0.4},
}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize(
    ("attention", "placement"), [("none", "before"), ("bilinear", "before"), ("bilinear", "after")]
)
def test_the_noise_of_training_is_that_of_a_sequence(attention, placement, noise):
    """The same seed draws the same, whether the decoder runs all at once or step by step."""
    decoder = {"cell": "lstm", "hidden": 6, "backend": "loop"} | NOISE[noise]
    model = made(decoder=decoder, training=True, attention=attention, placement=placement)
    batch, found = Batch(), {}
    for seed, (name, form) in itertools.product((1, 2), {"at once": logits_of, "mixed": mixed_of}.items()):
        torch.manual_seed(seed)
        found[name, seed] = form(model, batch)
    for seed in (1, 2):
        assert_close({"logits": found["mixed", seed]}, {"logits": found["at once", seed]}, 1e-10)
    assert not torch.allclose(found["at once", 1], found["at once", 2])


@pytest.mark.parametrize("locked", [True, False])
def test_dropout_of_the_decoders_input_is_one_mask_a_sequence_if_locked(locked):
    """With an embedding of ones, a decoder's first network shows what of its input it got."""
    model = made(decoder={"cell": "gru", "hidden": 6, "input_dropout": 0.5, "locked": locked}, training=True)
    with torch.no_grad():
        model.target.embedding.weight.fill_(1.0)
    seen = []
    model.rnn.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    logits_of(model, Batch())
    [x] = seen
    assert set(x.unique().tolist()) == {0.0, 2.0}
    assert (x == x[:, :1]).all() == locked


def test_dropout_of_the_readouts_is_silent_in_evaluation():
    model, batch = made(decoder={"cell": "gru", "hidden": 6, "dropout": 0.5}), Batch()
    source = batch.read(model)
    plain = model(source, batch.previous, batch.lengths)
    assert torch.equal(plain, model(source, batch.previous, batch.lengths))
    dropped = model.train()(source, batch.previous, batch.lengths)
    kept = dropped != 0
    assert 0.2 < kept.float().mean() < 0.8
    assert_close({"readouts": dropped}, {"readouts": 2 * plain * kept}, 1e-12)


@every_attention
@pytest.mark.parametrize("feeding", [False, True])
def test_it_reads_its_own_outputs_without_a_gradient_E3(attention, placement, feeding):
    """Feeding the argmax equals feeding these tokens as the truth, in values and in gradients."""
    model, batch = made(attention=attention, placement=placement, feeding=feeding), Batch()
    batch.lengths = torch.full((3,), 5)
    own = mixed_of(model, batch, truth=False)
    chosen = own.detach().unflatten(0, (3, 5)).argmax(-1)
    assert not torch.equal(chosen[:, :-1], batch.previous[:, 1:])
    again = Batch()
    again.__dict__.update(batch.__dict__)
    again.previous = torch.cat([batch.previous[:, :1], chosen[:, :-1]], 1)  # the first is always as given
    expected = logits_of(model, again)
    assert_close({"logits": own}, {"logits": expected}, 1e-10)
    assert_close(gradients_of(model, own), gradients_of(model, expected), 1e-9)


def test_truth_is_chosen_token_by_token_E3():
    model, batch = made(attention="dot"), Batch()
    batch.lengths = torch.full((3,), 5)
    truth = torch.tensor([[0, 1, 0, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)
    mixed = mixed_of(model, batch, truth)
    chosen = mixed.unflatten(0, (3, 5)).argmax(-1)
    fed = batch.previous.clone()
    for i, t in itertools.product(range(3), range(1, 5)):
        fed[i, t] = batch.previous[i, t] if truth[i, t] else chosen[i, t - 1]
    batch.previous = fed
    assert_close({"logits": mixed}, {"logits": logits_of(model, batch)}, 1e-10)


@pytest.mark.parametrize("start", ["copy", "transform", "zero"])
@pytest.mark.parametrize("feeding", [False, True])
@every_attention
def test_it_runs_in_bfloat16(attention, placement, feeding, start):
    options = {"attention": attention, "placement": placement, "feeding": feeding, "start": start}
    model, batch = made(**options, context="every-step").float(), Batch()
    expected = {name: form(model, batch) for name, form in (("at once", logits_of), ("mixed", mixed_of))}
    expected["stepped"] = stepped(model, batch)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = {name: form(model, batch) for name, form in (("at once", logits_of), ("mixed", mixed_of))}
        found["stepped"] = stepped(model, batch)[0]
    sum(found[name].float().sum() for name in ("at once", "mixed")).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert_close({name: value.float() for name, value in found.items()}, expected, 0.05)


# What the decoder knows of the source


def vectors_of(model, batch):
    return model.target(batch.previous)


@pytest.mark.parametrize("start", ["copy", "transform", "zero"])
def test_the_decoder_by_hand_E2(start):
    model, batch = made(start=start), Batch()
    state = model.encoder.network(model.source(batch.ids), batch.source_lengths).state
    begun = model.bridge(state)
    outputs = model.rnn(vectors_of(model, batch), batch.lengths, begun).outputs
    real = real_rows(batch.lengths, 5, batch.lengths.device)
    expected = outputs.flatten(0, 1)[real] @ model.weight.T + model.bias
    assert_close({"logits": logits_of(model, batch)}, {"logits": expected}, 1e-12)
    nothing = all((part == 0).all() for part in tensors_of(begun))
    assert nothing == (start == "zero")


def test_the_context_of_the_start_is_known_only_there_E5():
    source = Batch().read(made(context="start"))
    assert source.context is None
    assert source.memory is None


def test_the_context_enters_every_step_E5():
    """``h_t = g(y_{t-1}, h_{t-1}, c)`` with ``c = h_n^enc``; from the same state another c differs."""
    model, batch = made(context="every-step"), Batch()
    _, last, state = model.encoder.network(model.source(batch.ids), batch.source_lengths)
    x = torch.cat([vectors_of(model, batch), last[:, None].expand(-1, 5, -1)], -1)
    outputs = model.rnn(x, batch.lengths, model.bridge(state)).outputs
    expected = model.logits(outputs.flatten(0, 1)[real_rows(batch.lengths, 5, batch.lengths.device)])
    assert_close({"logits": logits_of(model, batch)}, {"logits": expected}, 1e-12)
    with torch.no_grad():
        source = batch.read(model)
        other, now = source._replace(context=source.context + 1), model.begin(source)
        for tokens in batch.previous.unbind(1):
            one, after, _ = model.step(tokens, now, source)
            two, _, _ = model.step(tokens, now, other)
            assert ((one - two).abs().amax(-1) > 1e-4).all()
            now = after


def decoded(model, batch, steps):
    """The decoder of one layer by hand: readouts (B, T, ·), attention before or after."""
    source = batch.read(model)
    [state], found = source.state, []
    readout = torch.zeros(3, model.output_weight.shape[1], dtype=torch.float64)
    cell, x = model.rnn.cells[0][0], vectors_of(model, batch)
    for t in range(steps):
        parts, asked = [x[:, t]], state.h
        if model.before_placed:
            context, _ = model.attention(asked[:, None], source.memory)
            parts.append(context[:, 0])
        if model.feeding:
            parts.append(readout)
        _, y, state = cell(torch.cat(parts, -1)[:, None], state)
        if not model.before_placed:
            context, _ = model.attention(y[:, None], source.memory)
        readout = torch.tanh(model.combine(torch.cat([y, context[:, 0]], -1)))
        found.append(readout)
    return torch.stack(found, 1)


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("placement", ["before", "after"])
def test_the_context_enters_the_computation_of_the_state_A4(placement, feeding):
    """Before: the previous state asks, and the context is part of the input. After: the new state asks."""
    model, batch = made(attention="additive", placement=placement, feeding=feeding), Batch()
    expected = decoded(model, batch, 5).flatten(0, 1)[real_rows(batch.lengths, 5, batch.lengths.device)]
    found = model(batch.read(model), batch.previous, batch.lengths)
    assert_close({"readouts": found}, {"readouts": expected}, 1e-12)


@pytest.mark.parametrize(
    ("attention", "placement", "feeding", "parallel"),
    [
        ("none", "before", False, True),
        ("none", "before", True, False),
        ("dot", "before", False, False),
        ("dot", "after", False, True),
        ("dot", "after", True, False),
        ("location", "after", False, False),
    ],
)
def test_it_says_whether_training_runs_at_once(attention, placement, feeding, parallel):
    model = made(attention=attention, placement=placement, feeding=feeding)
    assert model.parallel == parallel
    *starts, last = model.describe()
    assert last == "training of the decoder: all steps at once"
    assert starts[0].startswith("start of the decoder, layer 0: transform of source layer 0")
    assert any(line.startswith(f"attention: {attention}, a query of 7") for line in starts) == (
        attention != "none"
    )


def test_location_is_told_where_it_looked():
    model, batch = made(attention="location"), Batch()
    source = batch.read(model)
    with torch.no_grad():
        _, now, weights = model.step(batch.previous[:, 0], model.begin(source), source)
        assert torch.equal(now.weights, weights)
        one, _, _ = model.step(batch.previous[:, 1], now, source)
        two, _, _ = model.step(batch.previous[:, 1], now._replace(weights=weights.flip(1)), source)
    assert not torch.allclose(one[0], two[0])
    for name in ("dot", "bilinear", "additive"):
        model = made(attention=name)
        source = batch.read(model)
        assert model.step(batch.previous[:, 0], model.begin(source), source)[1].weights is None


@pytest.mark.parametrize("name", ATTENTIONS.names())
@pytest.mark.parametrize("examples", [[0, 1, 2], [0, 0, 0, 1, 2, 2], [1], [0, 2], [2, 2, 2], [0, 0, 1]])
def test_looking_together_equals_looking_alone(name, examples):
    attention: Attention = ATTENTIONS.find(name)(3, 4).double()
    disturb(attention)
    memory = attention.remember(torch.randn(3, 6, 4, dtype=torch.float64), torch.tensor([4, 6, 1]))
    rows = torch.tensor(examples)
    query = torch.randn(len(rows), 3, dtype=torch.float64)
    previous = torch.rand(len(rows), 6, dtype=torch.float64) if attention.sequential else None
    context, weights = look_together(attention, query, memory, previous, rows)
    for row, example in enumerate(examples):
        one = slice(row, row + 1)
        own = type(memory)(*(part[example : example + 1] for part in memory))
        given = None if previous is None else previous[one]
        expected, where = attention(query[one, None], own, given)
        assert_close({"c": context[row], "w": weights[row]}, {"c": expected[0, 0], "w": where[0, 0]}, 1e-12)


# Weights that are shared


def test_tied_weights_are_the_embedding():
    model, batch = made(tied=True, attention="dot"), Batch()
    assert model.output_weight is model.target.embedding.weight
    assert "weight" not in dict(model.named_parameters())
    assert model(batch.read(model), batch.previous, batch.lengths).shape[1] == 6
    wide = made(decoder={"cell": "gru", "hidden": 6}, tied=True)
    assert wide.combine is None  # it fits as it is
    assert made(tied=True).combine.out_features == 6


def test_pretrained_vectors_are_no_part_of_tied_weights():
    target = Tokens(V_TARGET, 6, pretrained=Pretrained(V_TARGET, 4, tuned=False))
    settings = NetworkSettings(cell="gru", hidden=6)
    model = Seq2Seq(Tokens(V_SOURCE, 5), target, settings, settings, tied=True)
    assert model.rnn.input_size == 10
    assert model.output_weight.shape == (V_TARGET, 6)
    batch = Batch()
    assert logits_of(model, batch).shape == (10, V_TARGET)


def test_one_embedding_may_serve_both_sides():
    settings = NetworkSettings(cell="gru", hidden=5)
    model = Seq2Seq(Tokens(V_TARGET, 5), None, settings, settings, tied=True).double()
    assert model.target is model.source
    assert [name for name, _ in model.named_parameters() if "embedding" in name] == [
        "source.embedding.weight"
    ]
    batch = Batch()
    gradient = gradients_of(model, logits_of(model, batch))["source.embedding.weight"]
    assert (gradient != 0).all()  # as output weights, all of it


def test_one_hot_tokens():
    settings = NetworkSettings(cell="gru", hidden=5)
    model = Seq2Seq(Tokens(V_SOURCE, 0), Tokens(V_TARGET, 0), settings, settings, attention="dot")
    assert (model.encoder.network.input_size, model.rnn.input_size) == (V_SOURCE, V_TARGET + 5)
    assert_close({"logits": mixed_of(model, batch := Batch())}, {"logits": logits_of(model, batch)}, 1e-5)


# One network


def single(**options):
    settings = NetworkSettings(**{"cell": "lstm", "hidden": [6, 5]} | options)
    model = Seq2Seq(Tokens(V_TARGET, 5), None, settings, None, start="copy")
    disturb(model)
    return model.double().eval()


def in_one_run(model, batch):
    """Log-probabilities of one RNN that reads source and previous tokens in a row, row by row."""
    found = []
    for i in range(3):
        one = batch.row(i)
        x = model.source(torch.cat([one.ids, one.previous], 1))
        outputs = model.encoder.network(x).outputs
        found.append(model.logits(outputs[0, one.ids.shape[1] :]))
    return torch.cat(found)


def test_a_single_network_reads_source_separator_target_E6():
    """The first of the previous tokens is the separator."""
    model, batch = single(), Batch()
    batch.previous[:, 0] = 2
    assert model.rnn is model.encoder.network
    assert not list(model.bridge.parameters())
    assert_close({"logits": logits_of(model, batch)}, {"logits": in_one_run(model, batch)}, 1e-10)
    log_probs, _ = stepped(model, batch)
    expected = in_one_run(model, batch).log_softmax(-1)
    assert_close(
        {"p": log_probs.flatten(0, 1)[real_rows(batch.lengths, 5, batch.lengths.device)]},
        {"p": expected},
        1e-10,
    )
    gradients = gradients_of(model, logits_of(model, batch))
    assert_close(gradients, gradients_of(model, in_one_run(model, batch)), 1e-9)
    assert all((gradient != 0).any() for gradient in gradients.values())


def test_the_naive_form_goes_on_from_the_last_input_E6():
    """Nothing separates the two: the last token of the source is read as if it had been written."""
    model, batch = single(), Batch()
    batch.source_lengths = torch.tensor([4, 6, 2])
    naive = Batch()
    naive.__dict__.update(batch.__dict__)
    naive.source_lengths = batch.source_lengths - 1
    naive.previous = batch.previous.clone()
    naive.previous[:, 0] = batch.ids[torch.arange(3), naive.source_lengths]
    expected = []
    for i in range(3):
        one = batch.row(i)
        outputs = model.encoder.network(model.source(torch.cat([one.ids, one.previous[:, 1:]], 1))).outputs
        expected.append(model.logits(outputs[0, one.ids.shape[1] - 1 :]))
    assert_close({"logits": logits_of(model, naive)}, {"logits": torch.cat(expected)}, 1e-10)


# Names, options and mistakes


def test_a_score_of_the_users_own_file(tmp_path):
    path = tmp_path / "scores.py"
    path.write_text(
        "from elman.attention.base import Attention\n\n\n"
        "class Last(Attention):\n"
        "    def __init__(self, query_size, key_size, *, strength=1.0):\n"
        "        super().__init__(query_size, key_size)\n"
        "        self.strength = strength\n\n"
        "    def score(self, query, keys, previous):\n"
        "        places = self.strength * query.new_ones(keys.shape[1]).cumsum(0)\n"
        "        return places.expand(*query.shape[:2], -1)\n",
        encoding="utf-8",
    )
    model = made(attention=f"{path}:Last", attention_options={"strength": 50.0})
    _, weights = stepped(model, batch := Batch())
    for row, length in enumerate(batch.source_lengths):
        assert (weights[row, :, length - 1] > 0.999).all()


def test_what_is_wrong_is_named():
    with pytest.raises(UnknownNameError, match="no attention named 'additve'; did you mean 'additive'"):
        made(attention="additve")
    with pytest.raises(ArgumentError, match="attention_options has 'widht', unknown to Additive"):
        made(attention="additive", attention_options={"widht": 3})
    with pytest.raises(ArgumentError, match="policy is 'average'; it must be one of 'copy'"):
        made(start="average")
    with pytest.raises(ValidationError, match="no cell named 'ltsm'; did you mean 'lstm'"):
        made(decoder={"cell": "ltsm", "hidden": 3})


def test_the_width_of_the_readout_is_the_last_layers():
    assert made(decoder={"cell": "gru", "hidden": [5, 8]}).weight.shape == (V_TARGET, 8)
    readout = made(decoder={"cell": "user_cells:Readout", "hidden": 4})
    assert readout.rnn.cell_class.__name__ == Readout.__name__
    assert (readout.rnn.output_size, readout.combine.in_features) == (8, 8)


def test_weights_survive_saving():
    one, other = made(attention="location", feeding=True), made(attention="location", feeding=True)
    batch = Batch()
    assert not torch.allclose(logits_of(one, batch), logits_of(other, batch))
    other.load_state_dict(one.state_dict())
    assert_close({"logits": logits_of(other, batch)}, {"logits": logits_of(one, batch)}, 0.0)


def test_sources_that_nobody_asks_for_leave_memory():
    """Not at once: rows go when a quarter is done with; the others are found where they are then."""
    memory = Memory(*(torch.arange(8.0)[:, None] for _ in range(2)), torch.ones(8, 1, dtype=torch.bool))
    asked = ActiveSources(Source(memory, torch.arange(8.0)[:, None], (torch.zeros(8, 3),)))
    for live, kept in (
        ([0, 0, 1, 2, 3, 4, 5, 6, 7], 8),
        ([0, 2, 3, 4, 5, 7], 8),
        ([0, 2, 7, 7], 3),
        ([2, 7], 2),
    ):
        examples = torch.tensor(live)
        source, rows = asked.at(examples)
        assert len(source.memory.mask) == len(source.context) == kept
        assert source.memory.values[rows, 0].tolist() == source.context[rows, 0].tolist() == live
