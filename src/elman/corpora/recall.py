"""Recall over long distances: "she tried to print her tickets … she finally printed her ___"."""

from random import Random

from elman.corpora.base import ProbedCorpus, ProbeItem

KINDS = {
    ("print", "printed"): ("tickets", "letters", "photos", "maps"),
    ("wash", "washed"): ("shirts", "socks", "coats", "scarves"),
    ("cook", "cooked"): ("beans", "eggs", "noodles", "carrots"),
    ("feed", "fed"): ("rabbits", "ducks", "horses", "parrots"),
}
TRIED = ("tried", "hoped", "wanted")
WHO = (("she", "her"), ("he", "his"))
PEOPLE = ("neighbour", "sister", "brother", "uncle", "teacher", "doctor")
DID = ("laughed", "waited", "slept", "called", "sang", "complained")
WHEN = ("again", "twice", "at noon", "in the morning", "for an hour", "until late")
THINGS = ("weather", "printer", "kitchen", "river", "road", "music")
HOW = ("cold", "slow", "loud", "empty", "strange", "fine")


class Recall(ProbedCorpus):
    """Little stories: someone tries something with a thing, time passes, and it is done with that thing.

    The last verb tells the kind, one of four; which of the four things of that kind it is, only the
    first mention tells, up to 45 words before. Nothing in between speaks for another thing.

    >>> item = min(Recall().probe(seed=1, items=9), key=lambda item: item.distance)
    >>> print(item.prefix, item.right)
    her doctor laughed at noon . she hoped to wash her shirts . she finally washed her shirts
    """

    summary = "stories whose last word was named near their beginning; with a probe"

    largest = 6  # sentences between the two

    def question(self, random: Random, parts: int) -> tuple[ProbeItem, str]:
        """A story up to its last word: the thing against another of its kind."""
        (verb, done), kind = random.choice(list(KINDS.items()))
        right, wrong = random.sample(kind, 2)
        who, whose = random.choice(WHO)
        begin = [*_sentence(random, whose), who, random.choice(TRIED), "to", verb, whose, right]
        between = ["."]
        for _ in range(parts):
            between += _sentence(random, whose)
        between += [who, "finally", done, whose]
        prefix = " ".join(begin + between)
        return ProbeItem(prefix, right, wrong, len(between), attractors=0), f"{prefix} {right}"


def _sentence(random: Random, whose: str) -> list[str]:
    sentence = random.choice(
        (
            f"the {random.choice(THINGS)} was {random.choice(HOW)} .",
            f"{whose} {random.choice(PEOPLE)} {random.choice(DID)} {random.choice(WHEN)} .",
        )
    )
    return sentence.split()
