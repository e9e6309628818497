"""Indicator features of words: how they begin and end, their shapes; found in tables by a hash."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elman.tensors.draws import bernoulli
from elman.tensors.transfer import moved
from elman.text.lexicon import LONGEST
from elman.text.vocabulary import MARKERS

AFFIX = 4  # letters of the longest beginning and ending
FACTOR = 1_000_003  # of one letter's place to the next one's in a hash
SPREAD = -7046029254386353131  # an odd number that mixes all bits into the highest
WORD, SHAPE, ENDING = 1, 3, 4 + AFFIX + 2  # places of indicators: in small letters, short, of three letters


class Indicators(nn.Module):
    """What can be seen in a word, as numbers (U, F) that are large, and 0 where a word is too short.

    In order: the word as it is written, in small letters, its shape, its short shape, its beginnings and its
    endings of one to four small letters. A shape has the kinds of the letters: capital, small, digit, or a
    character itself; in a short one, letters of one kind that stand together count once.
    """

    written: Tensor
    small: Tensor
    kinds: Tensor
    powers: Tensor

    def __init__(self, letters: Sequence[str]) -> None:
        """``letters``: by their numbers in a batch of words."""
        super().__init__()
        real = ["" if letter in MARKERS else letter for letter in letters]
        powers = [1]
        for _ in range(LONGEST + 1):
            powers.append((powers[-1] * FACTOR + 2**63) % 2**64 - 2**63)  # as int64 does it
        tables = {
            "written": [ord(letter) + 1 if letter else 1 for letter in real],
            "small": [ord(letter.lower()[0]) + 1 if letter else 1 for letter in real],
            "kinds": [_kind(letter) for letter in real],
            "powers": powers,
        }
        for name, table in tables.items():
            self.register_buffer(name, torch.tensor(table), persistent=False)

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        """Of letters (U, C) and their lengths (U,)."""
        C = letters.shape[1]
        lengths = moved(lengths, letters.device)[:, None]
        place = torch.arange(C, device=letters.device)
        real = place < lengths  # (U, C)
        powers = self.powers[:C] * real
        kinds, small = self.kinds[letters], self.small[letters]
        begun = (small * powers).cumsum(1)
        change = F.pad(kinds[:, 1:] != kinds[:, :-1], (1, 0), value=True) & real
        whole = [
            (self.written[letters] * powers).sum(1),
            begun[:, -1],
            (kinds * powers).sum(1),
            (kinds * self.powers[change.long().cumsum(1)] * change).sum(1),
        ]
        backwards = small.gather(1, (lengths - 1 - place[:AFFIX]).clamp_min(0))
        affixes = [begun[:, :AFFIX], (backwards * powers[:, :AFFIX]).cumsum(1)]
        long_enough = real[:, :AFFIX]
        wide = [F.pad(one.masked_fill(~long_enough, 0), (0, max(0, AFFIX - C))) for one in affixes]
        found = torch.cat([torch.stack(whole, 1), *wide], 1)  # (U, F)
        own = torch.arange(1, found.shape[1] + 1, device=letters.device)
        return ((found * FACTOR + own) * SPREAD).masked_fill(found == 0, 0)


class Affixes(nn.Module):
    """What the indicators of a word add to its vector: the sum of a table's rows, found by a hash.

    In training, each is left out with the given rate.
    """

    BUCKETS = 2**14

    def __init__(self, letters: Sequence[str], width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_size, self.dropout = width, dropout
        self.indicators = Indicators(letters)
        self.weight = nn.Parameter(torch.randn(self.BUCKETS, width) * 0.1)

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        """(U, ·) for the letters (U, C) of words and their lengths (U,)."""
        dropout = self.dropout if self.training else 0.0
        return hashed_sums(self.indicators(letters, lengths), self.weight, dropout=dropout)


def hashed_sums(found: Tensor, table: Tensor, *, dropout: float) -> Tensor:
    """(N, ·): of every row of numbers (N, F), the sum of the rows of a table that they are hashed to.

    Half of the numbers count negatively, so that those which meet in a row do not speak for each other in the
    mean (Weinberger et al. 2009): what training never saw would be taken for the most frequent otherwise.
    """
    mixed = (found ^ (found >> 29)) * SPREAD
    rows = (mixed >> 40) & (len(table) - 1)
    counted = mixed.sign().to(table.dtype)  # 0 where nothing is
    if dropout:
        counted = counted * bernoulli(counted, 1 - dropout) / (1 - dropout)
    if not (torch.is_grad_enabled() or table.is_cuda):  # on a GPU the other way can be recorded
        return F.embedding_bag(rows, table, per_sample_weights=counted, mode="sum")
    return torch.bmm(counted[:, None], F.embedding(rows, table)).squeeze(1)


def _kind(letter: str) -> int:
    """Of a capital, a small letter or one without case, a digit; a number of its own of anything else."""
    if not letter:
        return 4
    if letter.isupper():
        return 1
    if letter.isdigit():
        return 3
    return 2 if letter.isalpha() else 4 + ord(letter)
