"""What tagging and classification share: words of a lexicon, in batches of distinct words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elman.config import ModelSettings
from elman.models.embedding import Ngrams, WordBatch, Words
from elman.tasks.base import C, Examples, Task, tensor, vocabulary_of
from elman.text.batches import pad, plan_batches
from elman.text.lexicon import Lexicon
from elman.text.readers import Record, Repairs
from elman.text.store import Store
from elman.text.vectors import coverage, read_vectors
from elman.text.vocabulary import MARKERS, UNKNOWN, Vocabulary

CAPITALS = 0.01  # share of words with a capital above which a text tells capitals from small letters
FREQUENT_VECTORS = 50_000  # vectors of a file's first words that are kept beside those of the training data


def usual_epochs(examples: int, seen: int, *, most: int) -> int:
    """Passes that show about so many examples; more of them over a small file, for some 500 updates."""
    fair = max(4, min(most, round(seen / max(1, examples))))
    return max(fair, min(100, 16_000 // max(1, examples)))


class WordTask(Task[C]):
    """A task over sequences of words, or of other units, that a lexicon numbers."""

    vocabulary: Vocabulary
    characters: Vocabulary
    labels: Vocabulary
    vector_words: list[str]
    cased = False  # does the training text tell capitals from small letters?

    def words_of(self, record: Record) -> list[str]:
        """The tokens of an example."""
        raise NotImplementedError

    def labels_of(self, record: Record) -> Sequence[str]:
        """The labels of an example: a tag a token, or one class."""
        raise NotImplementedError

    @property
    def recurrent(self) -> bool:
        """A comparator reads no letters by a network either: it would not be one without recurrence."""
        model = self.config.model
        return not isinstance(model, ModelSettings) or model.encoder == "rnn"

    @property
    def letters_read(self) -> bool:
        """Does a network read the letters of each word? Then the vocabulary leaves upper case to it."""
        return False

    def character_width(self) -> int:
        """Width of the network that reads a word's letters."""
        return 0

    def learn(self, records: Iterable[Record]) -> None:
        words, letters, labels = Counter[str](), Counter[str](), Counter[str]()
        seen = self.statistics
        for record in records:
            tokens = self.words_of(record)
            words.update(tokens)
            labels.update(self.labels_of(record))
            seen.examples += 1
            seen.tokens += len(tokens)
            seen.losses += len(self.labels_of(record))
            seen.longest = max(seen.longest, len(tokens))
        seen.types = len(words)
        for word, count in words.items():
            for letter in word:
                letters[letter] += count
        spelled = words
        capitals = sum(count for word, count in words.items() if word != word.lower())
        self.cased = capitals > CAPITALS * words.total()
        if self.letters_read:
            words = Counter()
            for word, count in spelled.items():
                words[word.lower()] += count
        self.label_counts = labels
        settings = self.config.text
        rare = settings.min_count or 1
        chosen = settings.vocabulary or []
        if self.letters_read:  # words are looked up in lower case
            chosen = [*dict.fromkeys(token.lower() for token in chosen)]
        self.vocabulary = (
            Vocabulary([*MARKERS, *(t for t in chosen if t not in MARKERS)])
            if chosen
            else Vocabulary.build(
                words,
                min_count=rare,
                size=settings.vocabulary_size if settings.unit != "bpe" else None,
                alphabet=self.unit.alphabet(),
            )
        )
        self.counts = [words[token] for token in self.vocabulary.tokens]
        self.characters = Vocabulary.build(letters, min_count=2)
        self.labels = Vocabulary.build(labels, markers=False)
        self.vector_words = []
        if settings.vectors:
            self._take_vectors(settings.vectors, spelled)
        known = sum(count for word, count in words.items() if word in self.vocabulary)
        self.notes.append(
            f"vocabulary: {len(self.vocabulary):,} entries for {len(words):,} types, "
            f"{known / max(1, words.total()):.2%} of tokens; "
            f"{len(self.labels)} labels"
        )

    def meet(self, records: Iterable[Record]) -> None:
        for record in records:
            self.label_counts.update(dict.fromkeys(self.labels_of(record), 0))
        self.labels = Vocabulary.build(self.label_counts, min_count=0, markers=False)

    def examples(self, records: Iterable[Record], folder: Path | None = None, key: str = "") -> Examples:
        """As every task, with the words of the lexicon beside the numbers (in a cache: a second store)."""
        lexicon = self.lexicon()
        if folder is None:
            held = Store.in_memory(self.encode(records, lexicon))
            return Examples(held, lexicon.words, lexicon)
        words_key = f"{key} words"
        store, spelled = Store.open(folder / "examples", key), Store.open(folder / "words", words_key)
        if store is None or spelled is None:
            store = Store.write(folder / "examples", self.encode(records, lexicon), key)
            rows = ({"bytes": list(word.encode())} for word in lexicon.words)
            spelled = Store.write(folder / "words", rows, words_key)
        letters = [spelled.fields["bytes"][i] for i in range(len(spelled))]
        return Examples(store, [bytes(one.astype(np.uint8)).decode() for one in letters])

    def lexicon(self, words: Sequence[str] = ()) -> Lexicon:
        rows = {word: row for row, word in enumerate(self.vector_words, 1)}
        letters = self.characters if self.letters_read else None
        lexicon = Lexicon(self.vocabulary, letters, rows, lower=self.letters_read)
        lexicon.ids(words)
        return lexicon

    def encode(self, records: Iterable[Record], lexicon: Lexicon | None = None) -> Any:
        raise NotImplementedError

    def make_words(self) -> Words:
        settings = self.config.model
        return Words(
            len(self.vocabulary),
            settings.embedding or 0,
            hiding=self.hiding(self.vocabulary),
            token_dropout=settings.token_dropout or 0.0,
            ngrams=self.ngrams(),
            pretrained=self.pretrained(len(self.vector_words) + 1),
            characters=len(self.characters),
            character_width=self.character_width(),
            cell=settings.cell,
            cell_options=settings.cell_options,
            backend=settings.backend,
            dropout=settings.input_dropout or 0.0,
        )

    def read_matrix(self) -> NDArray[Any]:
        vectors = read_vectors(str(self.config.text.vectors), set(self.vector_words))
        return vectors.matrix[[vectors.index[word] for word in self.vector_words]]

    def ngrams(self) -> Ngrams | None:
        """What n-grams add to the vectors of tokens, where the task uses them."""
        return None

    def plan(self, examples: Examples, epoch: int) -> Sequence[Any]:
        return self.shuffled(examples.store.fields["word"].lengths, epoch)

    def in_order(self, examples: Examples) -> list[NDArray[np.int64]]:
        """Batches for evaluation: short ones first, every example once."""
        lengths = examples.store.fields["word"].lengths
        return plan_batches(lengths, size=None, tokens=8000, seed=0, epoch=0, shuffle=False)

    def batches(self, examples: Examples) -> Iterator[Any]:
        return (self.collate(examples, key) for key in self.in_order(examples))

    def word_batch(self, examples: Examples, indices: Iterable[int]) -> WordBatch:
        places, lengths = pad([examples.store.fields["word"][i] for i in indices])
        lexicon = self._lexicon_of(examples)
        [unknown] = lexicon.ids([UNKNOWN])
        distinct, inverse = np.unique(places, return_inverse=True)
        tokens, vectors, letters, spelled = lexicon.rows(np.concatenate([[unknown], distinct]))
        return WordBatch(
            tensor(tokens, self.device),
            tensor(vectors, self.device),
            tensor(letters, self.device),
            torch.from_numpy(spelled),
            tensor(inverse.reshape(places.shape) + 1, self.device),
            torch.from_numpy(lengths),
        )

    def tables(self) -> dict[str, Any]:
        return {
            "tokens": self.vocabulary.tokens,
            "counts": self.counts,
            "characters": self.characters.tokens,
            "labels": self.labels.tokens,
            "vectors": self.vector_words,
            "vector_width": self.vector_width,
        }

    def restore(self, tables: Mapping[str, Any]) -> None:
        self.vocabulary = vocabulary_of(tables, "tokens")
        self.characters = vocabulary_of(tables, "characters")
        self.labels = vocabulary_of(tables, "labels")
        self.counts = list(tables["counts"])
        self.vector_words = list(tables["vectors"])
        self.vector_width = int(tables["vector_width"])

    def _lexicon_of(self, examples: Examples) -> Lexicon:
        if examples.lexicon is None:
            examples.lexicon = self.lexicon(examples.words)
        return examples.lexicon

    def _take_vectors(self, path: str, words: Counter[str]) -> None:
        vectors = read_vectors(path)
        self.notes += [f"vectors: {sentence}" for sentence in Repairs(vectors.repairs).sentences()]
        self.notes.append(coverage(vectors, words).sentence())
        lower = {word.lower() for word in words}
        kept = [
            row
            for row, word in enumerate(vectors.words)
            if row < FREQUENT_VECTORS or word in words or word in lower
        ]
        self.vector_words = [vectors.words[row] for row in kept]
        self.matrix = vectors.matrix[kept]
        self.vector_width = self.matrix.shape[1]
