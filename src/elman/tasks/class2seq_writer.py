"""How a class becomes a sequence: from a state that is a function of the class, token by token (row G3)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from elman.config import DecodingSettings
from elman.decoding.fixed import StepResult
from elman.decoding.results import SearchResult
from elman.decoding.rows import Nested
from elman.models.generator import Generator
from elman.tasks.classes import ClassField
from elman.tasks.examples import device_of
from elman.tasks.generation import DecodingStart, Writer, alternatives, fixed_step, steps_of
from elman.tasks.predictions import Prediction, Written
from elman.text.fields import TextField
from elman.text.vocabulary import UNKNOWN


class Class2SeqWriter(Writer[Generator]):
    """The sequence of each class, with its unrolling: what was fed, what came out."""

    wanted = "vectors, as '0 1.5 2'"

    def __init__(self, field: TextField, classes: ClassField, *, soft: bool) -> None:
        self.field, self.classes, self.soft = field, classes, soft

    def begin(self, model: Generator, prompts: Sequence[str]) -> DecodingStart:
        device = device_of(model)
        x = self.classes.vectors(self.classes.keys(prompts), device)
        first = torch.full((len(x),), self.field.vocabulary.index[self.field.start], device=device)

        def step(tokens: Tensor, state: Nested) -> StepResult:
            hidden, fed = state
            log_probs, hidden = model.step(tokens if fed is None else fed, hidden)
            return log_probs, (hidden, log_probs.exp() if self.soft else None), None

        state = (model.start(x), None)
        return DecodingStart(step, first, state, fixed_step(step, model, state))

    def end_marker(self, settings: DecodingSettings) -> int:
        return self.field.vocabulary.index[self.field.end]

    def never(self, settings: DecodingSettings) -> set[int]:
        index = self.field.vocabulary.index
        return {index[self.field.start], *({index[UNKNOWN]} if UNKNOWN in index else ())}

    def usual_prompts(self) -> list[str]:
        return self.classes.names

    def prediction(self, prompt: str, found: SearchResult, settings: DecodingSettings) -> Prediction:
        best, names = found.best, self.field.vocabulary.tokens
        texts = [self.field.join([names[token] for token in one.tokens]) for one in found.hypotheses]
        out = [names[token] for token in best.tokens] + [self.field.end] * (best.stopped == "end")
        written = Written(
            out,
            best.log_probability,
            best.stopped,
            n_best=alternatives(found, texts, settings),
            steps=steps_of(best, out, self.field.start, names),
        )
        return Prediction(texts[0], prompt, "class", written=written)
