"""The graphs of each task's model: from numbers of tokens to log-probabilities, whole and step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from elman.attention.additive import Additive
from elman.attention.bilinear import Bilinear
from elman.attention.dot import Dot
from elman.attention.location import Location
from elman.errors import ExportError
from elman.export.onnx_cells import Read, shown_states, write_sequence, write_single_step
from elman.export.onnx_graph import GraphWriter
from elman.layers.bridge import Bridge
from elman.layers.rnn import RNN
from elman.models.adaptive_softmax import AdaptiveSoftmax
from elman.models.classifier import Classifier
from elman.models.embedding import Embedding, Ngrams, Tokens, Words
from elman.models.generator import Generator
from elman.models.language_model import LanguageModel
from elman.models.seq2seq import Seq2Seq
from elman.models.tagger import Tagger

Graphs = dict[str, GraphWriter]  # by the names of their files


def index(*numbers: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(numbers, np.int64)


def recurrent(network: Any) -> RNN:
    if not isinstance(network, RNN):
        raise ExportError(
            f"model.network is {type(network).__name__}, which is not recurrent; train with rnn"
        )
    return network


def names_of(rnn: RNN) -> list[list[tuple[str, int]]]:
    """By cell, the names of its states in a graph, and how wide they are."""
    return [
        [(f"state_{number}_{name}", cell.hidden_size) for name in cell.state]
        for number, cell in enumerate(rnn.all_cells())
    ]


def state_inputs(g: GraphWriter, rnn: RNN, rows: str = "N") -> list[list[str]]:
    return [[g.input(name, "float", rows, width) for name, width in own] for own in names_of(rnn)]


def state_outputs(g: GraphWriter, rnn: RNN, states: list[list[str]], rows: str = "N") -> None:
    for own, values in zip(names_of(rnn), states, strict=True):
        for (name, width), value in zip(own, values, strict=True):
            g.output(f"{name}_after", value, "float", rows, width)


def embedded(g: GraphWriter, embedding: Embedding, ids: str) -> str:
    if embedding.weight is None:
        return g.op("OneHot", ids, embedding.V, np.array([0, 1], np.float32), axis=-1)
    return g.op("Gather", g.weight(embedding.weight), ids, axis=0)


def token_vectors(g: GraphWriter, tokens: Tokens, ids: str) -> str:
    parts = [embedded(g, tokens.embedding, ids)]
    if tokens.pretrained is not None:
        parts.append(g.op("Gather", g.weight(tokens.pretrained.weight), ids, axis=0))
    return g.concat(parts)


def hashed_sums(g: GraphWriter, table: str, name: str, *rows: str) -> str:
    """The sum of a table's rows that the runtime found by hashes, each counted as it says."""
    numbers, counted = (
        g.input(f"{name}_rows", "int64", *rows, None),
        g.input(f"{name}_signs", "float", *rows, None),
    )
    found = g.op("Gather", table, numbers, axis=0)
    return g.op("ReduceSum", g.op("Mul", found, g.op("Unsqueeze", counted, index(-1))), index(-2), keepdims=0)


def word_vectors(g: GraphWriter, words: Words) -> tuple[str, str]:
    """(B, T, ·) for a batch of distinct words and where they stand; and the lengths (B,)."""
    tokens = g.input("tokens", "int64", "U")
    places, lengths = g.input("places", "int64", "B", "T"), g.input("lengths", "int64", "B")
    parts = [] if words.alone else [embedded(g, words.embedding, tokens)]
    if words.pretrained is not None:
        rows = g.input("vectors", "int64", "U")
        parts.append(g.op("Gather", g.weight(words.pretrained.weight), rows, axis=0))
    if words.spelling is not None:
        letters, spelled = g.input("letters", "int64", "U", "C"), g.input("letter_lengths", "int64", "U")
        parts.append(write_sequence(g, words.spelling, embedded(g, words.letters, letters), spelled).last)
    if words.affixes is not None:
        parts.append(hashed_sums(g, g.weight(words.affixes.weight), "affix", "U"))
    vectors = g.op("Gather", g.concat(parts), places, axis=0)  # (B, T, ·)
    if words.ngrams is not None:
        added = ngram_vectors(g, words.ngrams, g.op("Gather", tokens, places, axis=0))
        width = words.ngrams.tables[0].shape[1]
        rest = words.output_size - width
        first, *others = g.split(vectors, [width, rest]) if rest else [vectors]
        vectors = g.concat([g.op("Add", first, added), *others])
    return vectors, lengths


