"""How a language model writes: it goes on from a prompt."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from elman.config import DecodingSettings
from elman.decoding.fixed import StepResult
from elman.decoding.results import Hypothesis, SearchResult
from elman.decoding.rows import Nested
from elman.models.language_model import LanguageModel
from elman.tasks.examples import device_of, tensor
from elman.tasks.generation import DecodingStart, Writer, alternatives, fixed_step, steps_of
from elman.tasks.predictions import Prediction, Step, Written
from elman.text.batches import pad
from elman.text.fields import TextField
from elman.text.vocabulary import PAD, UNKNOWN


class LmWriter(Writer[LanguageModel]):
    """Text that goes on from each prompt (row L4); in a stream, line ends are tokens, too."""

    goes_on = True

    def __init__(self, field: TextField, *, streams: bool) -> None:
        self.field, self.streams = field, streams

    def begin(self, model: LanguageModel, prompts: Sequence[str]) -> DecodingStart:
        """The prompts are read at once; what follows their last tokens is known before the first step."""
        device = device_of(model)
        rows = [np.array(self.tokens_before(prompt)) for prompt in prompts]
        ids, lengths = (tensor(array, device) for array in pad(rows))
        outputs, after = model(ids, lengths)
        numbers = torch.arange(len(ids), device=device)
        log_probs = model.logits(outputs[numbers, lengths - 1]).log_softmax(-1)

        def step(tokens: Tensor, state: Nested) -> StepResult:
            hidden, known = state
            if known is not None:
                return known, (hidden, None), None
            log_probs, hidden = model.step(tokens, hidden)
            return log_probs, (hidden, None), None

        first, state = ids[numbers, lengths - 1], (after, log_probs)
        return DecodingStart(step, first, state, fixed_step(step, model, state))

    def end_marker(self, settings: DecodingSettings) -> int:
        """In a stream of characters a line's end is one more of them: nothing ends it but a stop."""
        endless = self.streams and self.field.unit.grain == "character" and "\n" not in settings.stop
        return self.field.vocabulary.id(PAD if endless else self.field.end)

    def line_end(self) -> int:
        return self.field.vocabulary.id(self.field.end)

    def never(self, settings: DecodingSettings) -> set[int]:
        return {self.field.vocabulary.id(marker) for marker in (PAD, UNKNOWN, self.field.start)}

    def usual_prompts(self) -> list[str]:
        return [""]

    def gap(self, before: str, after: str) -> str:
        unit = self.field.unit
        if not (before and after and unit.grain == "word"):
            return " " if before and unit.grain == "word" else ""
        first = unit.cut(before)
        return " " if unit.join([*first, *unit.cut(after)])[len(unit.join(first)) :].startswith(" ") else ""

    def prediction(self, prompt: str, found: SearchResult, settings: DecodingSettings) -> Prediction:
        best, tokens, names = found.best, self._tokens(found.best), self.field.vocabulary.tokens
        text = self.field.join(tokens)
        texts = (self.field.join(self._tokens(one)) for one in found.hypotheses)
        out = [*tokens, self.field.end] if best.stopped == "end" else tokens
        written = Written(
            tokens,
            best.log_probability,
            best.stopped,
            n_best=alternatives(found, texts, settings),
            steps=steps_of(best, out, names[self.tokens_before(prompt)[-1]], names),
        )
        return Prediction(text, prompt, "prompt", written=written)

    def prompt_steps(self, ids: Sequence[int], rows: Tensor, top: int) -> list[Step]:
        """How the start and a prompt (T + 1,) were read, by log-probabilities (T, V): steps up to t = 0."""
        names, best = self.field.vocabulary.tokens, rows.topk(min(top, rows.shape[1]))
        entropies = torch.special.entr(rows.exp()).sum(-1).tolist()
        tops = zip(best.indices.tolist(), best.values.exp().tolist(), strict=True)
        return [
            Step(
                t + 2 - len(ids),
                names[ids[t]],
                names[ids[t + 1]],
                float(rows[t, ids[t + 1]].exp()),
                entropies[t],
                [(names[token], chance) for token, chance in zip(*own, strict=True)],
            )
            for t, own in enumerate(tops)
        ]

    def tokens_before(self, prompt: str) -> list[int]:
        """The start and the tokens of a prompt; in a stream each line follows the end of one."""
        start = self.field.vocabulary.id(self.field.end if self.streams else self.field.start)
        lines = [self.field.ids(line) for line in prompt.split("\n")]
        if not self.streams:
            return [start, *(token for line in lines for token in line)]
        return [token for line in lines for token in (start, *line)]

    def text_of(self, ids: Sequence[int]) -> str:
        """What tokens are as a text."""
        return self.field.join(self._named(ids))

    def _tokens(self, hypothesis: Hypothesis) -> list[str]:
        return self._named(hypothesis.tokens)

    def _named(self, ids: Sequence[int]) -> list[str]:
        names, end = self.field.vocabulary.tokens, self.line_end()
        return ["\n" if token == end else names[token] for token in ids]
