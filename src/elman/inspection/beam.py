"""The tree of a beam search: all sequences that were ever kept, and when the others were pruned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from elman.config import strategy_name
from elman.decoding.results import Hypothesis, SearchResult
from elman.inspection.writing_passages import WritingPassage

WIDTH = 4  # of the beam that is shown where the model writes without one


@dataclass(frozen=True)
class BeamNode:
    """A sequence that was kept: its last token, and the number of the node that it continues, or None.

    step: of the token, from 1. fate: ``chosen`` on the way to what was found, ``finished``, ``pruned`` after
    this step, or ``went on``. score: what it is ranked by, where it finished.
    """

    number: int
    parent: int | None
    token: str
    log_probability: float
    step: int
    fate: str
    score: float | None


@dataclass(frozen=True)
class Beam:
    """strategy: what the search was, in words. own: it is the search that gave the answer."""

    strategy: str
    own: bool
    nodes: list[BeamNode]
    found: list[str]


def beam_tree(passage: WritingPassage, model: nn.Module) -> Beam:
    """The search of the answer where it kept several sequences, otherwise a beam beside it."""
    settings = passage.settings
    own = strategy_name(settings) == "beam"
    strategy = f"beam search with {settings.beam or 5} sequences"
    result = passage.search
    if not own or result is None:
        wide = {"strategy": "beam", "strategy_options": {}, "beam": WIDTH, "n_best": WIDTH}
        quiet = {"temperature": None, "top_k": None, "top_p": None}
        settings = settings.model_copy(update=wide | quiet)
        [result] = passage.generation.search(model, [passage.text], settings, trace=1)
        strategy = (
            f"the answer is of {strategy_name(passage.settings)} search; here a beam of {WIDTH} beside it"
        )
    names = passage.names
    join = passage.generation.writer.field.join
    texts = [join([names[token] for token in one.tokens]) for one in result.hypotheses]
    return Beam(strategy, own, tree_of(result, names), texts)


def tree_of(result: SearchResult, names: Sequence[str]) -> list[BeamNode]:
    """The nodes of a search with what became of each."""
    tree = result.tree or []
    paths: dict[int, tuple[int, ...]] = {}
    for node in tree:  # a parent comes before its children
        before = () if node.parent is None else paths[node.parent]
        paths[node.number] = (*before, node.token)
    parents = {node.parent for node in tree}
    scores = {_path(one, paths): one.score for one in result.hypotheses}
    best = _path(result.best, paths)
    found = []
    for node in tree:
        path = paths[node.number]
        fate = "went on" if node.number in parents else "pruned" if node.stopped is None else "finished"
        fate = "chosen" if best is not None and path == best[: len(path)] else fate
        score = scores.get(path) if node.stopped is not None else None
        value = node.log_probability
        found.append(BeamNode(node.number, node.parent, names[node.token], value, node.step, fate, score))
    return found


def _path(one: Hypothesis, paths: dict[int, tuple[int, ...]]) -> tuple[int, ...] | None:
    """The tokens of a hypothesis as the tree has them: with the marker that ended it, where one did."""
    tokens = tuple(one.tokens)
    ends = (path for path in paths.values() if path[: len(tokens)] == tokens and len(path) == len(tokens) + 1)
    return next(ends, None) if one.stopped == "end" else tokens
