"""What stands between vectors and heads: a recurrent network with its dropout, or a comparator."""

from typing import Any

from torch import Tensor, nn

from elman.config import ModelSettings, NetworkSettings, RecurrentSettings, options_of
from elman.errors import ConfigError
from elman.models.networks.base import Network
from elman.recurrence.contract import Unrolled
from elman.registry import NETWORKS, construct, parameters_of
from elman.tensors.draws import bernoulli, dropout


class Dropout(nn.Module):
    """Dropout on (B, T, ·): one mask a sequence if ``locked``, otherwise one a position."""

    def __init__(self, rate: float, locked: bool) -> None:
        super().__init__()
        self.rate, self.locked = rate, locked

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        if not self.locked:
            return dropout(x, self.rate)
        keep = bernoulli(x[:, :1], 1 - self.rate).div_(1 - self.rate)  # (B, 1, ·)
        return x * keep

    def extra_repr(self) -> str:
        return f"{self.rate}, {'one mask a sequence' if self.locked else 'one mask a position'}"


class Encoder(nn.Module):
    """Vectors (B, T, D) in, ``Unrolled(outputs, last, state)`` out, with dropout before, inside and after."""

    def __init__(self, input_size: int, settings: NetworkSettings, *, causal: bool) -> None:
        super().__init__()
        self.before = Dropout(settings.input_dropout or 0.0, settings.locked)
        self.after = Dropout(settings.dropout or 0.0, settings.locked)
        self.network = make_network(input_size, settings, causal=causal)
        self.output_size = int(self.network.output_size)

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Any = None) -> Unrolled:
        outputs, last, state = self.network(self.before(x), lengths, state)
        return Unrolled(self.after(outputs), self.after(last[:, None])[:, 0], state)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One step of a stream, without dropout."""
        y, state = self.network.step(x, state)
        return y, state


def make_network(input_size: int, settings: RecurrentSettings, *, causal: bool) -> Network:
    """The network that the settings name; ``causal``: its outputs should not know of later inputs."""
    name = settings.network if isinstance(settings, ModelSettings) else "rnn"
    kind: type[Network] = NETWORKS.find(name)
    known, hidden = parameters_of(kind), settings.hidden or 1
    sizes = input_size, hidden if kind.stacked or isinstance(hidden, int) else hidden[-1]
    if isinstance(settings, ModelSettings):
        options = options_of(settings, "network", sizes=("input_size", "hidden"))
    else:
        options = {key: value for key in known if (value := getattr(settings, key, None)) is not None}
        del options["hidden"]
    if "causal" in known:
        options["causal"] = causal
    network: Network = construct(kind, *sizes, options=options, named="model.network_options")
    return network


def check_forward(settings: ModelSettings) -> None:
    """A language model must not see what it predicts: a network that cannot promise that is an error."""
    kind: type[Network] = NETWORKS.find(settings.network)
    if not kind.reads_forward and "causal" not in parameters_of(kind):
        raise ConfigError(
            f"model.network is {settings.network!r}, which does not say that it sees only the past: give its "
            "constructor the option causal"
        )
