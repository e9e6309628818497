"""Class to sequence: a network whose first state is a function of the class (row G1)."""

from typing import Any

import torch
from torch import Tensor, nn

from elman.config import RecurrentSettings
from elman.layers.rnn import RNN
from elman.models.embedding import Embedding
from elman.models.encoder import make_network


class Generator(nn.Module):
    """``y^h(0) = σ(W^i x)``; ``y^h(t) = R(y^h(t-1), y(t-1))``; ``y(t) = softmax(W^o y^h(t))``; no biases.

    With the Elman cell, the logistic function and no bias, R is ``σ(W^h [y^h(t-1); y(t-1)])``, the lectures'
    network. Every other cell fits: the start is the first entry of its state in all layers, the rest is zero.
    """

    def __init__(self, P: int, V: int, settings: RecurrentSettings) -> None:
        super().__init__()
        self.V = V
        self.embedding = Embedding(V, settings.embedding or 0)
        network = make_network(self.embedding.output_size, settings, causal=True)
        assert isinstance(network, RNN)
        self.rnn = network
        self.starts = nn.ModuleList(nn.Linear(P, shapes[0][0], bias=False) for shapes in network.state_shapes)
        self.output = nn.Linear(network.output_size, V, bias=False)

    def start(self, x: Tensor) -> Any:
        """The state before the first token, from the class vectors x (B, P)."""
        return tuple(
            zero._replace(**{zero._fields[0]: torch.sigmoid(first(x))})
            for first, zero in zip(self.starts, self.rnn.start(len(x)), strict=True)
        )

    def forward(self, x: Tensor, previous: Tensor, lengths: Tensor | None) -> Tensor:
        """Logits (B, T, V) of each token, given the true ones before it (B, T)."""
        logits: Tensor = self.output(self.rnn(self.embedding(previous), lengths, self.start(x)).outputs)
        return logits

    def step(self, previous: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities (B, V) after one more token: numbers (B,), or distributions (B, V)."""
        if previous.is_floating_point():
            weight = self.embedding.weight
            x = previous if weight is None else previous @ weight
        else:
            x = self.embedding(previous)
        y, state = self.rnn.step(x, state)
        return self.output(y).log_softmax(-1), state
