"""What a trained language model learns from a text that it reads: dynamic evaluation and a neural cache."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.config import Config
from elman.errors import ArgumentError
from elman.models.counting import CountedModel
from elman.models.language_model import LanguageModel
from elman.tasks.lm_settings import LmEvaluation
from elman.tensors.nested import map_tensors

FIRST = 20  # segments that only tell how large gradients are
EVALUATION_STEPS = 256  # of a text that are read at once where nothing is learned in between


def check_adaptable(model: nn.Module) -> None:
    """A model that is counted has neither gradients nor outputs to compare: that is an error."""
    if isinstance(model, CountedModel):
        raise ArgumentError("a counted model has no dynamic evaluation and no cache; leave them out")


class DynamicEvaluation:
    """A copy of a model that learns from each segment after it was predicted (Krause et al. 2018).

    With g the gradient of the mean loss of a segment, r the root of the mean of g² over all segments so far
    and r̄ its mean over all weights:

        θ ← θ − η g / (r + r̄) + λ min(r / r̄, 1/λ) (θ_trained − θ)

    r is of the text that is read, not of the training data, so that a run is all that is needed; the first
    segments only measure it.
    """

    def __init__(self, model: LanguageModel, *, rate: float, decay: float) -> None:
        self.model = deepcopy(model)
        self.rate, self.decay = rate, decay
        self.weights = [weight.requires_grad_() for weight in self.model.parameters()]
        self.trained = [weight.detach().clone() for weight in self.weights]
        self.squares = [torch.zeros_like(weight) for weight in self.trained]
        self.segments = 0

    def learn(self, loss: Tensor) -> None:
        """One update by the mean loss of a segment."""
        gradients = torch.autograd.grad(loss, self.weights, allow_unused=True, materialize_grads=True)
        self.segments += 1
        with torch.no_grad():
            torch._foreach_lerp_(self.squares, torch._foreach_mul(gradients, gradients), 1 / self.segments)
            if self.segments <= FIRST:
                return
            sizes = torch._foreach_sqrt(self.squares)
            count = sum(weight.numel() for weight in self.weights)
            mean = torch.stack([size.sum() for size in sizes]).sum() / count
            for weight, trained, gradient, size in zip(
                self.weights, self.trained, gradients, sizes, strict=True
            ):
                back = (self.decay * size / mean).clamp_(max=1.0)
                weight += back * (trained - weight) - self.rate * gradient / (size + mean)


class NeuralCache:
    """``p(w) = (1 − λ) p_model(w) + λ p_cache(w)`` with the last n outputs and what followed each of them.

    ``p_cache(w) ∝ Σ_i exp(θ h · h_i / m)`` over those i that w followed, with m the mean of ‖h_i‖² so far
    (Grave et al. 2017, whose θ is θ / m here, so that one value suits networks of any width and scale).
    """

    def __init__(self, *, size: int, weight: float, sharpness: float) -> None:
        self.size, self.weight, self.sharpness = size, weight, sharpness
        self.outputs: Tensor | None = None  # (n, H)
        self.followed = torch.empty(0, dtype=torch.long)  # (n,)
        self.squares = 0.0  # summed over all outputs so far
        self.count = 0

    def read(self, outputs: Tensor, targets: Tensor, V: int) -> tuple[Tensor, Tensor]:
        """The distributions (T, V) of the cache before each of the targets (T,), and whether it has one (T,).

        Then it keeps the outputs (T, H) and what followed them.
        """
        T = len(outputs)
        n = 0 if self.outputs is None else len(self.outputs)
        everything = outputs if self.outputs is None else torch.cat([self.outputs, outputs])
        followed = torch.cat([self.followed.to(targets.device), targets])
        squares = torch.cat([outputs.new_tensor([self.squares]), outputs.square().sum(-1)]).cumsum(0)
        counts = torch.arange(self.count, self.count + T, device=outputs.device)
        scale = self.sharpness * counts.clamp(min=1) / squares[:-1].clamp(min=1e-8)  # (T,) of those before
        now = torch.arange(n, n + T, device=outputs.device)[:, None]
        place = torch.arange(n + T, device=outputs.device)
        known = (place < now) & (place >= now - self.size)  # (T, n + T)
        scores = (scale[:, None] * (outputs @ everything.t())).masked_fill(~known, -torch.inf)
        there = known.any(-1)
        shares = scores.softmax(-1).where(there[:, None], 0.0)
        found = outputs.new_zeros(T, V).scatter_add_(1, followed.expand(T, -1), shares)
        self.outputs, self.followed = everything[-self.size :], followed[-self.size :]
        self.squares, self.count = float(squares[-1]), self.count + T
        return found, there

    def mixed(self, log_probs: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log-probabilities (T, V) of model and cache together."""
        found, there = self.read(outputs, targets, log_probs.shape[-1])
        share = torch.where(there, self.weight, 0.0)[:, None]
        return ((1 - share) * log_probs.exp() + share * found).log()


