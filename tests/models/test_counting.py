"""Counted models against sums written out by hand or by brute force; saved, loaded and used as any other."""

import math
from collections import Counter

import numpy as np
import pytest
import safetensors.torch
import torch

from elman.errors import ArgumentError
from elman.models.backoff import Backoff, Tally, discounts
from elman.models.counting import CountTagger, NaiveBayes, NgramGenerator, NgramLM, histories
from elman.models.embedding import WordBatch
from elman.models.generator import Generator
from elman.models.language_model import LanguageModel
from elman.text.batches import Segments, pad

V = 6
TEXT = np.random.Generator(np.random.PCG64(5)).choice(V, 400, p=[0.4, 0.25, 0.15, 0.1, 0.07, 0.03])


def tensors(*arrays):
    return tuple(torch.from_numpy(np.ascontiguousarray(array)).long() for array in arrays)


def streamed(ids, length=1000):
    return lambda: ((*tensors(*segment), None) for segment in Segments(np.asarray(ids), 1, length))


def counted(order=3, smoothing="kneser-ney", ids=TEXT, size=V):
    model = NgramLM(size, order=order, smoothing=smoothing)
    model.fit(streamed(ids))
    return model


def saved_and_loaded(model, fresh):
    fresh.load_state_dict(safetensors.torch.load(safetensors.torch.save(model.state_dict())))
    return fresh


def brute_witten_bell(ids, context, word):
    """``(c(h, w) + t(h) p(w | shorter h)) / (c(h) + t(h))``, by the definition."""
    shorter = brute_witten_bell(ids, context[1:], word) if context else 1 / V
    n = len(context)
    after = Counter(
        ids[i] for i in range(max(n, 1), len(ids)) if list(ids[i - n : i]) == list(context)
    )  # the first id is given, not predicted
    if not after:
        return shorter
    return (after[word] + len(after) * shorter) / (after.total() + len(after))


def brute_kneser_ney(ids, context, word, order, longest=True):
    """Interpolated modified Kneser–Ney, by the definition, with counts in dictionaries."""
    n = len(context)
    grams = Counter(tuple(ids[i - n : i + 1]) for i in range(max(n, 1), len(ids)))
    if not longest:
        wider = {tuple(ids[i - n - 1 : i + 1]) for i in range(n + 1, len(ids))}
        kinds = Counter(gram[1:] for gram in wider)
        if n:  # the gram that the text begins with has nothing before it
            kinds[tuple(ids[: n + 1])] += 1
        grams = kinds
    shorter = brute_kneser_ney(ids, context[1:], word, order, False) if n else 1 / V
    D = discounts(np.array([*grams.values()]))
    after = {gram[-1]: count for gram, count in grams.items() if gram[:-1] == tuple(context)}
    if not after:
        return shorter
    total = sum(after.values())
    off = {w: D[min(count, 3)] for w, count in after.items()}
    return (after.get(word, 0) - off.get(word, 0)) / total + sum(off.values()) / total * shorter


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_witten_bell_by_the_definition_L6(order):
    model = counted(order, "witten-bell")
    text = TEXT.tolist()
    outputs, _ = model(torch.tensor([text[:12]]))
    p = model.logits(outputs)[0].exp()
    for i in range(12):
        context = text[max(0, i + 2 - order) : i + 1] if order > 1 else []
        expected = [brute_witten_bell(text, context, w) for w in range(V)]
        torch.testing.assert_close(p[i], torch.tensor(expected), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_kneser_ney_by_the_definition_L6(order):
    model = counted(order)
    text = TEXT.tolist()
    outputs, _ = model(torch.tensor([text[50:62]]))
    p = model.logits(outputs)[0].exp()
    for i in range(12):
        context = text[50 + max(0, i + 2 - order) : 51 + i] if order > 1 else []
        expected = [
            brute_kneser_ney(text, context, w, order, longest=len(context) == order - 1) for w in range(V)
        ]
        torch.testing.assert_close(p[i], torch.tensor(expected).float(), atol=1e-6, rtol=1e-5)


def test_witten_bell_by_hand():
    """a b a c: after a came b and c, once each; unigrams b, a, c once each; V = 4."""
    a, b, c, d = range(4)
    model = counted(2, "witten-bell", [a, b, a, c], size=4)
    log_probs, _ = model.step(torch.tensor([a]))
    one, none = (1 + 3 / 4) / 6, (3 / 4) / 6  # (c + t / V) / (n + t) with n = t = 3
    expected = [(0 + 2 * one) / 4, (1 + 2 * one) / 4, (1 + 2 * one) / 4, 2 * none / 4]
    torch.testing.assert_close(log_probs[0].exp(), torch.tensor(expected))
    log_probs, _ = model.step(torch.tensor([d]))  # never seen: the unigrams
    torch.testing.assert_close(log_probs[0].exp(), torch.tensor([one, one, one, none]))


def test_discounts_of_counts_that_are_too_few():
    for counts in ([], [1, 1, 1], [2, 2, 3, 4], [1] * 9 + [2] + [3] * 9 + [4]):
        assert discounts(np.array(counts)).tolist() == [0, 0.5, 1, 1.5]


@pytest.mark.parametrize("smoothing", ["kneser-ney", "witten-bell"])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_distributions_make_one(order, smoothing):
    model = counted(order, smoothing)
    outputs, _ = model(torch.randint(0, V, (7, 30)))
    p = model.logits(outputs).exp()
    assert p.shape == (7, 30, V)
    torch.testing.assert_close(p.sum(-1), torch.ones(7, 30), atol=1e-5, rtol=0)
    assert (p > 0).all()


def test_a_token_that_never_occurred_is_possible():
    model = counted(3, ids=[0, 1, 0, 1, 0, 1, 1], size=5)
    log_probs, _ = model.step(torch.tensor([4]))
    assert torch.isfinite(log_probs).all()


@pytest.mark.parametrize("length", [1, 7, 1000])
def test_counting_goes_on_from_segment_to_segment(length):
    model = NgramLM(V, order=4)
    model.fit(streamed(TEXT, length))
    for name, tensor in counted(4).state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor, msg=name)


