"""Agreement over long distances: "the flights the airline was cancelling were full"."""

from random import Random

from elman.corpora.base import ProbedCorpus, ProbeItem

SINGULARS = (
    *("airline", "author", "bridge", "captain", "doctor", "driver", "farmer", "flight"),
    *("garden", "letter", "museum", "pilot", "river", "teacher", "ticket", "train"),
)
NOUNS = tuple((noun, f"{noun}s") for noun in SINGULARS)
VERBS = (("was", "were"), ("is", "are"))
DOING = ("cancelling", "delaying", "describing", "following", "watching", "missing", "painting", "visiting")
HOW = ("", "again", "very slowly", "again and again", "once and for all", "as often as ever before")
PREPOSITIONS = ("near", "behind", "beside", "above", "without", "from")
ADJECTIVES = ("full", "late", "old", "small", "quiet", "famous", "strange", "ready")


class Agreement(ProbedCorpus):
    """Sentences in which a verb agrees in number with a subject that stands up to 40 words before it.

    Up to four phrases come in between, side by side or inside each other: "near the old river",
    "that was watching the pilots", "the airline was cancelling again". Nothing but the subject tells
    the number of the last verb: any noun does anything to any other, so that meaning gives no hint.
    The attractors of a probe are the nouns of the other number.

    >>> from itertools import islice
    >>> for example in islice(Agreement().examples("train"), 2, 4):
    ...     print(example["text"])
    the ticket was full
    the trains near the strange train that was watching once and for all the famous letter are old
    """

    summary = "a grammar of number agreement across relative clauses and prepositional phrases; with a probe"

    largest = 4  # phrases between the subject and its verb

    def question(self, random: Random, parts: int) -> tuple[ProbeItem, str]:
        """A sentence up to its last verb: its right form against the other one."""
        plural = random.randrange(2)
        numbers: list[int] = []
        behind = _phrases(random, parts, plural, numbers)
        prefix = " ".join(["the", random.choice(NOUNS)[plural], *behind])
        verb = random.choice(VERBS)
        attractors = sum(number != plural for number in numbers)
        item = ProbeItem(prefix, verb[plural], verb[1 - plural], len(behind), attractors)
        return item, f"{prefix} {item.right} {random.choice(ADJECTIVES)}"


def _phrases(random: Random, count: int, plural: int, numbers: list[int]) -> list[str]:
    """Phrases that hang on a noun of that number; the numbers of the nouns in them are noted."""
    words: list[str] = []
    while count:
        inside = random.randrange(count)  # so many of them hang on the noun of this one
        words += _phrase(random, inside, plural, numbers)
        count -= 1 + inside
    return words


def _phrase(random: Random, inside: int, plural: int, numbers: list[int]) -> list[str]:
    number = random.randrange(2)
    numbers.append(number)
    adjectives = random.sample(ADJECTIVES, random.randrange(3))
    noun = ["the", *adjectives, random.choice(NOUNS)[number], *_phrases(random, inside, number, numbers)]
    doing = [random.choice(DOING), *random.choice(HOW).split()]
    return random.choice(
        (
            [random.choice(PREPOSITIONS), *noun],
            ["that", random.choice(VERBS)[plural], *doing, *noun],
            [*noun, random.choice(VERBS)[number], *doing],
        )
    )
