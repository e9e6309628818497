"""Row A5: the alignment as a picture, as a page and as numbers, whatever the script and its fonts."""

import errno
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from elman.errors import ArgumentError, FileError, FontNotice, ShapeError
from elman.inspection.alignment import Alignment
from elman.inspection.alignment_figure import MOST, alignment_figure
from elman.inspection.alignment_file import write_alignments
from elman.inspection.labels import LONGEST, visible

STARTS = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF"}


def aligned(source: list[str], output: list[str], title: str = "") -> Alignment:
    scores = np.random.default_rng(len(source)).random((len(output), len(source))) ** 4
    return Alignment(source, output, scores / scores.sum(axis=1, keepdims=True), title)


def house(title: str = "das Haus") -> Alignment:
    return Alignment(
        ["das", "Haus"], ["the", "house", "</s>"], np.array([[0.9, 0.1], [0, 1], [0.5, 0.5]]), title
    )


def labels(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_the_picture_holds_every_token_and_weight_A5() -> None:
    figure = alignment_figure([house()])
    axes = figure.axes[0]
    assert {"das", "Haus", "the", "house", "</s>", "das Haus"} <= set(labels(figure))
    mesh = axes.collections[0]
    assert np.asarray(mesh.get_array()).reshape(3, 2).tolist() == house().weights.tolist()
    assert (mesh.norm.vmin, mesh.norm.vmax) == (0, 1)
    places = {text.get_text(): text.get_position() for text in axes.texts}
    assert places["das"][0] < places["Haus"][0], "the source runs along the top"
    assert places["das"][1] < 0
    assert places["the"][1] < places["house"][1] < places["</s>"][1], "the output runs down the side"
    assert axes.yaxis_inverted()


@pytest.mark.parametrize("ending", STARTS)
def test_pictures_are_written_by_their_ending_A5(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"house{ending.upper()}"
    write_alignments(path, [house()])
    assert path.read_bytes().startswith(STARTS[ending])
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(("T", "S"), [(1, 1), (5, 5), (60, 60), (3, 90), (90, 3)])
def test_labels_are_readable_and_inside(T: int, S: int) -> None:
    words = ["a", "Wort", "Donaudampfschifffahrt"]
    one = aligned([words[j % 3] for j in range(S)], [words[i % 3] for i in range(T)], "A title " * 9)
    figure = alignment_figure([one])
    drawn = [text for axes in figure.axes for text in axes.texts if text.get_text()]
    assert min(text.get_fontsize() for text in drawn) >= 7
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [text.get_window_extent(renderer) for text in drawn]
    assert min(min(box.x0, box.y0) for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= figure.bbox.width
    assert max(box.y1 for box in boxes) <= figure.bbox.height
    side = [box for text, box in zip(drawn, boxes, strict=True) if text.get_va() == "center_baseline"]
    assert len(side) == T
    assert not any(above.overlaps(below) for above, below in pairwise(side))
    assert max(map(len, labels(figure)[:S])) == min(LONGEST, max(map(len, one.source)))


def test_short_source_labels_stand_and_long_ones_lie() -> None:
    def turned(*source: str) -> list[bool]:
        texts = alignment_figure([aligned([*source], ["x"])]).axes[0].texts
        return [text.get_rotation() == 90 for text in texts[: len(source)]]

    assert turned("a", "b") == [False, False]
    assert turned("Hausboot", "b", ".") == [True, True, False]


def test_panels_do_not_touch_and_eight_are_shown() -> None:
    figure = alignment_figure([house(f"panel {i}") for i in range(MOST + 4)])
    panels = figure.axes[:-1]  # the last is the scale
    assert len(panels) == MOST
    assert "the first 8 of 12" in " ".join(labels(figure))
    assert "panel 7" in labels(figure)
    assert "panel 8" not in labels(figure)
    boxes = [axes.get_tightbbox() for axes in panels]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert "the first" not in " ".join(labels(alignment_figure([house()] * MOST)))


def test_a_large_picture_stays_within_memory() -> None:
    width, height = alignment_figure([aligned(["word"] * 300, ["word"] * 300)]).bbox.size
    assert width * height <= 60.1e6
    assert max(alignment_figure([aligned(["word"] * 2000, ["word"])]).bbox.size) < 2**16, "matplotlib's limit"


def test_an_empty_output_has_a_panel(tmp_path: Path) -> None:
    nothing = Alignment(["das", "Haus"], [], np.zeros((0, 2)), "nothing said")
    for ending in (".png", ".html", ".json"):
        write_alignments(tmp_path / f"empty{ending}", [nothing])
    assert "Haus" in labels(alignment_figure([nothing]))


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" ", "␣"),
        ("\n", "↵"),
        ("New York", "New␣York"),
        ("\u00a0", "U+00A0"),
        ("\u202e", "U+202E"),
        ("\ud800", "U+D800"),
        ("\u0301", "◌\u0301"),
        ("\u0e31", "◌\u0e31"),
        ("\u200d", "U+200D"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("é", "é"),
        ("$x$", "$x$"),
        ("", ""),
    ],
)
def test_nothing_stays_invisible(token: str, shown: str) -> None:
    assert visible(token) == shown


def test_dollars_are_no_mathematics(tmp_path: Path) -> None:
    write_alignments(tmp_path / "money.png", [aligned(["$x^", "$\\frac$"], ["$_$"], "$a_b$ and $")])


def test_scripts_of_dejavu_are_drawn_without_a_notice(tmp_path: Path) -> None:
    words = ["Ελληνικά", "Русский", "Հայերեն", "ქართული", "שלום", "الاثنين", "٣", "مايو"]
    write_alignments(tmp_path / "words.png", [aligned(words, words, " ".join(words))])
    write_alignments(tmp_path / "letters.png", [aligned([*"الاثنين، ٣ مايو"], [*"ב במאי"])])


def test_characters_without_a_font_are_code_points_and_said_once(tmp_path: Path) -> None:
    one = aligned(["5", "月", "ก"], ["May"], "月 5")
    with pytest.warns(FontNotice, match=r"\(CJK, Thai\).*fonts-noto") as notices:
        figure = alignment_figure([one])
    assert len(notices) == 1
    assert {"U+6708", "U+0E01", "U+6708 5"} <= set(labels(figure))
    write_alignments(tmp_path / "again.png", [one])  # a second notice would be an error


def test_the_fewest_installed_fonts_are_used_even_new_ones(
    tmp_path: Path, install: Callable[[dict[str, str]], None]
) -> None:
    install({"Month Sans": "月", "Dates Serif": "年月日", "Thai Sans": "ก"})
    one = aligned([*"5年月日", "ก", "日a"], ["day"])
    figure = alignment_figure([one])
    families = {text.get_text(): text.get_fontfamily() for text in figure.axes[0].texts}
    assert set(families["年"]) == {"DejaVu Sans", "Dates Serif", "Thai Sans"}
    assert {label: families[label][0] for label in ("5", "月", "ก")} == {
        "5": "DejaVu Sans",
        "月": "Dates Serif",
        "ก": "Thai Sans",
    }
    write_alignments(tmp_path / "dates.png", [one])  # a glyph that is missing would be an error


def test_code_points_are_written_in_the_plain_font(install: Callable[[dict[str, str]], None]) -> None:
    """A font of signs may have digits of its own, wide ones."""
    install({"Signs": "🚩0123456789"})
    with pytest.warns(FontNotice, match="such as the packages fonts-symbola for symbols$"):
        figure = alignment_figure([aligned(["🚩🚩🦄"], ["a"])])
    families = {text.get_text(): text.get_fontfamily() for text in figure.axes[0].texts}
    assert families["🚩🚩 U+1F984"] == ["DejaVu Sans", "Signs"]


class Table(HTMLParser):
    """Collects what a reader of the page meets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.heads: dict[str, list[str]] = {"col": [], "row": []}
        self.cells: list[dict[str, str | None]] = []
        self.directions: list[str | None] = []
        self.links: list[str] = []
        self.scope = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.scope = (found.get("scope") or "") if tag == "th" else self.scope if tag == "span" else ""
        if tag == "td":
            self.cells.append(found)
        if tag == "span":
            self.directions.append(found.get("dir"))
        self.links += [name for name in found if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if self.scope and data.strip():
            self.heads[self.scope].append(data)


def test_the_page_is_a_table_with_headers_and_weights_A5(tmp_path: Path) -> None:
    path = tmp_path / "house.html"
    write_alignments(path, [house("a <b> & c")])
    text = path.read_text(encoding="utf-8")
    table = Table(text)
    assert table.heads == {"col": ["output ╲ source", "das", "Haus"], "row": ["the", "house", "</s>"]}
    assert [cell["title"] for cell in table.cells] == ["0.900", "0.100", "0.000", "1.000", "0.500", "0.500"]
    assert table.cells[0]["style"] == "--w:0.90"
    assert set(table.directions) == {"auto"}
    assert "a &lt;b&gt; &amp; c" in text
    assert not table.links
    assert not re.search(r"https?:|url\(|@import", text), "the page needs nothing else"


def test_the_page_shows_all_and_long_tokens_whole(tmp_path: Path) -> None:
    token = "Rindfleischetikettierungsgesetz"
    write_alignments(tmp_path / "all.html", [aligned([token], ["x"])] * (MOST + 3))
    text = (tmp_path / "all.html").read_text(encoding="utf-8")
    assert text.count("<table") == MOST + 3
    assert f'title="{token}"' in text
    assert f">{token[: LONGEST - 1]}…<" in text


def test_the_numbers_come_back_A5(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    third = Alignment(["\ud800", "日"], ["x"], np.array([[1 / 3, 2 / 3]], dtype=np.float32), "t")
    write_alignments(path, [house(), third, *[house()] * MOST])
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["format"] == 1
    assert len(found["alignments"]) == MOST + 2
    assert found["alignments"][0]["weights"] == [[0.9, 0.1], [0.0, 1.0], [0.5, 0.5]]
    assert found["alignments"][1] == {
        "source": ["\ud800", "日"],
        "output": ["x"],
        "weights": [[0.333333, 0.666667]],
        "title": "t",
    }


def test_a_page_and_numbers_do_without_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np; from pathlib import Path\n"
        "import elman.predictor\n"
        "from elman.inspection.alignment import Alignment\n"
        "from elman.inspection.alignment_file import write_alignments\n"
        "for name in ('a.html', 'a.json'):\n"
        "    write_alignments(Path(name), [Alignment(['a'], ['b'], np.ones((1, 1)))])\n"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


def test_wrong_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"house\.gif.*\.html, \.json, \.pdf, \.png, \.svg"):
        write_alignments(tmp_path / "house.gif", [house()])
    with pytest.raises(ArgumentError, match="alignments is empty"):
        write_alignments(tmp_path / "house.png", [])
    with pytest.raises(ShapeError, match=r"weights has shape \(1, 2\).*need \(2, 1\)"):
        Alignment(["a"], ["b", "c"], np.array([[0.5, 0.5]]))
    for row in ([0.5, 0.1], [1.5, -0.5], [float("nan"), 1.0]):
        with pytest.raises(ArgumentError, match="weights: row 1"):
            Alignment(["a", "b"], ["c", "d"], np.array([[1, 0], row]))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("ending", [".png", ".html", ".json"])
def test_a_folder_that_is_not_there(ending: str, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        write_alignments(tmp_path / "nowhere" / f"house{ending}", [house()])


def test_a_full_disk_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "house.png"
    write_alignments(path, [house()])
    before = path.read_bytes()

    def fill_up(self: Figure, name: Path, format: str) -> None:
        name.write_bytes(before[:100])
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Figure, "savefig", fill_up)
    with pytest.raises(FileError, match="no space left"):
        write_alignments(path, [house()])
    assert path.read_bytes() == before