def test_sentences_are_counted_each_for_itself_and_their_starts_as_often_as_they_came():
    """Nothing stands before a start, so the first words of sentences count each time, also for Kneser–Ney."""
    start, a, b = 3, 4, 5
    rows = [np.array([a, b])] * 6 + [np.array([b])]
    targets, lengths = pad(rows)
    inputs = np.concatenate([np.full((7, 1), start), targets[:, :-1]], 1)
    model = NgramLM(V, order=3)
    model.fit(lambda: [tensors(inputs, targets, lengths)])
    p = model.step(torch.tensor([start]))[0].exp()[0]
    assert p[a] > 3 * p[b]
    crossed, _ = model(torch.tensor([[b, start]]))
    alone, _ = model(torch.tensor([[start]]))
    torch.testing.assert_close(model.logits(crossed)[:, 1], model.logits(alone)[:, 0])


def test_step_is_sequence():
    model = counted(4)
    ids = torch.randint(0, V, (3, 9))
    outputs, final = model(ids)
    expected, state = model.logits(outputs), None
    for t in range(9):
        log_probs, state = model.step(ids[:, t], state)
        torch.testing.assert_close(log_probs, expected[:, t])
    assert torch.equal(state, final)
    first, middle = model(ids[:, :4])
    second, last = model(ids[:, 4:], None, middle)
    assert torch.equal(torch.cat([first, second], 1), outputs)
    assert torch.equal(last, final)


