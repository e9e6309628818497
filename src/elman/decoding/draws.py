"""Drawing tokens: from whole distributions, with and without replacement."""

import torch
from torch import Tensor

from elman.decoding.candidates import chunk_parts, chunk_tokens, chunk_width
from elman.errors import ArgumentError
from elman.tensors.checks import check_number, check_size

BELOW_ONE = 1 - 2**-52


def make_generator(seed: int | None) -> torch.Generator:
    """A source of draws, on the CPU, so that all devices get the same; None: another one every time."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(check_size("seed", seed, least=0))
    return generator


def check_temperature(temperature: float) -> float:
    number = check_number("temperature", temperature)
    if not 0 < number < torch.inf:
        raise ArgumentError(f"temperature is {temperature!r}; it must be above 0 (greedy is the limit)")
    return number


def tempered(log_probs: Tensor, temperature: float) -> Tensor:
    """(N, V) weights p^(1/temperature), the greatest of each row 1."""
    numbers = torch.finfo(log_probs.dtype)  # beyond them, the temperature itself would be 0 or infinite
    divisor = min(max(temperature, numbers.tiny), numbers.max)
    return log_probs.sub(log_probs.amax(1, keepdim=True)).div_(divisor).exp_()


def uniform(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """Numbers of [0, 1) in float64."""
    drawn = torch.rand(shape, dtype=torch.float64, generator=generator, device=generator.device)
    return drawn.to(device)


class Urn:
    """Weights (N, V) of tokens; a token is drawn from every row in proportion to them.

    First its chunk is drawn, then the token in there: sums are exact in float64, the weights are not copied.
    """

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights
        chunks, rest = chunk_parts(weights)
        sums = [chunks.sum(-1), *([rest.sum(1, keepdim=True)] if rest.shape[1] else [])]
        self.sums = torch.cat(sums, 1).double()  # (N, C)

    @property
    def total(self) -> Tensor:
        """(N,) all that is in the urn."""
        return self.sums.sum(1)

    def draw(self, times: int, generator: torch.Generator) -> Tensor:
        """(N, times) tokens, drawn independently."""
        N = len(self.weights)
        below = self.sums.cumsum(1)
        drawn = uniform((N, times), generator, below.device) * below[:, -1:]
        chunks = first_above(below, drawn)
        inside = drawn - (below - self.sums).gather(1, chunks)
        tokens, weights = self._chunks(chunks)  # (N, times, width)
        places = first_above(weights.cumsum(-1), inside[..., None])
        return tokens.gather(-1, places).squeeze(-1)

    def remove(self, tokens: Tensor) -> Tensor:
        """Take a token (N,) out of every row; the weights (N,) that they had."""
        _, V = self.weights.shape
        taken = self.weights.gather(1, tokens[:, None]).squeeze(1)
        self.weights.scatter_(1, tokens[:, None], 0.0)
        chunks = tokens[:, None] // chunk_width(V)
        self.sums.scatter_(1, chunks, self._chunks(chunks)[1].sum(-1))
        return taken

    def _chunks(self, chunks: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of chunks (N, times), and their weights in float64: both (N, times, width)."""
        tokens, real = chunk_tokens(chunks, self.weights.shape[1])
        weights = self.weights.gather(1, tokens.flatten(1)).view_as(tokens)
        return tokens, weights.double().masked_fill(~real, 0.0)


def first_above(sums: Tensor, values: Tensor) -> Tensor:
    """The first place where rising sums (…, M) exceed values (…, k): never one that adds nothing."""
    values = values.minimum(sums[..., -1:] * BELOW_ONE)  # sums of parts may differ in the last digit
    places = torch.searchsorted(sums.contiguous(), values.contiguous(), right=True)
    return places.clamp_max(sums.shape[-1] - 1)
