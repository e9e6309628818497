"""The peer: an attention encoder–decoder as one writes it in plain PyTorch, with ``nn.LSTM``.

It is meant to be good code of its kind: sources are packed, keys are projected once a source, the softmax
over the vocabulary is one product for all steps in training, a beam shares the memory of its source, and
decoding runs without gradients.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, UNKNOWN, START, END = range(4)
NEVER = [PAD, UNKNOWN, START]  # are not written

State = tuple[Tensor, Tensor]
Memory = tuple[Tensor, Tensor, Tensor]  # values (B, S, 2H), keys (B, S, H), mask (B, S)


class Plain(nn.Module):
    """Bidirectional encoder, attention, one-layer decoder; ``before`` (additive) or ``after`` (bilinear)."""

    def __init__(self, V_source: int, V_target: int, E: int, H: int, *, before: bool) -> None:
        super().__init__()
        self.before = before
        self.source = nn.Embedding(V_source, E)
        self.target = nn.Embedding(V_target, E)
        self.encoder = nn.LSTM(E, H, bidirectional=True, batch_first=True)
        self.start = nn.Linear(4 * H, 2 * H)
        self.decoder = nn.LSTM(E + 2 * H * before, H, batch_first=True)
        self.of_keys = nn.Linear(2 * H, H, bias=before)
        if before:
            self.of_query = nn.Linear(H, H, bias=False)
            self.v = nn.Parameter(torch.randn(H) * H**-0.5)
        self.combine = nn.Linear(3 * H, H)
        self.output = nn.Linear(H, V_target)

    def read(self, ids: Tensor, lengths: Tensor) -> tuple[Memory, State]:
        """What attention looks at, and where the decoder starts."""
        packed = pack_padded_sequence(self.source(ids), lengths, batch_first=True, enforce_sorted=False)
        outputs, (h, c) = self.encoder(packed)
        values, _ = pad_packed_sequence(outputs, batch_first=True)
        start = torch.tanh(self.start(torch.cat([h[0], c[0], h[1], c[1]], -1)))
        h0, c0 = start[None].chunk(2, -1)
        mask = torch.arange(values.shape[1]) < lengths[:, None]
        return (values, self.of_keys(values), mask), (h0.contiguous(), c0.contiguous())

    def look(self, query: Tensor, memory: Memory) -> Tensor:
        """Context (B, T, 2H) of queries (B, T, H)."""
        values, keys, mask = memory
        if self.before:
            scores = torch.tanh(self.of_query(query)[:, :, None] + keys[:, None]) @ self.v
        else:
            scores = query @ keys.mT
        return scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1) @ values

    def forward(self, ids: Tensor, lengths: Tensor, previous: Tensor) -> Tensor:
        """Logits (B, T, V) with the truth fed."""
        memory, state = self.read(ids, lengths)
        x = self.target(previous)
        if not self.before:
            y, _ = self.decoder(x, state)
            return self.predict(y, self.look(y, memory))
        ys, contexts = [], []
        for x_t in x.split(1, 1):
            context = self.look(state[0][0][:, None], memory)
            y, state = self.decoder(torch.cat([x_t, context], -1), state)
            ys.append(y)
            contexts.append(context)
        return self.predict(torch.cat(ys, 1), torch.cat(contexts, 1))

    def step(self, tokens: Tensor, state: State, memory: Memory) -> tuple[Tensor, State]:
        """Logits (N, V) after one more token (N,), and the state; a source has N / B rows, side by side."""
        x = self.target(tokens)[:, None]
        if self.before:
            context = self.look_together(state[0][0], memory)
            y, state = self.decoder(torch.cat([x, context], -1), state)
        else:
            y, state = self.decoder(x, state)
            context = self.look_together(y[:, 0], memory)
        return self.predict(y, context)[:, 0], state

    def look_together(self, rows: Tensor, memory: Memory) -> Tensor:
        """Context (N, 1, 2H) of rows (N, H): those of one source are so many queries of one memory."""
        context = self.look(rows.unflatten(0, (len(memory[0]), -1)), memory)
        return context.flatten(0, 1)[:, None]

    def predict(self, y: Tensor, context: Tensor) -> Tensor:
        logits: Tensor = self.output(torch.tanh(self.combine(torch.cat([y, context], -1))))
        return logits


def loss(model: Plain, ids: Tensor, lengths: Tensor, previous: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of a real target token."""
    logits = model(ids, lengths, previous)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD)


@torch.no_grad()
def greedy(model: Plain, ids: Tensor, lengths: Tensor, *, longest: int) -> list[list[int]]:
    """All rows go on until the last one has ended."""
    memory, state = model.read(ids, lengths)
    tokens = torch.full((len(ids),), START)
    done = torch.zeros(len(ids), dtype=torch.bool)
    found = []
    for _ in range(longest):
        logits, state = model.step(tokens, state, memory)
        logits[:, NEVER] = -torch.inf
        tokens = logits.argmax(-1)
        found.append(tokens)
        done |= tokens == END
        if done.all():
            break
    return [cut(row) for row in torch.stack(found, 1).tolist()]


@torch.no_grad()
def beam(model: Plain, ids: Tensor, lengths: Tensor, *, longest: int, K: int) -> list[list[int]]:
    """K rows for every source until the last one is done: a sequence that ends leaves its row empty.

    So K sequences of each source finish, and the one with the greatest mean log probability is taken.
    """
    B = len(ids)
    memory, (h, c) = model.read(ids, lengths)
    state = (h.repeat_interleave(K, 1), c.repeat_interleave(K, 1))
    tokens, first = torch.full((B * K,), START), torch.arange(B)[:, None] * K
    scores = torch.full((B, K), -torch.inf)  # −∞: an empty row
    scores[:, 0] = 0.0
    history = torch.empty(B, K, 0, dtype=torch.long)
    room = torch.full((B, 1), K)
    best = torch.full((B,), -torch.inf)
    found: list[list[int]] = [[] for _ in range(B)]
    for length in range(1, longest + 1):
        logits, state = model.step(tokens, state, memory)
        log_probs = logits.log_softmax(-1)
        log_probs[:, NEVER] = -torch.inf
        V = log_probs.shape[-1]
        scores, places = (scores[..., None] + log_probs.view(B, K, V)).flatten(1).topk(K)
        scores = scores.masked_fill(torch.arange(K) >= room, -torch.inf)
        rows, chosen = places // V, places % V
        history = torch.cat([history.gather(1, rows[..., None].expand_as(history)), chosen[..., None]], -1)
        over = (scores > -torch.inf) & ((chosen == END) | (length == longest))
        if over.any():
            mean, row = (scores / length).masked_fill(~over, -torch.inf).max(1)
            for i in (mean > best).nonzero()[:, 0].tolist():
                found[i] = cut(history[i, row[i]].tolist())
            best = torch.maximum(best, mean)
            room -= over.sum(1, keepdim=True)
            scores = scores.masked_fill(over, -torch.inf)
            if (scores == -torch.inf).all():
                break
        index = (first + rows).flatten()
        state = (state[0][:, index], state[1][:, index])
        tokens = chosen.flatten()
    return found


def cut(row: list[int]) -> list[int]:
    """What comes before the end marker."""
    return row[: row.index(END)] if END in row else row
