"""A small language model in training, in which only the recurrent layers differ between the contenders."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from elman.bench.cases import Case
from elman.bench.contenders import DTYPES, OURS, fresh
from elman.layers.rnn import RNN
from elman.tensors.nested import map_tensors

VOCABULARY = 10_000  # that of the Penn Treebank
DROPOUT = 0.5
CLIP = 0.25
LEARNING_RATE = 1.0

Carried = tuple["Carried | Tensor", ...]  # the state of a network, as that nests it


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, and an output that has the embedding's weights."""

    def __init__(self, rnn: nn.Module, H: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, H)
        self.rnn = rnn
        self.output = nn.Linear(H, vocabulary)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, ids: Tensor, state: Carried | None) -> tuple[Tensor, Carried]:
        x = self.dropout(self.embedding(ids))
        if isinstance(self.rnn, RNN):
            outputs, _, state = self.rnn(x, None, state)
        else:
            outputs, state = self.rnn(x, state)
        return self.output(self.dropout(outputs)), state


class Update:
    """Calling it makes one update; the state is carried on to the next, in the same memory."""

    def __init__(self, model: LanguageModel, ids: Tensor, targets: Tensor, dtype: torch.dtype) -> None:
        self.model, self.ids, self.targets, self.dtype = model, ids, targets, dtype
        self.optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
        with torch.no_grad(), self._autocast():
            _, state = model(ids, None)
        self.state = map_tensors(torch.zeros_like, state)

    def __call__(self) -> Tensor:
        self.optimizer.zero_grad()
        with self._autocast():
            scores, state = self.model(self.ids, self.state)
            loss = cross_entropy(scores.flatten(0, 1), self.targets.flatten())
        loss.backward()
        clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        with torch.no_grad():
            _copy(self.state, state)
        return loss.detach()

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.ids.device.type, self.dtype, enabled=self.dtype != torch.float32)


def build_updates(
    case: Case, device: str, *, vocabulary: int = VOCABULARY, dropout: float = DROPOUT
) -> tuple[Update, Update]:
    """Ours and the peer's, time-major, from the same weights and on the same tokens."""
    torch.manual_seed(1)
    rnn = fresh(case, OURS[case.ours], dropout)
    module = rnn.to_torch()
    module.batch_first = False
    ours, peer = (LanguageModel(each, case.H, vocabulary, dropout).to(device) for each in (rnn, module))
    for part in ("embedding", "output"):
        getattr(peer, part).load_state_dict(getattr(ours, part).state_dict())
    tokens = torch.randint(vocabulary, (case.B, case.T + 1)).to(device)
    ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    dtype = DTYPES[case.precision]
    turned_ids, turned_targets = (t.t().contiguous() for t in (ids, targets))
    return Update(ours, ids, targets, dtype), Update(peer, turned_ids, turned_targets, dtype)


def _copy(kept: Carried, new: Carried) -> None:
    for old, now in zip(kept, new, strict=True):
        if isinstance(old, Tensor):
            old.copy_(cast(Tensor, now))
        else:
            _copy(old, cast(Carried, now))
