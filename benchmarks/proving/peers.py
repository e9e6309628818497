"""What a user would do instead: linear models, naive Bayes, frequent tags, a CRF, memory."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from proving.sets import Example

PEERS = {
    "classify": ("words", "letters", "bayes"),
    "tag": ("frequent", "crf"),
    "seq2seq": ("copy", "memory"),
    "lm": ("ngram",),
}


def answers(peer: str, train: Sequence[Example], asked: Sequence[Any]) -> list[Any]:
    """What a peer that learned from examples says."""
    if peer in PEERS["classify"]:
        return by_scikit_learn(peer, train, asked)
    if peer == "frequent":
        return by_frequency(train, asked)
    if peer == "crf":
        return by_crf(train, asked)
    return list(asked) if peer == "copy" else by_memory(train, asked)


def by_scikit_learn(kind: str, train: Sequence[Example], asked: Sequence[str]) -> list[str]:
    from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    if kind == "words":
        model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=300))
    elif kind == "letters":
        letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 4), sublinear_tf=True)
        model = make_pipeline(letters, LogisticRegression(max_iter=300))
    else:
        model = make_pipeline(CountVectorizer(), MultinomialNB())
    try:
        model.fit([text for text, _ in train], [label for _, label in train])
    except ValueError:  # no word, or one label
        return [""] * len(asked)
    return list(model.predict(asked))


def by_frequency(train: Sequence[Example], asked: Sequence[Sequence[str]]) -> list[list[str]]:
    """The most frequent tag of each word, and of all words for one that is new."""
    counts: dict[str, Counter[str]] = {}
    every = Counter[str]()
    for words, tags in train:
        every.update(tags)
        for word, tag in zip(words, tags, strict=True):
            counts.setdefault(word, Counter())[tag] += 1
    usual = {word: own.most_common(1)[0][0] for word, own in counts.items()}
    common = every.most_common(1)[0][0]
    return [[usual.get(word, common) for word in words] for words in asked]


def by_crf(train: Sequence[Example], asked: Sequence[Sequence[str]]) -> list[list[str]]:
    """A linear chain over the usual features, by L-BFGS with c1 0.1 and c2 0.01."""
    from tempfile import NamedTemporaryFile

    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    for words, tags in train:
        trainer.append(features(words), tags)
    trainer.set_params({"c1": 0.1, "c2": 0.01, "max_iterations": 100, "feature.possible_transitions": True})
    with NamedTemporaryFile(suffix=".crf") as file:
        trainer.train(file.name)
        tagger = pycrfsuite.Tagger()
        tagger.open(file.name)
        return [tagger.tag(features(words)) for words in asked]


def features(words: Sequence[str]) -> list[list[str]]:
    """Word, small letters, beginnings and endings, shape, and the neighbours."""
    rows = []
    for place, word in enumerate(words):
        low = word.lower()
        row = ["bias", f"w={word}", f"l={low}", f"shape={shape(word)}", f"digit={word.isdigit()}"]
        row += [f"{end}{n}={part}" for n in (1, 2, 3, 4) for end, part in (("p", low[:n]), ("s", low[-n:]))]
        for step in (-2, -1, 1, 2):
            if 0 <= place + step < len(words):
                near = words[place + step]
                row += [f"{step}l={near.lower()}", f"{step}shape={shape(near)}"]
            else:
                row.append(f"{step}edge")
        rows.append(row)
    return rows


def shape(word: str) -> str:
    """``McX-2`` is ``XxX-d``: letters by their case, digits, signs; equal ones in a row are one."""
    kinds = (
        "X" if one.isupper() else "x" if one.isalpha() else "d" if one.isdigit() else one for one in word
    )
    found = ""
    for kind in kinds:
        found += kind if not found.endswith(kind) else ""
    return found


def by_memory(train: Sequence[Example], asked: Sequence[str]) -> list[str]:
    """The most frequent target of the same source; else the change of the longest ending that was seen."""
    known: dict[str, Counter[str]] = {}
    changes: dict[str, Counter[str]] = {}
    for source, target in train:
        known.setdefault(source, Counter())[target] += 1
        same = next((n for n, (a, b) in enumerate(zip(source, target, strict=False)) if a != b), None)
        same = min(len(source), len(target)) if same is None else same
        for more in range(min(same, 3) + 1):  # and with letters before it, which stay
            place = same - more
            changes.setdefault(source[place:], Counter())[target[place:]] += 1
    said = []
    for source in asked:
        if source in known:
            said.append(known[source].most_common(1)[0][0])
            continue
        ending = next((source[n:] for n in range(len(source) + 1) if source[n:] in changes), "")
        change = changes[ending].most_common(1)[0][0] if ending in changes else ""
        said.append(source[: len(source) - len(ending)] + change)
    return said