@pytest.mark.parametrize("order", [1, 4])
def test_padding_and_batch_do_not_matter(order):
    model = counted(order)
    ids, lengths = torch.randint(0, V, (4, 6)), torch.tensor([6, 1, 3, 2])
    outputs, state = model(ids, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone, after = model(ids[row : row + 1, :length])
        assert torch.equal(outputs[row : row + 1, :length], alone)
        assert torch.equal(state[row : row + 1], after)


def test_same_interface_as_the_language_model():
    for method in ("forward", "logits", "step"):
        ours, theirs = getattr(NgramLM, method), getattr(LanguageModel, method)
        assert (
            ours.__code__.co_varnames[: ours.__code__.co_argcount]
            == (theirs.__code__.co_varnames[: theirs.__code__.co_argcount])
        )
    for method in ("start", "forward", "step"):
        ours, theirs = getattr(NgramGenerator, method), getattr(Generator, method)
        assert (
            ours.__code__.co_varnames[: ours.__code__.co_argcount]
            == (theirs.__code__.co_varnames[: theirs.__code__.co_argcount])
        )


def test_save_and_load_language_model():
    model = counted(4)
    loaded = saved_and_loaded(model, NgramLM(V, order=4))
    again = saved_and_loaded(model, counted(4, ids=TEXT[:30]))  # other sizes, overwritten
    outputs, _ = model(torch.randint(0, V, (2, 20)))
    assert torch.equal(loaded.logits(outputs), model.logits(outputs))
    assert torch.equal(again.logits(outputs), model.logits(outputs))
    with pytest.raises(RuntimeError, match="Missing key"):
        NgramLM(V, order=5).load_state_dict(model.state_dict())
    assert not list(model.parameters())


def test_mistakes():
    with pytest.raises(ArgumentError, match="order is 0"):
        NgramLM(V, order=0)
    with pytest.raises(ArgumentError, match="smoothing"):
        NgramLM(V, order=2, smoothing="none")


def test_many_rows_are_made_in_parts(monkeypatch):
    model = counted(3)
    outputs, _ = model(torch.randint(0, V, (5, 11)))
    whole = model.logits(outputs)
    monkeypatch.setattr("elman.models.backoff.ROWS", 4)
    assert torch.equal(model.logits(outputs), whole)


def test_tally_adds_in_parts(monkeypatch):
    monkeypatch.setattr("elman.models.backoff.PENDING", 3)
    tally, keys = Tally(), np.random.Generator(np.random.PCG64(1)).integers(0, 9, 50)
    for part in np.array_split(keys, 12):
        tally.add(torch.from_numpy(part))
    found, counts = tally.total()
    assert dict(zip(found.tolist(), counts.tolist(), strict=True)) == Counter(keys.tolist())
    assert [len(part) for part in Tally().total()] == [0, 0]


def test_numbers_of_long_contexts_do_not_clash():
    """A vocabulary of a million and five ids before: the packed keys hold it."""
    ids = np.array([999_999, 7, 999_998, 7, 0, 999_999] * 3)
    model = NgramLM(1_000_000, order=6)
    model.fit(streamed(ids))
    outputs, _ = model(torch.from_numpy(ids[None, :6]))
    assert model.logits(outputs[:, 5:]).argmax().item() == 999_999


def word_batch(sentences, words, letters):
    """The sentences as numbers: ``words`` and ``letters`` number what they hold from 2 on; the rest is 1."""
    distinct = sorted({word for sentence in sentences for word in sentence})
    number = {word: n for n, word in enumerate(words, 2)}
    tokens = np.array([number.get(word, 1) for word in distinct])
    spelled, sizes = pad([np.array([letters.index(letter) + 2 for letter in word]) for word in distinct])
    places, lengths = pad([np.array([distinct.index(word) for word in sentence]) for sentence in sentences])
    return WordBatch(*tensors(tokens, np.zeros(len(tokens)), spelled, sizes, places, lengths))


def test_lengths_stay_with_the_cpu():
    """The rest may lie elsewhere; a device without memory stands in for a GPU."""
    numbers = {"dtype": torch.long, "device": "meta"}
    tokens, letters, places = (torch.zeros(size, **numbers) for size in ((4,), (4, 6), (2, 3)))
    words = WordBatch(tokens, tokens, letters, torch.tensor([1, 2, 1, 6]), places, torch.tensor([3, 1]))
    tagger = CountTagger(9, 3, [False] * 9, suffix=4, unknown=1).to("meta")
    assert tagger._contexts(words).shape == (4, 6)
    for order, count in ((1, 4), (2, 6)):  # of two, the end of each text counts
        grams, origin = NaiveBayes(9, 3, order=order).to("meta")._grams(words)
        assert (grams.shape, origin.shape) == ((count, order), (count,))
        assert grams.device == origin.device == tokens.device


LETTERS = "abdeginorstwBT"
CAPITALS = [False, False, *(letter.isupper() for letter in LETTERS)]
WORDS = ["a", "dog", "dogs", "bite", "bites"]
TAGGED = [
    (["a", "dog", "bites", "Tod"], [0, 1, 2, 3]),
    (["dogs", "bite"], [1, 2]),
    (["a", "bite"], [0, 1]),
    (["Bob", "bites", "Tod"], [3, 2, 3]),
]


def tagger():
    model = CountTagger(len(WORDS) + 2, 4, CAPITALS)
    words = word_batch([sentence for sentence, _ in TAGGED], WORDS, LETTERS)
    tags, _ = pad([np.array(tags) for _, tags in TAGGED])
    model.fit(lambda: [(words, torch.from_numpy(tags))])
    return model


def scores_of(model, sentences):
    return model(word_batch(sentences, WORDS, LETTERS))


def test_tagger_knows_words_endings_and_capitals_L6():
    model = tagger()
    scores = scores_of(model, [["a", "dog"], ["bite", "bites", "Tod"], ["To", "abites"]])
    assert scores.shape == (3, 3, 4)
    torch.testing.assert_close(scores.exp().sum(-1), torch.ones(3, 3))
    best = scores.argmax(-1).tolist()
    assert best[0][:2] == [0, 1]
    assert best[1] in ([1, 2, 3], [2, 2, 3])  # bite was each once
    assert best[2][:2] == [3, 2]  # a new word with a capital; a new one that ends as bites


def test_tagger_by_the_definition():
    """P(tag | dog): Witten–Bell down capital, g, o, d, edge, and then the word itself."""
    model = tagger()
    pairs = [(w, t) for sentence, tags in TAGGED for w, t in zip(sentence, tags, strict=True)]
    same = [  # anything, no capital, …g, …og, …dog, ^dog, the word
        lambda w: True,
        lambda w: w[0].islower(),
        *[lambda w, k=k: w[0].islower() and ("^" * 9 + w)[-k:] == "^dog"[-k:] for k in range(1, 5)],
        lambda w: w == "dog",
    ]
    p = [1 / 4] * 4
    for test in same:
        tags = Counter(tag for word, tag in pairs if test(word))
        p = [(tags[k] + len(tags) * p[k]) / (tags.total() + len(tags)) for k in range(4)]
    torch.testing.assert_close(scores_of(model, [["dog"]])[0, 0].exp(), torch.tensor(p))


def test_tagger_does_not_see_padding_or_other_rows():
    model = tagger()
    scores = scores_of(model, [["a", "dog", "bites"], ["Tod"]])
    torch.testing.assert_close(scores[1, :1], scores_of(model, [["Tod"]])[0])


def test_save_and_load_tagger():
    model = tagger()
    loaded = saved_and_loaded(model, CountTagger(len(WORDS) + 2, 4, CAPITALS))
    assert torch.equal(scores_of(loaded, [["a", "Bob", "dog"]]), scores_of(model, [["a", "Bob", "dog"]]))
    assert model.crf is None


TEXTS = [("good good dog", 0), ("bad dog", 1), ("good", 0), ("bad bad dog bites", 1), ("dog", 1)]
NAMES = ["good", "bad", "dog", "bites"]


def texts_batch(texts):
    return word_batch([text.split() for text in texts], NAMES, "abdegiosty")


def bayes(order):
    model = NaiveBayes(len(NAMES) + 2, 3, order=order)
    labels = torch.tensor([label for _, label in TEXTS])
    model.fit(lambda: [(texts_batch([text for text, _ in TEXTS]), labels)])
    return model


def grams_of(text, order):
    tokens = text.split() if order == 1 else ["|", *text.split(), "|"]
    first = 0 if order == 1 else 1
    return [
        tuple(tokens[i - n + 1 : i + 1])
        for i in range(first, len(tokens))
        for n in range(1, order + 1)
        if i - n + 1 >= 0
    ]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_naive_bayes_by_the_definition_L6(order):
    counts = [
        Counter(g for text, label in TEXTS if label == k for g in grams_of(text, order)) for k in range(3)
    ]
    known = set().union(*counts)
    tried = ["good dog", "dog bites", "bad dog toys", "toys"]  # toys were never seen
    found = bayes(order)(texts_batch(tried))
    for row, text in enumerate(tried):
        for k in range(3):  # of the third class there is no text
            prior = (sum(label == k for _, label in TEXTS) + 1) / (len(TEXTS) + 3)
            expected = math.log(prior) + sum(
                math.log((counts[k][g] + 1) / (counts[k].total() + len(known)))
                for g in grams_of(text, order)
                if g in known
            )
            assert found[row, k].item() == pytest.approx(expected, abs=1e-5)


def test_naive_bayes_in_batches_saved_and_loaded():
    model = bayes(2)
    loaded = saved_and_loaded(model, NaiveBayes(len(NAMES) + 2, 3, order=2))
    whole = loaded(texts_batch(["bad dog bites good dog", "dog", "good good"]))
    for row, text in enumerate(["bad dog bites good dog", "dog", "good good"]):
        torch.testing.assert_close(model(texts_batch([text]))[0], whole[row])


SEQUENCES = {0: [[2, 3, 4]], 1: [[3, 3, 2]], 2: [[4], [4], [2, 2]]}
START, END = 0, 1


def generator_batch(pairs, vectors):
    tokens, lengths = pad([np.array([*sequence, END]) for _, sequence in pairs])
    previous = np.concatenate([np.full((len(tokens), 1), START), tokens[:, :-1]], 1)
    return vectors[[k for k, _ in pairs]], *tensors(previous, tokens, lengths)


def generator(vectors, order=3):
    model = NgramGenerator(vectors.shape[1], 5, order=order)
    pairs = [(k, sequence) for k, sequences in SEQUENCES.items() for sequence in sequences]
    model.fit(lambda: [generator_batch(pairs[:2], vectors), generator_batch(pairs[2:], vectors)])
    return model


def generated(model, x, steps=6):
    state, token, out = model.start(x), torch.full((len(x),), START), []
    for _ in range(steps):
        log_probs, state = model.step(token, state)
        token = log_probs.argmax(-1)
        out.append(token)
    rows = torch.stack(out, 1).tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]


