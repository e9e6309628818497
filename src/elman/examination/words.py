"""The words of the data: how many there are, which are met once, and which only validation has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from elman.examination.examples import Check, Example, View
from elman.examination.findings import Cases, Finding, Json, counted, graded, note, share, some_of
from elman.text.scripts import is_mixed

ONCE = 0.05  # share of the tokens that are words met once, from which on it is said


class Words(Check):
    """The tokens of one role, as they are written."""

    def __init__(self, view: View, role: str) -> None:
        self.view, self.role = view, role
        self.train, self.unknown, self.dev_tokens = Counter[str](), Counter[str](), 0
        self.examples = 0
        self.mixed = Cases()

    def see(self, example: Example, *, dev: bool) -> None:
        tokens = example.tokens[self.role]
        if dev:
            self.dev_tokens += len(tokens)
            self.unknown.update(token for token in tokens if token not in self.train)
            return
        self.examples += 1
        for token in tokens:
            if not token.isascii() and token not in self.train and is_mixed(token):
                self.mixed.add(example.record, said=token)
        self.train.update(tokens)

    @property
    def once(self) -> int:
        return sum(count == 1 for count in self.train.values())

    @property
    def single(self) -> bool:
        """Are nearly all texts one word? That is told elsewhere."""
        return self.view.by_words(self.role) and self.train.total() < 1.2 * self.examples

    def findings(self) -> Iterator[Finding]:
        if self.mixed.count:
            yield note(
                "mixed-scripts",
                f"{counted(self.mixed.count, 'word')} with Latin beside Greek or Cyrillic letters, "
                "which look alike and are other letters to a model.",
                "Look whether they were typed so by mistake, and write them in one script.",
                self.mixed,
            )
        yield from self._unknown()
        running = not self.view.paired and self.view.label is None and not self.single
        if running and self.once > ONCE * self.train.total() and self.view.by_words(self.role):
            part = share(self.once, self.train.total())
            yield note(
                "once-only",
                f"{part} of the tokens are words that occur once, of which a model learns nothing.",
                f"Learn pieces of words: --set {self.view.unit_key(self.role)}=bpe.",
                self.once,
            )

    def _unknown(self) -> Iterator[Finding]:
        count, words = self.unknown.total(), self.view.by_words(self.role)
        part = count / max(1, self.dev_tokens)
        if self.single or part < (0.2 if words else 0.01):
            return
        lowered = {token.lower() for token in self.train}
        cased = sum(count for token, count in self.unknown.items() if token.lower() in lowered)
        key = self.view.unit_key(self.role)
        remedy = f"Learn pieces of words: --set {key}=bpe."
        if self.view.decided:
            pieces = "" if self.view.listed else f"Learn pieces of words: --set {key}=bpe; or give"
            remedy = f"{pieces or 'Give'} vectors of more words: --set text.vectors=FILE."
        if not words:
            remedy = "Give training data that have these characters."
        elif 2 * cased > count:
            remedy = f"Most are known in another case: --set {key.rpartition('.')[0]}.lowercase=true."
        thing = "word" if words else "character"
        unknown = [token for token, _ in self.unknown.most_common()]
        yield graded(
            part > 0.35,
            "unknown-words",
            f"{share(count, self.dev_tokens)} of the {thing}s of the validation "
            f"{self.view.noun(self.role)}s are none of training: {some_of(unknown)}.",
            remedy,
            count,
        )

    def as_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {"types": len(self.train), "once": self.once}
        if self.dev_tokens:
            found["unknown"] = round(self.unknown.total() / self.dev_tokens, 4)
        return found