def ngram_vectors(g: GraphWriter, ngrams: Ngrams, ids: str) -> str:
    """What the n-grams that end at a token (B, T) add to its vector."""
    B, T = g.split(g.op("Shape", ids), [1, 1], axis=0)
    key, parts = ids, []
    for n, table in enumerate(ngrams.tables, 1):
        zeros = g.op("Expand", 0, g.op("Concat", B, index(n), axis=0))
        earlier = g.op("Slice", g.op("Concat", zeros, ids, axis=1), index(0), T, index(1))
        key = g.op("Add", g.op("Add", g.op("Mul", key, 1_000_003), earlier), 1)
        parts.append(g.op("Gather", g.weight(table), g.op("Mod", key, ngrams.BUCKETS), axis=0))
    return parts[0] if len(parts) == 1 else g.op("Sum", *parts)


def real_steps(g: GraphWriter, outputs: str, lengths: str) -> str:
    """(B, T, 1): which steps are real."""
    T = g.op("Gather", g.op("Shape", outputs), 1, axis=0)
    steps = g.op("Unsqueeze", g.op("Range", 0, T, 1), index(0))
    return g.op("Unsqueeze", g.op("Less", steps, g.op("Unsqueeze", lengths, index(1))), index(2))


def pooled(g: GraphWriter, pooling: Any, read: Read, lengths: str) -> str:
    kind = type(pooling).__name__
    if kind == "Last":
        return read.last
    real = real_steps(g, read.outputs, lengths)
    count = g.op("Cast", g.op("Unsqueeze", lengths, index(1)), to=1)
    mean = g.op("Div", g.op("ReduceSum", read.outputs, index(1), keepdims=0), count)
    if kind == "Mean":
        return mean
    hidden = g.op("Where", real, read.outputs, float("-inf"))
    if kind in ("Max", "MeanMax"):
        largest = g.op("ReduceMax", hidden, axes=[1], keepdims=0)
        return largest if kind == "Max" else g.concat([mean, largest])
    if kind != "AttentionPooling":
        raise ExportError(f"model.pooling is {kind}, which cannot be exported")
    energies = g.linear(g.op("Tanh", g.linear(read.outputs, pooling.W)), pooling.v)  # (B, T, 1)
    weights = g.op("Softmax", g.op("Where", real, energies, float("-inf")), axis=1)
    return g.op("ReduceSum", g.op("Mul", weights, read.outputs), index(1), keepdims=0)


def classifier_graphs(model: Classifier, *, int8: bool) -> Graphs:
    g = GraphWriter(int8=int8)
    vectors, lengths = word_vectors(g, model.words)
    read = write_sequence(g, recurrent(model.encoder.network), vectors, lengths)
    y = pooled(g, model.pooling, read, lengths)
    for layer in model.head:
        kind = type(layer).__name__
        y = g.linear(y, layer) if kind == "Linear" else g.op("Relu", y) if kind == "ReLU" else y
    g.output("scores", y, "float", "B", None)
    return {"sequence": g}


