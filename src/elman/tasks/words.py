"""What tagging and classification share: words of a lexicon, in batches of distinct words."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import nn

from elman.config import Config, ModelSettings, TextSettings, Whole, setting
from elman.errors import EmptyError, OneLabelError
from elman.models.embedding import Ngrams, Pretrained, RareTokenDropout, WordBatch, Words
from elman.models.indicators import Affixes
from elman.tasks.base import Axes, Chances, Measures, Task
from elman.tasks.calibrating import temperature_of
from elman.tasks.examples import Examples, kept_texts, tensor
from elman.tasks.generation import Partners
from elman.tasks.statistics import Statistics, Tally, tallied
from elman.tensors.rows import length_mask
from elman.tensors.transfer import moved
from elman.text.batches import pad
from elman.text.fields import LabelField, State, WordField
from elman.text.lexicon import Lexicon
from elman.text.reading import formats
from elman.text.records import Record
from elman.text.store import Row
from elman.text.vocabulary import UNKNOWN

REMEMBERED = 20_000  # words that a model in use keeps the numbers of

M = TypeVar("M", bound=nn.Module)
B = TypeVar("B")


class WordModel(ModelSettings):
    characters: Whole | None = setting(None, "width of the network that reads a word's letters; 0: none")
    bidirectional: bool = setting(True, "read in both directions")

    def read_besides(self) -> set[str]:
        """The network that reads the letters is recurrent, whatever reads the words."""
        return super().read_besides() | ({"cell", "cell_options", "backend"} if self.characters else set())


class WordConfig(Config):
    usable = {"data.format": partial(formats, "read")}  # noqa: RUF012
    text: TextSettings = TextSettings()
    model: WordModel = WordModel()


def usual_epochs(examples: int, seen: int, *, most: int) -> int:
    """Passes that show about so many examples; more of them over a small file, for some 500 updates."""
    fair = max(4, min(most, round(seen / max(1, examples))))
    return max(fair, min(100, 16_000 // max(1, examples)))


class WordTask(Task[M, B]):
    """A task over sequences of words, or of other units, that a lexicon numbers; every example has labels."""

    config: WordConfig
    measured: ClassVar[tuple[str, ...]] = ("word",)
    positions = 8000
    reader = "words", "encoder.network"
    _counting = False  # are the labels of the training data being looked at?
    _several = False  # may a text of the training data have another number of labels than one?

    def __init__(self, config: WordConfig, noun: str) -> None:
        super().__init__(config)
        self.words = WordField(config.text, letters=lambda: self._reads_letters(self.config))
        self.labels = LabelField(noun)
        self.text_fields = {"": self.words.text}
        self.chooser, self.axes = self, self._axes

    @abstractmethod
    def _words_of(self, record: Record) -> list[str]:
        """The tokens of an example."""

    @abstractmethod
    def _labels_of(self, record: Record) -> Sequence[str]:
        """The labels of an example: a tag a token, or one class."""

    @abstractmethod
    def _reads_letters(self, config: WordConfig) -> bool | None:
        """Does a network read the letters of each word? None: if the training text tells capitals apart."""

    def build_vocabularies(self, records: Iterable[Record]) -> Statistics:
        return self._build(tallied(records, self._count))

    def _build(self, tally: Tally) -> Statistics:
        seen = tally.seen
        seen.types = len(tally.counts["word"])
        self.labels.build(Counter(dict(tally.counts["label"].items())))
        *notes, vocabulary = self.words.build(tally.counts["word"])
        seen.notes += [*notes, f"{vocabulary}; {len(self.labels.names)} labels"]
        return seen

    def _count(self, records: Iterable[Record]) -> Tally:
        tally = Tally("word", "label")
        for record in records:
            tokens, own = self._words_of(record), self._labels_of(record)
            tally.counts["word"].update(tokens)
            tally.counts["label"].update(own)
            tally.seen.add(tokens=len(tokens), losses=len(own), length=len(tokens))
            self._note(tally, record, own)
        return tally

    def _note(self, tally: Tally, record: Record, labels: Sequence[str]) -> None:
        """What a task counts besides."""

    def encode(self, records: Iterable[Record], lexicon: Lexicon | None) -> Iterator[Row]:
        """A label that training never saw is −1, and kept as it is written."""
        lexicon = self.lexicon() if lexicon is None else lexicon
        for record in records:
            labels, unseen = self.labels.known(self._labels_of(record))
            yield {
                "word": lexicon.ids(self._words_of(record)),
                self.roles[1]: labels,
                "unseen": kept_texts(unseen),
            }

    @abstractmethod
    def chances(self, model: M, texts: Sequence[str]) -> Chances:
        """How probable each label is, as a chooser tells it."""

    @abstractmethod
    def evaluate(
        self,
        model: M,
        examples: Examples,
        *,
        quick: bool = False,
        partners: Partners = (),
        threshold: float | None = None,
    ) -> Measures:
        """As a task and a chooser do it."""

    @property
    def temperature(self) -> float:
        """What scores are divided by before they become probabilities."""
        return temperature_of(self.calibration)

    @property
    def label_names(self) -> list[str]:
        return self.labels.names

    def fill_defaults(self, statistics: Statistics) -> None:
        """From labels that are all the same nothing can be learned; mostly they are another column."""
        if not self.labels.names:
            where, remedy = str(self.config.data.train), "look whether the right column or key was read"
            raise EmptyError(f"no text has a {self.labels.noun}", path=where, remedy=remedy)
        if len(self.labels.names) == 1 and not self._several:
            data, noun = self.config.data, self.labels.noun
            text, label = self.roles
            read = f" {data.columns[label]!r}" if data.columns and label in data.columns else ""
            raise OneLabelError(
                f"all {statistics.losses:,} {noun}s are the same",
                path=str(data.train),
                text=self.labels.names[0],
                remedy=f"two are needed: look whether the column{read} that was read is that of the {noun}s, "
                f"and name the right one with --columns {text}=…,{label}=…",
            )
        super().fill_defaults(statistics)

    def lexicon(self) -> Lexicon:
        return self.words.lexicon()

    def reconfigured(self, config: Config) -> Self:
        other = super().reconfigured(config)
        other.__dict__.pop("_spare", None)  # which is one task's
        return other

    @contextmanager
    def _spare_lexicon(self) -> Iterator[Lexicon]:
        """A lexicon for texts that are asked, with the words of earlier ones as long as these are not many.

        One that is in use by another thread is not there.
        """
        lexicon = self.__dict__.pop("_spare", None)
        lexicon = self.lexicon() if lexicon is None else lexicon
        yield lexicon
        if len(lexicon) < REMEMBERED:
            self._spare = lexicon

    def _unknown(self, words: WordBatch) -> list[int]:
        """How many words of each text have neither an entry in the vocabulary nor a vector."""
        new = (words.tokens == self.words.text.vocabulary.id(UNKNOWN)) & (words.vectors == 0)
        real = length_mask(moved(words.lengths, new.device), words.places.shape[1])
        found: list[int] = (new[words.places] & real).sum(1).tolist()
        return found

    def _make_words(
        self,
        *,
        fresh: bool,
        ngrams: Ngrams | None = None,
        affixes: Affixes | None = None,
        alone: bool = False,
    ) -> Words:
        settings, field = self.config.model, self.words
        text, rare = field.text, settings.rare_dropout
        unknown = text.vocabulary.id(UNKNOWN)
        pretrained = None
        if field.vectors:
            rows = len(field.vector_words) + 1
            pretrained = Pretrained(rows, field.vector_width, tuned=self.config.text.tune_vectors)
        words = Words(
            len(text.vocabulary),
            settings.embedding or 0,
            rare_dropout=RareTokenDropout(rare, text.counts, unknown) if rare else None,
            token_dropout=settings.token_dropout or 0.0,
            ngrams=ngrams,
            pretrained=pretrained,
            characters=len(field.characters),
            character_width=settings.characters or 0,
            cell=settings.cell,
            cell_options=settings.cell_options,
            backend=settings.backend,
            dropout=settings.input_dropout or 0.0,
            affixes=affixes,
            alone=alone,
        )
        if fresh and pretrained is not None:
            pretrained.fill(field.take_matrix())
        return words

    def _word_batch(self, examples: Examples, indices: Iterable[int], device: torch.device) -> WordBatch:
        places, lengths = pad(examples.rows("word", indices))
        if examples.lexicon is None:
            examples.lexicon = self.words.lexicon(examples.words)
        lexicon = examples.lexicon
        [unknown] = lexicon.ids([UNKNOWN])
        distinct, inverse = np.unique(places, return_inverse=True)
        tokens, vectors, letters, spelled = lexicon.rows(np.concatenate([[unknown], distinct]))
        return WordBatch(
            tensor(tokens, device),
            tensor(vectors, device),
            tensor(letters, device),
            torch.from_numpy(spelled),
            tensor(inverse.reshape(places.shape) + 1, device),
            torch.from_numpy(lengths),
        )

    def _axes(self) -> dict[str, Axes]:
        words = self.words
        return {
            "words.embedding.weight": (words.text.vocabulary.tokens, None),
            "words.letters.weight": (words.characters.tokens, None),
            "words.pretrained.weight": (["", *words.vector_words], None),
        }

    def state(self) -> State:
        return self.words.state() | {"labels": self.labels.names}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.words.restore(state)
        self.labels.restore(state["labels"], state.get("label_counts"))


def asked_batch(task: WordTask[Any, Any], texts: Sequence[Sequence[str]], device: torch.device) -> WordBatch:
    """Texts of words, none of them empty, as the models of a task read them."""
    with task._spare_lexicon() as lexicon:
        return task._word_batch(Examples.asked(texts, lexicon), range(len(texts)), device)
