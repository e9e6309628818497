"""Fields of an example: how a text or a label becomes numbers, and what of that is kept in a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elman.errors import LabelError, RunError, nearest
from elman.text.counts import Counted, Counts, counts_of
from elman.text.files import Repairs
from elman.text.lexicon import Lexicon
from elman.text.records import Record
from elman.text.units.base import PIECES, Unit, empty_unit, unit_from_json, unit_to_json
from elman.text.vectors import Vectors, coverage, read_vectors, wanted_forms
from elman.text.vocabulary import END, MARKERS, PAD, START, UNKNOWN, Vocabulary

if TYPE_CHECKING:  # whose settings are read alone, so that a runtime needs none of what checks them
    from elman.config import TextSettings, VocabularySettings

LARGEST = 50_000  # entries of a vocabulary whose size is not set
MOST_WORDS = 1_000_000  # the same where labels are learned, which rare words may tell
FREQUENT_VECTORS = 50_000  # vectors of a file's first words that are kept beside those of the training data
CAPITALS = 0.01  # share of words with a capital above which a text tells capitals from small letters

State = dict[str, Any]  # of a field, as JSON


class TextField:
    """A text: its unit, its vocabulary, how often each token occurs, and pretrained vectors of the tokens.

    >>> from elman.config import VocabularySettings
    >>> field = TextField(VocabularySettings())
    >>> field.build_vocabulary(Counter(field.split("the cat sees the dog")))
    ['vocabulary: 8 entries for 4 types, 100.00% of tokens']
    >>> field.ids("the dog barks"), field.join(["the", "cat"])
    ([4, 6, 1], 'the cat')
    """

    vocabulary: Vocabulary

    def __init__(
        self,
        settings: VocabularySettings,
        *,
        vectors: str | None = None,
        remove: str | None = None,
        reverse: bool = False,
        start: str = START,
        end: str = END,
    ) -> None:
        """
        Args:
            vectors: a file of pretrained vectors.
            remove: a regular expression; what it matches is taken out of every text.
            reverse: the tokens of a text stand from its last to its first.
            start, end: the markers before and after a text, as they are spelt.
        """
        self.vectors, self.reverse = vectors, reverse
        self.start, self.end = start, end
        self.markers = (PAD, UNKNOWN, start, end)
        self.settle(settings)
        self.removed = remove
        self._remove = re.compile(remove) if remove else None
        self.whole: str | None = None  # a regular expression: what it matches is one token
        self.counts: list[int] = []
        self.vector_width = 0
        self._matrix: NDArray[np.float32] | None = None  # of the vectors, until a model has them
        self.kept: list[str] = []  # tokens that the vocabulary will have though the training data may not
        self._unit_kept = False

    @cached_property
    def unit(self) -> Unit:
        settings = self.settings
        return empty_unit(self.unit_name, lowercase=bool(settings.lowercase), options=settings.unit_options)

    def settle(self, settings: VocabularySettings) -> None:
        """Take the settings that a look at the text has completed."""
        self.settings = settings
        self.unit_name = settings.unit or "word"
        self.__dict__.pop("unit", None)

    # Between texts, tokens and numbers

    def clean(self, text: str) -> str:
        """The text without what the settings take out of it."""
        return text if self._remove is None else self._remove.sub("", text)

    def reference(self, text: str) -> str:
        """The text as an output could be: without what is taken out, in lower case where all is."""
        return self.clean(text).lower() if self.settings.lowercase else self.clean(text)

    def split(self, text: str, unit: Unit | None = None) -> list[str]:
        """The tokens of a text; ``unit`` cuts it in place of the field's own."""
        text, cut = self.clean(text), (unit or self.unit).split
        tokens, start = [], 0
        for match in re.finditer(self.whole, text) if self.whole else ():
            tokens += [*cut(text[start : match.start()]), *([match.group()] if match.group() else [])]
            start = match.end()
        tokens += cut(text[start:] if start else text)
        return tokens[::-1] if self.reverse else tokens

    def ids(self, text: str) -> list[int]:
        return self.vocabulary.ids(self.split(text))

    def read(self, text: str) -> tuple[int, int]:
        """How many tokens a text has, and how many of them the vocabulary lacks."""
        ids = self.ids(text)
        return len(ids), ids.count(self.vocabulary.index.get(UNKNOWN, -1))

    def join(self, tokens: Sequence[str]) -> str:
        return self.unit.join(tokens[::-1] if self.reverse else tokens)

    def readable(self, tokens: Iterable[str]) -> list[str]:
        """Each token as the text that it stands for; pieces of a character stay as they are spelt.

        >>> from elman.config import VocabularySettings
        >>> TextField(VocabularySettings(unit="byte")).readable(["<0x41>", "<0xC3>"])
        ['A', '<0xC3>']
        """
        texts = ((token, self.unit.join([token])) for token in tokens)
        return [token if "\N{REPLACEMENT CHARACTER}" in text else text for token, text in texts]

    # What is learned from the training data

    def build_unit(self, texts: Iterable[str]) -> None:
        """Let a unit that learns its tokens learn them, from texts that are clean; others do not look."""
        if self.unit.learned and not self._unit_kept:
            shown = map(str.lower, texts) if self.settings.lowercase else texts
            self.unit.learn(shown, self.settings.vocabulary_size or PIECES)

    def build_vocabulary(
        self,
        counts: Counted,
        *,
        rare: int = 1,
        limit: int | None = None,
        lower: bool = False,
        arrange: Callable[[Sequence[str]], list[str]] | None = None,
        name: str = "vocabulary",
    ) -> list[str]:
        """The vocabulary of counted tokens, and what the file of vectors knows of them; notes for the user.

        Args:
            rare: how often a token occurs at least, where ``min_count`` is not set.
            limit: the most entries where ``vocabulary_size`` is not set.
            lower: tokens are looked up in lower case.
            arrange: puts markers of one's own to the tokens; unset: the four markers come first.
        """
        settings = self.settings
        if settings.vocabulary:
            chosen = [*dict.fromkeys(map(str.lower, settings.vocabulary))] if lower else settings.vocabulary
            tokens = [*self.markers, *(token for token in chosen if token not in self.markers)]
            self.vocabulary = Vocabulary(tokens if arrange is None else arrange(chosen))
        else:
            least, alphabet = settings.min_count or rare, self.unit.alphabet()
            size = None if self.unit.learned else settings.vocabulary_size or limit
            markers = self.markers if arrange is None else ()
            built = Vocabulary.build(counts, min_count=least, size=size, markers=markers, alphabet=alphabet)
            tokens = self._with_kept(built.tokens, size, lower=lower or bool(settings.lowercase))
            self.vocabulary = Vocabulary(tokens if arrange is None else arrange(tokens))
        self.counts = counts_of(counts, self.vocabulary.tokens)
        share = f"{sum(self.counts) / max(1, counts.total()):.2%} of tokens"
        notes = [f"{name}: {len(self.vocabulary):,} entries for {len(counts):,} types, {share}"]
        if self.vectors:
            vectors = self._read_vectors(self.vectors)
            notes.append(f"{name}: {coverage(vectors, counts)}")
            self.vector_width = vectors.matrix.shape[1]
            self._matrix = vectors.rows(self.vocabulary.tokens[1:])
        return notes

    def keep(self, other: TextField) -> None:
        """Go on from what another field has learned, if its tokens are of the same unit.

        Its tokens come first, in their order, so that their numbers stay; the training data add theirs. Where
        not all have room, it is those that the training data lack which go, the last ones first.
        """
        if (self.unit_name, self.settings.unit_options) == (other.unit_name, other.settings.unit_options):
            markers = {*self.markers, *other.markers}
            known = (token for token in other.vocabulary.tokens if token not in markers)
            self.kept = [*dict.fromkeys([*self.kept, *known])]
            if other.unit.learned:
                self.unit, self._unit_kept = other.unit, True

    def _with_kept(self, built: list[str], size: int | None, *, lower: bool) -> list[str]:
        """The tokens that were built and, as far as there is room, those that are kept."""
        if not self.kept:
            return built
        kept = [*dict.fromkeys(map(str.lower, self.kept))] if lower else self.kept
        new, old = set(built), set(kept)
        room = len(kept) if size is None else max(0, size - len(built))
        spare = set([token for token in kept if token not in new][:room])
        markers = [token for token in built if token in self.markers]
        known = [token for token in kept if token in new or token in spare]
        placed = old.union(markers)
        return [*markers, *known, *(token for token in built if token not in placed)]

    def share(self, other: TextField) -> None:
        """Take over all that the other field has learned; what is taken out of a text stays one's own."""
        self.unit = other.unit
        self.vocabulary, self.counts = other.vocabulary, other.counts
        self.vector_width, self._matrix = other.vector_width, other._matrix

    def take_matrix(self) -> NDArray[np.float32]:
        """The vectors of all tokens but the first, read anew if a run is continued; kept no longer."""
        matrix, self._matrix = self._matrix, None
        if matrix is None:
            matrix = self._read_vectors(str(self.vectors)).rows(self.vocabulary.tokens[1:])
        return matrix

    def state(self) -> State:
        return {"tokens": self.vocabulary.tokens, "counts": self.counts, "vector_width": self.vector_width}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave; of some fields, earlier versions kept the tokens alone."""
        self.vocabulary = Vocabulary.from_json(state["tokens"])
        self.counts = list(state.get("counts", ()))
        self.vector_width = int(state.get("vector_width", 0))
        for name, marker in (("start", self.start), ("end", self.end)):
            if marker not in self.vocabulary:
                raise RunError(f"the vocabulary lacks the token of text.{name}; restore it or train again")

    def unit_state(self) -> State | None:
        """What the unit has learned; None where it learns nothing."""
        return unit_to_json(self.unit_name, self.unit) if self.unit.learned else None

    def restore_unit(self, saved: Any) -> None:
        self.unit = unit_from_json(self.unit_name, saved, self.settings.unit_options)

    def _read_vectors(self, path: str) -> Vectors:
        return read_vectors(path, wanted_forms(self.vocabulary.tokens))


class WordField:
    """Words that are kept as they are written, so that a rare one still has its letters and its vector.

    ``text`` has the unit and the vocabulary. ``letters`` tells whether a network reads the letters of each
    word, which leaves upper case to it; None: it will where the text tells capitals from small letters.
    """

    characters: Vocabulary

    def __init__(self, settings: TextSettings, *, letters: Callable[[], bool | None]) -> None:
        self.text = TextField(settings)
        self.vectors = settings.vectors
        self.letters = letters
        self.cased = False
        self.vector_words: list[str] = []
        self.vector_width = 0
        self._matrix: NDArray[np.float32] | None = None
        self._kept_letters: list[str] = []

    @property
    def lower(self) -> bool:
        letters = self.letters()
        return self.cased if letters is None else letters

    def build(self, words: Counted) -> list[str]:
        """All that these words, as they are written, tell; notes for the user."""
        letters, capitals = Counter[str](), 0
        for word, count in words.items():
            capitals += count if word != word.lower() else 0
            for letter in word:
                letters[letter] += count
        built = Vocabulary.build(letters, min_count=2).tokens
        self.characters = Vocabulary([*dict.fromkeys([*MARKERS, *self._kept_letters, *built])])
        self.cased = capitals > CAPITALS * words.total()
        counts: Counted = words
        if self.lower:
            counts = Counts()
            counts.add((word.lower(), count) for word, count in words.items())
        notes = self.text.build_vocabulary(counts, limit=MOST_WORDS, lower=self.lower)
        return [*(self._build_vectors(self.vectors, words) if self.vectors else ()), *notes]

    def keep_letters(self, other: WordField) -> None:
        """Let the letters that another field has learned come first."""
        self._kept_letters = other.characters.tokens

    def lexicon(self, words: Sequence[str] = ()) -> Lexicon:
        """The numbers of words; new ones are taken in as they are met."""
        rows = {word: row for row, word in enumerate(self.vector_words, 1)}
        characters = self.characters if self.lower else None
        lexicon = Lexicon(self.text.vocabulary, characters, rows, lower=self.lower)
        lexicon.ids(words)
        return lexicon

    def take_matrix(self) -> NDArray[np.float32]:
        """The vectors of ``vector_words``, read anew if a run is continued; kept no longer."""
        matrix, self._matrix = self._matrix, None
        if matrix is None:
            vectors = read_vectors(str(self.vectors), set(self.vector_words))
            matrix = vectors.matrix[[vectors.index[word] for word in self.vector_words]]
        return matrix

    def state(self) -> State:
        return {
            "tokens": self.text.vocabulary.tokens,
            "counts": self.text.counts,
            "characters": self.characters.tokens,
            "vectors": self.vector_words,
            "vector_width": self.vector_width,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.text.restore({key: state[key] for key in ("tokens", "counts")})
        self.characters = Vocabulary.from_json(state["characters"])
        self.vector_words = list(state["vectors"])
        self.vector_width = int(state["vector_width"])

    def _build_vectors(self, path: str, words: Counted) -> list[str]:
        vectors = read_vectors(path)
        forms = (form for word, _ in words.items() for form in (word, word.lower()))
        needed = {form for form in forms if form in vectors.index}
        kept = [i for i, word in enumerate(vectors.words) if i < FREQUENT_VECTORS or word in needed]
        self.vector_words = [vectors.words[row] for row in kept]
        self._matrix = vectors.matrix[kept]
        self.vector_width = self._matrix.shape[1]
        repaired = [f"vectors: {sentence}" for sentence in Repairs(vectors.repairs).sentences()]
        return [*repaired, coverage(vectors, words)]


class LabelField:
    """Labels: all that occur in training, the frequent ones first."""

    vocabulary: Vocabulary

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.counts = Counter[str]()

    @property
    def names(self) -> list[str]:
        return self.vocabulary.tokens

    def build(self, counts: Counter[str]) -> None:
        self.counts = counts
        self.vocabulary = Vocabulary.build(counts, markers=())

    def known(self, labels: Sequence[str]) -> tuple[list[int], list[str]]:
        """The numbers of labels, −1 for one that training never saw; and the unseen ones, in order."""
        unseen = [label for label in labels if label not in self.vocabulary]
        if not unseen:
            return self.vocabulary.ids(labels), unseen
        return [self.vocabulary.id(label) if label in self.vocabulary else -1 for label in labels], unseen

    def ids(self, labels: Sequence[str], record: Record, *, field: str) -> list[int]:
        """The numbers of labels in a field of a record; another one is an error with its place."""
        for label in labels:
            if label not in self.vocabulary:  # also where a label is spelt as the unknown token
                said, remedy = f"a {self.noun} that training never saw", nearest(label, self.names)
                raise record.error(LabelError, said, field=field, text=label, remedy=remedy)
        return self.vocabulary.ids(labels)

    def restore(self, names: Sequence[str], counts: Mapping[str, int] | None = None) -> None:
        self.vocabulary = Vocabulary.from_json(names)
        self.counts = Counter(counts or {})