def tagger_graphs(model: Tagger, *, int8: bool) -> Graphs:
    g = GraphWriter(int8=int8)
    vectors, lengths = word_vectors(g, model.words)
    read = write_sequence(g, recurrent(model.encoder.network), vectors, lengths)
    scores = g.linear(read.outputs, model.output)
    if model.shortcut is not None:
        linear = model.shortcut
        sums = hashed_sums(g, g.weight(linear.weight), "linear", "B", "T")
        own = g.op("Mul", g.op("Add", sums, g.weight(linear.bias)), linear.SCALE)
        share = float(linear.share)
        scores = g.op("Add", scores, g.op("Mul", g.op("Sub", own, scores), share))
    g.output("scores", scores, "float", "B", "T", None)
    return {"sequence": g}


def lm_log_probabilities(g: GraphWriter, model: LanguageModel, y: str) -> str:
    """(…, V) of what follows, for outputs (…, H)."""
    if model.adaptive is not None:
        return adaptive_log_probabilities(g, model.adaptive, y)
    weight = model.tokens.embedding.weight if model.tied else model.weight
    assert weight is not None
    assert model.bias is not None
    y = y if model.bridge is None else g.linear(y, model.bridge)
    return g.op(
        "LogSoftmax", g.op("Add", g.op("MatMul", y, turned(g, weight)), g.weight(model.bias)), axis=-1
    )


def turned(g: GraphWriter, weight: Any) -> str:
    """A matrix (V, H) for a product from the left; one that serves the embedding, too, is kept once."""
    return g.op("Transpose", g.weight(weight), perm=[1, 0])


def adaptive_log_probabilities(g: GraphWriter, adaptive: AdaptiveSoftmax, y: str) -> str:
    softmax, cutoffs = adaptive.softmax, adaptive.cutoffs
    head = g.op("LogSoftmax", g.linear(y, softmax.head), axis=-1)
    first, *clusters = g.split(head, [cutoffs[0], *[1] * len(softmax.tail)])
    parts = [first]
    for cluster, tail in zip(clusters, softmax.tail, strict=True):
        narrow, wide = tail.children()
        own = g.op("LogSoftmax", g.linear(g.linear(y, narrow), wide), axis=-1)
        parts.append(g.op("Add", own, cluster))
    return g.concat(parts)


def lm_graphs(model: LanguageModel, *, int8: bool) -> Graphs:
    rnn = recurrent(model.encoder.network)
    g = GraphWriter(int8=int8)
    ids, lengths = g.input("ids", "int64", "N", "T"), g.input("lengths", "int64", "N")
    read = write_sequence(g, rnn, token_vectors(g, model.tokens, ids), lengths)
    g.output("log_probabilities", lm_log_probabilities(g, model, read.outputs), "float", "N", "T", None)
    state_outputs(g, rnn, read.states)
    s = GraphWriter(int8=int8)
    x = token_vectors(s, model.tokens, s.input("token", "int64", "N"))
    y, new = write_single_step(s, rnn, x, state_inputs(s, rnn))
    s.output("log_probabilities", lm_log_probabilities(s, model, y), "float", "N", None)
    state_outputs(s, rnn, new)
    return {"sequence": g, "step": s}


def class2seq_graphs(model: Generator, soft: bool, *, int8: bool) -> Graphs:
    """``start`` makes a state of a class; soft: a step is fed the last distribution (N, V)."""
    rnn, V = model.rnn, model.V
    g = GraphWriter(int8=int8)
    x = g.input("class", "float", "N", None)
    starts = generator_start(g, model, x)
    state_outputs(g, rnn, starts)
    q = GraphWriter(int8=int8)
    x = q.input("class", "float", "N", None)
    ids, lengths = q.input("ids", "int64", "N", "T"), q.input("lengths", "int64", "N")
    read = write_sequence(q, rnn, embedded(q, model.embedding, ids), lengths, generator_start(q, model, x))
    found = q.op("LogSoftmax", q.linear(read.outputs, model.output), axis=-1)
    q.output("log_probabilities", found, "float", "N", "T", V)
    s = GraphWriter(int8=int8)
    if soft:
        fed = s.input("distribution", "float", "N", V)
        weight = model.embedding.weight
        x = fed if weight is None else s.op("MatMul", fed, s.weight(weight))
    else:
        x = embedded(s, model.embedding, s.input("token", "int64", "N"))
    y, new = write_single_step(s, rnn, x, state_inputs(s, rnn))
    s.output("log_probabilities", s.op("LogSoftmax", s.linear(y, model.output), axis=-1), "float", "N", V)
    state_outputs(s, rnn, new)
    return {"start": g, "sequence": q, "step": s}


