"""Any token, label, name or figure on a page is text there, and nothing of the page itself."""

from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from fuzzing import Entry, fuzz, text

from elman.config.toml import toml_value
from elman.inspection.alignment import Alignment
from elman.inspection.alignment_page import alignment_page
from elman.inspection.labels import shortened, visible
from elman.presentation.card import write_card
from elman.presentation.report import write_report
from elman.presentation.wording import printable
from fake_run import CONFIG, fake_events, fake_run

HOSTILE = "<>&\"'/=ab-! \n\t`|\\{}%;:()[]#\u202e"
WORDS = (
    "<script>alert(1)</script>",
    "</style>",
    "<img src=x onerror=y>",
    "--><b>",
    "]]>",
    "&lt;b&gt;",
    "</title>",
)


def hostile(random: Random) -> str:
    return random.choice(WORDS) if random.random() < 0.3 else text(random, HOSTILE, 40)


class Page(HTMLParser):
    """Elements with their attributes' names, in order, and the texts in them."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, ...]] = []
        self.texts: list[str] = []
        self.titles: list[str | None] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attributes)))
        self.titles.append(dict(attributes).get("title"))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data!r}")


def tokens(random: Random) -> list[str]:
    return [hostile(random) for _ in range(random.randint(0, 3))]


def check_alignment(case: tuple[list[str], list[str], str], folder: Path) -> None:
    """The elements are those of a harmless page, and every token can be read on it."""
    source, output, title = case
    weights = np.full((len(output), len(source)), 1 / max(1, len(source)))
    found = Page(alignment_page([Alignment(source, output, weights, title)]))
    harmless = Page(alignment_page([Alignment(["a"] * len(source), ["a"] * len(output), weights, "a")]))
    plain = [
        (tag, *(name for name in names if name not in ("title", "class"))) for tag, *names in found.elements
    ]
    assert [one[0] for one in plain] == [one[0] for one in harmless.elements]
    assert {name for one in found.elements for name in one[1:]} <= {
        *(name for one in harmless.elements for name in one[1:]),
        *("title", "class"),
    }
    for token in (*source, *output):
        short = shortened(visible(token))
        assert not short or short in found.texts
        assert short == visible(token) or visible(token) in found.titles


def run(random: Random) -> dict[str, str]:
    return {
        name: hostile(random)
        for name in ("sample", "figure", "metric", "cell", "train", "repair", "reason", "task")
    }


def report(names: dict[str, str], folder: Path) -> tuple[Page, str]:
    names = {name: value.encode("utf-8", "replace").decode() for name, value in names.items()}
    events = [*fake_events(10, 5, 10, metric=names["metric"] or "loss")]
    events[-2] = {names["figure"]: 1.5, names["metric"]: 0.5} | events[-2] | {"samples": [names["sample"]]}
    events[-1] |= {"reason": names["reason"]}
    config = CONFIG.replace('"lstm"', toml_value(names["cell"])).replace('"tag"', toml_value(names["task"]))
    data: Any = {"train": {"path": names["train"], "repairs": {names["repair"]: 2}}}
    made = fake_run(folder / "run", events, config=config, data=data)
    return Page(write_report(made).read_text(encoding="utf-8")), write_card(made).read_text(encoding="utf-8")


def check_report(names: dict[str, str], folder: Path) -> None:
    found, card = report(names, folder)
    harmless, _ = report(
        dict.fromkeys(names, "b") | {"metric": names["metric"], "figure": names["figure"]}, folder
    )
    assert found.elements == harmless.elements
    assert {tag for tag, *_ in found.elements}.isdisjoint({"script", "img", "a", "link", "iframe"})
    sample = printable(names["sample"].encode("utf-8", "replace").decode())
    assert not sample or sample in found.texts
    assert "<" not in card


PAGES = [
    Entry(
        "alignments", lambda random: (tokens(random), tokens(random), hostile(random)), check_alignment, 200
    ),
    Entry("report and card", run, check_report, 30),
]


@pytest.mark.parametrize("entry", PAGES, ids=lambda entry: entry.name)
def test_any_text_is_only_text_on_a_page(entry: Entry, tmp_path: Path) -> None:
    fuzz(entry, tmp_path)
