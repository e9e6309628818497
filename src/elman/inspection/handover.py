"""What a decoder takes from its encoder, and how the gradients of many losses cross it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor

from elman.attention.base import Attention, Memory
from elman.models.seq2seq import Seq2Seq, Source
from elman.tensors.nested import map_tensors, tensors_in


@dataclass(eq=False)
class Look:
    """One call of attention with T queries: scores and weights (1, T, S), contexts (1, T, ·).

    by_key: (T, S, ·) ∂score_ts/∂key_s; None where a score depends on more than one query and one key.
    """

    memory: Memory
    scores: Tensor
    by_key: Tensor | None
    weights: Tensor
    context: Tensor


@dataclass(eq=False)
class Handover:
    """What a watched model computed between its two networks, as long as that is noted.

    source: what the encoder gave. looks: what attention found in it, call by call. blind: contexts are zeros.
    """

    looks: list[Look] = field(default_factory=list)
    source: Source | None = None
    noted: bool = True
    blind: bool = False

    def watch(self, model: Seq2Seq) -> None:
        read = model.read_vectors

        def watched_read(x: Tensor, lengths: Tensor) -> Source:
            # Copies: nothing that is handed over lies on the way of another part of it.
            source = map_tensors(torch.clone, read(x, lengths))
            if self.noted:
                self.source = source
            return source

        model.__dict__["read_vectors"] = watched_read
        if model.attention is not None:
            self._watch_attention(model.attention)

    def _watch_attention(self, attention: Attention) -> None:
        score, forward = attention.score, attention.forward
        local = type(attention).forward is Attention.forward and not attention.sequential
        last: list[tuple[Tensor, Tensor | None]] = []

        def watched_score(query: Tensor, keys: Tensor, previous: Tensor | None) -> Tensor:
            found = score(query, keys, previous)
            linear = _linear(score, query, keys, found) if local and torch.is_grad_enabled() else None
            last[:] = [(found, None) if linear is None else linear]
            return last[0][0]

        def watched_forward(
            query: Tensor, memory: Memory, previous: Tensor | None = None
        ) -> tuple[Tensor, Tensor]:
            context, weights = forward(query, memory, previous)
            if self.noted:
                # Whoever finds weights in a way of his own has no scores but their logarithms.
                scores, by_key = last.pop() if last else (weights.log(), None)
                self.looks.append(Look(memory, scores, by_key, weights, context))
            return torch.zeros_like(context) if self.blind else context, weights

        attention.__dict__["score"], attention.__dict__["forward"] = watched_score, watched_forward

    def pulled(self, losses: Tensor, far: Sequence[Tensor], near: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients (L, …) of losses (L,) by states of the encoder, and by those of the decoder.

        They go to what was handed over first. What attention says to keys and values is one product over all
        of its steps: added up step by step, arrays of L × S numbers a unit would be read and written T times.
        """
        rows = torch.eye(len(losses), dtype=losses.dtype, device=losses.device)
        if self.source is None:
            return gradients([losses], [*far, *near], [rows])
        memory, handed = self.source.memory, tensors_in((self.source.state, self.source.context))
        inside = [one for look in self.looks for one in (look.scores, look.context)]
        local = all(look.by_key is not None for look in self.looks)
        if memory is not None and not local:
            handed, inside = [*handed, memory.keys, memory.values], []
        found = iter(gradients([losses], [*near, *handed, *inside], [rows]))
        to_near, said = list(islice(found, len(near))), list(islice(found, len(handed)))
        if memory is not None and local:
            handed, said = (
                [*handed, memory.keys, memory.values],
                [*said, *self._said_to_memory(found, len(losses))],
            )
        known = [(to, what) for to, what in zip(handed, said, strict=True) if what is not None]
        return [*gradients([to for to, _ in known], far, [what for _, what in known]), *to_near]

    def _said_to_memory(self, found: Iterator[Tensor | None], L: int) -> list[Tensor]:
        """(L, 1, S, ·) to keys and to values, of what scores and contexts were told (L, 1, T, ·)."""
        nodes = [(look.scores, look.context) for look in self.looks]
        said = [
            [node.new_zeros(L, *node.shape) if (one := next(found)) is None else one for node in pair]
            for pair in nodes
        ]
        scores, contexts = (torch.cat(part, 2)[:, 0] for part in zip(*said, strict=True))
        by_key = torch.cat([look.by_key for look in self.looks if look.by_key is not None])  # (T, S, ·)
        weights = torch.cat([look.weights.detach() for look in self.looks], 1)[0]  # (T, S)
        keys = scores.permute(2, 0, 1) @ by_key.transpose(0, 1)  # (S, L, ·)
        return [keys.transpose(0, 1)[:, None], (weights.T @ contexts)[:, None]]


def _linear(
    score: Callable[[Tensor, Tensor, Tensor | None], Tensor], query: Tensor, keys: Tensor, found: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Scores with the same values and derivatives, linear in query and keys, and by_key of them.

    None where a score is not of one query and one key alone.
    """
    scores, by_key = [], []
    S = found.shape[2]
    for t, q in enumerate(query[0].split(1)):  # (1, ·)
        pair = [one.detach().expand(S, -1)[:, None].clone().requires_grad_() for one in (q, keys[0])]
        alone = score(pair[0], pair[1], None)
        if alone.shape != (S, 1, 1) or not torch.allclose(alone[:, 0, 0], found[0, t], rtol=1e-9, atol=1e-12):
            return None
        Q, K = torch.autograd.grad(alone.sum(), pair, materialize_grads=True)  # (S, 1, ·)
        moved = (q - q.detach()) @ Q[:, 0].T + ((keys - keys.detach())[0] * K[:, 0]).sum(-1)
        scores.append(found[0, t].detach() + moved)  # (1, S)
        by_key.append(K[:, 0])
    return torch.stack(scores, 1), torch.stack(by_key)


def gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], rows: Sequence[Tensor]
) -> list[Tensor | None]:
    """By input (L, …) what so many gradients by the outputs (L, …) say; None: nothing.

    By one sweep; where that cannot be, one by one.
    """
    pairs = [pair for pair in zip(outputs, rows, strict=True) if pair[0].requires_grad]
    wanted = [one for one in inputs if one.requires_grad]
    if not pairs or not wanted:
        return [None] * len(inputs)
    reached, vectors = [to for to, _ in pairs], [row for _, row in pairs]
    options = {"retain_graph": True, "allow_unused": True}
    found: list[Tensor | None]
    try:
        found = list(torch.autograd.grad(reached, wanted, vectors, is_grads_batched=True, **options))
    except RuntimeError:  # an operation of a user's cell that cannot be batched
        each_row = [
            torch.autograd.grad(reached, wanted, row, **options) for row in zip(*vectors, strict=True)
        ]
        found = [None if one[0] is None else torch.stack(one) for one in zip(*each_row, strict=True)]
    each = iter(found)
    return [next(each) if one.requires_grad else None for one in inputs]