def generator_start(g: GraphWriter, model: Generator, x: str) -> list[list[str]]:
    found = []
    for layer, cell in zip(model.starts, model.rnn.all_cells(), strict=True):
        first = g.op("Sigmoid", g.linear(x, layer))
        rest = [g.op("Mul", first, 0.0) for _ in cell.state[1:]]
        found.append([first, *rest])
    if model.rnn.initial_state != "zero":
        raise ExportError("model.initial_state is learned; a class2seq model with it cannot be exported")
    return found


def seq2seq_graphs(model: Seq2Seq, *, int8: bool) -> Graphs:
    """``encoder`` reads sources, ``attention`` is one look of a query, ``step`` one step of the decoder."""
    network, rnn = recurrent(model.encoder.network), model.rnn
    g = GraphWriter(int8=int8)
    ids, lengths = g.input("ids", "int64", "N", "S"), g.input("lengths", "int64", "N")
    read = write_sequence(g, network, token_vectors(g, model.source, ids), lengths)
    if not isinstance(model.bridge, Bridge):
        raise ExportError("an encoder that is not recurrent cannot be exported")
    state_outputs(g, rnn, bridged(g, model.bridge, network, read.states))
    if model.attention is not None:
        g.output("keys", attention_keys(g, model.attention, read.outputs), "float", "N", "S", None)
        g.output("values", read.outputs, "float", "N", "S", None)
    if model.every_step:
        g.output("context", read.last, "float", "N", None)
    found = {"encoder": g, "step": decoder_step(model, int8=int8)}
    if model.attention is not None:
        a = GraphWriter(int8=int8)
        context, weights = attend(a, model.attention, a.input("query", "float", "N", None), *memory_inputs(a))
        a.output("context", context, "float", "N", None)
        a.output("weights_after", weights, "float", "N", "S")
        found["attention"] = a
    return found


def memory_inputs(g: GraphWriter) -> tuple[str, str, str]:
    keys, values = (g.input(name, "float", "N", "S", None) for name in ("keys", "values"))
    return keys, values, g.input("lengths", "int64", "N")


def decoder_step(model: Seq2Seq, *, int8: bool) -> GraphWriter:
    rnn, attention = model.rnn, model.attention
    g = GraphWriter(int8=int8)
    parts = [token_vectors(g, model.target, g.input("token", "int64", "N"))]
    states = state_inputs(g, rnn)
    memory = None if attention is None else memory_inputs(g)
    context: str | None = None
    weights: str | None = None
    if model.every_step:
        parts.append(g.input("context", "float", "N", None))
    top = rnn.all_cells()[-1]
    if attention is not None and memory is not None and model.before_placed:
        query = g.concat([states[-1][n] for n in shown_states(top)])
        context, weights = attend(g, attention, query, *memory)
        parts.append(context)
    if model.feeding:
        parts.append(g.input("readout", "float", "N", model.output_weight.shape[1]))
    y, new = write_single_step(g, rnn, g.concat(parts), states)
    if attention is not None and memory is not None and not model.before_placed:
        context, weights = attend(g, attention, y, *memory)
    readout = y
    if model.combine is not None:
        readout = g.linear(y if context is None else g.concat([y, context]), model.combine)
        readout = readout if context is None else g.op("Tanh", readout)
    logits = g.op("Add", g.op("MatMul", readout, turned(g, model.output_weight)), g.weight(model.bias))
    g.output("log_probabilities", g.op("LogSoftmax", logits, axis=-1), "float", "N", None)
    state_outputs(g, rnn, new)
    if model.feeding:
        g.output("readout_after", readout, "float", "N", model.output_weight.shape[1])
    if weights is not None:
        g.output("weights_after", weights, "float", "N", "S")
    return g


