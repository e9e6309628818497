"""``--to onnx``: graphs for onnxruntime, and what reads texts for them, as ``elman.runtime`` opens it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elman.decoding.beam import Beam
from elman.decoding.greedy import Greedy
from elman.decoding.sample import Sample
from elman.errors import ExportError
from elman.export.onnx_graph import OPSET, quantised
from elman.export.onnx_models import (
    Graphs,
    class2seq_graphs,
    classifier_graphs,
    lm_graphs,
    seq2seq_graphs,
    tagger_graphs,
)
from elman.export.options import Answer, Answering, ExportOptions
from elman.models.classifier import Classifier
from elman.models.counting import CountedModel
from elman.models.tagger import Tagger
from elman.predictor import Predictor
from elman.runtime import load
from elman.runtime.base import ARRAYS, MANIFEST, VERSION
from elman.storage.files import write_text
from elman.tasks.generation import DISTRIBUTIONS, LONGEST, make_strategy
from elman.tasks.seq2seq_writer import DECODED, SHORTEST
from elman.text.fields import TextField, WordField

Json = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
STRATEGIES = {Greedy: "greedy", Beam: "beam", Sample: "sample"}


def write(predictor: Predictor, folder: Path, options: ExportOptions) -> None:
    """The graphs, ``model.json`` with all that is no number, and ``arrays.npz`` where there are others."""
    task: Any = predictor.task
    model: Any = predictor.model.eval()
    if isinstance(model, CountedModel):
        raise ExportError(f"model.network is {task.config.model.network!r}, which counts; export a network")
    graphs, said, arrays = WRITERS[predictor.config.task](task, model, options.int8)
    said = {"version": VERSION, "task": predictor.config.task, "opset": OPSET, "int8": options.int8, **said}
    for name, graph in graphs.items():
        graph.save(folder / f"{name}.onnx")
    write_text(folder / MANIFEST, json.dumps(said, ensure_ascii=False) + "\n")
    if arrays:
        np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]


def open_written(folder: Path) -> Answering:
    model = load(folder, threads=1)

    def ask(texts: Sequence[str]) -> list[Answer]:
        found = []
        for one in model.details(texts):
            chances = one.probabilities
            numbers = list(chances.values()) if isinstance(chances, dict) else chances
            if numbers is not None:
                logs = tuple(math.log(max(number, 1e-45)) for number in numbers)
            else:
                logs = () if one.log_probability is None else (one.log_probability,)
            found.append(Answer(one.line, logs))
        return found

    return ask


def field_json(field: TextField) -> Json:
    settings, pattern = field.settings, field.removed
    return {
        "unit": field.unit_name,
        "lowercase": bool(settings.lowercase),
        "unit_options": dict(settings.unit_options or {}),
        "learned": field.unit_state(),
        "tokens": field.vocabulary.tokens,
        "remove": pattern,
        "whole": field.whole,
        "reverse": field.reverse,
    }


def words_json(field: WordField) -> Json:
    return {
        "field": field_json(field.text),
        "characters": field.characters.tokens if field.lower else None,
        "vector_words": field.vector_words,
        "lower": field.lower,
    }


def seen_in_words(model: Any) -> tuple[dict[str, int], Arrays]:
    """The sizes of the tables that hashes of words find rows in, and what the hashes are made of."""
    tables = {"affix": model.words.affixes, "linear": model.shortcut if isinstance(model, Tagger) else None}
    there = {name: table for name, table in tables.items() if table is not None}
    arrays: Arrays = {}
    for table in there.values():
        names = ("written", "small", "kinds", "powers")
        arrays = {name: getattr(table.indicators, name).cpu().numpy() for name in names}
    return {name: len(table.weight) for name, table in there.items()}, arrays


def write_classifier(task: Any, model: Classifier, int8: bool) -> tuple[Graphs, Json, Arrays]:
    buckets, arrays = seen_in_words(model)
    said = words_json(task.words) | {
        "labels": task.labels.names,
        "temperature": task.temperature,
        "several": task.multilabel,
        "between": task.config.data.labels_separator or "|",
        "threshold": task.config.evaluation.threshold,
        "buckets": buckets,
        "shortcut": model.shortcut is not None,
    }
    if model.shortcut is not None:
        names = ("hashes", "rarity", "weight", "bias", "weights")
        arrays |= {name: getattr(model.shortcut, name).cpu().numpy() for name in names}
        if int8 and len(arrays["weight"]):
            arrays["weight"], arrays["weight_scales"] = quantised(arrays["weight"], 0)
    return classifier_graphs(model, int8=int8), said, arrays


def write_tagger(task: Any, model: Tagger, int8: bool) -> tuple[Graphs, Json, Arrays]:
    buckets, arrays = seen_in_words(model)
    said = words_json(task.words) | {
        "labels": task.labels.names,
        "temperature": task.temperature,
        "buckets": buckets,
        "crf": model.crf is not None,
    }
    if model.crf is not None:
        parts = zip(("start", "transitions", "end"), model.crf.constrained(), strict=True)
        arrays |= {f"crf_{name}": part.detach().cpu().numpy() for name, part in parts}
        if model.crf.bias is not None:
            arrays["crf_bias"] = model.crf.bias.cpu().numpy()
    return tagger_graphs(model, int8=int8), said, arrays


def writing_json(task: Any, field: TextField) -> Json:
    """How a task writes: its rules by the numbers of tokens."""
    generation, settings = task.generation, task.config.decoding
    writer, strategy = generation.writer, make_strategy(settings)
    kind = STRATEGIES.get(type(strategy))
    if kind is None:
        raise ExportError(
            f"decoding.strategy is {settings.strategy!r}; "
            f"ONNX is written with {', '.join(STRATEGIES.values())}"
        )
    end = writer.end_marker(settings)
    tokens = {
        name: generation.token_ids(name, getattr(settings, name), settings) for name in ("stop", "banned")
    }
    own = ("beam", "length_penalty", "coverage_penalty", "temperature", "top_k", "top_p")
    rules = {name: getattr(strategy, name) for name in own if hasattr(strategy, name)}
    kept = strategy.width(settings.n_best)
    return {
        "field": field_json(field),
        "longest": LONGEST,
        "together": max(1, min(writer.together, DISTRIBUTIONS // (kept * len(field.vocabulary)))),
        "positions": None,
        "seed": settings.seed,
        "rules": {
            "strategy": kind,
            "end": end,
            "stop": sorted(set(tokens["stop"]) - {end}),
            "banned": sorted({*writer.never(settings), *tokens["banned"]}),
            "prefix": generation.token_ids("prefix", field.unit.split(settings.prefix), settings),
            "min_length": settings.min_length,
            "max_length": settings.max_length,
            "no_repeat": settings.no_repeat,
            "n_best": settings.n_best,
            **rules,
        },
    }


def write_lm(task: Any, model: Any, int8: bool) -> tuple[Graphs, Json, Arrays]:
    said = writing_json(task, task.field) | {"streams": task.writer.streams}
    return lm_graphs(model, int8=int8), said, {}


def write_seq2seq(task: Any, model: Any, int8: bool) -> tuple[Graphs, Json, Arrays]:
    writer = task.writer
    said = writing_json(task, task.target) | {
        "source": field_json(task.source),
        "longest": SHORTEST,
        "longest_pair": list(writer.longest_pair),
        "positions": DECODED,
        "naive": writer.naive,
        "copies": writer.copies(task.config.decoding),
        "readout": model.output_weight.shape[1],
    }
    return seq2seq_graphs(model, int8=int8), said, {}


def write_class2seq(task: Any, model: Any, int8: bool) -> tuple[Graphs, Json, Arrays]:
    writer, classes = task.generation.writer, task.classes
    said = writing_json(task, task.field) | {
        "start": task.field.vocabulary.index[task.field.start],
        "kind": classes.kind,
        "classes": classes.names if classes.kind != "token" else [],
        "size": classes.size,
        "soft": writer.soft,
    }
    return class2seq_graphs(model, writer.soft, int8=int8), said, {}


WRITERS: Mapping[str, Callable[[Any, Any, bool], tuple[Graphs, Json, Arrays]]] = {
    "classify": write_classifier,
    "tag": write_tagger,
    "lm": write_lm,
    "seq2seq": write_seq2seq,
    "class2seq": write_class2seq,
}
