"""Weights that a model takes from those of another run: rows by token or label, layers by direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from elman.errors import ConfigError
from elman.layers.rnn import RNN
from elman.tasks.base import AnyTask, Axes
from elman.training.layer_taking import Span, take_layers
from elman.training.origin import Origin

VECTORS = ("embedding", "pretrained", "letters", "spelling", "ngrams")  # of what makes vectors of tokens
EMBEDDING = "embedding.weight"
NAMES = {  # of a weight, by how its name begins: what it is called
    "encoder": "network",
    "head": "output",
    "weight": "output",
    "bias": "output",
    "crf": "CRF",
    "_rnn": "decoder",
    "combine": "readout",
    "starts": "start from a class",
    "letters": "letters",
    "spelling": "letters",
    "ngrams": "n-grams",
    "pretrained": "vectors",
}
GRAINS = {"word": "word", "wordpunct": "word", "character": "character", "byte": "byte"}


@dataclass
class Part:
    """Weights that are taken together or not at all: by their names, and what they are called."""

    name: str
    weights: list[str] = field(default_factory=list)


@dataclass
class Account:
    """What was taken, and what is new, in words."""

    taken: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)  # that are new
    left: list[str] = field(default_factory=list)


def take_weights(task: AnyTask, model: nn.Module, origins: Sequence[Origin]) -> list[str]:
    """Copy what fits from the models of other runs; a line for each run says what, and what is new.

    That nothing fits is an error.
    """
    lines, offset = [], 0
    widths = [_embedding_width(one.task, one.model) for one in origins]
    beside = len(origins) > 1 and sum(widths) == _embedding_width(task, model)
    accounts = []
    with torch.no_grad():
        for origin, width in zip(origins, widths, strict=True):
            accounts.append(_Taking(task, model, origin, offset, alone=not beside).account())
            offset += width if beside else 0
    common = [one for one in accounts[0].new if all(one in other.new for other in accounts)]
    for number, (origin, account) in enumerate(zip(origins, accounts, strict=True)):
        if not account.taken:
            raise ConfigError(f"nothing can be taken from {origin.run}: {_why(task, origin)}")
        new = [*([] if number else common), *account.words]
        parts = [", ".join(account.taken), *([f"new: {', '.join(new)}"] if new else [])]
        parts += [f"left behind: {', '.join(account.left)}"] if account.left else []
        lines.append(f"from {origin.run}: {'; '.join(parts)}")
    return lines


def _why(task: AnyTask, origin: Origin) -> str:
    ours, theirs = (next(iter(one.text_fields.values())).unit_name for one in (task, origin.task))
    if ours != theirs:
        return f"its tokens are of the unit {theirs!r}, these of {ours!r}"
    if origin.task.reader is None or task.reader is None:
        return f"{origin.config.task} and {task.config.task} have no network in common"
    old, new = origin.config.model, task.config.model
    shapes = " and ".join(f"{one.cell} {one.hidden}, embedding {one.embedding}" for one in (old, new))
    return f"no width fits ({shapes}); leave model.hidden, model.embedding and model.cell open"


class _Taking:
    """One origin, and where in the model its weights go."""

    def __init__(self, task: AnyTask, model: nn.Module, origin: Origin, offset: int, *, alone: bool) -> None:
        self.task, self.model, self.origin, self.offset, self.alone = task, model, origin, offset, alone
        self.same = type(task) is type(origin.task)
        self.old = _tensors(origin.model)
        self.new = _tensors(model)
        self.old_axes, self.new_axes = origin.task.axes(), task.axes()
        self.found = Account()

    def account(self) -> Account:
        alike = self._same_units()
        embedded = alike and self._take_embedding()
        if not embedded or not self._take_network():
            self._none_of_network()
        for part in self._parts():
            if (self.same or part.name in ("letters", "vectors")) and alike and self._fits(part):
                self._take(part)
            else:
                self._is_new(part)
        return self.found

    # The embedding

    def _names(self) -> tuple[str, str] | None:
        """The names of the embeddings, here and there."""
        if self.task.reader is None or self.origin.task.reader is None:
            return None
        ours, theirs = (
            _joined(one.reader[0], EMBEDDING) for one in (self.task, self.origin.task) if one.reader
        )
        return ours, theirs

    def _same_units(self) -> bool:
        fields = [next(iter(one.text_fields.values()), None) for one in (self.task, self.origin.task)]
        units = [(one.unit_name, one.settings.unit_options) for one in fields if one is not None]
        return len(units) < 2 or units[0] == units[1]

    def _take_embedding(self) -> bool:
        """Rows by token; True where the layers above see what they saw."""
        names = self._names()
        if names is None:
            return False
        ours, theirs = (self.new.get(names[0]), self.old.get(names[1]))
        if ours is None or theirs is None:
            return ours is None and theirs is None and self.alone  # both one-hot
        if self.alone and ours.shape[1] != theirs.shape[1]:
            self.found.new.append(f"embedding ({self._words(len(ours))})")
            return False
        tokens = self.new_axes[names[0]][0] or ()
        rows, place = _common(self.old_axes[names[1]][0], tokens)
        columns = slice(self.offset, self.offset + theirs.shape[1])
        ours[place, columns] = theirs[rows]
        markers = next(iter(self.task.text_fields.values())).markers
        count = sum(tokens[one] not in markers for one in place.tolist())
        total = sum(one not in markers for one in tokens)
        self.found.taken.append(f"embedding {_share(count, total)} {self._noun(total)}")
        if count < total:
            self.found.words.append(self._words(total - count))
        return True

    def _noun(self, count: int) -> str:
        unit = next(iter(self.task.text_fields.values())).unit_name
        return f"{GRAINS.get(unit, 'token')}{'' if count == 1 else 's'}"

    def _words(self, count: int) -> str:
        return f"{count:,} {self._noun(count)}"

    # The network that reads

    def _networks(self) -> tuple[RNN, RNN] | None:
        if self.task.reader is None or self.origin.task.reader is None:
            return None
        ours = self.model.get_submodule(self.task.reader[1])
        theirs = self.origin.model.get_submodule(self.origin.task.reader[1])
        return (ours, theirs) if isinstance(ours, RNN) and isinstance(theirs, RNN) else None

    def _take_network(self) -> bool:
        """Layers by direction; False where none could be taken."""
        networks, spans = self._networks(), self._spans()
        if networks is None or spans is None:
            return False
        taken = take_layers(*networks, spans, backwards=self.origin.backwards and not self.same)
        ways = ("forward", "backward") if networks[0].bidirectional else ("",)
        for direction, way in enumerate(ways):
            count = sum(one == direction for _, one in taken)
            _counted(self.found.taken, count, way)
            _counted(self.found.new, networks[0].layers - count, way)
        return True

    def _none_of_network(self) -> None:
        networks = self._networks()
        if networks is not None:
            for way in ("forward", "backward") if networks[0].bidirectional else ("",):
                _counted(self.found.new, networks[0].layers, way)

    def _spans(self) -> list[Span] | None:
        """Which inputs of the old network are which of the new one; None where one has no place."""
        starts, at = dict[str, tuple[int, int]](), 0
        for name, width in _pieces(self.model, self.task):
            starts[name] = at, width
            at += width
        at, spans, names = 0, list[Span](), self._names()
        for name, width in _pieces(self.origin.model, self.origin.task):
            start, room = starts.get(name, (0, -1))
            if name == "embedding" and names and names[0] not in self.new:  # one-hot
                old, new = _common(_tokens_of(self.origin.task), _tokens_of(self.task))
                spans.append(Span(at + old, start + new, torch.arange(start, start + room)))
            elif room != width and (name != "embedding" or self.alone):
                return None
            else:
                place = torch.arange(width) + start + (self.offset if name == "embedding" else 0)
                spans.append(Span(at + torch.arange(width), place, place))
            at += width
        return spans

    # Everything else

    def _parts(self) -> list[Part]:
        """The other weights, in the order in which the model has them."""
        names, parts = self._names(), dict[str, Part]()
        for name in self.new:
            if (names and name == names[0]) or (self._networks() and self._in_network(name)):
                continue
            called = self._called(name)
            parts.setdefault(called, Part(called)).weights.append(name)
        return [*parts.values()]

    def _in_network(self, name: str) -> bool:
        return self.task.reader is not None and name.startswith(f"{self.task.reader[1]}.")

    def _called(self, name: str) -> str:
        first, *rest = name.split(".")
        if first == "_target":
            return "target embedding" if rest[0] == "embedding" else "target vectors"
        inner = (
            name.removeprefix(f"{self.task.reader[0]}.") if self.task.reader and self.task.reader[0] else name
        )
        key = inner.split(".")[0]
        return NAMES.get(key, key)

    def _theirs(self, name: str) -> str:
        """The name that a weight has in the old model."""
        if self.same or self.task.reader is None or self.origin.task.reader is None:
            return name
        ours, theirs = (_joined(one, "") for one in (self.task.reader[0], self.origin.task.reader[0]))
        inner = name.removeprefix(ours)
        return f"{theirs}{inner}" if name.startswith(ours) and inner.split(".")[0] in VECTORS else name

    def _fits(self, part: Part) -> bool:
        """Is each of its weights there, with rows and columns that are named, or as many?"""
        for name in part.weights:
            old, new = self.old.get(self._theirs(name)), self.new[name]
            if old is None or old.dim() != new.dim():
                return False
            if part.name == "n-grams" and not self._same_numbers():
                return False  # which are found by the numbers of tokens
            for axis in range(new.dim()):
                named = self._axis(name, axis)
                if old.shape[axis] != new.shape[axis] and None in named:
                    return False
                if None not in named and not len(_common(*named)[0]):
                    return False
        return True

    def _same_numbers(self) -> bool:
        old, new = _tokens_of(self.origin.task), _tokens_of(self.task)
        return list(new[: len(old)]) == list(old)

    def _axis(self, name: str, axis: int) -> tuple[Sequence[str] | None, Sequence[str] | None]:
        nothing: Axes = (None,) * self.new[name].dim()
        old = self.old_axes.get(self._theirs(name), nothing)[axis]
        return old, self.new_axes.get(name, nothing)[axis]

    def _take(self, part: Part) -> None:
        for name in part.weights:
            old, new = self.old[self._theirs(name)], self.new[name]
            rows, places = [], []
            for axis in range(new.dim()):
                named = self._axis(name, axis)
                count = torch.arange(new.shape[axis])
                pair = (count, count) if None in named else _common(*named)
                rows.append(pair[0])
                places.append(pair[1])
            new[_grid(places)] = old[_grid(rows)]
        self._tell(part)

    def _tell(self, part: Part) -> None:
        """How many of the labels or tokens that its rows stand for were taken."""
        named = [self._axis(name, axis) for name in part.weights for axis in range(self.new[name].dim())]
        old, new = next(
            ((old, new) for old, new in named if old is not None and new is not None), (None, None)
        )
        if old is None or new is None:
            self.found.taken.append(part.name)
            return
        common, total, gone = len(_common(old, new)[0]), len(new), sorted(set(old) - set(new))
        if new != self.task.label_names:
            self.found.taken.append(part.name)  # of tokens, the embedding tells
        else:
            self.found.taken.append(f"{part.name} {_share(common, total)} labels")
        if new == self.task.label_names and part.name != "CRF":
            self.found.new += [f"{total - common:,} of {total:,} labels"] if common < total else []
            self.found.left += [f"the labels {', '.join(gone)}"] if gone else []

    def _is_new(self, part: Part) -> None:
        labels = self.task.label_names
        if part.name == "n-grams" and not self.same:
            for name in part.weights:
                self.new[name].zero_()  # so that the network reads at first what it is used to
        named = any(self._axis(name, 0)[1] == labels for name in part.weights)
        counted = f" ({len(labels):,} labels)" if part.name == "output" and labels and named else ""
        self.found.new.append(f"{part.name}{counted}")


def _tokens_of(task: AnyTask) -> Sequence[str]:
    return next(iter(task.text_fields.values())).vocabulary.tokens


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """The weights, and pretrained vectors that stay as they are."""
    frozen = {name: one for name, one in model.named_buffers() if name.endswith("pretrained.weight")}
    return {**dict(model.named_parameters()), **frozen}


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _embedding_width(task: AnyTask, model: nn.Module) -> int:
    weight = None if task.reader is None else _tensors(model).get(_joined(task.reader[0], EMBEDDING))
    return 0 if weight is None else weight.shape[1]


def _pieces(model: nn.Module, task: AnyTask) -> list[tuple[str, int]]:
    """What stands side by side in the vector of a token, and how wide each is."""
    assert task.reader is not None
    vectors = model.get_submodule(task.reader[0])
    found = [
        (name, getattr(vectors, name, None)) for name in ("embedding", "pretrained", "spelling", "affixes")
    ]
    return [(name, int(one.output_size)) for name, one in found if one is not None]


def _common(old: Sequence[str] | None, new: Sequence[str] | None) -> tuple[Tensor, Tensor]:
    """The places of names that both have: in the old ones, and in the new ones."""
    where, here = {name: place for place, name in enumerate(old or ())}, set(new or ())
    for name, place in [*where.items()]:  # where small letters are read, a word may have had a capital
        if name not in here:
            where.setdefault(name.lower(), place)
    pairs = [(where[name], place) for place, name in enumerate(new or ()) if name in where]
    return tuple(torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).unbind(1))  # type: ignore[return-value]


def _grid(places: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return torch.meshgrid(*places, indexing="ij")


def _share(count: int, total: int) -> str:
    return f"of all {total:,}" if count == total else f"{count:,} of {total:,}"


def _counted(told: list[str], count: int, way: str) -> None:
    if count:
        told.append(f"{count} layer{'' if count == 1 else 's'}{f' {way}' if way else ''}")