@pytest.mark.parametrize(
    "vectors",
    [
        torch.eye(3),
        torch.tensor([[1.0, 1, 0], [0, 1, 1], [0, 0, 0]]),
        torch.tensor([[0.5, -2], [0.25, 8], [3, 0]]),
    ],
    ids=["classes", "features", "vectors"],
)
def test_generator_writes_what_the_class_has_L6(vectors):
    model = generator(vectors)
    assert generated(model, vectors) == [[2, 3, 4], [3, 3, 2], [4]]


def test_generator_by_the_definition():
    """After the start, class 2: 4 twice and 2 once; then its unigrams; then all classes."""
    model = generator(torch.eye(3), order=2)
    log_probs, _ = model.step(torch.tensor([START]), model.start(torch.eye(3)[2:]))

    def mixed(counts, shorter):
        n, t = sum(counts.values()), len(counts)
        return [(counts.get(w, 0) + t * shorter[w]) / (n + t) for w in range(5)]

    p = mixed({2: 4, 3: 3, 4: 3, 1: 5}, [1 / 5] * 5)
    p = mixed({2: 2, 3: 1, 4: 2}, p)  # after the start, in all classes
    p = mixed({4: 2, 2: 2, 1: 3}, p)  # class 2
    p = mixed({4: 2, 2: 1}, p)  # class 2, after the start
    torch.testing.assert_close(log_probs[0].exp(), torch.tensor(p))