def bridged(g: GraphWriter, bridge: Bridge, source: RNN, states: list[list[str]]) -> list[list[str]]:
    """Where a decoder starts, from the final states of an encoder."""
    names, both = list(bridge.target_states._fields), source.directions
    found = []
    for depth, (place, width) in enumerate(zip(bridge.sources, bridge.widths, strict=True)):
        given = states[place * both : (place + 1) * both]
        if bridge.policy == "transform":
            joined = g.concat([field for one in given for field in one])
            made = g.op("Tanh", g.linear(joined, bridge.networks[depth]))
            found.append(g.split(made, [width] * len(names)))
        elif bridge.policy == "zero":
            B = g.op("Slice", g.op("Shape", given[0][0]), index(0), index(1), index(0))
            zero = g.op("Expand", 0.0, g.op("Concat", B, index(width), axis=0))
            found.append([zero] * len(names))
        else:
            known = list(source.cell_class.state)
            own = [[one[known.index(name) if name in known else 0] for one in given] for name in names]
            found.append([copied(g, parts, source.hidden_sizes[place], width) for parts in own])
    if bridge.target_directions != 1:
        raise ExportError("a decoder in both directions cannot be exported")
    return found


def copied(g: GraphWriter, parts: list[str], H: int, width: int) -> str:
    """Directions side by side where they fit, or their sum; cut or filled up with zeros to the width."""
    side_by_side = H * len(parts) == width
    value = g.concat(parts) if side_by_side else parts[0] if len(parts) == 1 else g.op("Sum", *parts)
    have = H * len(parts) if side_by_side else H
    if have > width:
        return g.op("Slice", value, index(0), index(width), index(1))
    return value if have == width else g.op("Pad", value, index(0, 0, 0, width - have))


def attention_keys(g: GraphWriter, attention: Any, states: str) -> str:
    kind = type(attention)
    if kind not in (Additive, Location, Dot, Bilinear):
        raise ExportError(f"the attention {kind.__name__} cannot be exported")
    if kind is Bilinear:
        return g.linear(states, attention.matrix)
    return g.linear(states, attention.of_keys) if isinstance(attention, Additive) else states


def attend(
    g: GraphWriter, attention: Any, query: str, keys: str, values: str, lengths: str
) -> tuple[str, str]:
    """Context (N, ·) and weights (N, S) of queries (N, ·), each with a memory of its own."""
    if isinstance(attention, Additive):
        if isinstance(attention, Location):
            last = g.op("Unsqueeze", g.input("weights", "float", "N", "S"), index(1))
            reach = attention.filters.weight.shape[2] // 2
            seen = g.op("Conv", last, g.weight(attention.filters.weight), pads=[reach, reach])
            keys = g.op("Add", keys, g.linear(g.op("Transpose", seen, perm=[0, 2, 1]), attention.of_filters))
        asked = g.op("Unsqueeze", g.linear(query, attention.of_query), index(1))
        inside = g.op("Tanh", g.op("Add", asked, keys))  # (N, S, ·)
        scores = g.op("MatMul", inside, g.weight(attention.v.unsqueeze(1)))
    else:
        asked = query
        if isinstance(attention, Dot) and attention.projection is not None:
            asked = g.linear(query, attention.projection)
        scores = g.op("MatMul", keys, g.op("Unsqueeze", asked, index(2)))  # (N, S, 1)
    real = real_steps(g, keys, lengths)
    weights = g.op("Softmax", g.op("Where", real, scores, float("-inf")), axis=1)
    context = g.op("ReduceSum", g.op("Mul", weights, values), index(1), keepdims=0)
    return context, g.op("Squeeze", weights, index(2))
