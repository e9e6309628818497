"""The way of a text through a tagger or a classifier."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from elman.errors import ArgumentError, nearest
from elman.inspection.passages import TOP, Passage, Strand, TaskModel
from elman.models.crf import CRF
from elman.tasks.classify import Classify
from elman.tasks.tag import Tag, words_in
from elman.tasks.words import asked_batch


class WordPassage(Passage):
    """Words in; what tagging and classification share."""

    task: Tag | Classify

    def __init__(self, task: Tag | Classify, model: TaskModel, text: str) -> None:
        super().__init__(task, model, text)
        self.inputs = self._split(text)
        self._check(len(self.inputs))
        [self.prediction] = task.predict(model, [text])
        self._note_unknown(self.prediction.unknown)
        lower = isinstance(task, Tag) and task.config.text.lowercase
        read = [word.lower() for word in self.inputs] if lower else self.inputs
        self.batch = asked_batch(task, [read], self.device)
        self.names = task.labels.names
        origins = ["text"] * len(self.inputs)
        self.strands = [Strand("network", "encoder.network", self.inputs, origins, isinstance(task, Tag))]

    def _split(self, text: str) -> list[str]:
        return words_in(text) if isinstance(self.task, Tag) else self.field.split(text)

    def embed(self, model: TaskModel) -> Tensor:
        vectors: Tensor = model.words(self.batch)
        return vectors

    def _label(self, name: str) -> int:
        if name not in self.names:
            noun = self.task.labels.noun
            raise ArgumentError(
                f"target is {name!r}, which is no {noun} of training; {nearest(name, self.names)}"
            )
        return list(self.names).index(name)


class TagPassage(WordPassage):
    task: Tag

    def __init__(self, task: Tag, model: TaskModel, text: str, target: str | None) -> None:
        super().__init__(task, model, text)
        tags = list(self.prediction.value) if target is None else target.split()
        if len(tags) != len(self.inputs):
            raise ArgumentError(f"target has {len(tags)} tags; the text has {len(self.inputs)} words")
        if getattr(model, "shortcut", None) is not None:
            self.notes.append(
                "Scores are a mean of the network's and those of a linear tagger beside it, which reads "
                "the words themselves: probabilities are of both; gates and gradients are the network's."
            )
        self.given, self.outputs, self.numbers = target is not None, tags, [self._label(tag) for tag in tags]

    def log_probs(self, model: TaskModel, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        lengths = torch.full((B,), T)
        scores = model.output(model.encoder(x, lengths).outputs)
        if model.shortcut is not None:
            scores = scores + model.shortcut.share * (model.shortcut(self.batch) - scores)
        if model.crf is not None:
            scores = _log_marginals(model.crf, scores, lengths)
        found: Tensor = (scores / self.task.temperature).log_softmax(-1)
        return found


def _log_marginals(crf: CRF, scores: Tensor, lengths: Tensor) -> Tensor:
    """(B, T, K), to be differentiated: ∂ log p(tags) / ∂ scores is the tags' one-hot − the marginals."""
    tags = torch.tensor(crf.decode(scores.detach(), lengths), device=scores.device)
    with torch.enable_grad():
        known = scores if scores.requires_grad else scores.detach().requires_grad_()
        value = crf.log_likelihood(known, tags, lengths).sum()
        [gradient] = torch.autograd.grad(value, known, create_graph=scores.requires_grad)
    marginals = F.one_hot(tags, scores.shape[-1]).to(gradient.dtype) - gradient
    return marginals.clamp_min(torch.finfo(marginals.dtype).tiny).log()


class ClassifyPassage(WordPassage):
    task: Classify

    def __init__(self, task: Classify, model: TaskModel, text: str, target: str | None) -> None:
        super().__init__(task, model, text)
        self.multilabel = task.multilabel
        best = self.prediction.best(1)[0][0]
        self.given, self.outputs = target is not None, [best if target is None else target]
        self.numbers = [self._label(self.outputs[0])]
        if getattr(model, "shortcut", None) is not None:
            self.notes.append(
                "Beside the network there is a linear model of n-grams. The answer and the predictions word "
                "by word are those of both; gates, gradients and influences are those of the network alone."
            )

    def log_probs(self, model: TaskModel, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        lengths = torch.full((B,), T)
        scores = model.head(model.pooling(model.encoder(x, lengths), lengths)) / self.task.temperature
        found: Tensor = F.logsigmoid(scores) if self.multilabel else scores.log_softmax(-1)
        return found[:, None]

    def so_far(self, model: TaskModel) -> list[list[tuple[str, float]]]:
        """What it would say after each token, had the text ended there."""
        texts = [self.field.join(self.inputs[:end]) for end in range(1, len(self.inputs) + 1)]
        return [one.best(TOP) for one in self.task.predict(model, texts)]
