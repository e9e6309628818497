"""Row R10 as a picture: lines, labels and what they say; and the page that shows it."""

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure

from elman.errors import ArgumentError, FontNotice
from elman.inspection.figures import STYLES, curve_figure, describe, gradient_figure
from elman.inspection.gradients import GradientReach, compare

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gradients.md"


def make_reach(network: str, rate: float, steps: int = 40, B: int = 5) -> GradientReach:
    distance = torch.arange(steps - 1, -1, -1).expand(B, -1)
    norm = torch.tensor(rate).double() ** distance * torch.linspace(0.8, 1.25, B).double()[:, None]
    return GradientReach(network, norm, 2 * norm, norm / 2, distance, torch.full((B,), steps - 1))


def words(figure: Figure) -> str:
    return " | ".join(text.get_text() for text in [*figure.texts, *figure.axes[0].texts])


def inside(figure: Figure) -> bool:
    """Whether all text lies within the picture."""
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in [*figure.texts, *figure.axes[0].texts]]
    return all(box.x0 >= 0 and box.x1 <= figure.bbox.width and 0 <= box.y0 <= box.y1 for box in boxes)


def test_gradient_figure_R10(tmp_path: Path) -> None:
    results = compare(("elman", "lstm", "gru"), 8, 16, T=40, B=4)
    figure = gradient_figure(results)
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines if line.get_label() in results] == list(results)
    assert len(axes.collections) == 3, "a band for every network"
    assert axes.get_yscale() == "log"
    assert axes.get_legend() is None
    assert "steps back" in axes.get_xlabel()
    assert "gradient" in axes.get_ylabel()
    assert all(name in words(figure) for name in results)
    assert describe(results) in words(figure)
    assert inside(figure)
    lines = {line.get_label(): line for line in axes.lines}
    curve = results["LSTM"].curve().numpy()
    drawn = lines["LSTM"].get_ydata()
    assert drawn == pytest.approx(curve[: len(drawn)])
    figure.savefig(tmp_path / "gradients.png")
    picture = (tmp_path / "gradients.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(picture[16:20], "big") == 1600
    assert int.from_bytes(picture[20:24], "big") == 900


@pytest.mark.parametrize("norm", ["spectral", "frobenius", "loss"])
@pytest.mark.parametrize("rates", [(0.3, 0.31, 0.32), (1.3, 0.9, 1.0), (1.0, 1.0, 1.0), (0.0, 0.0, 0.5)])
def test_every_kind_of_curve_is_drawn_R10(norm: str, rates: tuple[float, ...]) -> None:
    names = ["Elman", "LSTM", "A network with quite a long name"]
    results = {name: make_reach(name, rate) for name, rate in zip(names, rates, strict=True)}
    figure = gradient_figure(results, norm=norm, furthest=30)
    assert figure.axes[0].get_xlim() == (0, 30)
    assert inside(figure)


def test_one_row_one_step_and_many_networks_R10() -> None:
    assert inside(gradient_figure({"LSTM": make_reach("LSTM", 0.9, steps=1, B=1)}))
    many = {f"network {i}": make_reach("", 1 - i / 100) for i in range(9)}
    assert len({line.get_label() for line in gradient_figure(many).axes[0].lines} & set(many)) == 9
    assert gradient_figure({"x": make_reach("x", 0.9, B=1)}, title="Mine").texts[0].get_text() == "Mine"


def test_title_states_the_finding_R10() -> None:
    fading = {"Elman": make_reach("Elman", 0.5), "GRU": make_reach("GRU", 0.8)}
    assert describe(fading) == "1 % of the gradient is left after 7 steps (Elman) and 21 (GRU)"
    assert describe({**fading, "LSTM": make_reach("LSTM", 0.99)}) == (
        "1 % of the gradient is left after 7 steps (Elman), 21 (GRU) and more than 39 (LSTM)"
    )
    steep = {
        "Elman": make_reach("Elman", 2.0),
        "LSTM": make_reach("LSTM", 1.02),
        "GRU": make_reach("GRU", 1e9),
    }
    assert describe(steep) == (
        "The gradient explodes: Elman to 10^12 times its size within 39 steps and "
        "GRU beyond the range of numbers within 35 steps"
    )
    assert describe({"LSTM": make_reach("LSTM", 1.0)}) == "How far back does the gradient reach?"


def test_styles_differ_without_colour_R10() -> None:
    assert len({str(style.dashes) for style in STYLES}) == len(STYLES)
    first = gradient_figure({"LSTM": make_reach("LSTM", 0.9)}).axes[0].lines
    second = gradient_figure({n: make_reach(n, 0.9) for n in ("GRU", "LSTM")}).axes[0].lines
    colours = [{line.get_label(): line.get_color() for line in lines}["LSTM"] for lines in (first, second)]
    assert colours[0] == colours[1], "a network looks the same in every picture"


def test_curve_figure(tmp_path: Path) -> None:
    curves = {"Elman": [1.0, 0.5, 0.11], "LSTM": [1.0, 1.0, math.nan], "GRU": [1.0, 0.99, 0.98]}
    figure = curve_figure([1, 10, 80], curves, chance=0.1)
    (axes,) = figure.axes
    assert {line.get_label() for line in axes.lines} >= set(curves)
    assert "guessing: 10 %" in words(figure)
    assert axes.get_xlabel() == "how many steps back"
    assert inside(figure)
    figure.savefig(tmp_path / "curve.png")
    assert inside(curve_figure([3], {"Elman": [0.5]}))


def test_what_explodes_does_not_hide_the_others_R10() -> None:
    """A line is drawn from step t on, however far it rises."""
    results = {"up": make_reach("up", 8.0, steps=60), "down": make_reach("down", 0.8, steps=60)}
    figure = gradient_figure(results)
    bottom, top = figure.axes[0].get_ylim()
    assert bottom == pytest.approx(1e-6)
    assert top > 8.0**59
    assert inside(figure)
    assert figure.axes[0].get_xlim() == (0, 59)
    steady = gradient_figure({"steady": make_reach("steady", 1.0, B=1)}).axes[0]
    assert steady.get_ylim()[0] < 0.8, "not on the axis itself"


@pytest.mark.parametrize("rate", [1e7, 1e9])
def test_gradients_past_all_numbers_leave_through_the_top_R10(rate: float, tmp_path: Path) -> None:
    """The last ones are 1e273, which ticks do not reach, and infinite."""
    reach = make_reach("up", rate)
    figure = gradient_figure({"up": reach, "LSTM": make_reach("LSTM", 0.9)})
    (line,) = (line for line in figure.axes[0].lines if line.get_label() == "up")
    assert (line.get_ydata()[30:] > figure.axes[0].get_ylim()[1]).all()
    assert inside(figure)
    figure.savefig(tmp_path / "gradients.png")


def test_a_label_is_no_mathematics(tmp_path: Path) -> None:
    label = r"runs/$\q$"
    curve_figure([1, 2], {label: [1.0, 0.5]}).savefig(tmp_path / "curve.png")
    figure = gradient_figure({label: make_reach(label, 0.5)})
    figure.savefig(tmp_path / "gradient.png")
    assert label in words(figure)
    assert r"$\alpha$" in words(gradient_figure({"x": make_reach("x", 0.5)}, title=r"$\alpha$"))


def test_texts_in_any_script_have_the_fonts_of_alignments(
    tmp_path: Path, install: Callable[[dict[str, str]], None]
) -> None:
    install({"Dates Sans": "年月日", "Thai Sans": "ก"})
    figure = curve_figure(
        [1, 2], {"日": [1.0, 0.5], "LSTM": [1.0, 1.0]}, title="年月日\n日 a", x_label="ก", y_label="right"
    )
    axes = figure.axes[0]
    texts = [*figure.texts, *axes.texts, axes.xaxis.label, axes.yaxis.label]
    assert {text.get_text(): text.get_fontfamily()[0] for text in texts} == {
        "年月日\n日 a": "Dates Sans",
        "日": "Dates Sans",
        "LSTM": "sans-serif",
        "ก": "Thai Sans",
        "right": "sans-serif",
    }
    assert "日" in {line.get_label() for line in axes.lines}
    figure.savefig(tmp_path / "curve.png")  # a glyph that is missing would be an error
    figure = gradient_figure({"ก": make_reach("ก", 0.5)})
    assert [text.get_fontfamily()[0] for text in figure.axes[0].texts] == ["Thai Sans"]
    figure.savefig(tmp_path / "gradient.png")


def test_characters_without_a_font_are_code_points_and_said_once(tmp_path: Path) -> None:
    with pytest.warns(FontNotice, match=r"\(CJK, symbols\).*fonts-noto") as notices:
        figure = curve_figure([1, 2], {"月\udcff": [1.0, 0.5]}, title="月 5")
    assert [Path(notice.filename).name for notice in notices] == ["test_figures.py"]
    assert words(figure) == "U+6708 5 | U+6708 U+DCFF"
    figure.savefig(tmp_path / "curve.png")
    with pytest.warns(FontNotice, match=r"\(Thai\)") as notices:
        figure = gradient_figure({"ก": make_reach("ก", 0.5)})
    assert [Path(notice.filename).name for notice in notices] == ["test_figures.py"]
    assert words(figure).endswith("7 steps ( U+0E01 ) | U+0E01")
    gradient_figure({"ก": make_reach("ก", 0.5)}).savefig(tmp_path / "again.png")  # a second is an error


def test_a_font_of_ones_own_stays() -> None:
    with rc_context({"font.family": "DejaVu Serif"}):
        figure = curve_figure([1, 2], {"LSTM": [1.0, 0.5]}, title="Mine  «ça»")
    assert words(figure) == "Mine  «ça» | LSTM"
    assert {text.get_fontname() for text in [*figure.texts, *figure.axes[0].texts]} == {"DejaVu Serif"}
    assert {text.get_fontweight() for text in [*figure.texts, *figure.axes[0].texts]} == {"bold"}


def test_bad_figures_are_errors() -> None:
    with pytest.raises(ArgumentError, match="at least one network"):
        gradient_figure({})
    with pytest.raises(ArgumentError, match="no gradient to draw"):
        gradient_figure({"x": dataclasses.replace(make_reach("x", 0.9), spectral=torch.zeros(5, 40))})
    with pytest.raises(ArgumentError, match="divide per cents by 100"):
        curve_figure([1, 2], {"LSTM": [100.0, 98.0]})
    with pytest.raises(ArgumentError, match="not 2 shares"):
        curve_figure([1, 2], {"LSTM": [1.0]})
    with pytest.raises(ArgumentError, match="increasing"):
        curve_figure([2, 1], {"LSTM": [1.0, 1.0]})
    with pytest.raises(ArgumentError, match="chance"):
        curve_figure([1], {"LSTM": [1.0]}, chance=10)


def test_the_page_runs_R10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert (tmp_path / "docs" / "pictures" / "gradients.png").stat().st_size > 10_000
