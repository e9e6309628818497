"""Encoder and decoder: one network reads the source, another writes the output (rows E1–E6)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from elman.attention.base import Attention, Memory
from elman.config import ModelSettings
from elman.errors import ArgumentError
from elman.layers.bridge import Bridge
from elman.layers.decoder import Decoder
from elman.layers.rnn import RNN
from elman.layers.stepper import Stepper
from elman.models.embedding import Tokens
from elman.models.encoder import Dropout, Encoder, make_network
from elman.registry import ATTENTIONS, construct
from elman.tensors.draws import dropout, step_dropout
from elman.tensors.products import affine, apply_layer
from elman.tensors.rows import Groups, RealSteps, real_rows
from elman.tensors.tracing import opaque

KEPT = 0.75  # share of the sources that must still be in use, or the others are dropped


class Source(NamedTuple):
    """All that a decoder may know of a batch of sources; rows on axis 0.

    memory: what attention looks at. context (B, ·): what every step reads. state: where the decoder starts.
    """

    memory: Memory | None
    context: Tensor | None
    state: Any


class DecoderState(NamedTuple):
    """A decoder between two steps; rows on axis 0.

    state: of the recurrence. readout (N, ·): what the last step gave, if it is fed back.
    weights (N, S): where attention looked last, if it wants to know.
    examples (N,): the row of the source that each row belongs to. None: all sources have equally many rows,
        side by side.
    """

    state: Any
    readout: Tensor | None
    weights: Tensor | None
    examples: Tensor | None


class Seq2Seq(nn.Module):
    """``h^enc = RNN*(x)``; ``h_0^dec`` from ``h_n^enc``; ``h_t^dec = g(y_{t-1}, h_{t-1}^dec, c)``; softmax.

    c is nothing, the last state of the encoder at every step, or what attention finds: asked by the
    previous state and entering the new one (``before``), or asked by the new state (``after``), in which
    case the whole decoder runs at once in training.
    """

    def __init__(
        self,
        source: Tokens,
        target: Tokens | None,
        encoder: ModelSettings,
        decoder: ModelSettings | None,
        *,
        start: str = "transform",
        context: str = "start",
        attention: str = "none",
        attention_options: Mapping[str, Any] | None = None,
        placement: Literal["before", "after"] = "before",
        feeding: bool = False,
        tied: bool = False,
    ) -> None:
        """
        Args:
            target: None: the source's embedding serves both sides.
            decoder: None: one network reads and writes (row E6).
            feeding: the last readout is part of the next input.
            tied: the output weights are the target's embedding.
        """
        super().__init__()
        self.source, self._target = source, target
        self.encoder = Encoder(source.output_size, encoder, causal=False)
        self.before_placed, self.feeding, self.tied = placement == "before", feeding, tied
        width, E = self.target.output_size, self.encoder.output_size
        embedding = self.target.embedding
        settings = decoder or encoder
        hidden = settings.hidden or 1
        H = hidden[-1] if isinstance(hidden, list) else hidden
        R = embedding.output_size if tied else H  # of the readout
        self.every_step = context == "every-step"
        looks = attention != "none"
        width += E * (self.every_step + (looks and self.before_placed)) + R * feeding
        self._rnn = None if decoder is None else cast(RNN, make_network(width, decoder, causal=True))
        network = self.encoder.network
        if isinstance(network, RNN):
            self.bridge: Bridge | OutputBridge = Bridge(network, self.rnn, policy=start)
        else:
            self.bridge = OutputBridge(E, self.rnn, start)
        H = self.rnn.output_size
        self.attention: Attention | None = None
        if looks:
            kind = ATTENTIONS.find(attention)
            self.attention = construct(kind, H, E, options=attention_options, named="attention_options")
        self.combine = nn.Linear(H + E * looks, R) if looks or R != H else None
        self.weight = None if tied else nn.Parameter(torch.randn(embedding.V, R) * R**-0.5 * 0.1)
        self.bias = nn.Parameter(torch.zeros(embedding.V))
        self.drop_input = Dropout(settings.input_dropout or 0.0, settings.locked)
        self.dropout = settings.dropout or 0.0

    @property
    def target(self) -> Tokens:
        return self._target or self.source

    @property
    def rnn(self) -> RNN:
        """The decoder's network."""
        return self._rnn or cast(RNN, self.encoder.network)

    @property
    def parallel(self) -> bool:
        """Whether all steps can be computed at once when the truth is fed."""
        if self.feeding:
            return False
        return self.attention is None or not (self.before_placed or self.attention.sequential)

    def read(self, ids: Tensor, lengths: Tensor) -> Source:
        """Sources (B, S), read by the encoder."""
        return self.read_vectors(self.source(ids), lengths)

    def read_vectors(self, x: Tensor, lengths: Tensor) -> Source:
        """The same for the vectors (B, S, ·) of sources."""
        outputs, last, state = self.encoder(x, lengths)
        memory = None if self.attention is None else self.attention.remember(outputs, lengths)
        start = self.bridge(state if isinstance(self.bridge, Bridge) else last)
        return Source(memory, last if self.every_step else None, start)

    def forward(self, source: Source, previous: Tensor, lengths: Tensor | None) -> Tensor:
        """Readouts (N, ·) of all real positions, row by row, given the true tokens before each (B, T).

        Without lengths all positions are real: nothing after a position changes what it gives.
        """
        B, T = previous.shape
        steps = _real_steps(lengths, B, T, previous.device)
        x = self.drop_input(self.target(previous))
        if not self.parallel:
            found = self._at_once(source, x, lengths, steps)
            if found is None:
                found = steps.rows(torch.stack(list(self._walk(source, B, T, x.unbind(1).__getitem__)), 1))
            return self._dropped(found, T)
        if source.context is not None:
            x = torch.cat([x, source.context[:, None].expand(-1, T, -1)], -1)
        outputs = self.rnn(x, lengths, source.state).outputs
        rows = steps.rows(outputs)
        if self.attention is None or source.memory is None:
            return self._dropped(self._readout(rows, None), T)
        context, _ = self.attention(outputs, source.memory)
        return self._dropped(self._readout(rows, steps.rows(context)), T)

    @opaque
    def _at_once(self, source: Source, x: Tensor, lengths: Tensor | None, steps: RealSteps) -> Tensor | None:
        """Readouts (N, ·) of all real positions by one walk; None where the step goes by itself."""
        if self.decoder.obstacle() is not None:
            return None
        T, memory = x.shape[1], source.memory
        if source.context is not None:
            x = torch.cat([x, source.context[:, None].expand(-1, T, -1)], -1)
        sources = None if memory is None else memory.mask.sum(1)
        found = self.decoder.run(
            x, None if steps.real is None else lengths, steps, source.state, memory, sources
        )
        if found is None or found.readouts is not None:
            return None if found is None else found.readouts
        if memory is None or found.weights is None:
            return self._readout(found.outputs, None)
        return self._readout(found.outputs, steps.rows(steps.padded(found.weights) @ memory.values))

    @property
    def decoder(self) -> Decoder:
        """The decoder's recurrence as one step, where it is one."""
        kept: Decoder | None = self.__dict__.get("_decoder")
        parts = (self.rnn, self.attention, self.before_placed, self.feeding, self.combine)
        if kept is None or kept.parts != parts:
            kept = self.__dict__["_decoder"] = Decoder(*parts)
        return kept

    def mixed(self, source: Source, previous: Tensor, lengths: Tensor | None, truth: Tensor) -> Tensor:
        """Logits (N, V) of all real positions where only some of the tokens before are true ones (row E3).

        Where ``truth`` (B, T) is False, the decoder reads the argmax of its own last output, without
        gradient. The first token is always as given.
        """
        B, T = previous.shape
        like = self.target(previous[:, :1]).expand(-1, T, -1)
        kept = self.drop_input(torch.ones_like(like))
        logits: list[Tensor] = []

        def feed(t: int) -> Tensor:
            ids = previous[:, t]
            if t:
                ids = ids.where(truth[:, t], logits[-1].detach().argmax(-1))
            vectors: Tensor = self.target(ids) * kept[:, t]
            return vectors

        for readout in self._walk(source, B, T, feed):
            logits.append(self.logits(dropout(readout, self.dropout, self.training)))
        return _real_steps(lengths, B, T, previous.device).rows(torch.stack(logits, 1))

    def logits(self, readouts: Tensor) -> Tensor:
        """(N, V) for readouts (N, ·)."""
        return affine(readouts, self.output_weight.t(), self.bias)

    @property
    def output_weight(self) -> Tensor:
        weight = self.target.embedding.weight if self.tied else self.weight
        assert weight is not None
        return weight

    def begin(self, source: Source) -> DecoderState:
        """Before the first step; a row of the source may later be continued by several rows."""
        examples = torch.arange(len(first_of(source.state)), device=self.bias.device)
        return DecoderState(source.state, self._no_readout(len(examples)), None, examples)

    def step(
        self, tokens: Tensor, now: DecoderState, source: Source
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """Log-probabilities (N, V) of what follows the tokens (N,), the state then, and attention (N, S)."""
        readout, now, weights = self._advance(self.target(tokens), now, source, self.rnn.step)
        return self.logits(readout).log_softmax(-1), now, weights

    def _walk(self, source: Source, B: int, T: int, feed: Callable[[int], Tensor]) -> Iterator[Tensor]:
        """Readouts (B, ·) step by step; ``feed`` gives the vectors (B, ·) that a step reads."""
        stepper: Stepper | None = None
        now = DecoderState(source.state, self._no_readout(B), None, None)
        for t in range(T):
            x = feed(t)
            stepper = stepper or Stepper(self.rnn, x.new_empty(B, self.rnn.input_size), steps=T)
            readout, now, _ = self._advance(x, now, source, stepper.step)
            yield readout

    def _advance(
        self, x: Tensor, now: DecoderState, source: Source, step: Callable[..., Any]
    ) -> tuple[Tensor, DecoderState, Tensor | None]:
        """One step of the decoder: readout (N, ·), the state after it, and where attention looked."""
        parts, context, weights = [x], None, None
        if source.context is not None:
            static = source.context
            parts.append(repeated(static, len(x)) if now.examples is None else static[now.examples])
        if self.attention is not None and self.before_placed:
            top = self.rnn.cells[-1][0].O(now.state[-1])  # type: ignore[index]
            context, weights = self._look(top, now, source)
            parts.append(context)
        if now.readout is not None:
            parts.append(now.readout)
        y, state = step(torch.cat(parts, -1) if len(parts) > 1 else x, now.state)
        if self.attention is not None and not self.before_placed:
            context, weights = self._look(y, now, source)
        readout = self._readout(y, context)
        kept = weights if self.attention is not None and self.attention.sequential else None
        return readout, DecoderState(state, readout if self.feeding else None, kept, now.examples), weights

    def _look(self, query: Tensor, now: DecoderState, source: Source) -> tuple[Tensor, Tensor]:
        """Context (N, ·) and weights (N, S) for queries (N, ·)."""
        assert self.attention is not None
        assert source.memory is not None
        return look_together(self.attention, query, source.memory, now.weights, now.examples)

    def _readout(self, y: Tensor, context: Tensor | None) -> Tensor:
        """``tanh(W [h; c] + b)`` with attention, otherwise the output itself, fitted to tied weights."""
        if self.combine is None:
            return y
        if context is None:
            return apply_layer(self.combine, y)
        return torch.tanh(apply_layer(self.combine, torch.cat([y, context], -1)))

    def _dropped(self, readouts: Tensor, T: int) -> Tensor:
        return step_dropout(readouts, self.dropout, self.training, T)

    def _no_readout(self, B: int) -> Tensor | None:
        R = self.output_weight.shape[1]
        return self.bias.new_zeros(B, R) if self.feeding else None

    def describe(self) -> list[str]:
        """How the two networks hang together, with the shapes."""
        lines = [f"start of the decoder, {line}" for line in self.bridge.describe()]
        if self.attention is not None:
            lines.append(f"attention: {self.attention.describe()}")
        elif self.bridge.policy == "zero" and not self.every_step:
            lines.append("nothing of the source reaches the decoder: set attention, context or start")
        obstacle = None if self.parallel else self.decoder.obstacle()
        way = "all steps at once" if obstacle is None else f"step by step, since {obstacle}"
        return [*lines, f"training of the decoder: {way}"]


def look_together(
    attention: Attention, query: Tensor, memory: Memory, previous: Tensor | None, examples: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention of rows (N, ·) of which several, side by side, may look at the same example's memory.

    Rows of one example ask as so many queries of one memory, which is not copied for each of them. Without
    ``examples``, all memories have equally many rows.
    """
    if attention.sequential and examples is not None:  # every row has looked elsewhere before
        memory, examples = Memory(*(part[examples] for part in memory)), None
    elif attention.sequential:
        memory = Memory(*(repeated(part, len(query)) for part in memory))
    if examples is None and len(memory.mask) < len(query):
        context, weights = attention(query.unflatten(0, (len(memory.mask), -1)), memory, previous)
        return context.flatten(0, 1), weights.flatten(0, 1)
    groups = None if examples is None else Groups.of(examples)
    if groups is None or (groups.K == 1 and len(memory.mask) == len(query)):
        context, weights = attention(query[:, None], memory, previous)
        return context[:, 0], weights[:, 0]
    together = query.new_zeros(len(memory.mask), groups.K, query.shape[1])
    together[examples, groups.slot] = query
    context, weights = attention(together, memory)
    return context[examples, groups.slot], weights[examples, groups.slot]


def repeated(rows: Tensor, N: int) -> Tensor:
    """Every row (U, …) as often as it takes for N rows, side by side."""
    U = len(rows)
    return rows if U == N else rows[:, None].expand(-1, N // U, *rows.shape[1:]).flatten(0, 1)


class OutputBridge(nn.Module):
    """Starts a decoder from the last output of an encoder that has no state of its own.

    * ``transform``: every state of every layer is ``tanh(W y + b)`` of that output.
    * ``zero``: zeros.
    """

    def __init__(self, width: int, target: RNN, policy: str) -> None:
        super().__init__()
        if policy == "copy":
            raise ArgumentError("start 'copy' needs a recurrent encoder, which has a state; take 'transform'")
        self.policy, self.target = policy, target.cell_class.State
        self.widths, count = target.hidden_sizes, len(target.cell_class.state)
        self.networks = nn.ModuleList(
            nn.Linear(width, count * H) for H in (self.widths if policy == "transform" else ())
        )

    def forward(self, last: Tensor) -> Any:
        """The target's initial state for the last outputs (B, width)."""
        B, count = len(last), len(self.target._fields)
        if self.policy == "zero":
            return tuple(self.target(*(last.new_zeros(B, H) for _ in range(count))) for H in self.widths)
        made = (torch.tanh(network(last)).chunk(count, -1) for network in self.networks)
        return tuple(self.target(*parts) for parts in made)

    def describe(self) -> list[str]:
        """One line a layer of the target: where its start comes from."""
        from_what = "zero" if self.policy == "zero" else "transform of the encoder's last output"
        return [f"layer {depth}: {from_what} ({width})" for depth, width in enumerate(self.widths)]


class ActiveSources:
    """Sources of which only those are kept that somebody still asks for.

    Rows are dropped when a quarter of them is done with, not at every step: copying what is left costs more
    than looking at a few rows too many.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        first = first_of(source.state)
        self.examples = torch.arange(len(first), device=first.device)

    def at(self, examples: Tensor) -> tuple[Source, Tensor]:
        """The sources, and the row in them of each of the examples (N,), which rise and only become fewer."""
        live = examples.unique_consecutive()
        if len(live) < KEPT * len(self.examples):
            index = torch.searchsorted(self.examples, live)
            memory, context, _ = self.source
            memory = None if memory is None else Memory(*(part[index] for part in memory))
            self.source = Source(memory, None if context is None else context[index], None)
            self.examples = live
        return self.source, torch.searchsorted(self.examples, examples)


def _real_steps(lengths: Tensor | None, B: int, T: int, device: torch.device) -> RealSteps:
    real = None if lengths is None else real_rows(lengths, T, device)
    return RealSteps(B, T, None if real is None or len(real) == B * T else real)


def first_of(state: Any) -> Tensor:
    """The first tensor of a nested state: its rows and its device are those of all."""
    while not isinstance(state, Tensor):
        state = state[0]
    return state