class AdaptiveReader:
    """Reads a text from its beginning to its end, and predicts each token before it learns from it.

    The model that it is given keeps its weights.
    """

    def __init__(self, model: LanguageModel, settings: LmEvaluation, *, dynamic: bool, cache: bool) -> None:
        self.learner: DynamicEvaluation | None = None
        self.cache: NeuralCache | None = None
        if dynamic:
            self.learner = DynamicEvaluation(model, rate=settings.dynamic_rate, decay=settings.dynamic_decay)
        if cache:
            size, weight = settings.cache_size, settings.cache_weight
            self.cache = NeuralCache(size=size, weight=weight, sharpness=settings.cache_sharpness)
        self.model = model if self.learner is None else self.learner.model
        self.steps = settings.dynamic_steps if dynamic else EVALUATION_STEPS
        self.state: object = None

    def read(self, ids: Tensor, *, carry: bool) -> tuple[Tensor, Tensor]:
        """The log-probabilities (T,) of all but the first of a line's or stream's ids (T + 1,).

        By the model, and by model and cache together; ``carry``: it begins in the state of the line before.
        """
        if not carry:
            self.state = None
        cuts = range(0, len(ids) - 1, self.steps)
        found = [self._read(ids[cut : cut + self.steps + 1]) for cut in cuts]
        model, mixed = zip(*found, strict=True)
        return torch.cat(model), torch.cat(mixed)

    def _read(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = ids[:-1], ids[1:]
        with torch.set_grad_enabled(self.learner is not None):
            outputs, self.state = self.model(inputs[None], None, self.state)
            log_probs = self.model.logits(outputs[0]).log_softmax(-1)  # (T, V)
            loss = F.nll_loss(log_probs, targets)
        outputs, log_probs, gold = outputs[0].detach(), log_probs.detach(), targets[:, None]
        mixed = log_probs if self.cache is None else self.cache.mixed(log_probs, outputs, targets)
        if self.learner is not None:
            self.learner.learn(loss)
            self.state = map_tensors(Tensor.detach, self.state)
        return log_probs.gather(1, gold)[:, 0], mixed.gather(1, gold)[:, 0]


def adaptive_reader(model: nn.Module, config: Config) -> AdaptiveReader | None:
    """The reader that ``evaluation.*`` asks for, if it does."""
    settings = getattr(config, "evaluation", None)
    if not isinstance(settings, LmEvaluation) or not (settings.dynamic or settings.cache):
        return None
    check_adaptable(model)
    assert isinstance(model, LanguageModel)
    return AdaptiveReader(model, settings, dynamic=settings.dynamic, cache=settings.cache)


def adapted_losses(model: LanguageModel, settings: LmEvaluation, lines: Sequence[Tensor]) -> dict[str, float]:
    """The mean loss of all lines by what the settings ask for: a cache, dynamic evaluation, and both."""
    losses: dict[str, float] = {}
    asked = [False] * settings.cache + [True] * settings.dynamic  # first the cache alone
    for dynamic in asked:
        reader = AdaptiveReader(model, settings, dynamic=dynamic, cache=settings.cache)
        total, count = torch.zeros(2, dtype=torch.float64), 0
        for ids in lines:
            found = reader.read(ids, carry=False)
            total -= torch.stack([log_probs.double().sum().cpu() for log_probs in found])
            count += len(found[0])
        by_model, mixed = (total / count).tolist()
        if dynamic:
            losses["dynamic"] = by_model
        if settings.cache:
            losses["dynamic_cache" if dynamic else "cache"] = mixed
    return losses
