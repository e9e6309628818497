"""What is inside a model while it reads or writes one text: all parts as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

from elman.config import changed, lookup
from elman.errors import ArgumentError
from elman.inspection.asking import passage_of
from elman.inspection.attending import AttentionSteps, attention_steps
from elman.inspection.beam import Beam, beam_tree
from elman.inspection.flows import Flow, flows
from elman.inspection.gate_example import GateExample, gate_example
from elman.inspection.influence import Influence, influence
from elman.inspection.neighbours import Neighbours, neighbours
from elman.inspection.observation import Observation
from elman.inspection.passages import Passage
from elman.inspection.plain import Plain, many, plain
from elman.inspection.saving import check_parts, save
from elman.inspection.states import Strip, strips
from elman.inspection.unrolled import UnrolledNetwork, unroll
from elman.inspection.watching import Clamp, Watch
from elman.inspection.writing_passages import WritingPassage
from elman.tasks.base import AnyTask

FORMAT = 1  # of the JSON
AROUND = 2000  # tokens of other texts on the map of states


@dataclass(frozen=True, eq=False)
class Inspection:
    """One text in one model; a part that has no meaning there, or was not asked for, is None.

    run, task, network: whose it is. text: what was asked. target: what was given as what comes out. answer:
    what the model says. changes: what was changed of the text or held in the network, in words. notes: what a
    reader has to know.

    >>> elman.load("runs/names").inspect("Kowalski").save("page.html")  # doctest: +SKIP
    """

    run: str
    task: str
    network: str
    text: str
    target: str | None
    answer: str
    changes: list[str]
    notes: list[str]
    unrolled: list[UnrolledNetwork] | None = None
    gates: list[Strip] | None = None
    gradients: list[Flow] | None = None
    attention: AttentionSteps | None = None
    beam: Beam | None = None
    influence: Influence | None = None
    neighbours: Neighbours | None = None
    example: GateExample | None = None

    def as_json(self) -> dict[str, Plain]:
        """Objects, lists and numbers, rounded as a page shows them."""
        found = plain(self if self.gates is None else replace(self, gates=None))
        assert isinstance(found, dict)
        if self.gates is not None:
            found["gates"] = [_strip(one) for one in self.gates]
        return {"format": FORMAT, **found}

    def texts(self) -> Iterator[str]:
        """All texts and tokens that pictures of it may show."""
        yield from (self.text, self.answer)
        for network in self.unrolled or ():
            for step in network.steps:
                yield from (step.token, step.output or "", step.own or "")
        for strip in (self.gates or ())[:1]:
            yield from strip.tokens
        for flow in self.gradients or ():
            yield from (*flow.tokens, *flow.outputs, flow.sentence)
        if self.attention is not None:
            yield from (*self.attention.source, *self.attention.outputs)
        if self.influence is not None:
            yield from (*self.influence.tokens, *self.influence.outputs, self.influence.of)
        if self.beam is not None:
            yield from (node.token for node in self.beam.nodes)
        if self.neighbours is not None:
            yield from (point.label for point in (*self.neighbours.words, *self.neighbours.states))

    def save(self, path: str | Path, part: str | None = None, *others: Inspection) -> None:
        """Write a page (.html), the numbers (.json) or the picture of a part (.png, .svg, .pdf).

        ``others`` are put beside it.
        """
        save(Path(path), [self, *others], part)


def _strip(one: Strip) -> dict[str, Plain]:
    found = plain(replace(one, values=one.values[:0]))
    assert isinstance(found, dict)
    return found | {"values": many(one.values).tolist(), "order": list(one.order), "signed": one.signed}


MAKERS: dict[str, Callable[[Observation], object]] = {
    "unrolled": unroll,
    "gates": strips,
    "gradients": flows,
    "attention": attention_steps,
    "beam": lambda seen: (
        beam_tree(seen.passage, seen.quick) if isinstance(seen.passage, WritingPassage) else None
    ),
    "influence": influence,
    "neighbours": neighbours,
    "example": lambda seen: gate_example(),
}


@dataclass(frozen=True)
class Question:
    """What is to be looked into.

    text: as for predict. target: what should come out: a label, tags or a text; None: what the model says.
    replaced: by place, counted from 1, the token that stands there instead; None: nothing. forced: the same
    for tokens that are written. clamps: units of gates or states that are held. parts: what is to be found
    out; None: everything. around: other texts, whose states lie on the map of states.

    >>> question = Question("the cats sleep", replaced={2: "cat"}, clamps=[Clamp.read("c:3=0")])
    """

    text: str
    target: str | None = None
    replaced: dict[int, str | None] = field(default_factory=dict)
    forced: dict[int, str] = field(default_factory=dict)
    clamps: Sequence[Clamp] = ()
    parts: Sequence[str] | None = None
    around: Sequence[str] = ()


def inspect(task: AnyTask, model: nn.Module, question: Question, *, run: str = "") -> Inspection:
    """Look into a model while it reads or writes a text; neither the model nor any random state changes."""
    parts = check_parts(question.parts)
    clamps = list(question.clamps)
    asked = Watch(model, clamps, double=False).model if clamps else model
    changes = [f"{_clamp(clamp)}" for clamp in clamps]
    with torch.random.fork_rng(devices=[]):
        passage = _passage(task, asked, question, changes)
        seen = Observation(passage, model, clamps, asked)
        if not seen.places:
            passage.notes.append(
                "The network is not recurrent: it has no gates, states or gradients through time."
            )
        found = {
            part: MAKERS[part](seen) for part in parts if seen.places or part not in ("gates", "gradients")
        }
        if question.around and "neighbours" in parts:
            found["neighbours"] = neighbours(seen, _around(task, model, question, clamps))
    answer = passage.prediction.line
    return Inspection(
        run,
        task.config.task,
        task.describe(model)[0],
        passage.text,
        question.target,
        answer,
        changes,
        passage.notes,
        **found,  # type: ignore[arg-type]
    )


def _passage(task: AnyTask, model: nn.Module, question: Question, changes: list[str]) -> Passage:
    text, target = question.text, question.target
    passage = passage_of(task, model, text, target)
    for place, token in sorted(question.replaced.items(), reverse=True):  # from the end: places stay
        before = passage.asked_tokens()
        passage = passage_of(task, model, passage.changed(place, token), target)
        became = "is left out" if token is None else f"is replaced by {token!r}"
        changes.append(f"token {place}, {before[place - 1]!r}, {became}")
    for place, token in sorted(question.forced.items()):
        if not isinstance(passage, WritingPassage):
            raise ArgumentError(f"{task.config.task} writes nothing; no token can be forced")
        prefix = passage.forced(place, token)
        task = task.reconfigured(changed(task.config, {"decoding.prefix": prefix}))
        assert task.generation is not None
        task.generation.check(lookup(task.config, "decoding"))
        passage = passage_of(task, model, passage.text, target)
        changes.append(f"written token {place} is forced to be {token!r}")
    return passage


def _around(task: AnyTask, model: nn.Module, question: Question, clamps: list[Clamp]) -> list[Observation]:
    found, count = list[Observation](), 0
    for text in question.around:
        if count < AROUND:
            found.append(Observation(passage_of(task, model, text), model, clamps))
            count += sum(len(strand.tokens) for strand in found[-1].passage.strands)
    return found


def _clamp(clamp: Clamp) -> str:
    layer = "" if clamp.layer is None else f" of layer {clamp.layer}"
    return f"unit {clamp.unit} of {clamp.name}{layer} is held at {clamp.value:g}"
