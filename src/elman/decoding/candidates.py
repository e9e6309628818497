"""The most probable of many continuations, exactly and fast: by chunks of the vocabulary."""

from typing import NamedTuple

import torch
from torch import Tensor

from elman.tensors.rows import Groups
from elman.tensors.transfer import fetched, moved

CHUNK = 64  # tokens whose maximum is taken first
SMALL = 512  # entries of a vocabulary up to which every token is looked at by itself


class Candidates(NamedTuple):
    """The k best continuations of U examples, best first; equals in the order of rows, then of tokens.

    examples: (U,).
    values: (U, k) log probability with the new token, in float64; −∞ where there are fewer than k.
    rows, tokens: (U, k) which live sequence is continued, and with what.
    """

    examples: Tensor
    values: Tensor
    rows: Tensor
    tokens: Tensor


def chunk_width(V: int) -> int:
    return CHUNK if V > SMALL else 1


def chunk_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """(N, V) in full chunks (N, C, width), and the rest of it (N, V mod width), without a copy."""
    _, V = x.shape
    width = chunk_width(V)
    full = V // width * width
    return x[:, :full].unflatten(1, (-1, width)), x[:, full:]


def chunk_maxima(x: Tensor) -> Tensor:
    """(N, V) → (N, C): the greatest value of each chunk."""
    if chunk_width(x.shape[1]) == 1:
        return x
    chunks, rest = chunk_parts(x)
    maxima = chunks.amax(-1)
    return torch.cat([maxima, rest.amax(1, keepdim=True)], 1) if rest.shape[1] else maxima


def chunk_tokens(chunks: Tensor, V: int) -> tuple[Tensor, Tensor]:
    """The tokens (…, width) of chunks (…), and which of them exist: the last chunk may be shorter."""
    width = chunk_width(V)
    tokens = chunks[..., None] * width + torch.arange(width, device=chunks.device)
    return tokens.clamp_max(V - 1), tokens < V


def best_tokens(log_probs: Tensor) -> Tensor:
    """(N, V) → (N,): the argmax; of equals the first."""
    V = log_probs.shape[1]
    tokens, real = chunk_tokens(chunk_maxima(log_probs).argmax(1), V)
    inside = log_probs.gather(1, tokens).masked_fill(~real, -torch.inf)
    return tokens.gather(1, inside.argmax(1, keepdim=True)).squeeze(1)


def best_candidates(log_probs: Tensor, so_far: Tensor, groups: Groups, k: int) -> Candidates:
    """The k best of all (row, token) of every example by ``so_far (N,) + log_probs (N, V)``.

    At least k tokens are as good as the k-th best chunk's maximum, so no token of another chunk is
    needed. Adding what came before keeps the order, so only maxima and chosen chunks are added up.
    """
    N, V = log_probs.shape
    maxima = groups.spread(so_far[:, None] + chunk_maxima(log_probs))  # (U, K, C)
    C = maxima.shape[2]
    places = top_places(maxima.flatten(1), k)
    rows = (groups.first[:, None] + places // C).clamp_max(N - 1)  # (U, k)
    tokens, real = chunk_tokens(places % C, V)  # (U, k, width)
    real &= (maxima.flatten(1).gather(1, places) != -torch.inf)[..., None]
    values = (so_far[rows][..., None] + log_probs[rows[..., None], tokens]).masked_fill(~real, -torch.inf)
    rows = rows[..., None].expand_as(tokens).flatten(1)
    values, tokens = values.flatten(1), tokens.flatten(1)
    best = top_places(values, k)
    values, order = values.gather(1, best).sort(stable=True, dim=1, descending=True)
    best = best.gather(1, order)
    return Candidates(groups.examples, values, rows.gather(1, best), tokens.gather(1, best))


def best_of_rows(log_probs: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best log probabilities of each row (N, V), best first, and their tokens: (N, k), with the host.

    Of equals the first tokens are taken, and stand in their order. All comes in one transfer, unless a row
    has equals of which only some are among the best, which ``topk`` takes as it likes.

    >>> best_of_rows(torch.tensor([[0.1, 0.4, 0.1, 0.4]]).log(), 3)[1]
    tensor([[1, 3, 0]])
    """
    _, V = log_probs.shape
    k = min(k, V)
    values, tokens = fetched(*log_probs.topk(min(k + 1, V), 1))
    if k < V:
        last, beyond = values[:, k - 1], values[:, k]
        tied = ((last == beyond) & (beyond != -torch.inf)).nonzero().squeeze(1)
        if len(tied):
            rows = log_probs[moved(tied, log_probs.device)].sort(stable=True, dim=1, descending=True)
            values[tied], tokens[tied] = fetched(*(part[:, : k + 1] for part in rows))
    tokens, order = tokens[:, :k].sort(1)
    values, order = values[:, :k].gather(1, order).sort(stable=True, dim=1, descending=True)
    return values, tokens.gather(1, order)


def best_candidates_apart(
    log_probs: Tensor, so_far: Tensor, groups: Groups, k: int
) -> tuple[Candidates, Tensor]:
    """As ``best_candidates`` where distributions lie on a device and ``so_far`` and groups with the host.

    The k best of an example are among the k best of each of its rows, and these alone come to the host.
    Beside the candidates stand the log probabilities (U, k) of their tokens.
    """
    N, _ = log_probs.shape
    values, tokens = best_of_rows(log_probs, k)  # (N, k)
    width = values.shape[1]
    sums = groups.spread(so_far[:, None] + values).flatten(1)  # (U, K · k)
    sums, places = (part[:, :k] for part in sums.sort(stable=True, dim=1, descending=True))
    rows = (groups.first[:, None] + places // width).clamp_max(N - 1)
    own = rows, places % width
    return Candidates(groups.examples, sums, rows, tokens[own]), values[own]


def top_places(values: Tensor, k: int) -> Tensor:
    """(U, M) → (U, min(k, M)): the places of the k greatest, rising; of equals the first ones are taken.

    >>> top_places(torch.tensor([[1.0, 3.0, 1.0, 1.0, 2.0]]), 3)
    tensor([[0, 1, 4]])
    """
    U, M = values.shape
    if k >= M:
        return torch.arange(M, device=values.device).expand(U, M)
    top = values.topk(k + 1, 1)
    places = top.indices[:, :k]
    last, beyond = top.values[:, k - 1], top.values[:, k]
    tied = (last == beyond) & (beyond != -torch.inf)  # topk takes any of equals
    if tied.any():
        places[tied] = values[tied].sort(stable=True, dim=1, descending=True).indices[:, :k]
    return places.sort(1).values