def test_generator_steps_as_it_reads_and_makes_one():
    model = generator(torch.eye(3))
    pairs = [(0, [2, 3, 4]), (2, [4])]
    x, previous, _, lengths = generator_batch(pairs, torch.eye(3))
    whole = model(x, previous, lengths)
    torch.testing.assert_close(whole.exp().sum(-1), torch.ones(2, 4))
    state = model.start(x)
    for t in range(4):
        log_probs, state = model.step(previous[:, t], state)
        torch.testing.assert_close(log_probs, whole[:, t])
    soft, _ = model.step(torch.nn.functional.one_hot(previous[:, 0], 5) * 0.9, model.start(x))
    torch.testing.assert_close(soft, whole[:, 0])


def test_an_unknown_class_has_the_ngrams_of_all():
    model = generator(torch.eye(3))
    x = torch.tensor([[1.0, 1.0, 0.0]])
    log_probs, _ = model.step(torch.tensor([START]), model.start(x))
    contexts, _ = histories(torch.tensor([[START]]), None, None, 2)
    torch.testing.assert_close(log_probs.exp(), model.all.distribution(model.all.find_nodes(contexts)[0]))


def test_save_and_load_generator():
    model = generator(torch.eye(3))
    loaded = saved_and_loaded(model, NgramGenerator(3, 5, order=3))
    assert generated(loaded, torch.eye(3)) == generated(model, torch.eye(3))
    minus = -torch.zeros(1, 3) + torch.eye(3)[:1]
    minus[0, 1] = -0.0
    assert generated(loaded, minus) == [[2, 3, 4]]


def test_nothing_counted_is_uniform():
    backoff = Backoff(4, 2)
    p = backoff.distribution(backoff.find_nodes(torch.tensor([[0, 1], [2, -1]])))
    assert torch.equal(p, torch.full((2, 4), 0.25))
