"""Models that are counted instead of trained, with the interfaces of those that are (row L6).

``fit(batches)`` takes a function that goes over the training batches as the task collates them; it is called
once for every length of a context. What was counted are buffers, so these models are saved, loaded and used
as any other. They have no parameters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elman.models.backoff import NOTHING, Backoff, Counted, numbers_of
from elman.models.embedding import WordBatch
from elman.tensors.checks import check_size
from elman.tensors.rows import length_mask, real_rows
from elman.tensors.transfer import moved

Batches = Callable[[], Iterable[Any]]


class CountedModel(Counted):
    """A model without parameters: ``fit`` is its training."""

    def fit(self, batches: Batches) -> None:
        raise NotImplementedError


class NgramLM(CountedModel):
    """``P(w_i | w_{i-n+1} … w_{i-1})``, n the order, with the interface of ``LanguageModel``.

    Its outputs are the numbers of the contexts, and logits are log-probabilities. The state (B, n - 1) is the
    last tokens, −1 where there were none.

    >>> model = NgramLM(3, order=2)
    >>> model.fit(lambda: [(torch.tensor([[0, 1, 0, 1]]), torch.tensor([[1, 0, 1, 2]]), None)])
    >>> log_probs, state = model.step(torch.tensor([0]))
    >>> log_probs.argmax().item(), state
    (1, tensor([[0]]))
    """

    def __init__(self, V: int, *, order: int, smoothing: str = "kneser-ney") -> None:
        super().__init__()
        self.V = V
        self.backoff = Backoff(V, check_size("order", order) - 1, smoothing=smoothing)

    def fit(self, batches: Batches) -> None:
        """Count inputs (B, T), targets (B, T), lengths (B,); without lengths, batches are one text."""

        def events() -> Iterator[tuple[Tensor, Tensor]]:
            state = None
            for inputs, targets, lengths, *_ in batches():
                contexts, after = histories(inputs, lengths, state, self.backoff.depth)
                state = after if lengths is None else None
                yield real(contexts, lengths), real(targets, lengths)

        self.backoff.fit(events)

    def forward(
        self, ids: Tensor, lengths: Tensor | None = None, state: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The contexts (B, T, n - 1) that the tokens (B, T) make, and the state after them."""
        contexts, state = histories(ids, lengths, state, self.backoff.depth)
        return self.backoff.find_nodes(contexts), state

    def logits(self, outputs: Tensor) -> Tensor:
        """Log-probabilities (…, V) after contexts (…, n - 1)."""
        p = self.backoff.distribution(outputs.flatten(0, -2))
        return p.log_().view(*outputs.shape[:-1], self.V)

    def step(self, ids: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Log-probabilities (B, V) of what follows one more token (B,), and the new state."""
        outputs, state = self(ids[:, None], None, state)
        return self.logits(outputs[:, 0]), state


class CountTagger(CountedModel):
    """``P(tag | word)``, smoothed with what words of the same ending and capitalisation have; as ``Tagger``.

    The contexts, longest first: the word; its last ``suffix`` letters, one less, …; whether it begins with a
    capital; nothing. A word outside the vocabulary begins with its letters. ``capitals`` says of each entry
    of the character vocabulary whether it is a capital. Number 0 stands before a short word.
    """

    capitals: Tensor

    def __init__(
        self, V: int, K: int, capitals: Sequence[bool], *, suffix: int = 4, unknown: int = 1
    ) -> None:
        super().__init__()
        self.suffix, self.unknown, self.crf = check_size("suffix", suffix, least=0), unknown, None
        self.shortcut = None
        self.register_buffer("capitals", torch.tensor(capitals, dtype=torch.bool))
        self.backoff = Backoff(K, suffix + 2)

    def fit(self, batches: Batches) -> None:
        """Count batches of words and their tags (B, T)."""

        def events() -> Iterator[tuple[Tensor, Tensor]]:
            for words, tags, *_ in batches():
                yield self._contexts(words)[real(words.places, words.lengths)], real(tags, words.lengths)

        self.backoff.fit(events)

    def forward(self, words: WordBatch) -> Tensor:
        """Log-probabilities of the tags (B, T, K)."""
        p = self.backoff.distribution(self.backoff.find_nodes(self._contexts(words)))
        return F.embedding(words.places, p.log_())

    def experts(self, words: WordBatch) -> list[Tensor]:
        """As those of a ``Tagger``."""
        return [self(words)]

    def _contexts(self, words: WordBatch) -> Tensor:
        """(U, 2 + suffix): capitalisation, letters from the last on, word."""
        letters = words.characters
        lengths = moved(words.character_lengths, letters.device)[:, None]
        places = lengths - 1 - torch.arange(self.suffix, device=letters.device)  # (U, suffix)
        endings = letters.gather(1, places.clamp_min(0)).where(places >= 0, 0)
        capital = self.capitals[letters[:, :1]].long()
        word = words.tokens.where(words.tokens != self.unknown, NOTHING)[:, None]
        return torch.cat([capital, endings, word], 1)


class NaiveBayes(CountedModel):
    """``P(k) ∏_g P(g | k)`` over all n-grams g of a text, n up to the order; as ``Classifier``.

        P(g | k) = (count of g in k + 1) / (count of all n-grams in k + G), G different n-grams

    N-grams that training never saw do not count. From order 2 on, the edges of a text are tokens, too.
    """

    prior: Tensor
    total: Tensor

    def __init__(self, V: int, K: int, *, order: int = 1) -> None:
        super().__init__()
        self.V, self.K, self.order = V, K, check_size("order", order)
        self.grams = Backoff(K, order)
        self.register_buffer("prior", torch.zeros(K))
        self.register_buffer("total", torch.zeros(K))

    def fit(self, batches: Batches) -> None:
        """Count batches of texts and their labels (B,)."""

        def events() -> Iterator[tuple[Tensor, Tensor]]:
            for words, labels, *_ in batches():
                grams, origin = self._grams(words)
                yield grams, labels[origin]

        entries, counts = self.grams.count(events)
        totals, G = np.zeros(self.K), 0
        for level, keys, numbers in zip(self.grams.levels[1:], entries[1:], counts[1:], strict=True):
            R, labels = len(level.keys), keys % self.K
            level.fill(labels, np.log(numbers + 1), np.bincount(keys // self.K, minlength=R), np.zeros(R))
            totals += np.bincount(labels, numbers, minlength=self.K)
            G += R
        seen = [torch.bincount(labels, minlength=self.K) for _, labels, *_ in batches()]
        examples = torch.stack(seen).sum(0) + 1
        self.prior = (examples / examples.sum()).log().to(self.prior)
        self.total = torch.from_numpy(np.log(totals + G)).to(self.total)

    def forward(self, words: WordBatch) -> Tensor:
        """``log P(k) + Σ_g log P(g | k)``: (B, K)."""
        grams, origin = self._grams(words)
        nodes = self.grams.find_nodes(grams)
        seen = (nodes >= 0).sum(-1).to(self.total)
        scores = self.prior.repeat(len(words.lengths), 1)
        scores -= torch.zeros_like(scores[:, 0]).index_add_(0, origin, seen)[:, None] * self.total
        for level, rows in zip(self.grams.levels[1:], nodes.unbind(-1), strict=True):
            level.add(rows, torch.ones_like(seen), scores, origin)
        return scores

    def _grams(self, words: WordBatch) -> tuple[Tensor, Tensor]:
        """(N, order): each token with those before it; and (N,): the text that it stands in."""
        ids, lengths = words.tokens[words.places], words.lengths
        past = ids.new_full((len(ids), self.order), NOTHING)
        if self.order > 1:
            read = length_mask(moved(lengths, ids.device), ids.shape[1])
            ids = F.pad(ids.masked_fill(~read, self.V), (0, 1), value=self.V)
            past[:, -1], lengths = self.V, lengths + 1
        contexts, _ = histories(ids, None, past, self.order)
        origin = torch.arange(len(ids), device=lengths.device).repeat_interleave(lengths)
        return real(contexts, lengths), moved(origin, ids.device)


class NgramGenerator(CountedModel):
    """``P(y_t | class, y_{t-n+1} … y_{t-1})``: n-grams of a class, then of all classes; as ``Generator``.

    A class is the whole vector x, known again by a fingerprint of 64 bits; one that training never saw has
    the n-grams of all. A distribution that is fed instead of a token counts as its most probable one.
    """

    mixing: Tensor
    classes: Tensor

    def __init__(self, P: int, V: int, *, order: int) -> None:
        super().__init__()
        self.V = V
        odd = np.random.PCG64(P).random_raw(P) | np.uint64(1)
        self.register_buffer("mixing", torch.from_numpy(odd.view(np.int64)))
        self.register_buffer("classes", torch.zeros(0, dtype=torch.int64))
        depth = check_size("order", order) - 1
        self.all = Backoff(V, depth)
        self.each = Backoff(V, depth + 1)

    def fit(self, batches: Batches) -> None:
        """Count batches of class vectors (B, P), tokens before (B, T), tokens (B, T) and lengths (B,)."""
        depth = self.all.depth
        self.classes = torch.cat([self._fingerprints(x) for x, *_ in batches()]).unique()

        def events() -> Iterator[tuple[Tensor, Tensor]]:
            for x, previous, tokens, lengths, *_ in batches():
                contexts, _ = histories(previous, lengths, None, depth)
                yield real(self._with_class(self._class(x), contexts), lengths), real(tokens, lengths)

        self.all.fit(lambda: ((contexts[:, 1:], tokens) for contexts, tokens in events()))
        self.each.fit(events)

    def start(self, x: Tensor) -> Any:
        """The state before the first token: classes (B,), and the last tokens (B, n - 1), none as yet."""
        return self._class(x), torch.full((len(x), self.all.depth), NOTHING, device=x.device)

    def forward(self, x: Tensor, previous: Tensor, lengths: Tensor) -> Tensor:
        """Log-probabilities (B, T, V) of each token, given the true ones before it (B, T)."""
        contexts, _ = histories(previous, lengths, None, self.all.depth)
        return self._log_probs(self._class(x), contexts)

    def step(self, previous: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities (B, V) after one more token: numbers (B,), or distributions (B, V)."""
        classes, past = state
        ids = previous.argmax(-1) if previous.is_floating_point() else previous
        contexts, past = histories(ids[:, None], None, past, self.all.depth)
        return self._log_probs(classes, contexts)[:, 0], (classes, past)

    def _log_probs(self, classes: Tensor, contexts: Tensor) -> Tensor:
        nodes = self.each.find_nodes(self._with_class(classes, contexts)).flatten(0, 1)
        base = self.all.distribution(self.all.find_nodes(contexts).flatten(0, 1))
        p = self.each.distribution(nodes, base)
        return p.log_().view(*contexts.shape[:2], self.V)

    def _with_class(self, classes: Tensor, contexts: Tensor) -> Tensor:
        return torch.cat([classes[:, None, None].expand(-1, contexts.shape[1], 1), contexts], -1)

    def _class(self, x: Tensor) -> Tensor:
        """The numbers of class vectors (B, P): their places among the known fingerprints."""
        return numbers_of(self._fingerprints(x), self.classes)

    def _fingerprints(self, x: Tensor) -> Tensor:
        bits = (x.float() + 0.0).view(torch.int32).long()  # + 0.0: there is one zero, not two
        return ((bits + 1) * self.mixing).sum(-1)


def histories(ids: Tensor, lengths: Tensor | None, past: Tensor | None, n: int) -> tuple[Tensor, Tensor]:
    """For each position of ids (B, T) the last n, itself first: (B, T, n); and the last n of all: (B, n).

    >>> contexts, past = histories(torch.tensor([[5, 6, 7]]), torch.tensor([2]), None, 2)
    >>> contexts.tolist(), past.tolist()
    ([[[5, -1], [6, 5], [7, 6]]], [[5, 6]])
    """
    B, T = ids.shape
    wide = torch.cat([ids.new_full((B, n), NOTHING) if past is None else past, ids], 1)
    contexts = [wide[:, n - k : n - k + T] for k in range(n)]
    ends = torch.full((B,), T, device=ids.device) if lengths is None else lengths.to(ids.device)
    last = wide.gather(1, ends[:, None] + torch.arange(n, device=ids.device))
    return torch.stack(contexts, -1) if n else ids.new_zeros(B, T, 0), last


def real(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, …) without its padding: (N, …)."""
    flat = x.flatten(0, 1)
    return flat if lengths is None else flat[real_rows(lengths, x.shape[1], x.device)]
